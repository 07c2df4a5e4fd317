"""CURRENT_WATERMARK: NULL before the first watermark, then that of the batches before; where it may stand."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import PenstockError
from penstock.sql.session import SqlSession
from penstock.testing import run_graph


def session(folder: Path, mode: str = "STREAMING", seconds: list[int] | None = None) -> SqlSession:
    lines = [f"{i},2024-01-01 00:{s // 60:02d}:{s % 60:02d}\n" for i, s in enumerate(seconds or [])]
    (folder / "in.csv").write_text("".join(lines))
    made = SqlSession({"execution.runtime-mode": mode, "pipeline.auto-watermark-interval": "0 ms"})
    made.execute(
        "CREATE TABLE events (id INT, ts TIMESTAMP(3), plain AS ts + INTERVAL '1' SECOND, WATERMARK FOR ts AS "
        f"ts - INTERVAL '5' SECOND) WITH ('connector' = 'filesystem', 'path' = '{folder}/in.csv', 'format' = 'csv')"
    )
    made.execute("CREATE VIEW windows AS SELECT COUNT(*) AS c, window_time AS wt FROM TABLE(TUMBLE(TABLE events, "
                 "DESCRIPTOR(ts), INTERVAL '1' SECOND)) GROUP BY window_start, window_end, window_time")  # fmt: skip
    return made


def rows(made: SqlSession, query: str) -> list[tuple[Any, ...]]:
    job = made.execute(query).job
    assert job is not None
    return run_graph(job.job_graph).rows


#: Ascending, then rows that are late by all batches before.
SECONDS = [*(i // 50 for i in range(40_000)), 1, 2, 790]


def test_it_is_the_watermark_of_the_batches_before(tmp_path: Path) -> None:
    found = sorted(
        rows(session(tmp_path, seconds=SECONDS), "SELECT id, ts, CURRENT_WATERMARK(ts) FROM events")
    )
    assert [row[0] for row in found] == list(range(len(SECONDS)))
    marks = [row[2] for row in found]
    first = next(i for i, mark in enumerate(marks) if mark is not None)
    assert 0 < first < 40_000
    assert marks[first:] == sorted(marks[first:])
    assert len(set(marks)) > 2
    highest = found[0][1]
    for i, (_, ts, mark) in enumerate(found):
        # It is the watermark of some rows before.
        assert mark is None or mark <= highest - datetime.timedelta(seconds=5), i
        highest = max(highest, ts)


def test_it_leaves_out_late_rows(tmp_path: Path) -> None:
    query = "SELECT id FROM events WHERE CURRENT_WATERMARK(ts) IS NULL OR ts > CURRENT_WATERMARK(ts)"
    found = {row[0] for row in rows(session(tmp_path, seconds=SECONDS), query)}
    assert set(range(40_000)) <= found
    assert not found & {40_000, 40_001}


def test_in_batch_mode_it_is_null(tmp_path: Path) -> None:
    made = session(tmp_path, "BATCH", SECONDS)
    query = "SELECT COUNT(*), COUNT(w) FROM (SELECT CURRENT_WATERMARK(ts) AS w FROM events)"
    assert rows(made, query) == [(len(SECONDS), 0)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT CURRENT_WATERMARK(wt) FROM windows",
        "SELECT MAX(CURRENT_WATERMARK(ts)) FROM events",
        "SELECT e.id FROM (SELECT ts AS at, id FROM events) AS e WHERE CURRENT_WATERMARK(e.at) IS NULL",
        "SELECT id FROM events GROUP BY id, CURRENT_WATERMARK(ts)",
    ],
)
def test_it_may_stand_where_the_column_is_event_time(tmp_path: Path, query: str) -> None:
    assert rows(session(tmp_path, seconds=[1, 2, 3]), query)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT CURRENT_WATERMARK(plain) FROM events", "takes an event-time column"),
        ("SELECT CURRENT_WATERMARK(ts - INTERVAL '1' SECOND) FROM events", "takes an event-time column"),
        ("SELECT CURRENT_WATERMARK(TIMESTAMP '2024-01-01 00:00:00') FROM events", "takes an event-time column"),
        ("SELECT CURRENT_WATERMARK(m) FROM (SELECT MAX(ts) AS m FROM events)", "takes an event-time column"),
        ("SELECT CURRENT_WATERMARK(id) FROM events", "cannot apply CURRENT_WATERMARK"),
        ("SELECT CURRENT_WATERMARK() FROM events", "CURRENT_WATERMARK"),
        ("SELECT a.id FROM events AS a JOIN events AS b ON a.id = b.id AND a.ts > CURRENT_WATERMARK(b.ts)", "in the condition of a join"),
    ],
)  # fmt: skip
def test_elsewhere_it_is_refused_at_its_place(tmp_path: Path, query: str, message: str) -> None:
    with pytest.raises(PenstockError, match=message) as caught:
        session(tmp_path).execute(query)
    assert "line 1, column" in (caught.value.where or "")


def test_a_computed_column_cannot_read_it(tmp_path: Path) -> None:
    made = session(tmp_path)
    made.execute(
        "CREATE TABLE c (ts TIMESTAMP(3), w AS CURRENT_WATERMARK(ts), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen')"
    )
    with pytest.raises(PenstockError, match="CURRENT_WATERMARK"):
        made.execute("SELECT w FROM c")
