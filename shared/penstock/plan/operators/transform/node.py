"""The node of an operation of the DataStream API."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.jobgraph import specs as s
from penstock.jobgraph.graph import Hash, Partitioning
from penstock.jobgraph.specs import OperatorSpec
from penstock.plan import soundness
from penstock.plan.lineage import bounded, opaque, table_set, values_words
from penstock.plan.node import Nary, Node
from penstock.plan.operator_graph import OperatorInput
from penstock.plan.properties import Properties
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from penstock.plan.lineage import Lineage, Meaning, Relation
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.properties import Analysis
    from penstock.plan.translation import Translator

#: Fields of the spec that determine the meaning of its state. All others may change: functions are the
#: user's own, and ``api.restore_check`` compares the states that they declare.
_OF_STATE: dict[type, tuple[str, ...]] = {
    s.KeyedProcessSpec: ("kind",),
    s.KeyedWindowSpec: ("kind", "window", "event_time", "trigger"),
}


class Transform(Nary, frozen=True, kw_only=True, tag="transform"):
    """A DataStream operation, whose ``spec`` becomes the operator's unchanged. ``partitioning[i]``: the
    partitioning of input i (None: forward if possible, otherwise rebalance)."""

    inputs: tuple[Node, ...]
    spec: OperatorSpec
    name: str
    uid: str | None = None
    partitioning: tuple[Partitioning | None, ...] = ()
    parallelism: int | None = None
    slot_sharing_group: str | None = None
    chain: bool = True
    schema: Schema
    side_outputs: dict[str, Schema] = {}

    def properties(self, analysis: Analysis) -> Properties:
        if not self.inputs:
            spec = self.spec
            ends = isinstance(spec, s.FunctionSourceSpec) and spec.bounded
            return Properties(bounded=ends or isinstance(spec, s.CollectionSourceSpec))
        return Properties(bounded=all(analysis.of(child).bounded for child in self.inputs))

    def side_tags(self) -> list[str] | None:
        return list(self.side_outputs)

    def relation(self, lineage: Lineage) -> Relation:
        parts = [lineage.of(child) for child in self.inputs]
        tables: frozenset[str] = frozenset((self.name,))
        if parts:
            tables = frozenset().union(*(p.tables for p in parts))
        atom = bounded(f"{self.name}({'; '.join(p.rows for p in parts)})")
        return opaque(tables, atom, tuple(f"{self.name}.{c}" for c in self.schema.names))

    def role(self, op: PlannedOperator, lineage: Lineage) -> str:
        return f"{op.spec.__struct_config__.tag} '{self.name}' {table_set(lineage.of(self).tables)}"

    def only_partitions(self) -> bool:
        """Whether the node only sets the partitioning of its one input (``rebalance``, ``broadcast`` …)."""
        dealt = (
            isinstance(self.spec, s.UnionSpec)
            and len(self.inputs) == 1
            and self.partitioning[:1] not in ((), (None,))
        )
        return dealt and self.parallelism is None and self.uid is None

    def meaning(self, op: PlannedOperator, lineage: Lineage) -> Meaning:
        if isinstance(op.spec, s.CollectionSourceSpec):
            return {"reads": values_words(op.spec.data)}, {}
        if isinstance(self.spec, s.AsyncWaitSpec):
            return {"kind of rows": ", ".join(map(str, self.inputs[0].schema.types))}, {}
        fields = _OF_STATE.get(type(self.spec))
        if fields is None:
            return {}, {}
        parts = {
            name: msgspec.json.encode(getattr(self.spec, name), order="sorted").decode() for name in fields
        }
        keys = self.spec.keys  # type: ignore[union-attr]
        per_input = keys if keys and isinstance(keys[0], tuple) else (keys,)
        for i, (child, own) in enumerate(zip(self.inputs, per_input, strict=False)):
            parts[f"keys {i + 1}"] = ", ".join(str(child.schema.types[k]) for k in own)
        return parts, {}

    def layout(self, op: PlannedOperator, meaning: dict[str, str]) -> str:
        return "; ".join(words for part, words in meaning.items() if part.startswith(("keys", "kind")))

    def explained(self) -> str:
        return f"Transform({self.name})"

    def check(self) -> None:
        for child, way in zip(self.inputs, self.partitioning, strict=False):
            if isinstance(way, Hash):
                soundness.indices(way.keys, child.schema.types)

    def translate(self, translator: Translator) -> PlannedOperator:
        inputs = []
        parallelism = self.parallelism or translator.parallelism
        for i, child in enumerate(self.inputs):
            wanted: Partitioning | None = self.partitioning[i] if i < len(self.partitioning) else None
            if wanted is None and isinstance(child, Transform) and child.only_partitions():
                # The child only says how rows reach this step, so it becomes this step's edge. As an operator
                # of its own it would have a parallelism of its own.
                dealt: Transform = child
                child, wanted = dealt.inputs[0], dealt.partitioning[0]
            inp = translator.visit(child)
            if isinstance(wanted, Hash) and inp.tag is None and inp.source.hashed == wanted.keys:
                wanted = None if inp.source.parallelism == parallelism else wanted
            inputs.append(OperatorInput(inp.source, wanted, inp.tag))
        union = isinstance(self.spec, s.UnionSpec)
        alone = not self.inputs and isinstance(self.spec, (s.CollectionSourceSpec, s.FunctionSourceSpec))
        op = translator.add(
            self,
            "transform",
            self.name,
            self.spec,
            [inputs] if union else inputs,
            parallelism=1 if alone else parallelism,
            uid=self.uid,
            side_outputs=dict(self.side_outputs),
            keeps="records that wait for their answers" if isinstance(self.spec, s.AsyncWaitSpec) else "",
        )
        op.chain = self.chain
        if self.slot_sharing_group:
            op.slot_sharing_group = self.slot_sharing_group
        elif inputs:
            op.slot_sharing_group = inputs[0].source.slot_sharing_group
        return op
