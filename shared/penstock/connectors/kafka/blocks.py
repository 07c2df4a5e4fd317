"""Messages of one partition as columns: no Python object for each, unless somebody asks for it.

A ``Block`` is a sequence of messages with the methods of the client's own, so that all slower ways take it as they take a
list of those; ``values_of``, ``keys_of`` and the like are the quick ways.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from penstock.formats.by_kernel import JoinedMessages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import KafkaError, Message

_LENGTH = struct.Struct("=i")


class Columns(NamedTuple):
    """What is known of the messages of a block. ``value``, ``key``, ``headers``: one behind another in one ``bytes``."""

    error: np.ndarray
    offset: np.ndarray
    time_ms: np.ndarray
    time_kind: np.ndarray
    leader_epoch: np.ndarray
    value: JoinedMessages
    key: JoinedMessages
    headers: JoinedMessages

    def at(self, rows: Any) -> Columns:
        """Some of them."""
        return Columns(*(column[rows] for column in self))


class Block(Sequence["Message"]):
    """Messages and events of one partition, in order."""

    def __init__(self, topic: str | None, partition: int, columns: Columns) -> None:
        self.topic, self.partition, self.columns = topic, partition, columns

    def __len__(self) -> int:
        return len(self.columns.offset)

    @overload
    def __getitem__(self, at: int) -> Message: ...
    @overload
    def __getitem__(self, at: slice) -> Block: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return self.rows(at)
        return BlockMessage(self, range(len(self))[at])

    def __iter__(self) -> Iterator[Any]:
        return (BlockMessage(self, i) for i in range(len(self)))

    def rows(self, wanted: Any) -> Block:
        """Some of them. ``wanted``: a slice, their numbers, or which of all."""
        return Block(self.topic, self.partition, self.columns.at(wanted))


class BlockMessage:
    """One message of a block, with the methods of the client's messages."""

    __slots__ = ("_at", "_block")

    def __init__(self, block: Block, at: int) -> None:
        self._block, self._at = block, at

    def topic(self) -> str | None:
        """Its topic; None: an error that concerns none."""
        return self._block.topic

    def partition(self) -> int:
        """Its partition."""
        return self._block.partition

    def offset(self) -> int:
        """Its offset in the partition."""
        return int(self._block.columns.offset[self._at])

    def timestamp(self) -> tuple[int, int]:
        """(type, ms since the epoch)."""
        columns = self._block.columns
        return int(columns.time_kind[self._at]), int(columns.time_ms[self._at])

    def leader_epoch(self) -> int | None:
        """The epoch of the partition's leader, if it is known."""
        found = int(self._block.columns.leader_epoch[self._at])
        return None if found < 0 else found

    def value(self) -> bytes | None:
        """Its value; an event's text."""
        return self._block.columns.value.optional(self._at)

    def key(self) -> bytes | None:
        """Its key."""
        return self._block.columns.key.optional(self._at)

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """Its headers, in order; None: it has none."""
        data = self._block.columns.headers[self._at]
        parts: list[bytes | None] = []
        at = 0
        while at < len(data):
            (length,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size
            parts.append(None if length < 0 else data[at : at + length])
            at += max(length, 0)
        pairs = zip(parts[::2], parts[1::2], strict=True)
        return [((name or b"").decode(), value) for name, value in pairs] or None

    def error(self) -> KafkaError | None:
        """What an event says; None: it is a message."""
        code = int(self._block.columns.error[self._at])
        if not code:
            return None
        from confluent_kafka import KafkaError

        text = self.value()
        return KafkaError(code) if text is None else KafkaError(code, text.decode(errors="replace"))


def has_events(run: Sequence[Message]) -> bool:
    """Whether some are no messages."""
    if isinstance(run, Block):
        return bool(run.columns.error.any())
    return any(message.error() is not None for message in run)


def only(run: Sequence[Message], rows: Sequence[int]) -> Sequence[Message]:
    """Those with these numbers."""
    return run.rows(np.array(rows, np.int64)) if isinstance(run, Block) else [run[i] for i in rows]


def before(run: Sequence[Message], end: int) -> Sequence[Message]:
    """Those with smaller offsets."""
    if isinstance(run, Block):
        return run.rows(run.columns.offset < end)
    return [message for message in run if (message.offset() or 0) < end]


def values_of(run: Sequence[Message]) -> Sequence[bytes | None]:
    """Their values. ``JoinedMessages``: none is absent or empty."""
    if isinstance(run, Block) and run.columns.value.all_filled:
        return run.columns.value
    return [message.value() for message in run]


def keys_of(run: Sequence[Message]) -> Sequence[bytes]:
    """Their keys, empty where there are none."""
    return run.columns.key if isinstance(run, Block) else [message.key() or b"" for message in run]


def times_of(run: Sequence[Message]) -> np.ndarray:
    """Their times, µs since the epoch."""
    if isinstance(run, Block):
        return run.columns.time_ms * 1000
    return np.array([message.timestamp()[1] for message in run], np.int64) * 1000


def offsets_of(run: Sequence[Message]) -> np.ndarray:
    """Their offsets."""
    return (
        run.columns.offset
        if isinstance(run, Block)
        else np.array([message.offset() for message in run], np.int64)
    )
