"""A paced source and a latency-measuring sink, for ``bench.latency``.

The source has a schedule: event i of a reader is *due* at start + i / rate, and carries
that due time, whenever it is really emitted. A pause anywhere therefore shows as latency
of every event that was due in it (no coordinated omission).
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.connectors.base import (
    Connector,
    Fetched,
    SinkWriter,
    SourceContext,
    SourceEnumerator,
    SourceReader,
    Split,
    TableInfo,
)
from penstock.types import Batch, Column

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Latencies are counted in bins of this width, up to ``BINS`` of them (10 s).
BIN_US = 50
BINS = 200_000


class Ticks(Connector):
    """Columns: due TIMESTAMP(6), key BIGINT, in this order; options below are all needed."""

    name = "python:bench.latency_connector:Ticks"
    options = {
        "rate": ("events a second, over all readers", None, True),
        "seconds": ("how long", None, True),
        "keys": ("number of distinct keys", None, True),
        "readers": ("parallelism", None, True),
    }

    def is_bounded(self, table: TableInfo) -> bool:
        # Unbounded in kind: results must flow while it runs.
        return False

    def enumerator(self, table: TableInfo) -> SourceEnumerator:
        return _Enumerator(int(table.options["readers"]))

    def reader(self, table: TableInfo) -> SourceReader:
        return _Reader()


class _Enumerator(SourceEnumerator):
    def __init__(self, readers: int) -> None:
        self._readers = readers

    async def discover(self, ctx: SourceContext, known: set[str]) -> Sequence[Split]:
        return [Split(f"{i}") for i in range(self._readers) if f"{i}" not in known]


class _Reader(SourceReader):
    async def open(self, ctx: SourceContext) -> None:
        await super().open(ctx)
        self._rate = float(ctx.options["rate"]) / int(ctx.options["readers"])
        self._total = int(self._rate * float(ctx.options["seconds"]))
        self._keys = int(ctx.options["keys"])
        self._split: str | None = None
        self._emitted = 0
        self._start_us = 0

    def add_splits(self, splits: Sequence[Split]) -> None:
        for split in splits:
            self._split = split.id
            # A moment for every task to be up before the schedule starts.
            self._start_us = time.time_ns() // 1000 + 1_000_000
            if split.position:
                self._emitted, self._start_us = split.position

    def _due(self) -> int:
        elapsed_us = time.time_ns() // 1000 - self._start_us
        return min(self._total, int(elapsed_us * self._rate / 1e6))

    def poll(self) -> Fetched | None:
        if self._split is None:
            return None
        first, last = self._emitted, min(self._due(), self._emitted + self.ctx.batch_rows)
        if last <= first:
            return None
        numbers = np.arange(first, last, dtype=np.int64)
        due = self._start_us + (numbers * (1e6 / self._rate)).astype(np.int64)
        # A multiplicative step walks all keys before one comes again.
        key = (numbers * 7919 + int(self._split) * 31) % self._keys
        self._emitted = last
        by_name = {"due": due, "key": key}
        schema = self.ctx.schema.select(self.ctx.projection)
        return Fetched(self._split, Batch(schema, [Column(f.type, by_name[f.name]) for f in schema.fields]))

    async def wait(self) -> None:
        if self._split is None or self._emitted >= self._total:
            await asyncio.sleep(0.05)
            return
        next_us = self._start_us + int((self._emitted + 1) * 1e6 / self._rate)
        # One millisecond of events at a time: a timer's resolution, not a batch size.
        await asyncio.sleep(max(next_us - time.time_ns() // 1000, 1000) / 1e6)

    def finished_splits(self) -> set[str]:
        done = self._split is not None and self._emitted >= self._total
        return {self._split} if done and self._split is not None else set()

    def snapshot(self) -> list[Split]:
        if self._split is None:
            return []
        return [Split(self._split, {}, [self._emitted, self._start_us])]


class Histogram(Connector):
    """Measures now − column 0 (TIMESTAMP(6), µs since the epoch) of every +I and +U row;
    writes ``<path>-<subtask>.json`` when it closes."""

    name = "python:bench.latency_connector:Histogram"
    options = {
        "path": ("prefix of the files", None, True),
        "skip-ms": ("rows due sooner than this after the first are not counted", "5000", False),
    }

    def sink_modes(self, table: TableInfo) -> Sequence[str]:
        return ("append", "retract", "upsert")

    def writer(self, table: TableInfo) -> SinkWriter:
        return _Writer()


class _Writer(SinkWriter):
    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        await super().open(ctx, restored)
        self._skip_us = int(ctx.options.get("skip-ms", "5000")) * 1000
        self._counts = np.zeros(BINS, np.int64)
        self._first: int | None = None
        self._max = 0

    def write(self, batch: Batch) -> None:
        now = time.time_ns() // 1000
        due = batch.columns[0].values
        if batch.kinds is not None:
            due = due[(batch.kinds == 0) | (batch.kinds == 2)]
        if not len(due):
            return
        if self._first is None:
            self._first = int(due[0])
        latency = (now - due)[due >= self._first + self._skip_us]
        if len(latency):
            self._max = max(self._max, int(latency.max()))
            np.add.at(self._counts, np.clip(latency // BIN_US, 0, BINS - 1), 1)

    async def close(self) -> None:
        data: dict[str, Any] = {"bin_us": BIN_US, "max_us": self._max}
        filled = np.flatnonzero(self._counts)
        data["bins"] = dict(zip(filled.tolist(), self._counts[filled].tolist(), strict=True))
        path = f"{self.ctx.options['path']}-{self.ctx.subtask_index}.json"
        await self.ctx.run(lambda: Path(path).write_text(json.dumps(data)))
