"""The node of ORDER BY."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from penstock.jobgraph import specs as s
from penstock.jobgraph.specs import SortKey
from penstock.plan import lineage as words
from penstock.plan import soundness
from penstock.plan.node import Node, Unary
from penstock.plan.operators.top_n.meaning import top_n_meaning
from penstock.plan.properties import Properties
from penstock.plan.words import order_text
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.plan.lineage import Lineage, Meaning, Relation
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.properties import Analysis


class Sort(Unary, frozen=True, kw_only=True, tag="sort"):
    """Rows in ``order``, without the first ``offset``, and at most ``limit`` (None: all the rest)."""

    physical: ClassVar[str] = "penstock.plan.operators.sort.physical:sort"
    reads: ClassVar[tuple[str, ...]] = ("order",)

    input: Node
    order: tuple[SortKey, ...]
    offset: int = 0
    limit: int | None = None
    schema: Schema

    def keeps_rows(self) -> bool:
        return True

    def properties(self, analysis: Analysis) -> Properties:
        """With a limit the output updates, because new rows replace some of the first ones. It does not if
        the job emits its rows only after the end of all input, whatever the input does."""
        inner = analysis.of(self.input)
        if analysis.final:
            return replace(inner, updating=False)
        if self.limit is None:
            return inner
        return Properties(
            bounded=inner.bounded, proctimes=inner.proctimes, updating=True, unique=inner.unique
        )

    def carries(self) -> tuple[tuple[Node, dict[int, int] | None], ...]:
        return ((self.input, None),)

    def gives_nothing(self, empty: Sequence[bool]) -> bool:
        return self.limit == 0 or empty[0]

    def in_order(self, key: frozenset[int], analysis: Analysis) -> bool:
        if self.limit == 1 and not self.offset:
            return not key  # The one row replaces the one before it, whatever their keys are.
        return analysis.in_order(self.input, key)

    def relation(self, lineage: Lineage) -> Relation:
        below = lineage.of(self.input)
        if self.limit is None and not self.offset:
            return below
        order = words.order_words(self.order, below.columns)
        atom = f"sorted({order} limit {self.limit} offset {self.offset}) of {below.rows}"
        return words.opaque(below.tables, atom, below.columns)

    def meaning(self, op: PlannedOperator, lineage: Lineage) -> Meaning:
        below = lineage.of(self.input)
        row = words.typed(below.columns, self.input.schema.types)
        parts = words.stored_rows(below, row)
        match op.spec:
            case s.SortSpec(order=order):
                return {**parts, "order": words.order_words(order, below.columns)}, {}
            case s.TemporalSortSpec(time=time, order=order):
                words_ = ", ".join((row[time], words.order_words(order, below.columns)))
                return {**parts, "order": words_}, {}
        return top_n_meaning(op.spec, below, row), {}

    def explained(self) -> str:
        limit = f", limit={self.limit}" if self.limit is not None else ""
        offset = f", offset={self.offset}" if self.offset else ""
        return f"Sort({order_text(self.order, self.input.schema)}{offset}{limit})"

    def check(self) -> None:
        soundness.indices([k.index for k in self.order], self.schema.types)
        soundness.types(self.schema.types, self.input.schema.types)
