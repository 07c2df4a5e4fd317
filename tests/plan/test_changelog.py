"""Which updating results are written by key as they come, which through a materialiser, which whole."""

from __future__ import annotations

import pytest

from penstock.errors import UnsupportedError
from penstock.jobgraph.specs import TopNSpec
from penstock.sql.session import SqlSession

SETTINGS = {
    "parallelism.default": "2",
    "execution.runtime-mode": "STREAMING",
    "table.exec.join.unbounded-state": "allow",
}
TABLES = """
CREATE TABLE e (id BIGINT, k STRING, v INT, needed STRING NOT NULL) WITH ('connector' = 'datagen');
CREATE VIEW a AS SELECT k, COUNT(*) AS n FROM e GROUP BY k;
CREATE VIEW b AS SELECT k, SUM(v) AS n FROM e GROUP BY k;
CREATE VIEW sure AS SELECT needed AS k, COUNT(*) AS n FROM e GROUP BY needed;
CREATE TABLE files (id BIGINT) WITH ('connector' = 'filesystem', 'path' = 'x', 'format' = 'json');
"""


def session() -> SqlSession:
    made = SqlSession(SETTINGS)
    for _ in made.run_script(TABLES):
        pass
    return made


@pytest.mark.parametrize(
    ("query", "mode", "materialized"),
    [
        ("SELECT k, n FROM a", "upsert", False),
        ("SELECT k, n FROM a WHERE n < 5", "upsert", False),
        ("SELECT a.k, b.n FROM a JOIN b ON a.k = b.k AND a.n > b.n", "upsert", False),
        # rows of a key move between the join's subtasks
        ("SELECT a.k, b.k, b.n FROM a JOIN b ON a.n = b.n", "upsert", True),
        ("SELECT a.k, b.k, b.n FROM a LEFT JOIN b ON a.n = b.n", "upsert", True),
        ("SELECT x.k, x.m FROM (SELECT a.k, b.k AS m FROM a JOIN b ON a.n = b.n) AS x JOIN b ON x.k = b.k", "upsert", True),
        # a row whose key is NULL would be taken for one that is padded
        ("SELECT a.k, b.k, a.n FROM a FULL JOIN b ON a.k = b.k", "retract", False),
        ("SELECT a.k, sure.k, a.n FROM a FULL JOIN sure ON a.k = sure.k", "upsert", False),
        ("SELECT k, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY n) AS r FROM a) WHERE r = 1", "upsert", False),
        ("SELECT k, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY n ORDER BY k) AS r FROM a) WHERE r <= 2", "upsert", True),
        ("SELECT n, r FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY n ORDER BY k) AS r FROM a) WHERE r <= 2", "upsert", False),
        # the row of a place replaces the one that stood there, whose own key is another
        ("SELECT k, n, r FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY n) AS r FROM a) WHERE r <= 2", "upsert", False),
        ("SELECT k, n, COUNT(*) FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY n) AS r FROM a) WHERE r <= 2 GROUP BY k, n", "upsert", False),
        ("SELECT k, n FROM a ORDER BY n LIMIT 1", "upsert", True),
        ("SELECT k FROM a INTERSECT SELECT k FROM b", "upsert", False),
        ("SELECT k, n FROM a ORDER BY n LIMIT 3", "upsert", False),
        ("SELECT id FROM e ORDER BY v LIMIT 3", "retract", False),
        ("SELECT id FROM e", "append", False),
    ],
)  # fmt: skip
def test_how_a_result_is_written(query: str, mode: str, materialized: bool) -> None:
    job = session().execute(query).job
    assert job is not None
    assert job.mode == mode
    assert ("SinkMaterializer" in job.job_graph.plan) == materialized


def test_the_first_rows_of_a_stream_do_not_go_into_files() -> None:
    with pytest.raises(UnsupportedError, match="takes only inserts"):
        session().execute("INSERT INTO files SELECT id FROM e ORDER BY v LIMIT 3")


@pytest.mark.parametrize(
    ("key", "query", "materialized"),
    [
        ("r", "SELECT *, ROW_NUMBER() OVER (ORDER BY n) AS r FROM a) WHERE r <= 2", False),
        ("k", "SELECT *, ROW_NUMBER() OVER (ORDER BY n) AS r FROM a) WHERE r <= 2", True),
        ("k, r", "SELECT *, ROW_NUMBER() OVER (ORDER BY n) AS r FROM a) WHERE r <= 2", True),
        ("n", "SELECT *, ROW_NUMBER() OVER (PARTITION BY n ORDER BY k) AS r FROM a) WHERE r = 1", False),
        ("k, n", "SELECT *, ROW_NUMBER() OVER (PARTITION BY n ORDER BY k) AS r FROM a) WHERE r = 1", True),
        ("k", "SELECT *, RANK() OVER (ORDER BY n) AS r FROM a) WHERE r <= 2", False),
        ("k", "SELECT *, CAST(1 AS BIGINT) AS r FROM a ORDER BY n LIMIT 1)", True),
    ],
)
def test_the_key_of_a_table_is_that_by_which_rows_are_replaced_or_a_materialiser_stands_before_it(
    key: str, query: str, materialized: bool
) -> None:
    made = session()
    made.execute(
        f"CREATE TABLE kept (k STRING, n BIGINT, r BIGINT, PRIMARY KEY ({key}) NOT ENFORCED) "
        "WITH ('connector' = 'blackhole')"
    )
    job = made.execute(f"INSERT INTO kept SELECT k, n, r FROM ({query}").job
    assert job is not None
    assert ("SinkMaterializer" in job.job_graph.plan) == materialized


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("SELECT k, n FROM a", (0,)),
        # a row whose n changes goes to another subtask of the join: the new row may be there before the old one's end
        ("SELECT k, n FROM a WHERE n IN (SELECT v FROM e)", ()),
        ("SELECT a.k, b.n FROM a JOIN b ON a.n = b.n AND b.k = 'x'", ()),
        ("SELECT a.k, b.n FROM a JOIN b ON a.k = b.k", (0,)),
        ("SELECT id, v FROM e", ()),
    ],
)
@pytest.mark.parametrize(
    "first", ["ORDER BY n LIMIT 3", "(SELECT *, ROW_NUMBER() OVER (ORDER BY n) AS r FROM {}) WHERE r <= 3"]
)
def test_top_n_finds_a_row_by_its_key_only_where_its_changes_come_in_order(
    query: str, keys: tuple[int, ...], first: str
) -> None:
    named = f"(SELECT * FROM ({query}) AS q(m, n))"
    text = f"SELECT * FROM {first.format(named)}" if "{}" in first else f"SELECT * FROM {named} {first}"
    job = session().execute(text).job
    assert job is not None
    [spec] = [op.spec for v in job.job_graph.vertices for op in v.operators if isinstance(op.spec, TopNSpec)]
    assert spec.unique_keys == keys
