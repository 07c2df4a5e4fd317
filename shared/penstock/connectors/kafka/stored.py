"""Received messages, and messages as dead letters hold them: all that a table may read, as JSON values and bytes."""

from __future__ import annotations

import base64
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confluent_kafka import Message


def _place(message: Message) -> tuple[str | None, int | None]:
    return message.topic(), message.partition()


def told_of(message: Message) -> dict[str, Any]:
    """What a dead letter holds of a message."""
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": list(message.timestamp()),
        "leader-epoch": message.leader_epoch(),
        "key": message.key(),
        "value": message.value(),
        "headers": [list(pair) for pair in message.headers() or []],
    }


def offset_of(message: Message) -> int:
    """The offset of a received message; only messages to be sent have none."""
    offset = message.offset()
    assert offset is not None
    return offset


#: A partition: topic and number.
Place = tuple[str, int]


def runs_of(messages: Sequence[Message]) -> list[tuple[Place, Sequence[Message]]]:
    """The messages and events of each partition, in order. The client gives many of a partition one behind another, so
    that a place is made for a stretch of them, not for each."""
    found: dict[Place, list[Message]] = {}
    for _, stretch in groupby(messages, _place):
        part = list(stretch)
        found.setdefault((str(part[0].topic()), part[0].partition() or 0), []).extend(part)
    return list(found.items())


class StoredMessage:
    """A message of a dead letter, with the methods of the client's messages. ``told``: as ``told_of`` gave it, through
    JSON, where bytes are base64."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self._told = told

    def topic(self) -> str:
        """Its topic."""
        return str(self._told["topic"])

    def partition(self) -> int:
        """Its partition."""
        return int(self._told["partition"])

    def offset(self) -> int:
        """Its offset in the partition."""
        return int(self._told["offset"])

    def timestamp(self) -> tuple[int, int]:
        """(type, ms since the epoch)."""
        kind, at_ms = self._told["timestamp"]
        return int(kind), int(at_ms)

    def leader_epoch(self) -> int | None:
        """The epoch of the partition's leader, if it is known."""
        found = self._told["leader-epoch"]
        return None if found is None else int(found)

    def key(self) -> bytes | None:
        """Its key."""
        return _bytes(self._told["key"])

    def value(self) -> bytes | None:
        """Its value."""
        return _bytes(self._told["value"])

    def headers(self) -> list[tuple[str, bytes | None]]:
        """Its headers, in order."""
        return [(name, _bytes(value)) for name, value in self._told["headers"]]


def _bytes(text: Any) -> bytes | None:
    return None if text is None else base64.b64decode(text)
