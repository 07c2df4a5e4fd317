"""PARTITIONED BY, INSERT … PARTITION, SHOW PARTITIONS and the partitions that a query reads."""

from __future__ import annotations

import asyncio
import re

import pytest

from penstock.errors import PenstockError
from penstock.sql.session import SqlSession
from penstock.testing import JobHarness, run_graph

FORMATS = ["csv", "json", "parquet", "orc", "arrow"]


def run(session: SqlSession, script: str) -> list:
    """Runs every job; the last statement's rows."""
    out: list = []
    for result in session.run_script(script):
        if result.job is not None:
            out = sorted(run_graph(result.job.job_graph).rows, key=str)
        else:
            out = list(result.rows)
    return out


def table(folder, format_="json", columns="id INT, dt DATE, g STRING, hr INT", keys="dt, hr", more="") -> str:
    return (
        f"CREATE TABLE t ({columns}) PARTITIONED BY ({keys}) WITH ('connector' = 'filesystem', "
        f"'path' = '{folder}/t', 'format' = '{format_}'{more});"
    )


FILL = """
INSERT INTO t VALUES (1, DATE '2024-01-01', 'a', 1), (2, DATE '2024-01-02', 'b', 2), (3, CAST(NULL AS DATE), 'c', 1),
  (4, DATE '2024-01-01', 'd', 2), (5, DATE '2024-01-03', 'a', 3);
"""
ALL = ["dt=2024-01-01/hr=1", "dt=2024-01-01/hr=2", "dt=2024-01-02/hr=2", "dt=2024-01-03/hr=3",
       "dt=__DEFAULT_PARTITION__/hr=1"]  # fmt: skip


@pytest.mark.parametrize("format_", FORMATS)
def test_every_format_keeps_the_columns_in_folders(tmp_path, format_):
    session = SqlSession({"parallelism.default": "2"})
    assert run(session, table(tmp_path, format_) + FILL + "SHOW PARTITIONS t") == [(name,) for name in ALL]
    assert [row[0] for row in run(session, "SELECT * FROM t")] == [1, 2, 3, 4, 5]
    assert run(session, "SELECT COUNT(*) FROM t") == [(5,)]
    assert run(session, "SELECT hr FROM t WHERE dt IS NULL") == [(1,)]


def read(explained: str) -> list[str]:
    found = re.search(r"partitions=\[(.*)\]", explained)
    return [] if found is None or not found[1] else found[1].split(", ")


