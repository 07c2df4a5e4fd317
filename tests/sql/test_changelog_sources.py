"""Tables that are read as changelogs: upserts made whole, old rows where they are needed, and what is refused."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import pytest

from penstock.errors import PenstockError, RecordError, UnsupportedError
from penstock.sql.session import SqlSession
from penstock.testing import JobHarness, MemoryTable, run_graph
from penstock.types import Batch, RowKind, Schema
from penstock.types import logical as t

INSERT, BEFORE, AFTER, DELETE = RowKind
SCHEMA = Schema.of(
    ("id", t.IntType()), ("name", t.VarCharType(nullable=False)), ("n", t.BigIntType()), ("at", t.TimestampType(3))
)  # fmt: skip
KEY = ", PRIMARY KEY (id) NOT ENFORCED"


def at(second: int) -> dt.datetime:
    return dt.datetime(2024, 1, 1, 0, 0, second)


def batch(*rows: tuple[Any, ...], schema: Schema = SCHEMA) -> Batch:
    """Rows of (kind, column, …)."""
    return Batch.of(schema, [row[1:] for row in rows], kinds=[row[0] for row in rows])


def upserts(*batches: Batch, **more: Any) -> None:
    MemoryTable("people", SCHEMA, [batches], changelog="upsert", **more)


def declared(extra: str = "", key: str = KEY, name: str = "people") -> str:
    return (
        f"CREATE TABLE {name} (id INT, name STRING NOT NULL, n BIGINT, at TIMESTAMP(3){extra}{key}) "
        f"WITH ('connector' = 'memory', 'name' = '{name}');"
    )


def job(script: str, query: str, **config: str) -> Any:
    session = SqlSession({"parallelism.default": "1", **config})
    for _ in session.run_script(script):
        pass
    return session.execute(query).job.job_graph


def rows(script: str, query: str, **config: str) -> list[tuple[Any, ...]]:
    return sorted(run_graph(job(script, query, **config)).rows, key=repr)


CHANGES = (
    batch((INSERT, 1, "ann", 10, at(1)), (INSERT, 2, "bob", 20, at(2)), (INSERT, 1, "ann", 11, at(3))),
    batch((DELETE, 2, None, None, None), (INSERT, 3, "cid", 30, at(4)), (DELETE, 9, None, None, None)),
    batch((INSERT, 2, "bea", 21, at(5)), (INSERT, 1, "ann", 12, at(6)), (DELETE, 3, None, None, None)),
)


@pytest.mark.parametrize("parallelism", ["1", "2"])
@pytest.mark.parametrize(
    ("query", "want"),
    [
        ("SELECT id, name, n FROM people", [(1, "ann", 12), (2, "bea", 21)]),
        ("SELECT COUNT(*), SUM(n), MIN(n) FROM people", [(2, 33, 12)]),
        ("SELECT name, SUM(n) FROM people GROUP BY name", [("ann", 12), ("bea", 21)]),
        ("SELECT id FROM people WHERE n > 12", [(2,)]),
        ("SELECT a.id, b.n FROM people AS a JOIN people AS b ON a.id = b.id", [(1, 12), (2, 21)]),
        ("SELECT COUNT(*) FROM people", [(2,)]),
        ("SELECT id, n FROM people ORDER BY n DESC LIMIT 1", [(2, 21)]),
    ],
)
def test_a_query_over_upserts_counts_the_newest_row_of_each_key(query, want, parallelism):
    upserts(*CHANGES)
    assert rows(declared(), query, **{"parallelism.default": parallelism}) == want


def test_computed_columns_of_a_deletion_are_not_computed():
    """``name`` is NOT NULL, and no deletion has one."""
    upserts(*CHANGES)
    script = declared(", shout AS UPPER(name) || '!', double AS id * 2")
    assert rows(script, "SELECT id, shout, double FROM people") == [(1, "ANN!", 2), (2, "BEA!", 4)]


SINK = "CREATE TABLE sink (n BIGINT, id INT{key}) WITH ('connector' = 'memory', 'name' = 'sink');"


def written(script: str, query: str, key: str = "") -> list[tuple[Any, tuple[Any, ...]]]:
    """(kind, row) of what a sink gets."""
    sink = MemoryTable("sink", Schema.of(("n", t.BigIntType()), ("id", t.IntType())))
    run_graph(job(script + SINK.format(key=key), f"INSERT INTO sink {query}"))
    return sink.committed


def test_whole_rows_are_taken_back_where_the_sink_has_no_key():
    upserts(*CHANGES, batch_rows=3)
    changes = written(declared(), "SELECT n, id FROM people WHERE id < 3")
    assert changes == [
        (INSERT, (20, 2)), (INSERT, (11, 1)), (DELETE, (20, 2)), (INSERT, (21, 2)), (BEFORE, (11, 1)), (AFTER, (12, 1)),
    ]  # fmt: skip


def test_a_sink_by_the_same_key_gets_new_rows_alone():
    upserts(*CHANGES, batch_rows=3)
    changes = written(declared(), "SELECT n, id FROM people", key=KEY)
    assert [kind for kind, _ in changes].count(BEFORE) == 0
    assert (AFTER, (12, 1)) in changes


#: −U and +U of one row; an update that changes the key; a deletion.
FULL = batch(
    (INSERT, 1, "ann", 10, at(1)), (INSERT, 2, "bob", 20, at(1)),
    (BEFORE, 1, "ann", 10, at(1)), (AFTER, 1, "ann", 11, at(2)),
    (BEFORE, 2, "bob", 20, at(1)), (AFTER, 3, "bob", 20, at(2)),
    (INSERT, 4, "dan", 40, at(3)), (DELETE, 4, "dan", 40, at(3)),
)  # fmt: skip


@pytest.mark.parametrize("key", ["", KEY])
@pytest.mark.parametrize(
    ("query", "want"),
    [
        ("SELECT id, n FROM people", [(1, 11), (3, 20)]),
        ("SELECT COUNT(*), SUM(n) FROM people", [(2, 31)]),
        ("SELECT id FROM people WHERE n <= 10", []),
        ("SELECT a.id, b.n FROM people AS a JOIN people AS b ON a.n = b.n", [(1, 11), (3, 20)]),
    ],
)
def test_a_query_over_a_full_changelog(query, want, key):
    MemoryTable("people", SCHEMA, [[FULL]], changelog="retract")
    assert rows(declared(key=key), query) == want


def test_a_sink_by_key_gets_no_old_rows_but_those_of_another_key():
    MemoryTable("people", SCHEMA, [[FULL]], changelog="retract")
    assert written(declared(), "SELECT n, id FROM people", key=KEY) == [
        (INSERT, (10, 1)), (INSERT, (20, 2)), (AFTER, (11, 1)), (DELETE, (20, 2)), (INSERT, (20, 3)),
        (INSERT, (40, 4)), (DELETE, (40, 4)),
    ]  # fmt: skip


# -- versioned tables --------------------------------------------------------------------------

ORDERS = Schema.of(("o", t.IntType()), ("who", t.IntType()), ("ts", t.TimestampType(3)))
ORDER_ROWS = [(1, 1, at(2)), (2, 1, at(4)), (3, 2, at(3)), (4, 2, at(6)), (5, 1, at(8)), (6, 3, at(9))]
VERSIONED = """
CREATE TABLE orders (o INT, who INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'memory', 'name' = 'orders');
"""
AS_OF = "SELECT o, p.n FROM orders LEFT JOIN people FOR SYSTEM_TIME AS OF orders.ts AS p ON who = p.id"


@pytest.mark.parametrize("size", [1, 3, 100])
def test_every_upsert_is_a_version(size):
    """Also those that a later row of the same batch replaces."""
    upserts(
        batch(
            (INSERT, 1, "ann", 10, at(1)), (INSERT, 2, "bob", 20, at(2)), (INSERT, 1, "ann", 11, at(3)),
            (INSERT, 2, "bob", 21, at(5)), (INSERT, 1, "ann", 12, at(7)),
        ),
        batch_rows=size,
    )  # fmt: skip
    MemoryTable("orders", ORDERS, [[Batch.of(ORDERS, ORDER_ROWS)]])
    script = VERSIONED + declared(", WATERMARK FOR at AS at")
    assert rows(script, AS_OF) == [(1, 10), (2, 11), (3, 20), (4, 21), (5, 12), (6, None)]


def test_a_deletion_with_a_time_ends_a_version():
    MemoryTable(
        "people", SCHEMA, [[batch(
            (INSERT, 1, "ann", 10, at(1)), (DELETE, 1, "ann", 10, at(3)), (INSERT, 2, "bob", 20, at(2)),
            (BEFORE, 2, "bob", 20, at(2)), (AFTER, 2, "bob", 21, at(5)), (INSERT, 1, "ann", 12, at(7)),
        )]], changelog="retract",
    )  # fmt: skip
    MemoryTable("orders", ORDERS, [[Batch.of(ORDERS, ORDER_ROWS)]])
    script = VERSIONED + declared(", WATERMARK FOR at AS at")
    assert rows(script, AS_OF) == [(1, 10), (2, None), (3, 20), (4, 21), (5, 12), (6, None)]


def test_an_update_of_the_key_ends_the_version_of_the_old_key():
    MemoryTable(
        "people", SCHEMA,
        [[batch((INSERT, 1, "ann", 10, at(1)), (BEFORE, 1, "ann", 10, at(5)), (AFTER, 2, "ann", 10, at(5)))]],
        changelog="retract",
    )  # fmt: skip
    MemoryTable("orders", ORDERS, [[Batch.of(ORDERS, ORDER_ROWS)]])
    script = VERSIONED + declared(", WATERMARK FOR at AS at")
    assert rows(script, AS_OF) == [(1, 10), (2, 10), (3, None), (4, 10), (5, None), (6, None)]


NAMED = Schema.of(
    ("o", t.IntType()), ("who", t.IntType()), ("nick", t.VarCharType()), ("ts", t.TimestampType(3))
)  # fmt: skip
NAMED_ROWS = [(1, 1, "ann", at(2)), (2, 1, "ann", at(6)), (3, 1, "bob", at(6)), (4, 1, "bob", at(2))]
BY_NAME = "SELECT o, p.n FROM orders LEFT JOIN {people} FOR SYSTEM_TIME AS OF orders.ts AS p ON who = p.id AND nick = p.name"


@pytest.mark.parametrize("mode", ["append", "upsert", "retract"])
def test_an_equality_beside_the_key_is_compared_with_the_version_of_the_time(mode):
    """The key's version at 6 is bob: ann's row is an older version of the same key, not a key of its own."""
    changes = [(INSERT, 1, "ann", 10, at(1)), (BEFORE, 1, "ann", 10, at(1)), (AFTER, 1, "bob", 20, at(5))]
    if mode != "retract":
        changes = [(INSERT, *row) for kind, *row in changes if kind != BEFORE]
    MemoryTable("people", SCHEMA, [[batch(*changes)]], changelog=mode)
    MemoryTable("orders", NAMED, [[Batch.of(NAMED, NAMED_ROWS)]])
    script = VERSIONED.replace("who INT,", "who INT, nick STRING,") + declared(", WATERMARK FOR at AS at")
    want = [(1, 10), (2, None), (3, 20), (4, None)]
    assert rows(script, BY_NAME.format(people="people")) == want
    if mode == "append":
        view = """CREATE VIEW newest AS SELECT id, name, n, at FROM (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY at DESC) AS r FROM people) WHERE r = 1;"""
        keyless = script.replace(KEY, "") + view
        assert rows(keyless, BY_NAME.format(people="newest")) == want


def test_a_deletion_without_a_time_is_an_error_of_a_versioned_table():
    upserts(*CHANGES)
    MemoryTable("orders", ORDERS, [[Batch.of(ORDERS, ORDER_ROWS)]])
    with pytest.raises(RecordError, match="has no time") as failed:
        rows(VERSIONED + declared(", WATERMARK FOR at AS at"), AS_OF)
    assert "METADATA FROM 'timestamp'" in str(failed.value)


@pytest.mark.parametrize("side", ["LEFT", "RIGHT"])
def test_a_partner_that_comes_and_goes_within_a_batch_leaves_the_row_alone(side):
    """Both tables have a key, so that the result is one by key: the last change of a key is its row."""
    partner = batch((INSERT, 1, "ann", 3, at(1)), (DELETE, 1, "ann", 3, at(1)))
    MemoryTable("people", SCHEMA, [[batch((INSERT, 1, "bob", 8, at(1)))]], changelog="retract")
    MemoryTable("others", SCHEMA, [[partner]], changelog="retract")
    query = "SELECT a.id, a.n, b.n FROM people AS a LEFT JOIN others AS b ON a.id = b.id"
    if side == "RIGHT":
        query = "SELECT a.id, a.n, b.n FROM others AS b RIGHT JOIN people AS a ON a.id = b.id"
    assert rows(declared() + declared(name="others"), query) == [(1, 8, None)]


def test_windows_take_updates():
    upserts(*CHANGES[:1], batch_rows=1)
    query = """SELECT window_start, SUM(n), COUNT(*) FROM TABLE(TUMBLE(TABLE people, DESCRIPTOR(at), INTERVAL '10' SECOND))
      GROUP BY window_start, window_end"""
    assert rows(declared(", WATERMARK FOR at AS at"), query) == [(at(0), 31, 2)]


# -- kill and restore --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_job_goes_on_with_the_rows_of_its_checkpoint(seed):
    """The newest row of each key is state: after a restore, at another parallelism, rows are taken back exactly."""
    changes = []
    for step in range(200):
        key = (step * 7919 + seed) % 17
        changes.append(
            (DELETE, key, None, None, None) if step % 5 == 4 else (INSERT, key, "x", step, at(step % 60))
        )
    # A split for each partition of the key, as a topic has them.
    splits = [[batch(*(c for c in changes if c[1] % 2 == part))] for part in (0, 1)]
    table = MemoryTable("people", SCHEMA, splits, changelog="upsert", batch_rows=5)
    table.release(20 + 15 * seed)
    query = "SELECT COUNT(*), SUM(n), MAX(n) FROM people"

    async def run() -> list[tuple[Any, ...]]:
        async with JobHarness(job(declared(), query, **{"parallelism.default": "2"})) as harness:
            await harness.until(table.read_to_limit)
            checkpoint = await harness.checkpoint()
            table.release(60)
            await harness.until(table.read_to_limit)
        table.release()
        again = job(declared(), query, **{"parallelism.default": "3"})
        async with JobHarness(again, restore=checkpoint) as harness:
            return (await harness.wait()).rows

    want: dict[int, int] = {}
    for kind, key, _, n, _ in changes:
        if kind == DELETE:
            want.pop(key, None)
        else:
            want[key] = n
    found = asyncio.run(run())
    assert found == [(len(want), sum(want.values()), max(want.values()))]


# -- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "query", "config", "message"),
    [
        (declared(key=""), "SELECT * FROM people", {}, "needs a primary key to be read"),
        (declared(), "SELECT * FROM people", {"execution.runtime-mode": "BATCH"}, "'people', whose rows are updated, in batch"),
        (declared(", WATERMARK FOR at AS at"), "SELECT * FROM people ORDER BY at", {}, "ORDER BY of an unbounded query"),
        (declared(", p AS PROCTIME()"), "SELECT * FROM people AS a JOIN people FOR SYSTEM_TIME AS OF a.p AS b ON a.id = b.id",
         {}, "lookup"),
    ],
)  # fmt: skip
def test_what_is_refused(script, query, config, message):
    upserts(*CHANGES)
    with pytest.raises(PenstockError, match=message):
        job(script, query, **config)


def test_spark_refuses_a_changelog_by_name():
    from penstock.spark.support import spark_support

    upserts(*CHANGES)
    session = SqlSession({"execution.engine": "spark"}, spark=spark_support())
    for _ in session.run_script(declared()):
        pass
    with pytest.raises(UnsupportedError, match="read as a changelog, on Spark"):
        session.execute("SELECT * FROM people")


def test_streams_refuse_a_changelog_by_name():
    from penstock.api import StreamExecutionEnvironment

    upserts(*CHANGES)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.execute_sql(declared())
    with pytest.raises(UnsupportedError, match="'people', whose rows are updated, as a stream"):
        env.from_table("people")
    with pytest.raises(UnsupportedError, match="whose rows are updated, as a stream"):
        env.sql_query("SELECT id FROM people")


def test_explain_shows_the_normaliser_and_its_state():
    upserts(*CHANGES)
    text = job(declared(), "SELECT id, n FROM people").plan
    assert "Normalize(key=[id])" in text
    assert "one row per key" in text
    assert "changelog=upsert" in text


@pytest.mark.parametrize("query", ["SELECT id, m FROM people", "SELECT COUNT(*), SUM(m) FROM people"])
def test_a_new_row_that_is_set_aside_leaves_no_old_one(query):
    """The job failed, and blamed the connector for it."""
    MemoryTable(
        "people", SCHEMA,
        [[batch((INSERT, 1, "4", 10, at(1)), (INSERT, 2, "5", 20, at(2)),
                (BEFORE, 1, "4", 10, at(3)), (AFTER, 1, "x", 11, at(3)))]],
        changelog="retract",
    )  # fmt: skip
    script = (
        "CREATE TABLE people (id INT, name STRING NOT NULL, n BIGINT, at TIMESTAMP(3), m AS CAST(name AS INT), "
        "PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'memory', 'name' = 'people', 'on-error' = 'skip');"
    )
    assert rows(script, query) == [(2, 5) if "id" in query else (1, 5)]
