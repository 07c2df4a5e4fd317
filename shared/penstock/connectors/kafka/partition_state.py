"""How far a reader is in a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.connectors.base import Split
    from penstock.connectors.kafka.stored import Place


class PartitionState:
    """A split and its position. ``offset``: the offset of the next message to deliver."""

    def __init__(self, split: Split) -> None:
        self.split = split
        self.place: Place = (split.payload["topic"], split.payload["partition"])
        position = split.position or {}
        self.offset: int = position.get("offset", split.payload["start"])
        self.end: int | None = split.payload.get("end")
        self.done = self.end is not None and self.offset >= self.end
        #: Whether a message after ``end`` has come.
        self.passed_end = False
        #: The offset of the partition's end when the client reached it; None: messages have come since.
        self.end_seen: int | None = None
        #: ``asked``: the engine has asked whether the split has caught up; ``confirmed``: the broker has said
        #: that it has.
        self.asked = self.confirmed = False
