"""Rows to messages: (key, value, partition)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.connectors.kafka.latest import LatestByKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from penstock.connectors.base import SourceContext, TableInfo
    from penstock.connectors.kafka.rows import Part
    from penstock.options import OptionSet
    from penstock.types import Batch

#: librdkafka's number for "chosen by the key, or any partition".
ANY_PARTITION = -1


Headers = list[tuple[str, str | bytes | None]]
#: (key, value), or (key, value, partition, timestamp, headers). Value None: the key's row is deleted; partition −1: the
#: client chooses; timestamp in ms since the epoch, 0: the time of sending. A plain tuple, because there is one for each
#: row, and the short one where it says all.
OutMessage = tuple[bytes | None, bytes | None] | tuple[bytes | None, bytes | None, int, int, Headers | None]


class Pairs:
    """Messages that are a key and a value, without a tuple for each."""

    def __init__(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> None:
        self._keys, self._values = keys, values

    def __iter__(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        return zip(self._keys, self._values, strict=True)


def size_of(messages: Iterable[OutMessage]) -> int:
    """Bytes of keys and values."""
    return sum(len(message[0] or b"") + len(message[1] or b"") for message in messages)


class MessageEncoder:
    """Encodes rows as messages. Call ``open`` with the topic's number of partitions before the first
    batch."""

    def __init__(
        self,
        table: TableInfo,
        option_set: OptionSet,
        parts: Callable[[Sequence[int]], tuple[Part | None, Part]],
    ) -> None:
        self._table = table
        self._parts = parts
        self._partitioner = option_set.read(table.options).get("sink.partitioner", "default")

    def buffer(self, read: Mapping[str, Any], emit: Callable[[list[OutMessage]], None]) -> LatestByKey | None:
        """What holds messages back so that only the newest of a key is written, if the options say so."""
        rows, interval_ms = read.get("sink.buffer-flush.max-rows"), read.get("sink.buffer-flush.interval")
        return LatestByKey(rows, interval_ms, emit) if rows and interval_ms else None

    async def open(self, ctx: SourceContext, partitions: int) -> None:
        """Make the encoders, for a topic with ``partitions`` partitions."""
        self._metadata = {name: len(ctx.schema) + i for i, name in enumerate(ctx.metadata)}
        keys = ctx.pushed.get("keys", ())
        self._key, self._value = self._parts(keys)
        if self._key is not None:
            self._key.check(written=True)
        self._key_encoder = None if self._key is None else self._key.encoder()
        self._value_encoder = self._value.encoder()
        for encoder in (self._key_encoder, self._value_encoder):
            if encoder is not None:
                await encoder.open()
        self._partitions = partitions
        self._next = ctx.subtask_index

    def encode(self, batch: Batch) -> list[OutMessage]:
        """One message for each row; rows that a policy rejects are left out."""
        return list(self.messages(batch))

    def messages(self, batch: Batch) -> Pairs | list[OutMessage]:
        """The same, to be read once or more."""
        keys: Sequence[bytes | None] = [None] * len(batch)
        if self._key is not None and self._key_encoder is not None:
            keys = self._key_encoder.encode(batch.select(self._key.columns).with_kinds(None))
        signs = batch.signs()
        values: Sequence[bytes | None]
        if self._value.format.changelog:
            # The encoded values contain the kinds of changes.
            values = self._value_encoder.encode(batch.select(self._value.columns))
            return self._messages(batch, keys, values)
        rows = batch.select(self._value.columns).with_kinds(None)
        if signs is None or bool((signs > 0).all()):
            values = self._value_encoder.encode(rows)
        else:
            kept = iter(self._value_encoder.encode(rows.filter(signs > 0)))
            values = [next(kept) if sign > 0 else None for sign in signs.tolist()]
        return self._messages(batch, keys, values)

    def _messages(
        self, batch: Batch, keys: Sequence[bytes | None], values: Sequence[bytes | None]
    ) -> Pairs | list[OutMessage]:
        if not self._metadata and self._partitioner not in ("fixed", "round-robin"):
            return Pairs(keys, values)
        partitions = self._partitions_of(len(keys))
        return list(zip(keys, values, partitions, self._times(batch), self._headers(batch), strict=True))

    def _times(self, batch: Batch) -> list[int]:
        at = self._metadata.get("timestamp")
        if at is None:
            return [0] * len(batch)
        return [0 if us is None else us // 1000 for us in batch.columns[at].storage_list()]

    def _headers(self, batch: Batch) -> list[Headers | None]:
        at = self._metadata.get("headers")
        return [None] * len(batch) if at is None else batch.columns[at].to_pylist()

    def _partitions_of(self, count: int) -> list[int]:
        match self._partitioner:
            case "fixed":
                return [self._next % self._partitions] * count
            case "round-robin":
                first, self._next = self._next, (self._next + count) % self._partitions
                return ((np.arange(count) + first) % self._partitions).tolist()
        return [ANY_PARTITION] * count
