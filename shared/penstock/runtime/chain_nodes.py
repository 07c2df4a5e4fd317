"""The operators of a chain, each with its inputs, outputs and watermark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.jobgraph.letters import LETTERS_TAG
from penstock.metrics import MetricGroup
from penstock.operators.drivers import SourceDriver
from penstock.operators.operator import MIN_WATERMARK, WatermarkMaker
from penstock.operators.watermarks import WatermarkValve

if TYPE_CHECKING:
    from penstock.jobgraph import OperatorNode
    from penstock.operators.letters import Letters
    from penstock.operators.operator import Operator
    from penstock.runtime.outputs import EdgeWriter


class ChainNode:
    """One operator in its chain.

    Here a *slot* is one producer of one input, not a process; slots are numbered over all inputs.
    ``outputs[tag]``: (edges, [(node, slot, input index)]), tag None = main output.
    """

    __slots__ = (
        "ended", "idle", "input_of_slot", "letters", "metrics", "node", "operator", "output_watermark", "outputs",
        "slots_left", "valve", "wake_ms",
    )  # fmt: skip

    def __init__(self, node: OperatorNode, operator: Operator) -> None:
        self.node = node
        self.operator = operator
        self.metrics = MetricGroup()
        self.input_of_slot = [i for i, producers in enumerate(node.inputs) for _ in producers]
        self.slots_left = [len(producers) for producers in node.inputs]
        self.valve = WatermarkValve(len(self.input_of_slot), waits_for_quiet=True)
        self.outputs: dict[str | None, tuple[list[EdgeWriter], list[tuple[ChainNode, int, int]]]] = {}
        self.output_watermark = MIN_WATERMARK
        self.ended = False
        #: Whether the operator has declared itself idle (only if ``makes_watermarks``).
        self.idle = False
        #: The earliest processing time (ms) at which the operator asked to be called, or None.
        self.wake_ms: int | None = None
        #: The records that the operator set aside, if its policy is dead-letter.
        self.letters: Letters | None = None

    @property
    def makes_watermarks(self) -> bool:
        """Whether the operator itself makes the watermark of its output, not its inputs."""
        return isinstance(self.operator, SourceDriver | WatermarkMaker)

    def send_letters(self) -> None:
        """Passes on what the operator set aside, to the table of dead letters."""
        batch = None if self.letters is None else self.letters.take()
        if batch is not None:
            for edge in self.outputs[LETTERS_TAG][0]:
                edge.write(batch)


class SourceNode(ChainNode):
    """A node whose operator is a source."""

    __slots__ = ()
    operator: SourceDriver


def chain_node(node: OperatorNode, operator: Operator) -> ChainNode:
    """The place of an operator in its chain."""
    return (SourceNode if isinstance(operator, SourceDriver) else ChainNode)(node, operator)
