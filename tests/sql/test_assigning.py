"""What goes into a column or a parameter without a CAST: Flink's rules, pair by pair."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from penstock.errors import RecordError, SqlError
from penstock.sql.assigning import assignable, nullable
from penstock.sql.parsing import parse_type
from penstock.sql.session import SqlSession
from penstock.testing import MemoryTable, run_graph
from penstock.types import logical as t

#: have; want; yes or no: recorded from Flink 2.3's LogicalTypeCasts.supportsImplicitCast.
_RECORDED = Path(__file__).parent / "flink_implicit_casts.csv"


def test_every_pair_as_recorded_from_flink():
    with _RECORDED.open() as file:
        recorded = list(csv.reader(file, delimiter=";"))
    assert len(recorded) == 1406
    wrong = []
    for have, want, answer in recorded:
        # A number and an interval: the one deliberate difference.
        if have.startswith("INTERVAL") != want.startswith("INTERVAL") and have != "NULL":
            answer = "no"
        if assignable(parse_type(have), parse_type(want)) != (answer == "yes"):
            wrong.append((have, want, answer))
    assert wrong == []


@pytest.fixture
def session(tmp_path):
    made = SqlSession()
    (tmp_path / "t.json").write_text("{}\n")
    columns = "i INT, l BIGINT, d DOUBLE, m DECIMAL(4, 1), s STRING, ts TIMESTAMP(3), a ARRAY<BIGINT>"
    made.execute(
        f"CREATE TABLE t ({columns}) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/t.json', 'format' = 'json')"
    )
    return made


#: (declared type, query, whether Flink plans it)
INSERTS = [
    ("INT", "VALUES (3000000000)", False),
    ("INT", "SELECT l FROM t", False),
    ("INT", "SELECT d FROM t", False),
    ("INT", "VALUES (2.6)", False),
    ("TINYINT", "VALUES (1)", False),
    ("SMALLINT", "SELECT COUNT(*) FROM t", False),
    ("FLOAT", "SELECT d FROM t", False),
    ("BIGINT", "VALUES (1)", True),
    ("DOUBLE", "VALUES (1)", True),
    ("DECIMAL(5, 2)", "SELECT d FROM t", True),
    ("DECIMAL(3, 0)", "SELECT m FROM t", True),
    ("CHAR(3)", "SELECT s FROM t", False),
    ("VARCHAR(3)", "SELECT s FROM t", True),
    ("STRING", "VALUES ('a')", True),
    ("STRING", "VALUES (1)", False),
    ("INT", "VALUES ('1')", False),
    ("BOOLEAN", "VALUES (1)", False),
    ("TIMESTAMP(3)", "SELECT CAST(ts AS DATE) FROM t", False),
    ("DATE", "SELECT ts FROM t", True),
    ("ARRAY<INT>", "SELECT a FROM t", False),
    ("ARRAY<BIGINT>", "SELECT ARRAY[1, 2]", True),
    ("ROW<x INT, y INT>", "SELECT ROW(i, l) FROM t", False),
    ("ROW<x BIGINT NOT NULL, y DOUBLE>", "SELECT ROW(i, i) FROM t", True),
    ("INT NOT NULL", "SELECT i FROM t", True),
]


@pytest.mark.parametrize(("declared", "query", "planned"), INSERTS)
def test_insert_takes_what_flink_takes(session, declared, query, planned):
    session.execute(f"CREATE TABLE s (x {declared}) WITH ('connector' = 'blackhole')")
    if planned:
        assert session.execute(f"INSERT INTO s {query}").job is not None
        return
    with pytest.raises(SqlError) as caught:
        session.execute(f"INSERT INTO s {query}")
    text = str(caught.value)
    assert (
        "Column types of query result and sink for 'default_catalog.default_database.s' do not match" in text
    )
    assert "Incompatible types for sink column 'x' at position 0" in text
    assert f"Sink schema: [x: {declared}]".replace("x BIGINT", "`x` BIGINT") in text or "ROW" in declared
    assert "CAST(" in text


def test_the_place_and_the_remedy_are_those_of_the_column(session):
    session.execute("CREATE TABLE s (x BIGINT, y INT) WITH ('connector' = 'blackhole')")
    with pytest.raises(SqlError) as caught:
        session.execute("INSERT INTO s SELECT i,\n  l + 1 AS z FROM t")
    assert caught.value.where == "line 2, column 3"
    assert caught.value.remedy == "write CAST(l + 1 AS INT), or declare y BIGINT"
    assert caught.value.got == "Query schema: [i: INT, z: BIGINT]"


def test_what_widens_keeps_its_value(session, tmp_path):
    session.execute(
        "CREATE TABLE f (a BIGINT, b DOUBLE, c DECIMAL(5, 2), d STRING) WITH ('connector' = 'filesystem', "
        f"'path' = '{tmp_path}/f', 'format' = 'json')"
    )
    run_graph(session.execute("INSERT INTO f VALUES (1, 2, 2.5, 'x'), (-7, 0.5, 3, 'yy')").job.job_graph)
    rows = run_graph(session.execute("SELECT a, b, CAST(c AS STRING), d FROM f").job.job_graph).rows
    assert sorted(rows) == [(-7, 0.5, "3.00", "yy"), (1, 2.0, "2.50", "x")]


@pytest.mark.parametrize(
    ("columns", "where"),
    [
        ("id INT NOT NULL, n BIGINT", "column 'id' of the sink"),
        # A primary key is NOT NULL.
        ("id INT PRIMARY KEY NOT ENFORCED, n BIGINT", "column 'id' of the sink"),
    ],
)
def test_a_null_into_a_not_null_column_fails_or_is_dropped_as_configured(session, columns, where):
    session.execute(f"CREATE TABLE s ({columns}) WITH ('connector' = 'memory', 'name' = 'enforced')")
    insert = (
        "INSERT INTO s SELECT x, COUNT(*) FROM (VALUES (1), (CAST(NULL AS INT)), (1)) AS v (x) GROUP BY x"
    )
    session.execute("SET 'execution.runtime-mode' = 'BATCH'")
    MemoryTable("enforced", t.Schema.of(("id", t.IntType()), ("n", t.BigIntType())))
    with pytest.raises(RecordError, match="Column 'id' is NOT NULL, however, a null value") as caught:
        run_graph(session.execute(insert).job.job_graph)
    assert caught.value.where == where
    session.execute("SET 'table.exec.sink.not-null-enforcer' = 'drop'")
    kept = MemoryTable("enforced", t.Schema.of(("id", t.IntType()), ("n", t.BigIntType())))
    run_graph(session.execute(insert).job.job_graph)
    assert kept.committed_rows() == [(1, 2)]


def test_a_primary_key_needs_a_value(session):
    session.execute(
        "CREATE TABLE s (k INT, n INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'blackhole')"
    )
    with pytest.raises(SqlError, match="column 'k' of 's' is NOT NULL and gets no value"):
        session.execute("INSERT INTO s (n) SELECT i FROM t")


def test_nullable_goes_into_every_part():
    made = nullable(parse_type("ROW<a INT NOT NULL, b ARRAY<INT NOT NULL> NOT NULL> NOT NULL"))
    assert made == parse_type("ROW<a INT, b ARRAY<INT>>")
