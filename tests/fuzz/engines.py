"""One query on every engine: what came of it."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import duckdb

from penstock.errors import InternalError, PenstockError
from penstock.jobgraph.graph import JobGraph
from penstock.spark.support import spark_support
from penstock.sql.session import SqlSession
from penstock.testing import JobHarness, MemoryTable, run_graph
from tests.fuzz.tables import LATENESS_S, Table
from tests.golden.values import plain_rows

_BATCH_ROWS = 4
#: Against hanging only.
_PATIENCE_S = 120.0
_PREFIX = "fuzz"

Kind = Literal["rows", "refused", "failed", "crashed"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """``rows``, or the words of the refusal (at planning), failure (a user's error while it ran) or crash."""

    kind: Kind
    rows: tuple[tuple[Any, ...], ...] = ()
    words: str = ""


def by_duckdb(query: str, tables: Sequence[Table]) -> Outcome:
    with duckdb.connect() as connection:
        connection.execute(
            "SET TimeZone = 'UTC'; SET default_null_order = 'nulls_first_on_asc_last_on_desc'; SET threads = 1"
        )
        for table in tables:
            connection.register(table.name, table.batch().to_external_arrow())
        try:
            rows = connection.execute(query).fetchall()
        except (duckdb.OutOfRangeException, duckdb.ConversionException) as error:
            return Outcome("failed", words=str(error))
        except duckdb.Error as error:
            return Outcome("refused", words=str(error))
    return Outcome("rows", tuple(rows))


def streaming(query: str, tables: Sequence[Table], mode: str, parallelism: int) -> Outcome:
    def run(graph: JobGraph) -> list[tuple[Any, ...]]:
        return run_graph(graph, timeout_s=_PATIENCE_S).rows

    return _attempt(
        query, tables, {"execution.runtime-mode": mode, "parallelism.default": str(parallelism)}, run
    )


def killed(query: str, tables: Sequence[Table], parallelism: int, after: int) -> Outcome:
    """In streaming mode: a checkpoint after so many rows, a kill some rows later, and a restore."""
    config = {"execution.runtime-mode": "STREAMING", "parallelism.default": str(parallelism)}

    def run(graph: JobGraph) -> list[tuple[Any, ...]]:
        return asyncio.run(_killed(graph, _read_by(graph, tables), after))

    return _attempt(query, tables, config, run)


def on_spark(query: str, tables: Sequence[Table], session: Any) -> Outcome:
    from tests.golden.engines import spark_graph
    from tests.spark.support import on_spark as rows_of

    config = {"execution.engine": "spark"}
    return _attempt(query, tables, config, lambda graph: rows_of(spark_graph(graph), session))


async def _killed(graph: JobGraph, read: list[MemoryTable], after: int) -> list[tuple[Any, ...]]:
    for table in read:
        table.release(after)
    async with JobHarness(graph) as job:
        await job.until(lambda: all(x.rows_read >= _rows(x, after) for x in read), _PATIENCE_S)
        if all(_rows(x, after) == x.splits[0].num_rows for x in read):
            return (await job.wait(_PATIENCE_S)).rows
        checkpoint, store = await job.checkpoint(timeout_s=_PATIENCE_S), job.store
        before = [x.rows_read for x in read]
        for table in read:
            table.release(after + 3)
        await job.until(lambda: any(x.rows_read > b for x, b in zip(read, before, strict=True)), _PATIENCE_S)
    for table in read:
        table.release(None)
    async with JobHarness(graph, restore=checkpoint, store=store) as job:
        return (await job.wait(_PATIENCE_S)).rows


def _rows(table: MemoryTable, limit: int) -> int:
    return min(limit, table.splits[0].num_rows)


def _read_by(graph: JobGraph, tables: Sequence[Table]) -> list[MemoryTable]:
    used = repr(graph)
    return [MemoryTable.tables[name] for t in tables if (name := f"{_PREFIX}-{t.name}") in used]


def _attempt(
    query: str,
    tables: Sequence[Table],
    config: dict[str, str],
    run: Callable[[JobGraph], Sequence[tuple[Any, ...]]],
) -> Outcome:
    settings = {"table.exec.join.unbounded-state": "allow", **config}
    support = spark_support() if config.get("execution.engine") == "spark" else None
    try:
        session = SqlSession(settings, spark=support)
        for table in tables:
            MemoryTable(f"{_PREFIX}-{table.name}", table.schema, [[table.batch()]], batch_rows=_BATCH_ROWS)
            session.execute(declaration(table))
        job = session.execute(query).job
        assert job is not None
    except InternalError as error:
        return Outcome("crashed", words=f"planning: {_told(error)}")
    except PenstockError as error:
        return Outcome("refused", words=f"{error.code} {error.message}")
    except Exception as error:
        return Outcome("crashed", words=f"planning: {_told(error)}")
    try:
        rows = run(job.job_graph)
    except InternalError as error:
        return Outcome("crashed", words=_told(error))
    except PenstockError as error:
        if error.domain == "user":
            return Outcome("failed", words=f"{error.code} {error.message}")
        return Outcome("crashed", words=_told(error))
    except Exception as error:
        return Outcome("crashed", words=_told(error))
    return Outcome("rows", tuple(tuple(row) for row in plain_rows(rows)))


def declaration(table: Table) -> str:
    columns = ", ".join(f"{name} {kind}" for name, kind in table.columns)
    return (
        f"CREATE TABLE {table.name} ({columns}, WATERMARK FOR ts AS ts - INTERVAL '{LATENESS_S}' SECOND) "
        f"WITH ('connector' = 'memory', 'name' = '{_PREFIX}-{table.name}')"
    )


def _told(error: BaseException) -> str:
    """The error with the last places of our code."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "penstock" in f.filename][-2:]
    places = "; ".join(f"{f.filename.rsplit('penstock/', 1)[-1]}:{f.lineno} {f.name}" for f in frames)
    return f"{type(error).__name__}: {str(error).strip()[:300]} [{places}]"
