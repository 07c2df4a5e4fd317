"""The ``jdbc`` connector over SQLite files: scan, lookup, sink, and what it refuses."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import sqlite3
from decimal import Decimal

import pytest

from penstock.errors import ConnectorError, ExternalError, RecordError, SqlError, UnsupportedError
from penstock.sql.session import SqlSession
from penstock.testing import run_graph
from penstock.types import Batch, Schema
from penstock.types import logical as t

COLUMNS = """id INT, ok BOOLEAN, big BIGINT, x DOUBLE, price DECIMAL(10, 2), name STRING, raw BYTES, d DATE, tm TIME,
  ts TIMESTAMP(3), ltz TIMESTAMP_LTZ(3)"""
DDL = """CREATE TABLE t (id INTEGER PRIMARY KEY, ok INTEGER, big INTEGER, x REAL, price TEXT, name TEXT, raw BLOB, d TEXT,
  tm TEXT, ts TEXT, ltz TEXT)"""
ROW = (
    1, True, 2**40, 0.5, Decimal("12.30"), "ä'", b"\x00\x01", dt.date(2024, 2, 29), dt.time(1, 2, 3),
    dt.datetime(2024, 1, 2, 3, 4, 5, 678000), dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
)  # fmt: skip
LITERALS = """1, TRUE, 1099511627776, 0.5, 12.30, 'ä''', x'0001', DATE '2024-02-29', TIME '01:02:03',
  TIMESTAMP '2024-01-02 03:04:05.678', CAST(TIMESTAMP '2024-01-02 03:04:05' AS TIMESTAMP_LTZ(3))"""


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "x.db"
    with sqlite3.connect(path) as connection:
        connection.execute(DDL)
    return path


def table(path, columns: str = COLUMNS, name: str = "t", key: str = "", more: str = "") -> str:
    key = f", PRIMARY KEY ({key}) NOT ENFORCED" if key else ""
    return (
        f"CREATE TABLE {name} ({columns}{key}) WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:{path}', "
        f"'table-name' = 't' {more});"
    )


def run(*statements: str, config: dict | None = None) -> list[tuple]:
    """Rows of the last statement; inserts before it are run."""
    session, out = SqlSession(config), []
    for result in session.run_script("\n".join(statements)):
        if result.job is not None:
            out = run_graph(result.job.job_graph).rows
    return out


def test_every_type_goes_in_and_comes_out(database):
    insert = f"INSERT INTO t SELECT {LITERALS};"
    nulls = "INSERT INTO t (id) SELECT 2;"
    assert sorted(run(table(database), insert, nulls, "SELECT * FROM t"), key=lambda r: r[0]) == [
        ROW,
        (2, *[None] * 10),
    ]


def test_a_scan_in_pieces_resumes_where_it_stood(database):
    with sqlite3.connect(database) as connection:
        connection.executemany("INSERT INTO t (id, name) VALUES (?, ?)", [(i, str(i)) for i in range(100)])
    ddl = table(database, "id INT, name STRING", more=", 'scan.fetch-size' = '7'")
    assert run(ddl, "SELECT COUNT(*), SUM(id), MAX(name) FROM t") == [(100, 4950, "99")]
    assert run(ddl, "SELECT id FROM t WHERE id > 97") == [(98,), (99,)]


@pytest.mark.parametrize(
    "deleted", [(), (0, 1, 2), (3, 4)], ids=["", "rows that were read", "rows that were not"]
)
async def test_a_restored_scan_reads_each_row_that_is_left_once(database, harness, deleted):
    """Counting rows from the table's beginning would miss some when others have gone."""
    with sqlite3.connect(database) as connection:
        connection.executemany("INSERT INTO t (id, name) VALUES (?, ?)", [(i, str(i)) for i in range(8)])
    schema = Schema.of(("id", t.IntType()), ("name", t.VarCharType()))
    options = {"connector": "jdbc", "url": f"jdbc:sqlite:{database}", "table-name": "t"}
    reader = await harness.reader(schema, options, batch_rows=3)
    first = [r for f in await harness.read(reader, rows=3) for r in f.batch.to_pylist()]
    assert first == [(0, "0"), (1, "1"), (2, "2")]
    splits = reader.snapshot()
    await reader.close()
    with sqlite3.connect(database) as connection:
        connection.executemany("DELETE FROM t WHERE id = ?", [(i,) for i in deleted])
    reader = await harness.reader(schema, options, splits)
    rest = [r for f in await harness.read(reader) for r in f.batch.to_pylist()]
    assert rest == [(i, str(i)) for i in range(3, 8) if i not in deleted]
    await reader.close()


