"""Drives a connector's enumerator, reader and writer as the engine does."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock.connectors.base import SourceContext, Split
from penstock.connectors.helper.sink import HelperWriter
from penstock.connectors.helper.source import HelperReader
from penstock.connectors.registry import hosted
from penstock.metrics import MetricGroup
from penstock.store.memory import MemoryStore
from penstock.types.batch import RowKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

    from penstock.connectors.base import Connector, SinkWriter, SourceReader, TableInfo
    from penstock.types.batch import Batch
    from penstock.types.logical import Schema

Row = "tuple[Any, ...]"


@dataclass
class BadRecords:
    """The policy for bad records: ``fail`` raises, ``skip`` keeps (error, raw, where)."""

    policy: str = "fail"
    kept: list[tuple[Exception, bytes | None, str]] = field(default_factory=list)

    def __call__(self, error: Exception, raw: bytes | None, where: str) -> None:
        if self.policy == "fail":
            raise error
        self.kept.append((error, raw, where))


class Helper:
    """The slot's helper thread. ``measured``: measure how its calls affect the data thread."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "kit-helper")
        self.calls = 0
        self.measured = False
        #: The greatest number of Python lines that one call has run.
        self.most_lines = 0
        #: The thread that is in a call, and its CPU time when the data thread last had a turn.
        self.in_flight: int | None = None
        self.seen_ns = 0
        #: The most CPU time between two turns of the data thread.
        self.held_ms = 0.0

    async def run(self, call: Callable[[], Any]) -> Any:
        self.calls += 1
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._do, call)

    def _do(self, call: Callable[[], Any]) -> Any:
        if not self.measured:
            return call()
        lines = 0

        def count(_frame: FrameType, event: str, _arg: Any) -> Any:
            nonlocal lines
            lines += event == "line"
            return count

        before = sys.gettrace()
        self.seen_ns, self.in_flight = time.thread_time_ns(), threading.get_ident()
        sys.settrace(count)
        try:
            return call()
        finally:
            sys.settrace(before)
            self.most_lines = max(self.most_lines, lines)
            self.in_flight = None
            self.turn(time.thread_time_ns())

    def turn(self, spent_ns: int) -> None:
        """The data thread has a turn, or the call ends; ``spent_ns``: CPU time of the helper thread."""
        self.held_ms = max(self.held_ms, (spent_ns - self.seen_ns) / 1e6)
        self.seen_ns = spent_ns

    def close(self) -> None:
        self._pool.shutdown()


def json_round_trip(splits: Sequence[Split]) -> list[Split]:
    """The splits as a checkpoint returns them: through JSON and back."""
    return msgspec.json.decode(msgspec.json.encode(list(splits)), type=list[Split])


@dataclass
class Driver:
    """Drives one table under test: has its connector, and takes the place of the slot."""

    connector: Connector
    table: TableInfo
    parallelism: int = 1
    helper: Helper = field(default_factory=Helper)
    store: MemoryStore = field(default_factory=MemoryStore)

    def __post_init__(self) -> None:
        #: The connector object in this process, even if its readers and writers run in helper processes.
        self.here = self.connector
        if self.connector.runs == "helper":
            self.connector = hosted(self.connector)

    @property
    def in_helpers(self) -> bool:
        """Whether each reader and writer runs in a helper process. Starting one takes time, so checks then
        make fewer of them."""
        return self.here is not self.connector

    def context(
        self,
        *,
        subtask_index: int = 0,
        attempt: int = 1,
        projection: Sequence[int] | None = None,
        metadata: Sequence[str] = (),
        batch_rows: int = 16_384,
        bad: BadRecords | None = None,
        pushed: Mapping[str, Any] | None = None,
    ) -> SourceContext:
        bad = bad or BadRecords()
        schema: Schema = self.table.schema
        return SourceContext(
            job_id="conformance",
            uid="operator",
            subtask_index=subtask_index,
            parallelism=self.parallelism,
            attempt=attempt,
            options=self.table.options,
            schema=schema,
            projection=range(len(schema)) if projection is None else projection,
            metadata=metadata,
            pushed=pushed or {},
            config={},
            metrics=MetricGroup(),
            on_error="fail" if bad.policy == "fail" else "skip",
            run=self.helper.run,
            now_ms=lambda: int(time.time() * 1000),
            bad_record=bad,
            store=self.store,
            batch_rows=batch_rows,
        )

    async def splits(self, known: Sequence[str] = ()) -> list[Split]:
        """The splits that a new enumerator discovers, in the form in which a reader gets them: decoded from
        JSON."""
        enumerator = self.here.enumerator(self.table)
        try:
            return json_round_trip(await enumerator.discover(self.context(), set(known)))
        finally:
            await enumerator.close()

    async def reader(self, splits: Sequence[Split], **context: Any) -> SourceReader:
        reader = self.connector.reader(self.table)
        await reader.open(self.context(**context))
        reader.add_splits(splits)
        return reader

    async def read(self, splits: Sequence[Split], *, snapshots: bool = False, **context: Any) -> list[Taken]:
        """Read all rows of the splits with a new reader."""
        reader = await self.reader(splits, **context)
        try:
            return await read_to_end(reader, snapshots=snapshots)
        finally:
            await reader.close()

    async def read_some(self, splits: Sequence[Split], **context: Any) -> tuple[list[Taken], list[Split]]:
        """Read a few rows; returns them and the splits with their positions after them."""
        reader = await self.reader(splits, batch_rows=3, **context)
        taken: list[Taken] = []
        try:
            for _ in range(4):
                fetched = reader.poll()
                while fetched is None and not reader.finished_splits() >= {s.id for s in splits}:
                    await reader.wait()
                    fetched = reader.poll()
                if fetched is not None:
                    taken.append(Taken(fetched.split_id, rows_of(fetched.batch), []))
            return taken, json_round_trip(reader.snapshot())
        finally:
            await reader.close()


