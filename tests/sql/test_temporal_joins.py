"""FOR SYSTEM_TIME AS OF: versions by event time, run end to end, and what is refused."""

from __future__ import annotations

import pytest

from penstock.errors import PenstockError
from penstock.sql.session import SqlSession
from penstock.testing import run_graph

ORDERS = ["1,a,2024-01-01 00:00:01", "2,a,2024-01-01 00:00:12", "3,b,2024-01-01 00:00:04", "4,b,2024-01-01 00:00:20",
          "5,z,2024-01-01 00:00:21"]  # fmt: skip
RATES = [
    "a,1,2024-01-01 00:00:00",
    "b,7,2024-01-01 00:00:05",
    "a,2,2024-01-01 00:00:10",
    "b,8,2024-01-01 00:00:20",
]
EXPECTED = [(1, 1), (2, 2), (3, None), (4, 8), (5, None)]

VIEW = """CREATE VIEW versions AS SELECT cur, rate, at {more} FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY cur ORDER BY at DESC) AS n FROM rates) WHERE n = 1;"""


@pytest.fixture
def script(tmp_path):
    (tmp_path / "orders.csv").write_text("\n".join(ORDERS))
    (tmp_path / "rates.csv").write_text("\n".join(RATES))

    def make(key: str = ", PRIMARY KEY (cur) NOT ENFORCED") -> str:
        return f"""
        CREATE TABLE orders (id INT, cur STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
        WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/orders.csv', 'format' = 'csv');
        CREATE TABLE rates (cur STRING, rate INT, at TIMESTAMP(3), WATERMARK FOR at AS at{key})
        WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/rates.csv', 'format' = 'csv');
        """

    return make


def rows(script: str, query: str, config: dict | None = None, parallelism: int | None = None) -> list[tuple]:
    session = SqlSession(config)
    for _ in session.run_script(script):
        pass
    return sorted(run_graph(session.execute(query).job.job_graph).rows)


@pytest.mark.parametrize("mode", ["AUTOMATIC", "STREAMING"])
@pytest.mark.parametrize("more", ["", ", n"])
def test_a_view_of_the_newest_row_per_key_is_a_versioned_table(script, mode, more):
    query = "SELECT o.id, r.rate FROM orders AS o LEFT JOIN versions FOR SYSTEM_TIME AS OF o.ts AS r ON o.cur = r.cur"
    text = script(key="") + VIEW.format(more=more)
    assert rows(text, query, {"execution.runtime-mode": mode}) == EXPECTED


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * FROM orders AS o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.cur = r.cur",
         "the versions of a temporal join have no primary key"),
        ("SELECT * FROM orders AS o JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.id > r.rate",
         "a temporal join without an equality"),
        ("SELECT * FROM orders AS o JOIN rates FOR SYSTEM_TIME AS OF o.id AS r ON o.cur = r.cur",
         "needs a time attribute of the left side"),
        ("SELECT * FROM orders AS o RIGHT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.cur = r.cur",
         "a right temporal join"),
        ("SELECT * FROM (SELECT cur, rate, at FROM versions WHERE rate > 1) AS v JOIN orders AS o ON o.cur = v.cur "
         "JOIN versions2 FOR SYSTEM_TIME AS OF o.ts AS r ON o.cur = r.cur", "time attribute"),
        ("SELECT * FROM orders AS o JOIN versions2 FOR SYSTEM_TIME AS OF o.ts AS r ON o.cur = r.cur",
         "versions that a query computes"),
        ("SELECT * FROM orders AS o JOIN versions FOR SYSTEM_TIME AS OF PROCTIME() AS r ON o.cur = r.cur",
         "a lookup join with something other than a table"),
    ],
)  # fmt: skip
def test_what_cannot_be_joined_is_refused_by_name(script, query, message):
    session = SqlSession()
    more = VIEW.format(more="") + ("CREATE VIEW versions2 AS SELECT * FROM versions WHERE rate > 1; ")
    for _ in session.run_script(script(key="") + more):
        pass
    with pytest.raises(PenstockError, match=message) as caught:
        session.execute(query)
    assert "line 1" in str(caught.value)


@pytest.mark.parametrize(
    ("declared", "held", "key"),
    [
        ("DECIMAL(10, 2)", "1.50", "CAST(1.5 AS DECIMAL(4, 1))"),
        ("DECIMAL(24, 4)", "7", "CAST(7 AS BIGINT)"),
        ("BIGINT", "7", "CAST(7 AS INT)"),
        ("STRING", "ab", "CAST('ab' AS CHAR(2))"),
        ("TIMESTAMP(6)", "2024-01-02 03:04:05", "CAST(TIMESTAMP '2024-01-02 03:04:05' AS TIMESTAMP(3))"),
    ],
)
def test_a_lookup_in_files_takes_keys_of_a_type_that_the_column_holds(tmp_path, declared, held, key):
    (tmp_path / "dim.csv").write_text(f"{held},a\n")
    ddl = f"""CREATE TABLE dim (k {declared}, name STRING)
        WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/dim.csv', 'format' = 'csv');"""
    left = f"(SELECT {key} AS k, PROCTIME() AS p FROM (VALUES (1)) AS v(x)) AS l"
    query = f"SELECT name FROM {left} LEFT JOIN dim FOR SYSTEM_TIME AS OF l.p AS d ON l.k = d.k"
    assert rows(ddl, query) == [("a",)]


def test_a_version_without_a_time_is_an_error(script, tmp_path):
    """It was a version since 1970, and rows were joined with it."""
    text = script()
    (tmp_path / "rates.csv").write_text("\n".join([*RATES, "z,9,"]))
    query = "SELECT o.id, r.rate FROM orders AS o LEFT JOIN rates FOR SYSTEM_TIME AS OF o.ts AS r ON o.cur = r.cur"
    with pytest.raises(PenstockError, match="the row time is NULL") as caught:
        rows(text, query, {"execution.engine": "streaming", "execution.runtime-mode": "STREAMING"})
    assert "'at'" in str(caught.value)
