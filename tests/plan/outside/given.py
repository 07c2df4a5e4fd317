"""A plan node for an operator that the planner puts beside others, so that the conformance kit drives it alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.jobgraph.specs import OperatorSpec
from penstock.plan.lineage import opaque
from penstock.plan.node import Nary, Node
from penstock.plan.properties import Properties
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from penstock.plan.lineage import Lineage, Meaning, Relation
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.properties import Analysis
    from penstock.plan.translation import Translator


class Given(Nary, frozen=True, kw_only=True, tag="given"):
    """The operator of ``spec`` over ``inputs``, each of which is spread by the columns ``keys``."""

    inputs: tuple[Node, ...]
    spec: OperatorSpec
    schema: Schema
    keys: tuple[int, ...] | None = None
    updating: bool = False
    unique: tuple[int, ...] = ()

    def properties(self, analysis: Analysis) -> Properties:
        unique = (frozenset(self.unique),) if self.unique else ()
        return Properties(bounded=True, updating=self.updating or bool(self.unique), unique=unique)

    def in_order(self, key: frozenset[int], analysis: Analysis) -> bool:
        return set(self.unique) <= key

    def relation(self, lineage: Lineage) -> Relation:
        return opaque(frozenset({"given"}), "given", tuple(self.schema.names))

    def meaning(self, op: PlannedOperator, lineage: Lineage) -> Meaning:
        return {"rows": "given"}, {}

    def translate(self, translator: Translator) -> PlannedOperator:
        inputs = [translator.visit(child) for child in self.inputs]
        parallelism = translator.parallelism
        if self.keys is not None:
            keyed = [translator.keyed(one, self.keys) for one in inputs]
            inputs, parallelism = [one for one, _ in keyed], keyed[0][1]
        return translator.add(
            self, "given", "Given", self.spec, inputs, parallelism=parallelism, keeps="what it is given"
        )
