"""The queue of one channel at an input gate, and the events that input gates give to their task."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

from penstock.errors import InternalError
from penstock.runtime.elements import Barrier, Element, EndOfInput
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from penstock.operators.idleness import Idleness
    from penstock.runtime.credit import ReceiveWindow
    from penstock.runtime.gates import InputGates


@dataclass(frozen=True, slots=True)
class GateBatch:
    """Rows of a gate."""

    gate: int
    batch: Batch


@dataclass(frozen=True, slots=True)
class GateWatermark:
    """The watermark of a gate rose to ``value`` (µs)."""

    gate: int
    value: int


@dataclass(frozen=True, slots=True)
class GateStatus:
    """A gate became idle, quiet or active."""

    gate: int
    idle: Idleness


@dataclass(frozen=True, slots=True)
class GateEnded:
    """All channels of a gate have ended."""

    gate: int


@dataclass(frozen=True, slots=True)
class BarrierAligned:
    """Every channel that has not ended has delivered the barrier. ``alignment_ms``: the time since the first
    one did."""

    barrier: Barrier
    alignment_ms: float


GateEvent = Union[GateBatch, GateWatermark, GateStatus, GateEnded, BarrierAligned]


class InputChannel:
    """The receiving end of one channel. ``name`` (``producer → gate``) is for messages and logs."""

    __slots__ = (
        "_gates", "aligned", "ended", "gate", "index", "listed", "name", "overtakable", "queue", "window",
    )  # fmt: skip

    def __init__(self, gates: InputGates, gate: int, index: int, name: str) -> None:
        self._gates = gates
        self.gate = gate
        self.index = index
        self.name = name
        self.queue: deque[tuple[Element, int]] = deque()
        self.window: ReceiveWindow | None = None
        #: True if this channel has delivered a barrier that other channels have not: its elements wait.
        self.aligned = False
        self.ended = False
        #: True if the channel is in the gates' list of channels with queued elements.
        self.listed = False
        #: True if a barrier may overtake the queue, which is then saved and may be given to another subtask.
        self.overtakable = True

    def push(self, element: Element, nbytes: int) -> None:
        """Appends an element that cost the sender ``nbytes`` of credit."""
        if self.ended:
            raise InternalError(f"data after the end of channel {self.name}")
        self.queue.append((element, nbytes))
        gates = self._gates
        gates.bytes_in += nbytes
        if gates.recording is not None:
            gates.record(self, element, nbytes)
        if not self.listed and not self.aligned:
            gates.enlist(self)
        if isinstance(element, Barrier) and element.patience_ms is not None:
            gates.announce(element)
        # This comes last, because new credit may bring the next element before this call returns.
        if self.window is not None:
            self.window.received(nbytes)

    @property
    def end_queued(self) -> bool:
        """Whether the end of the channel has arrived and is still in the queue."""
        return bool(self.queue) and isinstance(self.queue[-1][0], EndOfInput)

    def _popped(self, nbytes: int) -> None:
        if self.window is not None:
            self.window.consumed(nbytes)