#: Condition → places in ALL of the partitions that are read.
PRUNED = [
    ("dt = DATE '2024-01-01'", [0, 1]),
    ("dt = '2024-01-01' AND hr > 1", [1]),
    ("dt > DATE '2024-01-01'", [2, 3]),
    ("dt IN (DATE '2024-01-01', DATE '2024-01-03')", [0, 1, 3]),
    ("dt BETWEEN DATE '2024-01-02' AND DATE '2024-01-09'", [2, 3]),
    ("dt IS NULL", [4]),
    ("dt IS NOT NULL AND hr + 1 = 3", [1, 2]),
    ("hr = 1 OR dt = DATE '2024-01-03'", [0, 3, 4]),
    ("(hr = 1 AND id > 1) OR (hr = 3 AND id < 9)", [0, 3, 4]),
    ("EXTRACT(DAY FROM dt) = 2", [2]),
    ("dt = DATE '1999-01-01'", []),
    ("hr = 1 OR id = 2", [0, 1, 2, 3, 4]),
    ("id = 2", [0, 1, 2, 3, 4]),
    ("hr < RAND() * 0", [0, 1, 2, 3, 4]),
    ("10 / (hr - 1) > 5 AND id = 4", [0, 1, 2, 3, 4]),
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    session = SqlSession({"parallelism.default": "2"})
    run(session, table(tmp_path_factory.mktemp("pruned")) + FILL)
    return session


@pytest.mark.parametrize(("condition", "expected"), PRUNED)
def test_only_partitions_that_may_have_rows_are_read(filled, condition, expected):
    explained = filled.execute(f"EXPLAIN SELECT id FROM t WHERE {condition}").message
    assert read(explained) == [ALL[i] for i in expected]
    if "/" in condition or "RAND" in condition:
        return
    kept = run(filled, f"SELECT id FROM t WHERE {condition}")
    # The same question to rows that no source can leave out.
    assert kept == run(filled, f"SELECT id FROM (SELECT * FROM t UNION SELECT * FROM t) WHERE {condition}")


def test_a_source_that_two_queries_share_reads_what_either_asks_for(filled):
    both = """EXPLAIN SELECT id FROM t WHERE hr = 3 UNION ALL SELECT hr FROM t WHERE dt IS NULL"""
    assert read(filled.execute(both).message) == [ALL[3], ALL[4]]
    one = "EXPLAIN SELECT id FROM t WHERE hr = 3 UNION ALL SELECT hr FROM t"
    assert read(filled.execute(one).message) == ALL


def test_a_computed_column_over_a_partition_column(tmp_path):
    session = SqlSession({"parallelism.default": "2"})
    run(session, table(tmp_path, columns="id INT, dt DATE, g STRING, hr INT, late AS hr > 1") + FILL)
    assert read(session.execute("EXPLAIN SELECT id FROM t WHERE late").message) == [ALL[1], ALL[2], ALL[3]]
    assert run(session, "SELECT id FROM t WHERE late") == [(2,), (4,), (5,)]


def test_static_partitions_are_left_out_of_the_query(tmp_path):
    session = SqlSession({"parallelism.default": "2"})
    run(session, table(tmp_path))
    run(session, "INSERT INTO t PARTITION (dt = '2024-01-01', hr = 7) SELECT 1, 'a'")
    run(session, "INSERT INTO t PARTITION (hr = '8') (g, dt) SELECT 'b', DATE '2024-01-02'")
    run(session, "INSERT INTO t PARTITION (dt = CAST(NULL AS DATE)) VALUES (3, 'c', 9)")
    assert run(session, "SELECT id, CAST(dt AS STRING), g, hr FROM t") == [
        (1, "2024-01-01", "a", 7), (3, None, "c", 9), (None, "2024-01-02", "b", 8),
    ]  # fmt: skip


def test_overwrite_replaces_the_partitions_that_are_written(tmp_path):
    session = SqlSession({"parallelism.default": "2"})
    run(session, table(tmp_path) + FILL)
    other = tmp_path / "t" / "dt=2024-01-02" / "hr=2" / "other.json"
    other.write_text('{"id": 22}\n')
    run(session, "INSERT OVERWRITE t SELECT id + 10, dt, g, hr FROM t WHERE dt = DATE '2024-01-02'")
    assert run(session, "SELECT id FROM t") == [(1,), (12,), (3,), (32,), (4,), (5,)]
    for folder in ("dt=2024-01-03/hr=3", "dt=2024-01-01/hr=2"):
        (tmp_path / "t" / folder / "other.json").write_text('{"id": 50}\n')
    # The one that is named is emptied, though no row came; of a part of the columns only what has rows.
    (tmp_path / "t" / "dt=2024-01-03" / "hr=3").joinpath("other.json").write_text('{"id": 51}\n')
    run(session, "INSERT OVERWRITE t PARTITION (dt = '2024-01-03', hr = 3) SELECT id, g FROM t WHERE id > 90")
    assert not (tmp_path / "t" / "dt=2024-01-03" / "hr=3" / "other.json").exists()
    run(session, "INSERT OVERWRITE t PARTITION (dt = '2024-01-01') SELECT id, g, hr FROM t WHERE id > 90")
    assert (tmp_path / "t" / "dt=2024-01-01" / "hr=2" / "other.json").exists()


def test_truncate_empties_all_partitions(tmp_path):
    session = SqlSession({"parallelism.default": "2"})
    run(session, table(tmp_path) + FILL)
    (tmp_path / "t" / "dt=2024-01-02" / "hr=2" / "other.json").write_text('{"id": 22}\n')
    run(session, "TRUNCATE TABLE t")
    assert [path for path in (tmp_path / "t").rglob("*") if path.is_file()] == []
    run(session, FILL)
    assert [row[0] for row in run(session, "SELECT * FROM t")] == [1, 2, 3, 4, 5]
    plain = f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/plain', 'format' = 'csv')"
    run(
        session,
        f"CREATE TABLE plain (id INT) {plain}; INSERT INTO plain VALUES (1), (2); TRUNCATE TABLE plain;",
    )
    assert run(session, "SELECT COUNT(*) FROM plain WHERE id > 0 HAVING COUNT(*) > 0") == []
    run(session, "INSERT INTO plain VALUES (3)")
    assert run(session, "SELECT * FROM plain") == [(3,)]


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_table_is_there_when_no_row_was_written(tmp_path, partitioned):
    by = "PARTITIONED BY (g)" if partitioned else ""
    options = f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/new', 'format' = 'csv')"
    session = SqlSession({"execution.runtime-mode": "BATCH"})
    run(session, f"CREATE TABLE new (id INT, g STRING) {by} {options}")
    with pytest.raises(PenstockError, match="no file at"):
        run(session, "SELECT * FROM new")
    run(session, "INSERT INTO new SELECT * FROM (VALUES (1, 'a')) v(id, g) WHERE id > 1")
    assert run(session, "SELECT * FROM new") == []
    assert run(session, "SELECT COUNT(*), MAX(id) FROM new") == [(0, None)]


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("TRUNCATE TABLE p", "TRUNCATE TABLE of connector 'print'"),
        ("TRUNCATE TABLE v", "'v' is a view"),
        ("TRUNCATE TABLE nowhere", "unknown table 'nowhere'"),
        ("TRUNCATE p", "expected: TABLE"),
        ("TRUNCATE TABLE p PARTITION (id = 1)", "syntax error at 'PARTITION'"),
    ],
)
def test_what_cannot_be_truncated_is_refused_by_name(statement, words):
    session = SqlSession()
    run(session, "CREATE TABLE p (id INT) WITH ('connector' = 'print'); CREATE VIEW v AS SELECT 1 AS id;")
    with pytest.raises(PenstockError) as caught:
        session.execute(statement)
    assert words in str(caught.value)


