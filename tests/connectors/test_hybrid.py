"""The hybrid source: history to its end, then live, each row once on its side of the seam."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConnectorError
from penstock.sql.scripts import plan_script
from penstock.testing import run_graph
from penstock.testing.harness import JobHarness
from penstock.testing.memory import MemoryTable
from penstock.types import Batch, Schema
from penstock.types.logical import IntType, TimestampType

CONFIG = {"execution.engine": "streaming", "parallelism.default": "1"}
CUT = "'switch.column' = 'id', 'switch.at' = '6'"


def table(folder: Path, *more: str) -> str:
    options = [
        "'connector' = 'hybrid'", "'history.connector' = 'filesystem'", f"'history.path' = '{folder}/history'",
        "'history.format' = 'csv'", "'live.connector' = 'filesystem'", f"'live.path' = '{folder}/live'",
        "'live.format' = 'csv'", *more,
    ]  # fmt: skip
    return (
        "CREATE TABLE t (id INT, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '2' SECOND) "
        f"WITH ({', '.join(options)});"
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ids 0 … 7 as history in two files, 4 … 11 as live: 4 … 7 are in both."""
    for part, ids in (("history/a", (0, 1, 2, 3)), ("history/b", (4, 5, 6, 7)), ("live/a", range(4, 12))):
        path = tmp_path / f"{part}.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{i},2024-03-01 12:00:{i:02}\n" for i in ids))
    return tmp_path


def ids(folder: Path, *more: str, sql: str = "SELECT id FROM t", **config: str) -> list[Any]:
    graph = plan_script(table(folder, *more) + sql, {**CONFIG, **config}).job_graph
    return [row[0] for row in run_graph(graph).rows]


def test_history_comes_first_and_the_cut_divides_what_both_hold(folder: Path) -> None:
    assert ids(folder, CUT) == list(range(12))


def test_without_a_cut_all_rows_of_both_parts_come(folder: Path) -> None:
    assert ids(folder) == [*range(8), *range(4, 12)]


def test_what_the_cut_keeps_out_is_counted(folder: Path) -> None:
    graph = plan_script(table(folder, CUT) + "SELECT id FROM t", CONFIG).job_graph
    counters = run_graph(graph).counters
    assert (counters["historyRecordsBehindCut"], counters["liveRecordsBeforeCut"]) == (2, 2)


def test_a_live_part_that_begins_behind_the_cut_is_refused() -> None:
    text = (
        "CREATE TABLE t (id INT) WITH ('connector' = 'hybrid', 'history.connector' = 'datagen', "
        "'history.number-of-rows' = '3', 'live.connector' = 'nats', 'live.stream' = 'S', "
        f"'live.format' = 'json', 'live.scan.startup.mode' = 'latest', {CUT}); SELECT id FROM t"
    )
    with pytest.raises(ConnectorError, match="reach back"):
        plan_script(text, CONFIG)


def test_the_column_of_the_cut_need_not_be_read(folder: Path) -> None:
    seconds = ids(folder, CUT, sql="SELECT EXTRACT(SECOND FROM at) FROM t")
    assert seconds == list(range(12))


@pytest.mark.parametrize("parallelism", ["1", "3"])
def test_windows_of_history_and_live_are_the_same_as_of_one_stream(folder: Path, parallelism: str) -> None:
    sql = (
        "SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '3' SECOND)) "
        "GROUP BY window_start, window_end"
    )
    text = table(folder, CUT) + sql
    graph = plan_script(text, {**CONFIG, "parallelism.default": parallelism}).job_graph
    assert sorted(row[1] for row in run_graph(graph).rows) == [3, 3, 3, 3]


async def test_the_seam_is_in_the_checkpoint(folder: Path) -> None:
    """Taken at any time, a checkpoint knows where both parts stand: no row counts twice."""
    schema = Schema.of(("id", IntType()), ("at", TimestampType(3)))
    rows = [(i, datetime(2024, 3, 1, 12, 0, i)) for i in range(4, 12)]
    live = MemoryTable("live", schema, [[Batch.of(schema, rows)]])
    text = table(folder, CUT) + "SELECT COUNT(*) AS n FROM t"
    text = text.replace(f"'live.connector' = 'filesystem', 'live.path' = '{folder}/live', 'live.format' = 'csv'",
                        "'live.connector' = 'memory', 'live.name' = 'live'")  # fmt: skip
    graph = plan_script(text, {**CONFIG, "execution.runtime-mode": "STREAMING"}).job_graph
    for there in (0, 4):  # of the live rows, before the checkpoint
        live.release(there)
        async with JobHarness(graph) as job:
            await job.until(lambda n=there: live.rows_read >= n)
            taken = await job.checkpoint()
            live.release()
            await job.wait()
        async with JobHarness(graph, restore=taken) as again:
            counts = [row[0] for row in (await again.wait()).rows]
        assert max(counts) == 12
        live.rows_read = 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["'switch.at' = '6'"], "switch.column"),
        (["'switch.column' = 'nr'", "'switch.at' = '6'"], "no column 'nr'"),
        (["'switch.column' = 'at'", "'switch.at' = 'noon'"], "cannot be read"),
        (["'switch.column' = 'id'", "'switch.at' = 'six'"], "cannot be read"),
        (["'history.source.monitor-interval' = '1 s'"], "does not end"),
        (["'history.pth' = 'x'"], "unknown option 'pth'"),
        (["'format' = 'csv'"], "no format of its own"),
    ],
)
def test_what_is_refused(folder: Path, more: list[str], message: str) -> None:
    with pytest.raises(ConnectorError, match=message) as refused:
        ids(folder, *more)
    error = refused.value
    assert all((error.expected, error.got, error.where, error.remedy)), str(error)