async def test_a_column_called_rowid_is_no_position(database, harness):
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE named (rowid TEXT)")
        connection.executemany("INSERT INTO named VALUES (?)", [("same",)] * 5)
    schema = Schema.of(("rowid", t.VarCharType()))
    options = {"connector": "jdbc", "url": f"jdbc:sqlite:{database}", "table-name": "named"}
    reader = await harness.reader(schema, options, batch_rows=2)
    await harness.read(reader, rows=2)
    splits = reader.snapshot()
    await reader.close()
    reader = await harness.reader(schema, options, splits)
    assert [len(f.batch) for f in await harness.read(reader)] == [3]
    await reader.close()


def test_views_and_tables_without_rowid_are_read_too(database):
    with sqlite3.connect(database) as connection:
        connection.execute("INSERT INTO t (id, name) VALUES (1, 'a')")
        connection.execute("CREATE VIEW v AS SELECT id, name FROM t")
    ddl = table(database, "id INT, name STRING").replace("'t'", "'v'")
    assert run(ddl, "SELECT * FROM t") == [(1, "a")]


def test_updates_are_written_by_key_in_streaming_mode(database):
    ddl = table(database, "id INT, big BIGINT", key="id")
    rows = "(VALUES (1, 5), (2, 1), (1, 6), (3, 9)) AS v(k, n)"
    streaming = {"execution.runtime-mode": "STREAMING"}
    run(ddl, f"INSERT INTO t SELECT k, SUM(n) FROM {rows} GROUP BY k;", config=streaming)
    with sqlite3.connect(database) as connection:
        assert connection.execute("SELECT id, big FROM t ORDER BY id").fetchall() == [(1, 11), (2, 1), (3, 9)]
    # HAVING takes key 1 back: a delete.
    run(ddl, f"INSERT INTO t SELECT k, SUM(n) FROM {rows} GROUP BY k HAVING SUM(n) < 11;", config=streaming)
    with sqlite3.connect(database) as connection:
        left = connection.execute("SELECT id, big FROM t ORDER BY id").fetchall()
    assert [r for r in left if r[0] > 1] == [(2, 1), (3, 9)]


def test_inserts_with_a_key_overwrite(database):
    ddl = table(database, "id INT, name STRING", key="id")
    run(ddl, "INSERT INTO t SELECT 1, 'a';", "INSERT INTO t SELECT 1, 'b';")
    assert run(ddl, "SELECT * FROM t") == [(1, "b")]


def test_truncate_deletes_all_rows(database):
    ddl = table(database, "id INT, name STRING", key="id")
    run(ddl, "INSERT INTO t VALUES (1, 'a'), (2, 'b');")
    assert run(ddl, "TRUNCATE TABLE t;", "SELECT * FROM t;") == []
    # A table's option does not make an INSERT, which may give no rows, delete what it was not asked to.
    run(ddl, "INSERT INTO t VALUES (1, 'a');")
    emptied = table(database, "id INT, name STRING", more=", 'sink.truncate' = 'true'")
    with pytest.raises(SqlError, match=r"'sink\.truncate' is set by TRUNCATE TABLE, not by a table"):
        run(emptied, "INSERT INTO t SELECT 2, 'b' WHERE FALSE;")
    assert run(ddl, "SELECT * FROM t;") == [(1, "a")]


