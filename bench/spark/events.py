"""Nexmark events as Parquet files, made piece by piece in bounded memory."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.spark.queries import COLUMNS
from penstock.connectors.base import Split
from penstock.errors import ExternalError
from penstock.jobgraph.specs import SourceSpec
from penstock.spark.partition_program import JobContext
from penstock.spark.tables import TableRead, read_split

#: A file each; what is there already is not made again.
EVENTS_PER_PIECE = 5_000_000
_ROW_GROUP = 131_072
#: On disk, about.
_BYTES_PER_EVENT = 20


def make_events(folder: Path, events: int) -> Path:
    """The folder of their files. ExternalError when they would not fit on the disk."""
    path = folder / f"nexmark-{events}"
    pieces = max(2, -(-events // EVENTS_PER_PIECE))
    missing = [i for i in range(pieces) if not _file(path, i).exists()]
    if not missing:
        return path
    path.mkdir(parents=True, exist_ok=True)
    free, needed = shutil.disk_usage(path).free, events * _BYTES_PER_EVENT * len(missing) // pieces
    if free < 2 * needed:
        raise ExternalError(
            f"too little room for {events:,} events",
            expected=f"{2 * needed >> 30} GiB free",
            got=f"{free >> 30} GiB",
            where=str(path),
        )
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        list(pool.map(_make_piece, [(path, events, i, pieces) for i in missing]))
    return path


def _file(path: Path, piece: int) -> Path:
    return path / f"part-{piece:04d}.parquet"


def _make_piece(what: tuple[Path, int, int, int]) -> None:
    path, events, piece, pieces = what
    table = _table(events)
    split = Split(f"part-{piece:05d}", {"index": piece, "of": pieces})
    partial = _file(path, piece).with_suffix(".partial")
    waiting: list[pa.RecordBatch] = []
    writer: pq.ParquetWriter | None = None
    for batch in read_split(table, split, piece):
        rows = batch.to_external_arrow()
        writer = writer or pq.ParquetWriter(partial, rows.schema, compression="zstd")
        waiting.append(rows)
        if sum(len(w) for w in waiting) >= _ROW_GROUP:
            writer.write_table(pa.Table.from_batches(waiting))
            waiting = []
    if writer is None:
        return
    if waiting:
        writer.write_table(pa.Table.from_batches(waiting))
    writer.close()
    partial.replace(_file(path, piece))


def _table(events: int) -> TableRead:
    from penstock.sql.scripts import plan_script

    graph = plan_script(
        f"CREATE TABLE events ({COLUMNS}) WITH ('connector' = 'nexmark', 'rows-per-second' = '0', "
        f"'events.num' = '{events}'); CREATE TABLE o ({COLUMNS}) WITH ('connector' = 'blackhole'); "
        "INSERT INTO o SELECT * FROM events",
        {"execution.engine": "streaming"},
    ).job_graph
    specs = (o.spec for v in graph.vertices for o in v.operators)
    spec = next(s for s in specs if isinstance(s, SourceSpec))
    return TableRead(spec, "events", "bench", JobContext("bench", {}))
