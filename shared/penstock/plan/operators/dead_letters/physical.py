"""The operator that gathers the dead letters of all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.jobgraph import specs as s
from penstock.jobgraph.graph import Global
from penstock.jobgraph.letters import LETTERS_TAG, keeps_letters
from penstock.plan.operator_graph import OperatorInput

if TYPE_CHECKING:
    from penstock.plan.operator_graph import PlannedOperator
    from penstock.plan.operators.dead_letters.node import DeadLetters
    from penstock.plan.translation import Translator


def dead_letters(tr: Translator, node: DeadLetters) -> PlannedOperator:
    """The union of the side outputs of all operators that were translated before and set records aside."""
    keepers = [op for op in tr.operators if keeps_letters(op.spec)]
    for op in keepers:
        op.side_outputs = {**op.side_outputs, LETTERS_TAG: node.schema}
    inputs = [OperatorInput(op, Global(), LETTERS_TAG) for op in keepers]
    made = tr.add(node, "dead-letters", "Dead letters", s.UnionSpec(), [inputs], parallelism=1)
    # A sink passes its last letters on after all its rows, when nothing of its own chain runs any more.
    made.chain = False
    return made
