"""Partitioners: they choose the channel of each row of an edge.

``partition(batch)`` gives (channel index, rows) pairs; rows of one channel keep their order.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from penstock.columnar.hashing import hash_columns, key_groups, subtask_of_key_group
from penstock.columnar.python_values import records, redact
from penstock.errors import FunctionError, InternalError
from penstock.jobgraph import Broadcast, Custom, Forward, Global, Hash, Rebalance, Rescale

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.jobgraph import Partitioning
    from penstock.types.batch import Batch


class Partitioner(Protocol):
    """Distributes rows over the channels of an edge."""

    def partition(self, batch: Batch) -> Iterable[tuple[int, Batch]]:
        """The (channel index, rows) pairs of a batch."""


class ToOne:
    """Sends all rows to one channel: forward and global edges."""

    def partition(self, batch: Batch) -> Iterable[tuple[int, Batch]]:
        return ((0, batch),)


class ToAll:
    """Sends every row to every channel, by reference."""

    def __init__(self, channels: int) -> None:
        self._channels = channels

    def partition(self, batch: Batch) -> Iterable[tuple[int, Batch]]:
        return [(i, batch) for i in range(self._channels)]


class RoundRobin:
    """Sends whole batches to the channels in turn. ``start`` differs between producers, so that they spread out."""

    def __init__(self, channels: int, start: int) -> None:
        self._channels = channels
        self._next = start % channels

    def partition(self, batch: Batch) -> Iterable[tuple[int, Batch]]:
        channel = self._next
        self._next = (channel + 1) % self._channels
        return ((channel, batch),)


class ByKeyGroup:
    """Sends a row to the channel of its key group: one ``take`` per batch, then slices without a copy."""

    def __init__(self, keys: tuple[int, ...], channels: int, max_parallelism: int) -> None:
        self._keys = keys
        self._channels = channels
        self._max_parallelism = max_parallelism
        self._dtype = np.uint8 if channels <= 256 else np.uint16

    def partition(self, batch: Batch) -> Iterable[tuple[int, Batch]]:
        if self._channels == 1:
            return ((0, batch),)
        hashes = hash_columns([batch.columns[k] for k in self._keys])
        groups = key_groups(hashes, self._max_parallelism)
        targets = subtask_of_key_group(groups, self._channels, self._max_parallelism).astype(self._dtype)
        counts = np.bincount(targets, minlength=self._channels)
        used = np.flatnonzero(counts)
        if len(used) == 1:
            return ((int(used[0]), batch),)
        # A stable sort of small unsigned ints is a radix sort: linear.
        ordered = batch.take(np.argsort(targets, kind="stable"))
        ends = np.cumsum(counts)
        return [(i, ordered.slice(int(ends[i] - counts[i]), int(counts[i]))) for i in used.tolist()]


class ByFunction:
    """Sends a record to the channel that a user's function of (record, number of channels) returns.

    Raises FunctionError if the function fails, or names no channel.
    """

    def __init__(self, call: Callable[[Any, int], int], channels: int) -> None:
        self._call = call
        self._channels = channels

    def partition(self, batch: Batch) -> Iterable[tuple[int, Batch]]:
        rows = records(batch)
        targets = np.fromiter((self._channel(row) for row in rows), np.int64, len(rows))
        return [(i, batch.filter(targets == i)) for i in np.unique(targets).tolist()]

    def _channel(self, record: Any) -> int:
        try:
            found = self._call(record, self._channels)
        except Exception as err:
            raise FunctionError(
                f"the function of partition_custom raised {type(err).__name__}: {err}",
                got=f"record {redact(record)}",
                user_traceback="".join(traceback.format_exception(err)),
            ) from err
        if not isinstance(found, int) or not 0 <= found < self._channels:
            raise FunctionError(
                "the function of partition_custom names no subtask",
                expected=f"a whole number from 0 to {self._channels - 1}",
                got=f"{found!r} for record {redact(record)}",
            )
        return found


def make_partitioner(
    partitioning: Partitioning,
    *,
    subtask_index: int,
    channels: int,
    max_parallelism: int,
    function: Callable[[str], Any] | None = None,
) -> Partitioner:
    """The partitioner of a producer. ``channels`` is its number of channels, ``max_parallelism`` that of the
    consumer; ``function`` loads an entry of the job's function table."""
    match partitioning:
        case Custom(function=name) if function is not None:
            return ByFunction(function(name), channels)
        case Forward() | Global():
            return ToOne()
        case Hash(keys=keys):
            return ByKeyGroup(keys, channels, max_parallelism)
        case Rebalance() | Rescale():
            return RoundRobin(channels, subtask_index)
        case Broadcast():
            return ToAll(channels)
    raise InternalError(f"no partitioner for {partitioning!r}")
