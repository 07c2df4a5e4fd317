"""The node of LIMIT without an order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.jobgraph.specs import LimitSpec
from penstock.plan import soundness
from penstock.plan.final_rows import final_rows
from penstock.plan.lineage import opaque
from penstock.plan.node import Node, Unary
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.plan.lineage import Lineage, Meaning, Relation
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.properties import Analysis, Properties
    from penstock.plan.translation import Translator


class Limit(Unary, frozen=True, kw_only=True, tag="limit"):
    """Any ``limit`` rows after the first ``offset``."""

    input: Node
    offset: int = 0
    limit: int
    schema: Schema

    def properties(self, analysis: Analysis) -> Properties:
        inner = analysis.of(self.input)
        return replace(inner, updating=inner.updating and not analysis.final)

    def carries(self) -> tuple[tuple[Node, dict[int, int] | None], ...]:
        return ((self.input, None),)

    def gives_nothing(self, empty: Sequence[bool]) -> bool:
        return self.limit == 0 or empty[0]

    def in_order(self, key: frozenset[int], analysis: Analysis) -> bool:
        return analysis.in_order(self.input, key)

    def relation(self, lineage: Lineage) -> Relation:
        below = lineage.of(self.input)
        return opaque(below.tables, f"any({self.limit} offset {self.offset}) of {below.rows}", below.columns)

    def meaning(self, op: PlannedOperator, lineage: Lineage) -> Meaning:
        return {"input": lineage.of(self.input).rows}, {}

    def explained(self) -> str:
        return f"Limit({self.limit}" + (f", offset={self.offset})" if self.offset else ")")

    def check(self) -> None:
        soundness.types(self.schema.types, self.input.schema.types)

    def translate(self, translator: Translator) -> PlannedOperator:
        spec = LimitSpec(offset=self.offset, limit=self.limit)
        source = translator.single(final_rows(translator, self, self.input))
        return translator.add(
            self,
            "limit",
            f"Limit({self.limit})",
            spec,
            [source],
            parallelism=1,
            keeps="how many rows have passed",
        )
