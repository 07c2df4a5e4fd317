"""The node of the first rows of each partition."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec

from penstock.jobgraph.specs import SortKey
from penstock.plan import lineage as words
from penstock.plan import soundness
from penstock.plan.node import Node, Unary
from penstock.plan.operators.top_n.meaning import top_n_meaning
from penstock.plan.properties import Properties
from penstock.plan.words import column_names, order_text
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from penstock.plan.columns import Mapping_
    from penstock.plan.lineage import Lineage, Meaning, Relation
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.properties import Analysis
    from penstock.plan.pruning import Pruner


class TopN(Unary, frozen=True, kw_only=True, tag="top-n"):
    """The rows of each partition whose ROW_NUMBER, RANK or DENSE_RANK is between ``first`` and ``last``."""

    physical: ClassVar[str] = "penstock.plan.operators.top_n.physical:top_n"
    reads: ClassVar[tuple[str, ...]] = ("partition", "order", "window")

    input: Node
    partition: tuple[int, ...]
    order: tuple[SortKey, ...]
    first: int = 1
    last: int
    rank: Literal["row_number", "rank", "dense_rank"] = "row_number"
    rank_column: bool = False
    window: tuple[int, int] | None = None
    schema: Schema

    def keeps_rows(self) -> bool:
        return True

    def pruned(self, pruner: Pruner, need: set[int]) -> tuple[Node, Mapping_]:
        new, at = super().pruned(pruner, need)
        rank = len(self.input.schema)
        if not self.rank_column or rank in need:
            return new, at
        del at[rank]
        schema = new.schema.select(range(len(new.schema) - 1))
        return msgspec.structs.replace(new, rank_column=False, schema=schema), at

    def properties(self, analysis: Analysis) -> Properties:
        inner = analysis.of(self.input)
        place = self._place()
        unique = [key for key in inner.unique if place is None or not place <= key]
        if place is not None:
            unique.append(place)
        if self.window:
            return replace(inner, unique=tuple(unique))
        return Properties(
            bounded=inner.bounded, proctimes=inner.proctimes, updating=True, unique=tuple(unique)
        )

    def carries(self) -> tuple[tuple[Node, dict[int, int] | None], ...]:
        return ((self.input, None),)

    def _place(self) -> frozenset[int] | None:
        """The columns by which a new row replaces an old one. None: there is no such place, and a row that
        leaves is deleted."""
        if self.rank != "row_number":
            return None
        if self.first == self.last == 1:
            return frozenset(self.partition)
        return frozenset(self.partition) | {len(self.input.schema)} if self.rank_column else None

    def in_order(self, key: frozenset[int], analysis: Analysis) -> bool:
        place = self._place()
        if place is not None:
            return place <= key
        return set(self.partition) <= key and analysis.in_order(self.input, key)

    def relation(self, lineage: Lineage) -> Relation:
        below = lineage.of(self.input)
        columns = below.columns
        window = f" per {columns[self.window[0]]}" if self.window else ""
        partition = ", ".join(sorted(columns[p] for p in self.partition))
        atom = words.bounded(
            f"top({self.rank} {self.first} to {self.last} by {partition}{window} "
            f"order {words.order_words(self.order, columns)}) of {below.rows}"
        )
        rank = (f"{self.rank} in {atom}",) if self.rank_column else ()
        return words.opaque(below.tables, atom, (*columns, *rank))

    def meaning(self, op: PlannedOperator, lineage: Lineage) -> Meaning:
        below = lineage.of(self.input)
        return top_n_meaning(op.spec, below, words.typed(below.columns, self.input.schema.types)), {}

    def explained(self) -> str:
        names = self.input.schema
        rank = ", with rank" if self.rank_column else ""
        window = ", per window" if self.window else ""
        low = f"{self.first} <= " if self.first > 1 else ""
        partition = f"partition=[{column_names(self.partition, names)}]"
        order = order_text(self.order, names)
        return f"TopN({low}{self.rank} <= {self.last}, {partition}, {order}{rank}{window})"

    def check(self) -> None:
        given = self.input.schema.types
        named = [*self.partition, *(k.index for k in self.order), *(self.window or ())]
        soundness.indices(named, given)
        soundness.appended(self.schema.types, given, 1 if self.rank_column else 0)
