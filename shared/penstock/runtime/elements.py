"""The elements of a channel besides batches. All are immutable and shared by reference.

On a channel rows come before the elements about these rows, and ``EndOfInput`` comes last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Union

from penstock.operators.idleness import Idleness
from penstock.types.batch import Batch


@dataclass(frozen=True, slots=True)
class Watermark:
    """No row with an event time ≤ ``value`` (int64 µs) follows, except late ones."""

    value: int


@dataclass(frozen=True, slots=True)
class WatermarkStatus:
    """``idle``: unless ACTIVE, this channel's watermark does not count until it is active again."""

    idle: Idleness


@dataclass(frozen=True, slots=True)
class Barrier:
    """Cuts the stream: everything before it belongs to checkpoint ``checkpoint_id``.

    ``timestamp_ms``: when the coordinator triggered the checkpoint. ``kind``: as in ``TriggerCheckpoint``
    (after a ``stop`` or ``drain`` barrier the sources end). ``patience_ms``: for this long after the trigger
    the barrier stays behind the data before it; then it overtakes that data, which is saved as in flight.
    None: the barrier never overtakes.
    """

    checkpoint_id: int
    timestamp_ms: int
    kind: str = "checkpoint"
    patience_ms: int | None = None

    @property
    def overtakes_at_ms(self) -> int | None:
        """The time (ms since the epoch) from which the barrier overtakes data; None: never."""
        return None if self.patience_ms is None else self.timestamp_ms + self.patience_ms

    def overtaking(self) -> Barrier:
        """The barrier for the outputs of a task in which it has overtaken: there it overtakes without
        patience."""
        return self if self.patience_ms in (0, None) else replace(self, patience_ms=0)


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """The end of a channel: no element follows."""


Control = Union[Watermark, WatermarkStatus, Barrier, EndOfInput]
Element = Union[Batch, Control]

END_OF_INPUT = EndOfInput()
IDLE = WatermarkStatus(Idleness.IDLE)
#: The element of each idleness.
STATUSES = {idleness: WatermarkStatus(idleness) for idleness in Idleness}

#: The credit that a control element costs. It is not zero, so that credit also bounds control elements.
CONTROL_BYTES = 64
