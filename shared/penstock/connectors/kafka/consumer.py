"""Consumers whose messages are taken in runs of one partition.

Where the kernels are compiled (``penstock.native``) and the client library offers the functions of librdkafka, messages
come as blocks of columns (``BlockConsumer``); else as the Python client's objects (``ObjectConsumer``). Rows are the same.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from penstock.connectors.kafka import librdkafka
from penstock.connectors.kafka.blocks import Block, Columns
from penstock.connectors.kafka.stored import runs_of
from penstock.formats.by_kernel import JoinedMessages
from penstock.native import library
from penstock.native.columns import address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from confluent_kafka import KafkaError, Message, TopicPartition

    from penstock.connectors.kafka.stored import Place

    Run = tuple[Place, Sequence[Message]]

_VALUE, _KEY, _HEADERS = range(3)
_ASYNC = 1
_new_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
_new_bytes.restype, _new_bytes.argtypes = ctypes.py_object, (ctypes.c_char_p, ctypes.c_ssize_t)


class PartitionConsumer(Protocol):
    """What the source asks of a consumer. All raise KafkaException; none may be called after ``close``."""

    def take(self, most: int, timeout_s: float) -> list[Run]:
        """Up to ``most`` messages and events, in runs of one partition. Waits only while there are none."""

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Read these partitions, too, from the offsets given."""

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Read these no more."""

    def watermarks(self, place: TopicPartition, timeout_s: float | None) -> tuple[int, int]:
        """The first and the next offset of a partition; without a timeout as last heard of."""

    def commit_soon(self, offsets: list[TopicPartition]) -> None:
        """Commit these to the group, without waiting for an answer."""

    def close(self) -> None:
        """Leaves the group, and frees all."""


def partition_consumer(
    properties: Mapping[str, Any], on_error: Callable[[KafkaError], None]
) -> PartitionConsumer:
    """A new consumer. ``properties``: librdkafka's. ``on_error``: is called from within the methods."""
    kernels, functions = library(), librdkafka.functions()
    if kernels is None or functions is None:
        return ObjectConsumer(properties, on_error)
    return BlockConsumer(kernels, functions, properties, on_error)


class ObjectConsumer:
    """The Python client's consumer, with an object for each message."""

    def __init__(self, properties: Mapping[str, Any], on_error: Callable[[KafkaError], None]) -> None:
        import confluent_kafka

        self._client = confluent_kafka.Consumer({**properties, "error_cb": on_error})
        self.incremental_assign = self._client.incremental_assign
        self.incremental_unassign = self._client.incremental_unassign
        self.close = self._client.close

    def take(self, most: int, timeout_s: float) -> list[Run]:
        if not timeout_s:
            return runs_of(self._client.consume(most, timeout=0))
        first = self._client.poll(timeout_s)
        return [] if first is None else runs_of([first])

    def watermarks(self, place: TopicPartition, timeout_s: float | None) -> tuple[int, int]:
        if timeout_s is None:
            low, high = self._client.get_watermark_offsets(place, cached=True)
        else:
            low, high = self._client.get_watermark_offsets(place, timeout=timeout_s)
        return low, high

    def commit_soon(self, offsets: list[TopicPartition]) -> None:
        self._client.commit(offsets=offsets, asynchronous=True)