def test_a_declaration_is_shown_and_taken_again(tmp_path):
    session = SqlSession({"parallelism.default": "2"})
    run(session, table(tmp_path).replace(") PARTITIONED", ") COMMENT 'x' PARTITIONED"))
    [(shown,)] = session.execute("SHOW CREATE TABLE t").rows
    assert ")\nCOMMENT 'x'\nPARTITIONED BY (`dt`, `hr`)\nWITH (" in shown
    assert "partition.keys" not in shown
    other = SqlSession()
    other.execute(shown)
    assert other.execute("SHOW CREATE TABLE t").rows == ((shown,),)
    other.execute("CREATE TABLE u LIKE t")
    assert other.catalog.tables["u"].partition_keys == ("dt", "hr")
    other.execute("CREATE TABLE v LIKE t (EXCLUDING PARTITIONS)")
    assert other.catalog.tables["v"].partition_keys == ()
    other.execute("CREATE TABLE w PARTITIONED BY (id) LIKE t (EXCLUDING PARTITIONS)")
    assert other.catalog.tables["w"].partition_keys == ("id",)


def test_describe_marks_partition_columns(tmp_path):
    session = SqlSession()
    run(session, table(tmp_path))
    assert [row[4] for row in session.execute("DESCRIBE t").rows] == [
        "", "PARTITIONED BY", "", "PARTITIONED BY",
    ]  # fmt: skip


def test_metadata_and_a_lookup_join(tmp_path):
    session = SqlSession()
    run(
        session,
        table(
            tmp_path, columns="id INT, dt DATE, g STRING, hr INT, f STRING METADATA FROM 'file.path' VIRTUAL"
        ),
    )
    run(session, FILL)
    assert [
        name.split("/t/")[1].rpartition("/")[0] for [name] in run(session, "SELECT f FROM t WHERE hr = 3")
    ] == [ALL[3]]
    joined = """CREATE VIEW v AS SELECT x, PROCTIME() AS at FROM (VALUES (1), (3)) AS q(x);
      SELECT x, id FROM v JOIN t FOR SYSTEM_TIME AS OF v.at ON v.x = t.hr"""
    assert run(session, joined) == [(1, 1), (1, 3), (3, 5)]


def test_another_partitioning_is_another_table_to_a_savepoint(tmp_path):
    run(SqlSession(), table(tmp_path) + FILL)

    def meaning(keys: str) -> list[str]:
        session = SqlSession()
        run(session, table(tmp_path, keys=keys))
        [job] = session.run_script("SELECT * FROM t")
        operators = [op for vertex in job.job.job_graph.vertices for op in vertex.operators]
        return [op.identity.digest for op in operators if op.name in ("Enumerator: t", "Source: t")]

    assert all(meaning("dt, hr"))
    assert meaning("dt, hr") == meaning("dt, hr")
    assert not set(meaning("dt, hr")) & set(meaning("hr"))


def test_create_table_as(tmp_path):
    session = SqlSession({"parallelism.default": "2"})
    run(session, f"""CREATE TABLE c PARTITIONED BY (k) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/c',
      'format' = 'csv') AS SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS x(id, k)""")  # fmt: skip
    assert run(session, "SELECT * FROM c WHERE k = 'b'") == [(2, "b")]


def _created(clause: str, connector: str = "filesystem', 'path' = '/x', 'format' = 'json") -> str:
    return f"CREATE TABLE x (a INT, b STRING, c AS a + 1) {clause} WITH ('connector' = '{connector}')"


