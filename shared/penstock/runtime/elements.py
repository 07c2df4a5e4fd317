"""The elements of a channel besides batches. All are immutable and shared by reference.

Order on one channel: data, then the elements about that data. ``EndOfInput`` is the last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Union

from penstock.types.batch import Batch


@dataclass(frozen=True, slots=True)
class Watermark:
    """No row with an event time ≤ ``value`` (int64 µs) follows, except late ones."""

    value: int


@dataclass(frozen=True, slots=True)
class WatermarkStatus:
    """``idle``: this channel's watermark does not count until it is active again."""

    idle: bool


@dataclass(frozen=True, slots=True)
class Barrier:
    """Cuts the stream: everything before it belongs to checkpoint ``checkpoint_id``.

    ``timestamp_ms``: when the coordinator triggered it. ``kind``: as in ``TriggerCheckpoint`` (``stop`` and
    ``drain``: the sources end behind it). ``patience_ms``: for this long after the trigger it stays behind
    the data before it; then it overtakes that data, which is saved as in flight. None: it never overtakes.
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
        """The same barrier for the channels behind a task where it has overtaken: it overtakes at once."""
        return self if self.patience_ms in (0, None) else replace(self, patience_ms=0)


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """Nothing follows on this channel."""


Control = Union[Watermark, WatermarkStatus, Barrier, EndOfInput]
Element = Union[Batch, Control]

END_OF_INPUT = EndOfInput()
IDLE = WatermarkStatus(idle=True)
ACTIVE = WatermarkStatus(idle=False)

#: Credit that a control element costs, so that no element is free.
CONTROL_BYTES = 64
