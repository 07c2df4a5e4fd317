"""The node of a catalog table's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from penstock.functions.expr import Call, Expr, InputRef, Literal
from penstock.jobgraph.specs import WatermarkSpec
from penstock.plan import soundness
from penstock.plan.columns import Mapping_, kept_columns, referenced
from penstock.plan.lineage import Relation, bounded, expression
from penstock.plan.node import Node
from penstock.plan.properties import Properties, is_proctime
from penstock.plan.tables import TableRef
from penstock.types import logical as t
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.plan.lineage import Lineage, Meaning
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.properties import Analysis
    from penstock.plan.pruning import Pruner

replace = msgspec.structs.replace


class Scan(Node, frozen=True, kw_only=True, tag="scan"):
    """Reads a table. ``projection``: the columns of ``table.schema`` that are needed (None = all);
    ``pushed``: the predicates that the connector applies itself; ``uid``: given by the user."""

    physical: ClassVar[str] = "penstock.plan.operators.scan.physical:scan"

    table: TableRef
    schema: Schema
    projection: tuple[int, ...] | None = None
    pushed: dict[str, Any] = {}
    uid: str | None = None

    def columns(self) -> tuple[int, ...]:
        """The table's columns that are read."""
        return self.projection if self.projection is not None else tuple(range(len(self.table.schema)))

    def pruned(self, pruner: Pruner, need: set[int]) -> tuple[Node, Mapping_]:
        have = self.columns()
        kept = set(need)
        wanted = referenced(self.table.watermark)
        kept |= {i for i, column in enumerate(have) if column in wanted}
        columns = sorted(kept) or [self._narrowest()]
        schema = self.schema.select(columns)
        return replace(self, projection=tuple(have[c] for c in columns), schema=schema), kept_columns(columns)

    def _narrowest(self) -> int:
        """The column that is the cheapest to read, for a query that needs only the number of rows."""
        cheap = (t.BooleanType, *t.INTEGERS, t.DateType, *t.TIMESTAMPS, t.DoubleType)
        return next((i for i, type_ in enumerate(self.schema.types) if isinstance(type_, cheap)), 0)

    def properties(self, analysis: Analysis) -> Properties:
        table = self.table
        position = {column: i for i, column in enumerate(self.columns())}
        lags: dict[int, int] = {}
        if table.watermark is not None and table.watermark.rowtime in position:
            lags[position[table.watermark.rowtime]] = 0
        names = table.schema.names
        key = [names.index(name) for name in table.primary_key]
        unique = (frozenset(position[i] for i in key),) if key and all(i in position for i in key) else ()
        computed = table.computed or ()
        proctimes = frozenset(position[i] for i, e in enumerate(computed) if i in position and is_proctime(e))
        return Properties(
            bounded=table.bounded, lags=lags, rowtimes=frozenset(lags), proctimes=proctimes, unique=unique,
            updating=table.changelog != "append",
        )  # fmt: skip

    def unawaited(self) -> tuple[str, Sequence[Expr]]:
        return f"a computed column of table '{self.table.name}'", self.table.computed or ()

    def changes(self) -> str | None:
        return None if self.table.changelog == "append" else self.table.name

    def asks_before(self, wanted: bool) -> bool:
        return False

    def in_order(self, key: frozenset[int], analysis: Analysis) -> bool:
        return any(unique <= key for unique in analysis.of(self).unique)

    def clock(self) -> str | None:
        return None if self.table.watermark is None else f"watermarks of table '{self.table.name}'"

    def with_watermarks(self, change: Callable[[WatermarkSpec], WatermarkSpec]) -> Node:
        mark = self.table.watermark
        return self if mark is None else replace(self, table=replace(self.table, watermark=change(mark)))

    def relation(self, lineage: Lineage) -> Relation:
        table = self.table
        inputs = [f"{table.name}.{name}" for name in table.physical.names]
        inputs += [f"{table.name}.METADATA {m.key}" for m in table.metadata]
        # If the source applies ``column = constant`` itself, ``computed`` has the constant in place of the
        # column.
        computed = table.declared if table.declared is not None else table.computed
        everything = inputs if computed is None else [bounded(expression(e, inputs)) for e in computed]
        wanted = self.projection if self.projection is not None else range(len(everything))
        physical = table.physical
        conditions = frozenset(
            expression(
                Call(
                    "=",
                    (InputRef(i, physical.types[i]), Literal(value, physical.types[i])),
                    physical.types[i],
                ),
                inputs,
            )
            for i, value in ((physical.names.index(name), value) for name, value in self.pushed.items())
        )
        columns = tuple(everything[i] for i in wanted)
        return Relation(frozenset((table.name,)), (table.name,), conditions, columns)

    def meaning(self, op: PlannedOperator, lineage: Lineage) -> Meaning:
        return {"reads": self.table.place()}, {}

    def explained(self) -> str:
        what = [f"columns=[{', '.join(self.schema.names)}]"]
        if self.pushed:
            what.append("pushed=[" + ", ".join(f"{k} = {v}" for k, v in sorted(self.pushed.items())) + "]")
        if self.table.changelog != "append":
            what.append(f"changelog={self.table.changelog}")
        return f"Scan(table={self.table.name}, {', '.join(what)})"

    def pushed_words(self) -> str:
        parts = [f"{key} = {value}" for key, value in sorted(self.pushed.items())]
        if len(self.schema) < len(self.table.schema):
            parts.append("only " + ", ".join(self.schema.names))
        return f"pushed down into {self.table.name}: {'; '.join(parts)}" if parts else ""

    def check(self) -> None:
        table, columns = self.table, self.columns()
        soundness.indices(columns, table.schema.types)
        soundness.types(self.schema.types, [table.schema.types[c] for c in columns])
        mark = table.watermark
        wanted = {mark.rowtime} if mark is not None and mark.rowtime is not None else set()
        if not wanted <= set(columns):
            raise soundness.Unsound(
                f"the event-time column {wanted} among the columns that are read", str(columns)
            )
        if table.computed is not None:
            for expr in table.computed:
                soundness.within(expr, len(table.physical) + len(table.metadata))
            soundness.types(table.schema.types, [e.type for e in table.computed])
