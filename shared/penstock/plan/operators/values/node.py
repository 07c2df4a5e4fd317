"""The node of rows that the plan itself holds."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from penstock.jobgraph.specs import CollectionSourceSpec, WatermarkSpec
from penstock.plan.lineage import Relation, values_words
from penstock.plan.node import Node
from penstock.plan.properties import Analysis, Properties
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.plan.columns import Mapping_
    from penstock.plan.lineage import Lineage, Meaning
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.pruning import Pruner
    from penstock.plan.translation import Translator
    from penstock.types.batch import Batch


def encoded(batch: Batch) -> str:
    """``Values.data`` of the rows of ``batch``."""
    arrow = batch.to_arrow()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, arrow.schema) as writer:
        writer.write_batch(arrow)
    return base64.b64encode(sink.getvalue()).decode()


class Values(Node, frozen=True, kw_only=True, tag="values"):
    """Literal rows; ``data`` is an Arrow IPC stream of the physical batch, base64."""

    schema: Schema
    data: str
    watermark: WatermarkSpec | None = None

    def pruned(self, pruner: Pruner, need: set[int]) -> tuple[Node, Mapping_]:
        return self, {i: i for i in range(len(self.schema))}

    def properties(self, analysis: Analysis) -> Properties:
        return Properties(bounded=True)

    def asks_before(self, wanted: bool) -> bool:
        return False

    def with_watermarks(self, change: Callable[[WatermarkSpec], WatermarkSpec]) -> Node:
        if self.watermark is None:
            return self
        return msgspec.structs.replace(self, watermark=change(self.watermark))

    def relation(self, lineage: Lineage) -> Relation:
        atom = values_words(self.data)
        columns = tuple(f"{atom}.{name}" for name in self.schema.names)
        return Relation(frozenset(("VALUES",)), (atom,), frozenset(), columns)

    def meaning(self, op: PlannedOperator, lineage: Lineage) -> Meaning:
        return {"reads": values_words(self.data)}, {}

    def explained(self) -> str:
        return f"Values({', '.join(self.schema.names)})"

    def translate(self, translator: Translator) -> PlannedOperator:
        spec = CollectionSourceSpec(data=self.data, watermark=self.watermark)
        return translator.add(self, "values", "Values", spec, [], parallelism=1, guarantee="exactly-once")
