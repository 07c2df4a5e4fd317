"""A source that fills state and then goes on at a pace, and a sink that notes when rows
arrive, for ``bench.recovery``."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

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
from penstock.types import Batch
from penstock.types.arrow_buffers import binary_array_of_width
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Sequence


class Fill(Connector):
    """Columns: key BIGINT, and perhaps payload STRING (``bytes`` long, not compressible)."""

    name = "python:bench.recovery_connector:Fill"
    options = {
        "keys": ("every key once, as fast as it goes", None, True),
        "bytes": ("of a payload", "0", False),
        "rate": ("rows a second after that", None, True),
        "readers": ("parallelism", None, True),
    }

    def is_bounded(self, table: TableInfo) -> bool:
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
        self._readers = int(ctx.options["readers"])
        self._fill = int(ctx.options["keys"]) // self._readers
        self._bytes = int(ctx.options.get("bytes", "0"))
        self._rate = float(ctx.options["rate"]) / self._readers
        self._split: str | None = None
        self._emitted = 0
        self._paced_from: tuple[float, int] | None = None
        self._pool = np.frombuffer(os.urandom(1 << 20), np.uint8) % 94 + 33

    def add_splits(self, splits: Sequence[Split]) -> None:
        for split in splits:
            self._split = split.id
            self._emitted = int(split.position or 0)

    def poll(self) -> Fetched | None:
        if self._split is None:
            return None
        rows = self.ctx.batch_rows if not self._bytes else 1024
        first = self._emitted
        if first < self._fill:
            last = min(first + rows, self._fill)
        else:
            now = time.monotonic()
            self._paced_from = self._paced_from or (now, first)
            since, number = self._paced_from
            last = min(first + rows, number + int((now - since) * self._rate))
        if last <= first:
            return None
        numbers = np.arange(first, last, dtype=np.int64)
        key = (numbers % self._fill) * self._readers + int(self._split)
        self._emitted = last
        schema = self.ctx.schema.select(self.ctx.projection)
        columns = [
            Column(f.type, key) if f.name == "key" else Column(f.type, self._payloads(numbers))
            for f in schema.fields
        ]
        return Fetched(self._split, Batch(schema, columns))

    def _payloads(self, numbers: np.ndarray) -> pa.Array:
        starts = (numbers * 7919) % (len(self._pool) - self._bytes)
        data = self._pool[starts[:, None] + np.arange(self._bytes)].astype(np.uint8)
        return binary_array_of_width(data, len(numbers), self._bytes).view(pa.string())

    async def wait(self) -> None:
        await asyncio.sleep(0.005)

    def finished_splits(self) -> set[str]:
        return set()

    def snapshot(self) -> list[Split]:
        return [] if self._split is None else [Split(self._split, {}, self._emitted)]


class Arrivals(Connector):
    """Appends the time (seconds since the epoch) to ``<path>-<pid>`` when rows come, at most
    every 5 ms."""

    name = "python:bench.recovery_connector:Arrivals"
    options = {"path": ("prefix of the files", None, True)}

    def sink_modes(self, table: TableInfo) -> Sequence[str]:
        return ("append", "retract", "upsert")

    def writer(self, table: TableInfo) -> SinkWriter:
        return _Writer()


class _Writer(SinkWriter):
    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        await super().open(ctx, restored)
        path = f"{ctx.options['path']}-{os.getpid()}-{ctx.subtask_index}"
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._noted = 0.0

    def write(self, batch: Batch) -> None:
        now = time.time()
        if batch.num_rows and now - self._noted >= 0.005:
            self._noted = now
            os.write(self._file, f"{now:.4f}\n".encode())

    async def close(self) -> None:
        os.close(self._file)