def test_lookup_by_one_and_by_two_keys(database):
    with sqlite3.connect(database) as connection:
        connection.executemany(
            "INSERT INTO t (id, big, name) VALUES (?, ?, ?)", [(1, 7, "a"), (2, 7, "b"), (3, 8, "c")]
        )
    ddl = table(database, "id INT, big BIGINT, name STRING")
    left = "(SELECT k, g, PROCTIME() AS p FROM (VALUES (1, 7), (2, 8), (3, 8), (9, 9)) AS v(k, g)) AS l"
    one = f"SELECT k, name FROM {left} LEFT JOIN t FOR SYSTEM_TIME AS OF l.p AS d ON l.k = d.id"
    assert sorted(run(ddl, one)) == [(1, "a"), (2, "b"), (3, "c"), (9, None)]
    many = f"SELECT k, id FROM {left} JOIN t FOR SYSTEM_TIME AS OF l.p AS d ON CAST(l.g AS BIGINT) = d.big"
    assert sorted(run(ddl, many)) == [(1, 1), (1, 2), (2, 3), (3, 3)]
    two = f"SELECT k, name FROM {left} JOIN t FOR SYSTEM_TIME AS OF l.p AS d ON l.k = d.id AND CAST(l.g AS BIGINT) = d.big"
    assert sorted(run(ddl, two)) == [(1, "a"), (3, "c")]


@pytest.mark.parametrize("cache", ["NONE", "PARTIAL", "FULL"])
@pytest.mark.parametrize(
    ("stored", "declared", "key", "held"),
    [
        ("TEXT", "TIMESTAMP(6)", "TIMESTAMP '2024-01-02 03:04:05'", "2024-01-02 03:04:05.000000"),
        ("TEXT", "TIMESTAMP(3)", "TIMESTAMP '2024-01-02 03:04:05'", "2024-01-02T03:04:05"),
        ("TEXT", "TIMESTAMP(6)", "CAST(TIMESTAMP '2024-01-02 03:04:05.5' AS TIMESTAMP(3))", "2024-01-02 03:04:05.500"),
        ("INTEGER", "TIMESTAMP(3)", "TIMESTAMP '1970-01-02 00:00:00.5'", 86_400_500),
        ("TEXT", "DATE", "DATE '2024-01-02'", "2024-01-02 00:00:00"),
        ("TEXT", "TIME(3)", "TIME '01:02:03'", "01:02:03.000"),
        ("TEXT", "DECIMAL(10, 2)", "CAST(1.5 AS DECIMAL(4, 1))", "1.5"),
        ("TEXT", "DECIMAL(10, 2)", "CAST(1.5 AS DECIMAL(4, 1))", "1.50"),
        ("DECIMAL(10, 2)", "DECIMAL(10, 2)", "CAST(1.5 AS DECIMAL(4, 1))", 1.5),
        ("TEXT", "DECIMAL(10, 2)", "CAST(7 AS SMALLINT)", "7.00"),
        ("INTEGER", "BIGINT", "CAST(7 AS INT)", 7),
        ("TEXT", "STRING", "CAST('ab' AS CHAR(2))", "ab"),
        ("TEXT", "CHAR(2)", "CAST('ab' AS STRING)", "ab"),
    ],
)  # fmt: skip
def test_keys_of_another_type_find_their_rows_whatever_the_cache(
    tmp_path, cache, stored, declared, key, held
):
    path = tmp_path / "keys.db"
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE t (k {stored}, name TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(held, "a"), (None, "none")])
    ddl = table(path, f"k {declared}, name STRING", more=f", 'lookup.cache' = '{cache}'")
    left = f"(SELECT {key} AS k, x, PROCTIME() AS p FROM (VALUES (1)) AS v(x)) AS l"
    query = f"SELECT x, name FROM {left} LEFT JOIN t FOR SYSTEM_TIME AS OF l.p AS d ON l.k = d.k"
    assert run(ddl, query) == [(1, "a")]


@pytest.mark.parametrize(
    ("declared", "key", "types"),
    [
        ("INT", "CAST(7 AS BIGINT)", "BIGINT NOT NULL = BIGINT"),
        ("DECIMAL(10, 1)", "CAST(7 AS DECIMAL(10, 2))", "DECIMAL(10, 2) NOT NULL = DECIMAL(10, 1)"),
        ("TIMESTAMP(3)", "TIMESTAMP '2024-01-02 03:04:05.123456'", "TIMESTAMP(6) NOT NULL = TIMESTAMP("),
    ],
)
def test_a_key_that_the_column_may_not_hold_is_refused(tmp_path, declared, key, types):
    with sqlite3.connect(tmp_path / "keys.db") as connection:
        connection.execute("CREATE TABLE t (k TEXT, name TEXT)")
    ddl = table(tmp_path / "keys.db", f"k {declared}, name STRING")
    left = f"(SELECT {key} AS k, PROCTIME() AS p FROM (VALUES (1)) AS v(x)) AS l"
    with pytest.raises(UnsupportedError, match="a temporal join without an equality") as caught:
        run(ddl, f"SELECT name FROM {left} JOIN t FOR SYSTEM_TIME AS OF l.p AS d ON l.k = d.k")
    assert types in (caught.value.got or "")
    assert "CAST the left side" in (caught.value.remedy or "")