#: (statement, where, message, remedy)
WRONG = [
    (_created("PARTITIONED BY (bb)"), "line 1, column 46", "partition column 'bb' is not a physical column", "did you mean 'b'?"),
    (_created("PARTITIONED BY (c)"), "line 1, column 46", "partition column 'c' is not a physical column", "type"),
    (_created("PARTITIONED BY (a, a)"), "line 1, column 46", "named twice", ""),
    (_created("PARTITIONED BY (a, b)"), "line 1, column 46", "all columns are partition columns", "fewer"),
    (_created("PARTITIONED BY (b)", "print"), "line 1, column 46", "PARTITIONED BY with connector 'print'", "leave"),
    (_created("", "filesystem', 'partition.keys' = '[]"), "line 1, column 1", "'partition.keys' is no option",
     "PARTITIONED BY"),
    ("CREATE TABLE x PARTITIONED BY (g) LIKE t", "line 1, column 16", "'t' is partitioned already", "EXCLUDING"),
    ("CREATE TABLE x WITH ('connector' = 'print') LIKE t (EXCLUDING OPTIONS)", "line 1, column 1",
     "PARTITIONED BY with connector 'print'", "EXCLUDING PARTITIONS"),
    ("INSERT INTO t PARTITION (g = 'x') SELECT 1", "line 1, column 26", "'g' is no partition column", "select"),
    ("INSERT INTO t PARTITION (dt = 'x', hr = 1) SELECT 1, 'a'", "line 1, column 31", "does not fit the column", ""),
    ("INSERT INTO t PARTITION (hr = 1, hr = 2) SELECT 1, 'a'", "line 1, column 34", "named twice", ""),
    ("INSERT INTO t PARTITION (hr = RAND()) SELECT 1, 'a'", "line 1, column 31", "is no constant", "query"),
    ("INSERT INTO t PARTITION (hr) SELECT 1, 'a'", "line 1, column 28", "'=' and the value of 'hr'", ""),
    ("INSERT INTO t PARTITION (hr = 1) (id, hr) SELECT 1, 2", "line 1, column 39", "gives column 'hr'", "leave"),
    ("INSERT INTO t PARTITION (hr = 1) SELECT 1, DATE '2024-01-01', 'a', 2", "line 1, column 41", "gives 4 columns",
     "select only"),
    ("INSERT INTO p PARTITION (hr = 1) SELECT 1", "line 1, column 26", "'hr' is no partition column", "select"),
    ("ALTER TABLE t DROP PARTITION (hr = 1)", "line 1, column 15", "ALTER TABLE … DROP PARTITION", "folder"),
    ("ALTER TABLE t COMPACT", "line 1, column 15", "ALTER TABLE … COMPACT", ""),
    ("SHOW PARTITIONS p", "line 1, column 1", "table 'p' is not partitioned", ""),
    ("SHOW PARTITIONS tt", "line 1, column 1", "unknown table 'tt'", ""),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "where", "message", "remedy"), WRONG)
def test_errors_name_the_place_and_the_remedy(tmp_path, statement, where, message, remedy):
    session = SqlSession({"parallelism.default": "2"})
    run(session, table(tmp_path) + "CREATE TABLE p (hr INT) WITH ('connector' = 'print')")
    with pytest.raises(PenstockError) as caught:
        run(session, statement)
    assert message in str(caught.value)
    assert (caught.value.where or "").startswith(where), caught.value
    assert remedy in (caught.value.remedy or "")


@pytest.mark.parametrize("drain", [False, True])
def test_a_stopped_overwrite_keeps_the_old_rows(tmp_path, drain):
    """It had given a part of its rows; the job that starts from the savepoint gives the rest, and replaces then."""
    session = SqlSession({"parallelism.default": "1"})
    where = f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/t', 'format' = 'json')"
    run(session, f"CREATE TABLE t (id BIGINT) {where}; INSERT INTO t VALUES (70), (71);")
    run(session, """CREATE TABLE slow (id BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '40',
      'rows-per-second' = '100', 'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '39')""")  # fmt: skip
    graph = session.execute("INSERT OVERWRITE t SELECT id FROM slow").job.job_graph

    async def stopped():
        async with JobHarness(graph) as job:
            return await job.stop(drain=drain), job.store

    async def resumed(savepoint, store):
        async with JobHarness(graph, restore=savepoint, store=store) as job:
            await job.wait()

    stored = asyncio.run(stopped())
    assert run(session, "SELECT id FROM t") == [(70,), (71,)]
    if not drain:
        asyncio.run(resumed(*stored))
        assert sorted(run(session, "SELECT id FROM t")) == [(i,) for i in range(40)]
