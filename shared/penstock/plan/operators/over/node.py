"""The node of functions with OVER."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from penstock.functions.expr import AggregateCall, Expr, input_refs
from penstock.functions.registry import is_deterministic
from penstock.jobgraph import specs as s
from penstock.jobgraph.specs import SortKey
from penstock.plan import lineage as words
from penstock.plan import soundness
from penstock.plan.node import Node, Unary
from penstock.plan.words import calls_text, column_names, order_text
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.plan.lineage import Lineage, Meaning, Relation
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.properties import Analysis, Properties


class Over(Unary, frozen=True, kw_only=True, tag="over"):
    """Appends the results of functions with OVER to the input's columns. ``OverFinalSpec`` explains the
    frame."""

    physical: ClassVar[str] = "penstock.plan.operators.over.physical:over"
    reads: ClassVar[tuple[str, ...]] = ("partition", "order", "aggregates")

    input: Node
    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    aggregates: tuple[AggregateCall, ...]
    frame: Literal["rows", "range"] = "range"
    preceding: int | None = None
    following: int | None = 0
    schema: Schema

    def keeps_rows(self) -> bool:
        return True

    def properties(self, analysis: Analysis) -> Properties:
        """A job of final rows computes the results when the rows that are taken back have gone."""
        inner = analysis.of(self.input)
        return replace(inner, updating=inner.updating and not analysis.final)

    def carries(self) -> tuple[tuple[Node, dict[int, int] | None], ...]:
        return ((self.input, None),)

    def gives_nothing(self, empty: Sequence[bool]) -> bool:
        return empty[0]

    def lowered(self, part: Expr) -> Expr | None:
        """Only conditions on the partition columns go below, because they leave out whole partitions."""
        columns = input_refs(part)
        fits = bool(columns) and columns <= set(self.partition) and is_deterministic(part)
        return part if fits else None

    def relation(self, lineage: Lineage) -> Relation:
        below = lineage.of(self.input)
        columns = below.columns
        partition = ", ".join(sorted(columns[p] for p in self.partition))
        order = words.order_words(self.order, columns)
        frame = words.bounded(f"({partition} order {order} {self.frame} {self.preceding} {self.following})")
        made = tuple(
            words.bounded(f"{words.call_words(c, columns)} over {frame} in {below.rows}")
            for c in self.aggregates
        )
        return words.Relation(below.tables, below.atoms, below.conditions, (*columns, *made))

    def meaning(self, op: PlannedOperator, lineage: Lineage) -> Meaning:
        spec = op.spec
        assert isinstance(spec, (s.OverSpec, s.OverFinalSpec))
        below = lineage.of(self.input)
        columns = below.columns
        row = words.typed(columns, self.input.schema.types)
        parts = words.stored_rows(below, row)
        parts["keys"] = words.listed(row, spec.partition)
        parts["order"] = words.order_words(spec.order, columns)
        parts["frame"] = f"{spec.frame} {spec.preceding} {getattr(spec, 'following', 0)}"
        parts["functions"] = words.calls_words(spec.aggregates, columns)
        if isinstance(spec, s.OverSpec) and (spec.lags or spec.read_at):
            lags = [
                f"LAG({row[a]}, {by}{'' if d is None else f', {row[d]}'})"
                + (" ignore nulls" if i in spec.skipping else "")
                for i, (a, by, d) in enumerate(spec.lags)
            ]
            parts["functions"] += "; " + ", ".join([*lags, *spec.read_at])
        return parts, {}

    def explained(self) -> str:
        names = self.input.schema
        # The default frame is not shown; functions without a frame have it as well.
        plain = (self.frame, self.preceding, self.following) == ("range", None, 0)
        frame = "" if plain else f", {self._frame_text()}"
        partition = f"partition=[{column_names(self.partition, names)}]"
        return (
            f"Over({partition}, {order_text(self.order, names)}{frame}{calls_text(self.aggregates, names)})"
        )

    def _frame_text(self) -> str:
        def bound(value: int | None, side: str, other: str) -> str:
            if value is None:
                return f"unbounded {side}"
            return "current row" if not value else f"{abs(value)} {side if value > 0 else other}"

        start = bound(self.preceding, "preceding", "following")
        end = bound(self.following, "following", "preceding")
        return f"{self.frame} {start} to {end}"

    def check(self) -> None:
        given = self.input.schema.types
        soundness.indices([*self.partition, *(k.index for k in self.order)], given)
        soundness.calls(self.aggregates, given)
        soundness.types(self.schema.types, [*given, *(c.type for c in self.aggregates)])