def test_many_keys_are_asked_for_in_several_statements(database):
    with sqlite3.connect(database) as connection:
        connection.executemany("INSERT INTO t (id, name) VALUES (?, ?)", [(i, str(i)) for i in range(30_000)])
    source = """CREATE TABLE s (x INT, p AS PROCTIME()) WITH ('connector' = 'datagen', 'rows-per-second' = '0',
      'fields.x.kind' = 'sequence', 'fields.x.start' = '0', 'fields.x.end' = '29999');"""
    query = "SELECT COUNT(*), MAX(name) FROM s JOIN t FOR SYSTEM_TIME AS OF s.p AS d ON s.x = d.id AND CAST(s.x AS STRING) = d.name"
    assert run(source, table(database, "id INT, name STRING"), query) == [(30_000, "9999")]


def test_values_of_another_type_are_errors_or_left_out(database):
    with sqlite3.connect(database) as connection:
        connection.executemany("INSERT INTO t (id, big) VALUES (?, ?)", [(1, 1), (2, "many")])
    with pytest.raises(RecordError, match="a value of column 'big' is no BIGINT"):
        run(table(database, "id INT, big BIGINT"), "SELECT * FROM t")
    assert run(table(database, "id INT, big BIGINT", more=", 'on-error' = 'skip'"), "SELECT * FROM t") == [
        (1, 1)
    ]