async def crash(part: SourceReader | SinkWriter, tasks: Sequence[asyncio.Task[Any]] = ()) -> None:
    """Simulate a crash of the process that ``part`` runs in: its tasks stop at once, and nobody calls
    ``close``."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if isinstance(part, (HelperReader, HelperWriter)):
        await part.kill()


@dataclass
class Taken:
    """One polled batch: its split, its rows, and the reader's snapshot after it."""

    split_id: str
    rows: list[tuple[Any, ...]]
    snapshot: list[Split]


def rows_of(batch: Batch) -> list[tuple[Any, ...]]:
    """The rows of a batch. Fails if the batch separates the old row of an update from the new one."""
    if batch.kinds is not None:
        before = np.flatnonzero(batch.kinds == RowKind.UPDATE_BEFORE)
        behind = np.append(batch.kinds, RowKind.INSERT)[before + 1]
        assert (behind == RowKind.UPDATE_AFTER).all(), (
            "a batch has a -U without a +U directly behind it: cut batches with penstock.connectors.api.first_rows"
        )
    return batch.to_pylist()


async def read_to_end(reader: SourceReader, *, snapshots: bool = False) -> list[Taken]:
    """Poll until all splits are finished. Calls ``wait`` before every poll, as the engine may do; ``wait``
    must return at once while there are rows."""
    out: list[Taken] = []
    mine = {s.id for s in reader.snapshot()}
    while not reader.finished_splits() >= mine:
        await reader.wait()
        fetched = reader.poll()
        if fetched is not None:
            snapshot = json_round_trip(reader.snapshot()) if snapshots else []
            out.append(Taken(fetched.split_id, rows_of(fetched.batch), snapshot))
        await asyncio.sleep(0)
    return out


@dataclass(frozen=True)
class Figures:
    """The cost of reading a table, in wall-clock time unless stated otherwise. ``start_ms``: until the reader
    was open; ``first_row_ms``: from adding the splits to the first rows; ``data_thread_us_a_row``: CPU time
    of the data thread for each row."""

    rows: int
    rows_a_second: float
    start_ms: float
    first_row_ms: float
    data_thread_us_a_row: float

    def __str__(self) -> str:
        return (
            f"{self.rows} rows, {self.rows_a_second:,.0f} a second, {self.data_thread_us_a_row:.2f} µs of the "
            f"data thread each; {self.start_ms:.0f} ms until open, {self.first_row_ms:.1f} ms to the first rows"
        )


async def measured(driver: Driver, splits: Sequence[Split]) -> Figures:
    """Read the splits to their end and return the cost."""
    began = time.perf_counter()
    reader = await driver.reader([])
    opened = time.perf_counter()
    first, rows = 0.0, 0
    try:
        cpu_ns = time.thread_time_ns()
        reader.add_splits(splits)
        while not reader.finished_splits() >= {s.id for s in splits}:
            await reader.wait()
            fetched = reader.poll()
            if fetched is not None:
                first = first or time.perf_counter()
                rows += fetched.batch.num_rows
        spent_us = (time.thread_time_ns() - cpu_ns) / 1e3
        ended = time.perf_counter()
    finally:
        await reader.close()
    return Figures(
        rows=rows,
        rows_a_second=rows / (ended - opened),
        start_ms=(opened - began) * 1e3,
        first_row_ms=((first or ended) - opened) * 1e3,
        data_thread_us_a_row=spent_us / max(1, rows),
    )


def by_split(taken: Sequence[Taken]) -> dict[str, list[tuple[Any, ...]]]:
    """Split → its rows in order."""
    out: dict[str, list[tuple[Any, ...]]] = {}
    for item in taken:
        out.setdefault(item.split_id, []).extend(item.rows)
    return out


def all_rows(taken: Sequence[Taken]) -> list[tuple[Any, ...]]:
    return [row for item in taken for row in item.rows]
