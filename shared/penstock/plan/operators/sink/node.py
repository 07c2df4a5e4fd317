"""The node of rows that are written into a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from penstock.jobgraph import specs as s
from penstock.plan import lineage as words
from penstock.plan import soundness
from penstock.plan.columns import Mapping_
from penstock.plan.node import Node, Unary
from penstock.plan.tables import TableRef
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from penstock.plan.lineage import Lineage, Meaning, Relation
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.pruning import Pruner


class Sink(Unary, frozen=True, kw_only=True, tag="sink"):
    """Writes rows into a table. ``upsert_keys``: columns of the table's primary key. ``label``: the
    statement's label, given by the user; ``columns``: names of the rows' columns in the statement."""

    physical: ClassVar[str] = "penstock.plan.operators.sink.physical:sink"

    input: Node
    table: TableRef
    upsert_keys: tuple[int, ...] = ()
    name: str | None = None
    uid: str | None = None
    parallelism: int | None = None
    label: str | None = None
    columns: tuple[str, ...] = ()
    schema: Schema

    def demands(self, need: set[int]) -> list[tuple[Node, set[int]]]:
        return [(self.input, set(range(len(self.input.schema))))]

    def pruned(self, pruner: Pruner, need: set[int]) -> tuple[Node, Mapping_]:
        return pruner.whole(self)

    def asks_before(self, wanted: bool) -> bool:
        return wanted

    def relation(self, lineage: Lineage) -> Relation:
        return lineage.of(self.input)

    def meaning(self, op: PlannedOperator, lineage: Lineage) -> Meaning:
        if isinstance(op.spec, s.SinkSpec):
            return {"writes": self.table.place()}, {}
        assert isinstance(op.spec, (s.MaterializeSpec, s.FinalRowsSpec))
        below = lineage.of(self.input)
        row = words.typed(below.columns, self.input.schema.types)
        return {**words.stored_rows(below, row), "keys": words.listed(row, op.spec.keys)}, {}

    def explained(self) -> str:
        return f"Sink(table={self.name or self.table.name}, columns=[{', '.join(self.schema.names)}])"

    def statement_names(self) -> tuple[str, ...]:
        """The names of the statement: ``into t`` and ``into t (a, b)``, or its label alone. The first name
        still fits when the statement gets one more column. The second tells two statements into one table
        apart."""
        target = f"into {self.name or self.table.name}"
        if self.label:
            return (f"{target} [{self.label}]",)
        columns = self.columns or tuple(self.schema.names)
        return (target, f"{target} ({', '.join(columns)})")

    def check(self) -> None:
        own = self.schema.types
        soundness.indices(self.upsert_keys, own)
        soundness.types(self.table.schema.types, own)
        soundness.types(own, self.input.schema.types)