@pytest.mark.parametrize(
    ("ddl", "message", "remedy"),
    [
        ("CREATE TABLE t (id INT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:oracle:thin:@h:1521:d', 'table-name' = 't')",
         "option 'url': not a database that can be opened", "SQLite file"),
        ("CREATE TABLE t (id INT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:/nowhere/x.db', 'table-name' = 't')",
         "no database at", "check the path"),
        ("CREATE TABLE t (id INT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:{path}', 'table-name' = 'tt')",
         "the database has no table 'tt'", "'t'"),
        ("CREATE TABLE t (id INT, nmae STRING) WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:{path}', 'table-name' = 't')",
         "has no column 'nmae'", "did you mean 'name'?"),
        ("CREATE TABLE t (id INT, a ARRAY<INT>) WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:{path}', 'table-name' = 't')",
         "column 'a' cannot be stored in a database", "leave the column out"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_while_planning(database, ddl, message, remedy):
    script = ddl.format(path=database) + "; SELECT * FROM t"
    with pytest.raises(ConnectorError, match=message) as caught:
        list(SqlSession().run_script(script))
    assert remedy in (caught.value.remedy or "")


# -- the order of flushes ------------------------------------------------------------------

UPSERTS = Schema.of(("id", t.BigIntType(nullable=False)), ("name", t.VarCharType()))


class Database:
    """The helper thread of a slot, in the hands of a test: calls fail while ``locked``, and wait
    while ``held``."""

    def __init__(self):
        self.locked = 0
        self.calls = 0
        self.called = asyncio.Condition()
        self.free = asyncio.Event()
        self.free.set()

    async def run(self, call):
        async with self.called:
            self.calls += 1
            self.called.notify_all()
        if self.locked:
            self.locked -= 1
            raise ExternalError("the database is locked")
        await self.free.wait()
        return await asyncio.get_running_loop().run_in_executor(None, call)

    async def until_called(self, n):
        async with self.called:
            await self.called.wait_for(lambda: self.calls >= n)


@pytest.fixture
async def upserts(harness, database, monkeypatch):
    """(a writer that flushes at every write, its helper thread, what the table holds)"""
    monkeypatch.setattr("penstock.connectors.jdbc.sink.RETRY_PAUSE_S", 0.02)
    helper = Database()
    opts = {"connector": "jdbc", "url": f"jdbc:sqlite:{database}", "table-name": "t",
            "sink.buffer-flush.interval": "0 ms", "sink.buffer-flush.max-rows": "2"}  # fmt: skip
    clock = itertools.count(1000)
    writer = await harness.writer(
        UPSERTS, opts, run=helper.run, pushed={"mode": "upsert", "keys": [0]}, now_ms=lambda: next(clock)
    )

    def contents():
        with sqlite3.connect(database) as connection:
            return connection.execute("SELECT id, name FROM t ORDER BY id").fetchall()

    yield writer, helper, contents
    helper.free.set()
    await writer.close()


def rows(*names, key=1):
    return Batch.of(UPSERTS, [(key, name) for name in names])


@pytest.mark.parametrize("how", ["checkpoint", "flush"])
async def test_rows_that_wait_for_another_attempt_are_not_overtaken(upserts, how):
    writer, helper, contents = upserts
    helper.locked = 1
    helper.calls = 0
    writer._options["sink.buffer-flush.interval"] = 10**9  # the first rows wait for the checkpoint
    writer.write(rows("old"))
    waited = asyncio.ensure_future(writer.begin_checkpoint(1) if how == "checkpoint" else writer.flush())
    await helper.until_called(1)
    writer._options["sink.buffer-flush.interval"] = 0
    writer.write(rows("newer"))
    writer.write(rows("newest"))
    await waited
    await writer.flush()
    assert contents() == [(1, "newest")]


async def test_flushes_of_several_callers_write_one_after_the_other(upserts):
    writer, helper, contents = upserts
    helper.free.clear()
    writer.write(rows("a"))
    calls = [asyncio.ensure_future(writer.flush()) for _ in range(3)]
    cut = asyncio.ensure_future(writer.begin_checkpoint(1))
    writer.write(rows("b", "c"))
    assert not writer.ready()
    await helper.until_called(2)  # 1: the connection
    await asyncio.sleep(0.05)
    assert helper.calls == 2
    helper.free.set()
    await asyncio.gather(*calls, cut, writer.wait_ready())
    await writer.flush()
    assert contents() == [(1, "c")]


async def test_a_checkpoint_waits_for_the_rows_before_it_not_for_those_behind(upserts):
    writer, helper, contents = upserts
    writer.write(rows("before"))
    cut = writer.begin_checkpoint(1)
    await cut
    helper.free.clear()
    writer.write(rows("behind"))
    done = writer.begin_checkpoint(2)
    assert contents() == [(1, "before")]
    waits = asyncio.ensure_future(done)
    await asyncio.sleep(0.05)
    assert not waits.done()
    helper.free.set()
    assert await waits == []
    assert contents() == [(1, "behind")]


async def test_nothing_is_written_behind_rows_that_could_not_be_written(upserts):
    writer, helper, contents = upserts
    helper.locked = 100
    writer.write(rows("lost"))
    cut = asyncio.ensure_future(writer.begin_checkpoint(1))
    with pytest.raises(ExternalError):
        await writer.flush()
    helper.locked = 0
    for call in (lambda: cut, lambda: writer.begin_checkpoint(2), writer.flush, writer.wait_ready):
        with pytest.raises(ExternalError):
            await call()
    with pytest.raises(ExternalError):
        writer.write(rows("later"))
    assert contents() == []


async def test_close_waits_for_the_transaction_under_way_and_tries_no_other(upserts):
    writer, helper, contents = upserts
    helper.free.clear()
    writer.write(rows("under way"))
    await helper.until_called(2)
    closing = asyncio.ensure_future(writer.close())
    await asyncio.sleep(0.05)
    assert not closing.done()
    helper.free.set()
    await closing
    assert contents() == [(1, "under way")]


async def test_close_ends_the_wait_for_another_attempt(upserts, monkeypatch):
    writer, helper, contents = upserts
    monkeypatch.setattr("penstock.connectors.jdbc.sink.RETRY_PAUSE_S", 3600.0)
    helper.locked = 1
    writer.write(rows("waits"))
    await helper.until_called(2)
    await writer.close()
    assert helper.calls == 2
    assert contents() == []
