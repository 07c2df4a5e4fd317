"""The node of a side output's rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from penstock.plan.columns import Mapping_, renamed, same_columns
from penstock.plan.lineage import bounded, opaque
from penstock.plan.node import Node, Unary
from penstock.plan.operator_graph import OperatorInput
from penstock.plan.properties import Properties
from penstock.plan.soundness import Unsound
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from penstock.plan.lineage import Lineage, Relation
    from penstock.plan.properties import Analysis
    from penstock.plan.pruning import Pruner
    from penstock.plan.translation import Translator


class SideOutput(Unary, frozen=True, kw_only=True, tag="side-output"):
    """The rows that ``input`` (a node with side outputs) sends to ``tag``."""

    input: Node
    tag: str
    schema: Schema

    def demands(self, need: set[int]) -> list[tuple[Node, set[int]]]:
        source = self.input.side_input()
        if source is not None:
            return [(self.input, set()), (source, set(need))]
        return [(self.input, set(range(len(self.input.schema))))]

    def pruned(self, pruner: Pruner, need: set[int]) -> tuple[Node, Mapping_]:
        child, _ = pruner.run(self.input)
        source = self.input.side_input()
        if source is None:
            return msgspec.structs.replace(self, input=child), same_columns(len(self.schema))
        inner, at = pruner.run(source)
        schema = renamed(inner.schema.fields, self.schema, at)
        return msgspec.structs.replace(self, input=child, schema=schema), at

    def properties(self, analysis: Analysis) -> Properties:
        source = self.input.side_input()
        if source is not None:
            return replace(analysis.of(source), updating=False)
        return Properties(bounded=analysis.of(self.input).bounded)

    def asks_before(self, wanted: bool) -> bool:
        return wanted

    def relation(self, lineage: Lineage) -> Relation:
        below = lineage.of(self.input)
        atom = bounded(f"output {self.tag} of {below.rows}")
        return opaque(below.tables, atom, tuple(f"{atom}.{c}" for c in self.schema.names))

    def explained(self) -> str:
        return f"SideOutput({self.tag})"

    def check(self) -> None:
        tags = self.input.side_tags()
        if tags is not None and self.tag not in tags:
            raise Unsound(f"side outputs of the input: {tags}", self.tag)

    def translate(self, translator: Translator) -> OperatorInput:
        return OperatorInput(translator.visit(self.input).source, None, self.tag)
