"""What flows on a channel beside batches. All are immutable and shared by reference.

Order on one channel: data, then what is said about it. ``EndOfInput`` is the last.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    """Cuts the stream: what is before it belongs to checkpoint ``checkpoint_id``.

    ``timestamp_ms``: when the coordinator triggered it. ``kind``: as in
    ``TriggerCheckpoint`` (``stop`` and ``drain``: the sources end behind it).
    """

    checkpoint_id: int
    timestamp_ms: int
    kind: str = "checkpoint"


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """Nothing follows on this channel."""


Control = Union[Watermark, WatermarkStatus, Barrier, EndOfInput]
Element = Union[Batch, Control]

END_OF_INPUT = EndOfInput()
IDLE = WatermarkStatus(idle=True)
ACTIVE = WatermarkStatus(idle=False)

#: What a control element costs in credit, so that nothing on a channel is free.
CONTROL_BYTES = 64
