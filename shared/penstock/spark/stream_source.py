"""Unbounded sources for Structured Streaming: any connector, with micro-batches that can be repeated.

When Spark repeats a micro-batch, it must get the same rows again, but a connector's reader only knows its
position after the rows that it has read. So Spark's offset is just the number of a batch, and a *position
log* in the checkpoint folder says what the number means. Before batch k is planned, its splits are logged
(``<k>/splits``). The first task that reads a split in batch k logs, create-only and before it yields a row,
the start, the number of rows and the end (``<k>/<split>``). A task that reads the split of that batch again
reads exactly those rows.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from penstock.connectors.base import Split, TableInfo
from penstock.connectors.registry import get_connector
from penstock.errors import InternalError
from penstock.spark.errors import carried
from penstock.spark.graph import TIME
from penstock.spark.tables import discover, source_context
from penstock.spark.typemap import column_names, to_spark_array
from penstock.store.open import open_store
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.ports import Store
    from penstock.spark.tables import TableRead

#: The most rows of one split in one micro-batch. They stay in memory until the log has their positions.
MAX_ROWS = 100_000
#: Seconds after a batch without rows in which no new batch is planned.
PAUSE_S = 0.3
#: Seconds that a reader without rows gets to fetch its first rows.
_FIRST_ROWS_S = 2.0


class Taken(msgspec.Struct, frozen=True):
    """The rows that one batch took of one split: ``rows`` rows from ``start``; ``end``: the split after
    them."""

    start: Split
    rows: int
    end: Split


class PositionLog:
    """The log of the batches of one source. Keys: ``<batch>/splits`` and ``<batch>/<split>``."""

    def __init__(self, url: str) -> None:
        self._store: Store = open_store(url)

    def _get(self, key: str) -> bytes | None:
        async def get() -> bytes | None:
            try:
                return await self._store.get(key)
            except KeyError:
                return None

        return asyncio.run(get())

    def _create(self, key: str, data: bytes) -> bool:
        return asyncio.run(self._store.create(key, data))

    def splits(self, batch: int) -> list[Split] | None:
        """The splits that were planned for a batch; None if it was not planned."""
        data = self._get(f"{batch:012d}/splits")
        return None if data is None else msgspec.json.decode(data, type=list[Split])

    def plan(self, batch: int, splits: Sequence[Split]) -> list[Split]:
        """Logs the splits of a batch. Returns the logged ones, which are older if the batch was planned
        before."""
        if not self._create(f"{batch:012d}/splits", msgspec.json.encode(list(splits))):
            return self.splits(batch) or []
        return list(splits)

    def taken(self, batch: int, split_id: str) -> Taken | None:
        """The rows that a task took of a split in a batch; None if no task has logged any."""
        data = self._get(self._key(batch, split_id))
        return None if data is None else msgspec.json.decode(data, type=Taken)

    def take(self, batch: int, taken: Taken) -> Taken:
        """Logs the rows that a task took. Returns the entry of the first task that logged this split of this
        batch."""
        if self._create(self._key(batch, taken.start.id), msgspec.json.encode(taken)):
            return taken
        found = self.taken(batch, taken.start.id)
        assert found is not None
        return found

    @staticmethod
    def _key(batch: int, split_id: str) -> str:
        return f"{batch:012d}/{hashlib.sha256(split_id.encode()).hexdigest()[:24]}"


class SplitBatches(InputPartition):
    """The rows of one split in the batches ``first`` … ``last``."""

    def __init__(self, split: bytes, first: int, last: int) -> None:
        super().__init__(first)
        self.split, self.first, self.last = split, first, last


class StreamReader(DataSourceStreamReader):
    """Reads a table as a stream of numbered batches. The log makes a repeated batch equal to the first."""

    def __init__(self, table: TableRead) -> None:
        self._table = table
        #: The last batch seen to be empty, and when (monotonic s).
        self._noticed = (0, 0.0)
        self._started = False
        self._log_of: PositionLog | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_table": self._table, "_noticed": (0, 0.0), "_started": False, "_log_of": None}

    @property
    def _log(self) -> PositionLog:
        if self._log_of is None:
            assert self._table.log_url is not None
            self._log_of = PositionLog(self._table.log_url)
        return self._log_of

    def initialOffset(self) -> dict[str, int]:
        """Spark's offset before the first batch."""
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: Any = None) -> dict[str, int]:
        """Plans the next batch and returns its offset; returns ``start`` during a pause or without splits."""
        return next(carried(iter(self._latest(start)), self._where()))

    def _latest(self, start: dict[str, int]) -> Iterator[dict[str, int]]:
        batch = start["batch"]
        if batch and self._pausing(batch):
            yield start
            return
        known = {s.id: s for s in (self._log.splits(batch) or [])} if batch else {}
        found = discover(self._table, set(known))
        splits = [*known.values(), *(s for s in found if s.id not in known)]
        if not splits:
            yield start
            return
        self._log.plan(batch + 1, splits)
        yield {"batch": batch + 1}

    def _pausing(self, batch: int) -> bool:
        """Whether to pause, for PAUSE_S seconds after an empty batch was noticed; never at the first call."""
        started, self._started = self._started, True
        if not started or not self._empty(batch):
            return False
        if self._noticed[0] != batch:
            self._noticed = (batch, time.monotonic())
        return time.monotonic() - self._noticed[1] < PAUSE_S

    def _empty(self, batch: int) -> bool:
        taken = [self._log.taken(batch, s.id) for s in self._log.splits(batch) or []]
        return all(x is not None and x.rows == 0 for x in taken)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """One partition for each split of the batches between the offsets."""
        return next(carried(iter(self._partitions(start, end)), self._where()))

    def _partitions(self, start: dict[str, int], end: dict[str, int]) -> Iterator[list[InputPartition]]:
        found: dict[str, list[Any]] = {}
        for batch in range(start["batch"] + 1, end["batch"] + 1):
            for split in self._log.splits(batch) or []:
                found.setdefault(split.id, [split, batch, batch])[2] = batch
        yield [SplitBatches(msgspec.json.encode(s), first, last) for s, first, last in found.values()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition."""
        assert isinstance(partition, SplitBatches)
        return carried(self._read(partition), self._where())

    def _read(self, partition: SplitBatches) -> Iterator[pa.RecordBatch]:
        split = msgspec.json.decode(partition.split, type=Split)
        names = [*column_names(self._table.schema), *([TIME] if self._table.time else [])]
        for batch in range(partition.first, partition.last + 1):
            for rows in read_batch(self._table, self._log, batch, split):
                arrays = [to_spark_array(c) for c in rows.columns]
                if self._table.time:
                    times = pa.nulls(len(rows), pa.int64()) if rows.times is None else pa.array(rows.times)
                    arrays.append(times)
                yield pa.RecordBatch.from_arrays(arrays, names=names)

    def commit(self, end: dict[str, int]) -> None:
        """Does nothing: the log stays, because it is small and shows what was read when."""

    def stop(self) -> None:
        """Drop the log's connection."""
        self._log_of = None

    def _where(self) -> str:
        return f"source '{self._table.spec.connector}'"


def read_batch(table: TableRead, log: PositionLog, batch: int, split: Split) -> list[Batch]:
    """The rows of one split in one batch: the logged rows if there are any, otherwise the rows that exist
    now."""
    known = log.taken(batch, split.id)
    if known is not None:
        return asyncio.run(_read_rows(table, known.start, known.rows))[0]
    before = log.taken(batch - 1, split.id) if batch > 1 else None
    start = split if before is None else before.end
    rows, end = asyncio.run(_read_rows(table, start, None))
    count = sum(b.num_rows for b in rows)
    taken = log.take(batch, Taken(start, count, end))
    if taken.rows == count and taken.start == start:
        return rows
    # Another task logged this batch first, with more or fewer rows.
    return asyncio.run(_read_rows(table, taken.start, taken.rows))[0]


async def _read_rows(table: TableRead, split: Split, wanted: int | None) -> tuple[list[Batch], Split]:
    """Reads ``wanted`` rows from the split's position (None: the rows that exist now). Returns the rows and
    the split after them."""
    spec = table.spec
    reader = get_connector(spec.connector).reader(TableInfo(spec.schema, spec.options))
    rows: list[Batch] = []
    count = 0
    if wanted == 0:
        return [], split
    try:
        await reader.open(source_context(table, 0))
        reader.add_splits([split])
        deadline = time.monotonic() + _FIRST_ROWS_S
        while count < (MAX_ROWS if wanted is None else wanted):
            fetched = reader.poll()
            if fetched is not None:
                rows.append(fetched.batch)
                count += fetched.batch.num_rows
                continue
            if split.id in reader.finished_splits():
                break
            if wanted is None and (count or reader.caught_up(split.id) or time.monotonic() > deadline):
                break
            await _waited(reader, max(0.01, deadline - time.monotonic()) if wanted is None else 30.0)
        (end,) = [s for s in reader.snapshot() if s.id == split.id]
    finally:
        await reader.close()
    if wanted is not None:
        if count < wanted:
            raise InternalError(
                "rows of a batch that was read before are gone",
                expected=f"{wanted} rows from {split.position!r} of split '{split.id}'",
                got=f"{count} rows",
                remedy="the source must keep what a checkpoint may still ask for",
            )
        rows[-1] = rows[-1].slice(0, rows[-1].num_rows - (count - wanted))
    return rows, end


async def _waited(reader: Any, seconds: float) -> None:
    waiting = asyncio.ensure_future(reader.wait())
    await asyncio.wait([waiting], timeout=seconds)
    if not waiting.done():
        waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
