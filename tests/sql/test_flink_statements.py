"""What the page of statements says is what a session answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import SqlError, UnsupportedError
from penstock.sql.session import SqlSession
from penstock.testing import run_graph
from tests.sql import flink_statements

_PAGE = Path(__file__).parents[2] / "docs" / "sql-statements.md"


def test_the_page_says_what_a_session_answers() -> None:
    assert _PAGE.read_text() == flink_statements.page(), (
        "python -m tests.sql.flink_statements > docs/sql-statements.md"
    )


def _rows(session: SqlSession, text: str) -> list[tuple]:
    result = session.execute(text)
    return sorted(run_graph(result.job.job_graph).rows) if result.job is not None else list(result.rows)


@pytest.fixture
def session() -> SqlSession:
    made = SqlSession()
    made.execute("CREATE VIEW l AS SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS x (k, v)")
    made.execute("CREATE VIEW r AS SELECT * FROM (VALUES (2, 'c'), (3, 'd')) AS x (k, w)")
    return made


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("TABLE l", [(1, "a"), (2, "b")]),
        ("SELECT k FROM (TABLE l) AS x LIMIT ALL", [(1,), (2,)]),
        ("TABLE l UNION ALL TABLE r", [(1, "a"), (2, "b"), (2, "c"), (3, "d")]),
        ("SELECT k, l.k, r.k FROM l JOIN r USING (k)", [(2, 2, 2)]),
        ("SELECT COALESCE(l.k, 0), COALESCE(r.k, 0), k FROM l FULL JOIN r USING (k)", [(0, 3, 3), (1, 0, 1), (2, 2, 2)]),
        ("SELECT * FROM l LEFT JOIN r USING (k) WHERE r.k IS NOT NULL", [(2, "b", "c")]),
    ],
)  # fmt: skip
def test_rows_of_rarer_forms(session: SqlSession, query: str, rows: list[tuple]) -> None:
    assert _rows(session, query) == rows


def test_a_window_function_needs_no_table_around_it(session: SqlSession) -> None:
    session.execute("CREATE TABLE t (a INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) "
                    "WITH ('connector' = 'datagen', 'number-of-rows' = '5')")  # fmt: skip
    plans = [
        session.execute(
            f"EXPLAIN SELECT window_start, COUNT(*) AS n FROM {of} GROUP BY window_start, window_end"
        ).message
        for of in ("TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE) AS w",
                   "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) AS w")
    ]  # fmt: skip
    assert plans[0] == plans[1]
    assert "WindowAggregate" in plans[0]


def test_show_partitions_lists_those_of_a_partition(session: SqlSession, tmp_path: Path) -> None:
    for folder in ("dt=x/h=1", "dt=x/h=2", "dt=y z/h=1"):
        (tmp_path / "p" / folder).mkdir(parents=True)
        (tmp_path / "p" / folder / "f.csv").write_text("1\n")
    session.execute("CREATE TABLE p (a INT, dt STRING, h INT) PARTITIONED BY (dt, h) WITH "
                    f"('connector' = 'filesystem', 'path' = '{tmp_path}/p', 'format' = 'csv')")  # fmt: skip
    assert _rows(session, "SHOW PARTITIONS p PARTITION (dt = 'x')") == [("dt=x/h=1",), ("dt=x/h=2",)]
    assert _rows(session, "SHOW PARTITIONS p PARTITION (dt = 'y z', h = 1)") == [("dt=y z/h=1",)]
    with pytest.raises(SqlError, match="'d' is no partition column"):
        session.execute("SHOW PARTITIONS p PARTITION (d = 'x')")


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("SELECT * FROM f(x => 1, rows => TABLE l PARTITION BY k)", "the process table function f"),
        ("SELECT * FROM TO_CHANGELOG(input => TABLE l)", "the process table function TO_CHANGELOG"),
        ("SELECT k FROM l WINDOW w AS (PARTITION BY k)", "a WINDOW clause that no OVER names"),
        ("INSERT INTO s TABLE l ON CONFLICT DO NOTHING", "ON CONFLICT DO NOTHING"),
        ("DROP TEMPORARY MODEL m", "the statement DROP TEMPORARY MODEL"),
        ("ALTER TABLE l DROP DISTRIBUTION", "ALTER TABLE … DROP DISTRIBUTION"),
    ],
)
def test_refusals_name_what_is_refused(session: SqlSession, statement: str, name: str) -> None:
    with pytest.raises(UnsupportedError) as refused:
        session.execute(statement)
    assert refused.value.message == name
    assert refused.value.remedy
