"""The node of the dead letters of a whole job."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from penstock.jobgraph.letters import LETTER_SCHEMA
from penstock.plan.lineage import Relation
from penstock.plan.node import Node
from penstock.plan.properties import Analysis, Properties
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from penstock.plan.columns import Mapping_
    from penstock.plan.lineage import Lineage
    from penstock.plan.pruning import Pruner


class DeadLetters(Node, frozen=True, kw_only=True, tag="dead-letters"):
    """The records that all operators of the job set aside. It is translated after every other sink."""

    physical: ClassVar[str] = "penstock.plan.operators.dead_letters.physical:dead_letters"

    schema: Schema = LETTER_SCHEMA
    bounded: bool = False

    def pruned(self, pruner: Pruner, need: set[int]) -> tuple[Node, Mapping_]:
        return self, {i: i for i in range(len(self.schema))}

    def properties(self, analysis: Analysis) -> Properties:
        return Properties(bounded=self.bounded)

    def asks_before(self, wanted: bool) -> bool:
        return False

    def relation(self, lineage: Lineage) -> Relation:
        columns = tuple(f"dead letters.{name}" for name in self.schema.names)
        return Relation(frozenset(("dead letters",)), ("dead letters",), frozenset(), columns)

    def explained(self) -> str:
        return f"DeadLetters({', '.join(self.schema.names)})"
