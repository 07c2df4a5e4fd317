"""The node of a watermark strategy in the middle of a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import msgspec

from penstock.jobgraph.specs import AssignWatermarksSpec, WatermarkSpec
from penstock.plan import soundness
from penstock.plan.node import Node, Unary
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.plan.lineage import Lineage, Relation
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.properties import Analysis, Properties
    from penstock.plan.translation import Translator


class AssignWatermarks(Unary, frozen=True, kw_only=True, tag="watermark"):
    """Makes watermarks from its rows; the watermarks of its input are dropped."""

    reads: ClassVar[tuple[str, ...]] = ("watermark",)

    input: Node
    watermark: WatermarkSpec
    timestamp_function: str | None = None
    generator: str | None = None
    schema: Schema

    def demands(self, need: set[int]) -> list[tuple[Node, set[int]]]:
        if self.timestamp_function is not None or self.generator is not None:
            # The user's function gets whole records, so it needs every column.
            return [(self.input, set(range(len(self.input.schema))))]
        return super().demands(need)

    def properties(self, analysis: Analysis) -> Properties:
        inner = analysis.of(self.input)
        at = self.watermark.rowtime
        return inner if at is None else replace(inner, lags={at: 0}, rowtimes=frozenset({at}))

    def asks_before(self, wanted: bool) -> bool:
        return wanted

    def in_order(self, key: frozenset[int], analysis: Analysis) -> bool:
        return analysis.in_order(self.input, key)

    def clock(self) -> str | None:
        return type(self).__name__

    def with_watermarks(self, change: Callable[[WatermarkSpec], WatermarkSpec]) -> Node:
        return msgspec.structs.replace(self, watermark=change(self.watermark))

    def relation(self, lineage: Lineage) -> Relation:
        return lineage.of(self.input)

    def check(self) -> None:
        soundness.watermark(self.watermark, self.schema.types)
        soundness.types(self.schema.types, self.input.schema.types)

    def translate(self, translator: Translator) -> PlannedOperator:
        spec = AssignWatermarksSpec(
            watermark=self.watermark, timestamp_function=self.timestamp_function, generator=self.generator
        )
        return translator.add(self, "watermark", "AssignWatermarks", spec, [translator.visit(self.input)])