class BlockConsumer:
    """A consumer of librdkafka itself. One thread at a time may ``take``; the other methods may be called beside it."""

    def __init__(
        self,
        kernels: ctypes.CDLL,
        functions: ctypes.CDLL,
        properties: Mapping[str, Any],
        on_error: Callable[[KafkaError], None],
    ) -> None:
        self._kernels, self._functions = kernels, functions
        self._of_kernels = librdkafka.of_kernels(functions)
        self._on_error = librdkafka.ErrorCallback(
            lambda client, code, text, _: on_error(
                librdkafka.error_of(functions, client, code, (text or b"").decode(errors="replace"))
            )
        )
        client = librdkafka.consumer(functions, properties, self._on_error)
        # Errors come with the messages, by ``take``.
        functions.rd_kafka_poll_set_consumer(client)
        self._queue = functions.rd_kafka_queue_get_consumer(client)
        self._changed = threading.Condition()
        #: The client; None: closed. How many calls are under way in it.
        self._open: int | None = client
        self._calls = 0
        # A consumer that is dropped without ``close`` is freed, too, but not at the end of the process, which may be
        # within a call.
        self._free = weakref.finalize(self, _free, functions, client, self._queue, self._on_error)
        self._free.atexit = False

    @contextmanager
    def _client(self) -> Iterator[int]:
        """The client, which ``close`` in another thread does not free meanwhile."""
        with self._changed:
            if self._open is None:
                raise RuntimeError("the consumer is closed")
            client = self._open
            self._calls += 1
        try:
            yield client
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    def take(self, most: int, timeout_s: float) -> list[Run]:
        pointers = (ctypes.c_void_p * (1 if timeout_s else most))()
        with self._client():
            count = self._functions.rd_kafka_consume_batch_queue(
                self._queue, int(timeout_s * 1000), pointers, len(pointers)
            )
            if count < 0:
                librdkafka.check(self._functions, self._functions.rd_kafka_last_error())
            if count <= 0:
                return []
            try:
                return self._runs(pointers, count)
            finally:
                self._kernels.penstock_kafka_release(self._of_kernels, pointers, ctypes.c_int64(count))

    def _runs(self, pointers: Any, count: int) -> list[Run]:
        small, large = np.empty((4, count), np.int32), np.empty((6, count), np.int64)
        told = (ctypes.c_void_p * 10)(*(row.ctypes.data for part in (small, large) for row in part))
        self._kernels.penstock_kafka_tell(self._of_kernels, pointers, ctypes.c_int64(count), told)
        error, partition, time_kind, leader_epoch = small
        topic, offset, time_ms, value, key, headers = large
        found: dict[Place, list[np.ndarray]] = {}
        starts = np.flatnonzero((topic[1:] != topic[:-1]) | (partition[1:] != partition[:-1])) + 1
        for part in np.split(np.arange(count), starts):
            name = self._functions.rd_kafka_topic_name(int(topic[part[0]])) if topic[part[0]] else b""
            found.setdefault((name.decode(), int(partition[part[0]])), []).append(part)
        runs: list[Run] = []
        for place, parts in found.items():
            rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
            joined = [
                self._joined(pointers, rows, lengths[rows], part)
                for part, lengths in ((_VALUE, value), (_KEY, key), (_HEADERS, headers))
            ]
            columns = Columns(
                error[rows], offset[rows], time_ms[rows], time_kind[rows], leader_epoch[rows], *joined
            )
            runs.append((place, Block(place[0] or None, place[1], columns)))
        return runs

    def _joined(self, pointers: Any, rows: np.ndarray, lengths: np.ndarray, part: int) -> JoinedMessages:
        there = lengths >= 0
        lengths = np.maximum(lengths, 0)
        end = np.cumsum(lengths)
        data = _new_bytes(None, int(end[-1]))
        if data:
            # Nobody else has seen these bytes yet.
            self._kernels.penstock_kafka_copy(
                self._of_kernels,
                pointers,
                address(rows),
                ctypes.c_int64(len(rows)),
                ctypes.c_int32(part),
                data,
            )
        return JoinedMessages(data, end - lengths, end, there)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        with self._client() as client, self._list(partitions) as found:
            error = self._functions.rd_kafka_incremental_assign(client, found)
        librdkafka.check_error(self._functions, error)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        with self._client() as client, self._list(partitions) as found:
            error = self._functions.rd_kafka_incremental_unassign(client, found)
        librdkafka.check_error(self._functions, error)

    @contextmanager
    def _list(self, partitions: list[TopicPartition]) -> Iterator[int]:
        functions = self._functions
        made = functions.rd_kafka_topic_partition_list_new(len(partitions))
        try:
            for place in partitions:
                name = place.topic.encode()
                functions.rd_kafka_topic_partition_list_add(made, name, place.partition)
                code = functions.rd_kafka_topic_partition_list_set_offset(
                    made, name, place.partition, place.offset
                )
                librdkafka.check(functions, code)
            yield made
        finally:
            functions.rd_kafka_topic_partition_list_destroy(made)

    def watermarks(self, place: TopicPartition, timeout_s: float | None) -> tuple[int, int]:
        low, high = ctypes.c_int64(), ctypes.c_int64()
        with self._client() as client:
            given = (client, place.topic.encode(), place.partition, ctypes.byref(low), ctypes.byref(high))
            if timeout_s is None:
                code = self._functions.rd_kafka_get_watermark_offsets(*given)
            else:
                code = self._functions.rd_kafka_query_watermark_offsets(*given, int(timeout_s * 1000))
        librdkafka.check(self._functions, code)
        return low.value, high.value

    def commit_soon(self, offsets: list[TopicPartition]) -> None:
        with self._client() as client, self._list(offsets) as found:
            librdkafka.check(self._functions, self._functions.rd_kafka_commit(client, found, _ASYNC))

    def close(self) -> None:
        with self._changed:
            client, self._open = self._open, None
            if client is None:
                return
            self._changed.wait_for(lambda: not self._calls)
        try:
            librdkafka.check(self._functions, self._functions.rd_kafka_consumer_close(client))
        finally:
            self._free()


def _free(functions: ctypes.CDLL, client: int, queue: int, _on_error: object) -> None:
    """Frees a client. ``_on_error``: what it may call until then, which lives as long."""
    functions.rd_kafka_queue_destroy(queue)
    functions.rd_kafka_destroy_flags(client, librdkafka.NO_CONSUMER_CLOSE)
