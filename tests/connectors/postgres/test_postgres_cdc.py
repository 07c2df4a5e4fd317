"""``postgres-cdc`` on a real PostgreSQL: exact under concurrent writers, restores and server crashes; refusals by name."""

from __future__ import annotations

import asyncio
import datetime as dt
import random
import threading
from decimal import Decimal

import psycopg
import pytest

from penstock.connectors.registry import get_connector, validate_table
from penstock.errors import ConnectorError, ExternalError, PenstockError, RecordError
from penstock.testing.conformance import SourceConformance
from penstock.types import Schema
from penstock.types import logical as t
from penstock.types.batch import RowKind
from tests.connectors.postgres.replayed import Reading, Replayed, options

pytestmark = pytest.mark.cluster

INS, UB, UA, DEL = RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE
ORDERS = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()), ("n", t.IntType()))
SMALL_CHUNKS = {"scan.incremental.snapshot.chunk.size": "97", "scan.snapshot.fetch.size": "40"}


class Writers:
    """Threads that insert, update, delete, move keys and roll back, until they are stopped."""

    def __init__(self, server, database, seed, key="%s::bigint"):
        self.server, self.database, self.seed, self.key = server, database, seed, key
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=self._write, args=(k,)) for k in range(3)]
        for thread in self.threads:
            thread.start()

    def _write(self, number):
        chance, i = random.Random(self.seed * 10 + number), 0
        connection = None
        while not self.stopped.is_set():
            try:
                connection = connection or self.server.connect(self.database)
                with (
                    connection.transaction(force_rollback=chance.random() < 0.1),
                    connection.cursor() as cursor,
                ):
                    for _ in range(chance.randint(1, 6)):
                        self._step(cursor, chance, i)
                        i += 1
            except psycopg.Error:
                # The other writer holds the row, or the server is killed.
                if connection is not None and connection.closed:
                    connection = None
                self.stopped.wait(0.01)
        if connection is not None:
            connection.close()

    def _step(self, cursor, chance, i):
        key, choice, k = chance.randint(1, 900), chance.random(), self.key
        if choice < 0.3:
            cursor.execute(
                f"INSERT INTO orders VALUES ({k}, %s, 0) ON CONFLICT DO NOTHING", (key, f"new {i}")
            )
        elif choice < 0.8:
            cursor.execute(f"UPDATE orders SET n = n + 1 WHERE id = {k}", (key,))
        elif choice < 0.9:
            cursor.execute(f"DELETE FROM orders WHERE id = {k}", (key,))
        else:
            cursor.execute(
                f"UPDATE orders SET id = {k} WHERE id = {k} AND NOT EXISTS (SELECT 1 FROM orders WHERE id = {k})",
                (key + 1000, key, key + 1000),
            )

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()


def orders(server, database, rows=600, key="bigint", made="i * 2", identity="FULL"):
    server.execute(
        f"CREATE TABLE orders (id {key} PRIMARY KEY, name text, n int); "
        f"ALTER TABLE orders REPLICA IDENTITY {identity}; "
        f"INSERT INTO orders SELECT ({made})::{key}, 'name ' || i, 0 FROM generate_series(1, {rows}) AS i",
        database=database,
    )


async def followed(
    server, database, seed, *, schema=ORDERS, key="%s::bigint", rows=4_000, crash=None, most_restores=6
):
    """Follows ``orders`` while it is written, restoring at random; compares it with the table at the end."""
    chance = random.Random(seed)
    reading = Reading(schema, options(server, database, "orders", **SMALL_CHUNKS), batch_rows=32)
    writers = Writers(server, database, seed, key)
    replayed, count, restores = Replayed(), 0, 0
    await reading.start()
    saved = reading.position(), replayed.copy()
    crash_at = rows // 2

    async def step():
        nonlocal count
        fetched = reading.reader.poll()
        if fetched is None:
            await reading.reader.wait()
            return
        for kind, row in fetched.batch.rows():
            replayed.apply(kind, row)
            count += 1

    try:
        while count < rows:
            await step()
            if chance.random() < 0.1:
                saved = reading.position(), replayed.copy()
            if crash is not None and count > crash_at:
                crash()
                crash = None
            if restores < most_restores and chance.random() < 0.02:
                await reading.stop()
                reading.splits, replayed = saved[0], saved[1].copy()
                restores += 1
                await reading.start()
        writers.stop()
        end = "'zz end'" if "text" in key else "-1"
        server.execute(f"INSERT INTO orders VALUES ({end}, 'end', 0)", database=database)
        last = "zz end" if "text" in key else -1
        while last not in replayed.rows or reading.position()[0].position["cursor"] is not None:
            await step()
    finally:
        writers.stop()
        await reading.stop()
    there = {row[0]: row for row in server.execute("SELECT id, name, n FROM orders", database=database)}
    assert replayed.rows == there
    return restores


@pytest.mark.parametrize("seed", [1, 2])
async def test_the_rows_and_all_changes_come_exactly_once_over_restores(
    shared_postgres, postgres_database, seed
):
    orders(shared_postgres, postgres_database)
    await followed(shared_postgres, postgres_database, seed)


async def test_texts_are_cut_into_chunks_in_the_order_of_their_collation(shared_postgres, postgres_database):
    schema = Schema.of(("id", t.VarCharType()), ("name", t.VarCharType()), ("n", t.IntType()))
    orders(shared_postgres, postgres_database, key='text COLLATE "en-x-icu"', made="CASE i % 3 WHEN 0 THEN 'Ö' WHEN 1 THEN 'o' ELSE 'P''\\' END || i * 2")  # fmt: skip
    await followed(shared_postgres, postgres_database, 3, schema=schema, key="('ö' || %s)::text", rows=1_500)


async def test_a_server_that_is_killed_is_waited_for(own_postgres):
    database = own_postgres.database()
    orders(own_postgres, database)

    def crash():
        own_postgres.kill()
        own_postgres.start()

    await followed(own_postgres, database, 4, crash=crash, rows=2_000, most_restores=1)


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 16))
async def test_many_restores_and_killed_servers(own_postgres, seed):
    """With 6 restores and a crash each: more than 30 faults."""
    database = own_postgres.database()
    orders(own_postgres, database)

    def crash():
        own_postgres.kill()
        own_postgres.start()

    await followed(own_postgres, database, seed, crash=crash, rows=8_000)


async def test_several_tables_say_which_they_are_in_the_order_of_the_log(shared_postgres, postgres_database):
    for name in ("o_1", "o_2"):
        shared_postgres.execute(
            f"CREATE TABLE {name} (id bigint PRIMARY KEY, name text, n int); INSERT INTO {name} VALUES (1, '{name}', 0); "
            f"ALTER TABLE {name} REPLICA IDENTITY FULL", database=postgres_database)  # fmt: skip
    told = ("table_name", "schema_name", "database_name", "op_ts")
    given = options(shared_postgres, postgres_database, r"o_\d", **{"slot.name": f"s_{postgres_database}"})
    reading = Reading(ORDERS, given, metadata=told)
    await reading.start()
    try:
        epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        first = await reading.rows(2)
        assert first == [
            (INS, (1, "o_1", 0, "o_1", "public", postgres_database, epoch)),
            (INS, (1, "o_2", 0, "o_2", "public", postgres_database, epoch)),
        ]
        shared_postgres.execute(
            "INSERT INTO o_2 VALUES (2, 'x', 0); INSERT INTO o_1 VALUES (2, 'x', 0); UPDATE o_2 SET n = 1 WHERE id = 2",
            database=postgres_database,
        )
        changes = await reading.until(lambda rows: len(rows) == 4)
        assert [(kind, row[0], row[2], row[3]) for kind, row in changes] == [
            (INS, 2, 0, "o_2"), (INS, 2, 0, "o_1"), (UB, 2, 0, "o_2"), (UA, 2, 1, "o_2"),
        ]  # fmt: skip
        assert all(row[6] > dt.datetime.now(dt.UTC) - dt.timedelta(minutes=5) for _, row in changes)
    finally:
        await reading.stop()


async def test_upserts_give_the_newest_row_and_the_keys_of_deleted_ones(shared_postgres, postgres_database):
    orders(shared_postgres, postgres_database, rows=1, identity="DEFAULT")
    given = options(shared_postgres, postgres_database, "orders", **{"changelog-mode": "upsert"})
    reading = Reading(ORDERS, given)
    await reading.start()
    try:
        assert await reading.rows(1) == [(INS, (2, "name 1", 0))]
        shared_postgres.execute(
            "UPDATE orders SET n = 5; UPDATE orders SET id = 3; DELETE FROM orders",
            database=postgres_database,
        )
        assert await reading.until(lambda rows: len(rows) == 4) == [
            (INS, (2, "name 1", 5)), (DEL, (2, None, None)), (INS, (3, "name 1", 5)), (DEL, (3, None, None)),
        ]  # fmt: skip
    finally:
        await reading.stop()


TYPES = [
    ("boolean", t.BooleanType(), "true", True), ("smallint", t.SmallIntType(), "-32768", -32768),
    ("bigint", t.BigIntType(), "9223372036854775807", 2**63 - 1), ("real", t.FloatType(), "1.5", 1.5),
    ("double precision", t.DoubleType(), "'-Infinity'", float("-inf")), ("double precision", t.DoubleType(), "0.1", 0.1),
    ("numeric(30, 5)", t.DecimalType(30, 5), "-1234567890123456789012345.00001", Decimal("-1234567890123456789012345.00001")),
    ("numeric", t.VarCharType(), "1e40", "1" + "0" * 40), ("text", t.VarCharType(), "E'a\\n\"b\\\\,''ü'", "a\n\"b\\,'ü"),
    ("text", t.VarCharType(), "''", ""), ("varchar(10)", t.VarCharType(10), "'x'", "x"), ("char(3)", t.CharType(3), "'x'", "x  "),
    ("date", t.DateType(), "'2026-02-28'", dt.date(2026, 2, 28)), ("time", t.TimeType(6), "'23:59:59.000001'", dt.time(23, 59, 59, 1)),
    ("timestamp", t.TimestampType(6), "'0001-01-01 00:00:00.000001'", dt.datetime(1, 1, 1, 0, 0, 0, 1)),
    ("timestamptz", t.TimestampLtzType(6), "'2026-06-01 12:00:00+05:30'", dt.datetime(2026, 6, 1, 6, 30, tzinfo=dt.UTC)),
    ("bytea", t.VarBinaryType(), "'\\x00ff'", b"\x00\xff"), ("json", t.VarCharType(), "'{\"a\":  1}'", '{"a":  1}'),
    ("jsonb", t.VarCharType(), "'{\"a\":  1}'", '{"a": 1}'), ("uuid", t.VarCharType(), "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("mood", t.VarCharType(), "'sad'", "sad"), ("cents", t.IntType(), "7", 7), ("int[]", t.ArrayType(t.IntType()), "'{1,NULL,3}'", [1, None, 3]),
    ("text[]", t.ArrayType(t.VarCharType()), "ARRAY['a,b', 'NULL', NULL, '\"']", ["a,b", "NULL", None, '"']),
    ("timestamptz[]", t.ArrayType(t.TimestampLtzType(6)), "ARRAY['2026-06-01 12:00:00+02'::timestamptz]", [dt.datetime(2026, 6, 1, 10, tzinfo=dt.UTC)]),
    ("interval", t.VarCharType(), "'1 day 2 hours'", "1 day 02:00:00"),
]  # fmt: skip


async def test_every_type_is_exact_in_the_snapshot_and_in_changes(shared_postgres, postgres_database):
    columns = ", ".join(f"c{i} {sql}" for i, (sql, *_) in enumerate(TYPES))
    values = ", ".join(value for _, _, value, _ in TYPES)
    shared_postgres.execute(
        f"CREATE TYPE mood AS ENUM ('sad'); CREATE DOMAIN cents AS integer; ALTER DATABASE {postgres_database} SET datestyle = 'German'; "
        f"ALTER DATABASE {postgres_database} SET timezone = 'Asia/Kolkata'; ALTER DATABASE {postgres_database} SET bytea_output = 'escape'; "
        f"CREATE TABLE kinds (id int PRIMARY KEY, {columns}); ALTER TABLE kinds REPLICA IDENTITY FULL; "
        f"INSERT INTO kinds VALUES (1, {values}); INSERT INTO kinds VALUES (2)", database=postgres_database)  # fmt: skip
    schema = Schema.of(("id", t.IntType()), *((f"c{i}", type_) for i, (_, type_, *_) in enumerate(TYPES)))
    given = options(shared_postgres, postgres_database, "kinds")
    validate_table(schema, given, role="source", primary_key=["id"])
    want, empty = tuple(value for *_, value in TYPES), (None,) * len(TYPES)
    reading = Reading(schema, given)
    await reading.start()
    try:
        assert await reading.rows(2) == [(INS, (1, *want)), (INS, (2, *empty))]
        shared_postgres.execute("UPDATE kinds SET id = id + 10", database=postgres_database)
        changes = await reading.until(lambda rows: len(rows) == 4)
        assert changes == [(DEL, (1, *want)), (INS, (11, *want)), (DEL, (2, *empty)), (INS, (12, *empty))]
    finally:
        await reading.stop()


async def test_a_long_value_that_did_not_change_is_known_or_refused(shared_postgres, postgres_database):
    schema = Schema.of(("id", t.IntType()), ("long", t.VarCharType()), ("n", t.IntType()))
    shared_postgres.execute(
        "CREATE TABLE long (id int PRIMARY KEY, long text, n int); ALTER TABLE long ALTER long SET STORAGE EXTERNAL; "
        "ALTER TABLE long REPLICA IDENTITY FULL; INSERT INTO long VALUES (1, repeat('x', 9000), 0)",
        database=postgres_database,
    )
    reading = Reading(
        schema, options(shared_postgres, postgres_database, "long", **{"changelog-mode": "upsert"})
    )
    await reading.start()
    try:
        await reading.rows(1)
        shared_postgres.execute("UPDATE long SET n = 1", database=postgres_database)
        assert await reading.rows(1) == [(INS, (1, "x" * 9000, 1))]
        shared_postgres.execute("ALTER TABLE long REPLICA IDENTITY DEFAULT", database=postgres_database)
        shared_postgres.execute("UPDATE long SET n = 2", database=postgres_database)
        with pytest.raises(RecordError, match="TOAST"):
            await reading.rows(1)
    finally:
        await reading.stop()


async def _refused(server, database, change, **more):
    """The error of a reader that follows ``orders`` when ``change`` comes, and the reading itself."""
    orders(server, database, rows=1)
    reading = Reading(ORDERS, options(server, database, "orders", **more))
    await reading.start()
    try:
        await reading.rows(1)
        server.execute(change, database=database)
        server.execute("INSERT INTO orders (id, name) VALUES (77, 'behind')", database=database)
        return await reading.rows(1)
    finally:
        await reading.stop()


@pytest.mark.parametrize(("change", "said"), [
    ("TRUNCATE orders", "TRUNCATE"), ("ALTER TABLE orders ADD more int", "added: more"),
    ("ALTER TABLE orders DROP n", "gone: n"), ("ALTER TABLE orders ALTER n TYPE bigint", "of another type: n"),
])  # fmt: skip
async def test_what_a_changelog_cannot_say_stops_with_a_clear_word(
    shared_postgres, postgres_database, change, said
):
    with pytest.raises(ConnectorError) as err:
        await _refused(shared_postgres, postgres_database, change)
    assert said in str(err.value)
    assert err.value.remedy


@pytest.mark.parametrize(("change", "more"), [
    ("TRUNCATE orders", {"debezium.truncate.handling.mode": "skip"}),
    ("ALTER TABLE orders ADD more int", {"scan.schema-change": "ignore-added-columns"}),
    ("INSERT INTO orders VALUES (5, 'x', 0); ALTER TABLE orders ADD more int; UPDATE orders SET more = 7, n = 3 WHERE id = 5", {"scan.schema-change": "ignore-added-columns"}),
])  # fmt: skip
async def test_an_option_lets_it_go_on(shared_postgres, postgres_database, change, more):
    rows = await _refused(shared_postgres, postgres_database, change, **more)
    assert rows


async def test_the_slot_moves_only_with_completed_checkpoints(shared_postgres, postgres_database):
    orders(shared_postgres, postgres_database, rows=1)
    given = options(
        shared_postgres, postgres_database, "orders", **{"scan.lsn-commit.checkpoints-num-delay": "1"}
    )
    reading = Reading(ORDERS, given)
    await reading.start()

    def confirmed():
        query = "SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = %s"
        return int(shared_postgres.execute(query, given["slot.name"])[0][0])

    try:
        began = confirmed()
        positions = []
        for i in range(3):
            shared_postgres.execute(
                "INSERT INTO orders VALUES (%s, 'x', 0)", 100 + i, database=postgres_database
            )
            await reading.rows(1 if i else 2)
            await asyncio.sleep(0)
            positions.append(reading.position())
        assert confirmed() == began
        for i, position in enumerate(positions):
            reading.reader.on_checkpoint_complete(i, position)
        goal = positions[1][0].position["lsn"]
        async with asyncio.timeout(60):
            while confirmed() != goal:  # noqa: ASYNC110 - the server says it, and nothing tells us when
                await asyncio.sleep(0.01)
    finally:
        await reading.stop()
    reading.splits = positions[0]
    await reading.start()
    try:
        with pytest.raises(ConnectorError, match="no longer has the changes"):
            await reading.rows(1)
    finally:
        await reading.stop()
    reading.splits = positions[1]
    await reading.start()
    try:
        assert await reading.rows(1) == [(INS, (102, "x", 0))]
    finally:
        await reading.stop()


async def test_a_second_reader_of_a_slot_waits(shared_postgres, postgres_database):
    orders(shared_postgres, postgres_database, rows=1)
    first = Reading(ORDERS, options(shared_postgres, postgres_database, "orders"))
    second = Reading(ORDERS, options(shared_postgres, postgres_database, "orders"))
    await first.start()
    await first.rows()
    await second.start()
    second.splits = first.position()
    try:
        assert second.reader.poll() is None
        assert second.reader.poll() is None
        await first.stop()
        shared_postgres.execute("INSERT INTO orders VALUES (9, 'x', 0)", database=postgres_database)
        assert (INS, (9, "x", 0)) in await second.until(lambda rows: (INS, (9, "x", 0)) in rows)
    finally:
        await second.stop()


@pytest.mark.parametrize(("change", "key", "said"), [
    ({"password": "wrong"}, (), "authentication failed"), ({"database-name": "nowhere"}, (), "does not exist"),
    ({"table-name": "ordres"}, (), "no table"), ({"slot.name": "Not A Name"}, (), "slot.name"),
    ({"decoding.plugin.name": "wal2json"}, (), "pgoutput"), ({"table-name": "("}, (), "regular expression"),
    ({}, ("name",), "PRIMARY KEY (id)"), ({"scan.incremental.snapshot.chunk.size": "0"}, (), "chunk.size"),
])  # fmt: skip
def test_wrong_options_are_refused_at_submission_with_a_remedy(
    shared_postgres, postgres_database, change, key, said
):
    orders(shared_postgres, postgres_database, rows=1)
    given = options(shared_postgres, postgres_database, "orders") | change
    with pytest.raises(PenstockError) as err:
        validate_table(ORDERS, given, role="source", primary_key=key)
    assert said in str(err.value)
    assert given["password"] not in str(err.value).replace("wrong", "") or given["password"] == "wrong"


@pytest.mark.parametrize(("statement", "schema", "said"), [
    ("ALTER TABLE orders REPLICA IDENTITY DEFAULT", ORDERS, "REPLICA IDENTITY FULL"),
    ("ALTER TABLE orders DROP CONSTRAINT orders_pkey", ORDERS, "no primary key"),
    ("SELECT 1", Schema.of(("id", t.BigIntType()), ("nme", t.VarCharType())), "no column 'nme'"),
    ("SELECT 1", Schema.of(("id", t.IntType())), "PostgreSQL's bigint"),
    ("ALTER TABLE orders ADD g int GENERATED ALWAYS AS (n + 1) STORED", Schema.of(("g", t.IntType())), "generated"),
    ("DROP TABLE orders; CREATE TABLE orders (id bigint, PRIMARY KEY (id)) PARTITION BY RANGE (id)", Schema.of(("id", t.BigIntType())), "partitioned"),
])  # fmt: skip
def test_a_table_that_cannot_be_followed_is_refused_at_submission(
    shared_postgres, postgres_database, statement, schema, said
):
    orders(shared_postgres, postgres_database, rows=1)
    shared_postgres.execute(statement, database=postgres_database)
    with pytest.raises(ConnectorError) as err:
        validate_table(schema, options(shared_postgres, postgres_database, "orders"), role="source")
    assert said in str(err.value)


def test_a_server_without_logical_wal_and_a_user_without_replication_are_refused(own_postgres):
    database = own_postgres.database()
    orders(own_postgres, database, rows=1)
    own_postgres.execute("CREATE ROLE reader LOGIN PASSWORD 'reader-password'")
    own_postgres.execute("ALTER SYSTEM SET wal_level = replica")
    given = options(own_postgres, database, "orders")
    with pytest.raises(ConnectorError, match="REPLICATION"):
        validate_table(ORDERS, given | {"username": "reader", "password": "reader-password"}, role="source")
    own_postgres.kill()
    own_postgres.start()
    with pytest.raises(ConnectorError) as err:
        validate_table(ORDERS, given, role="source")
    assert "ALTER SYSTEM SET wal_level = logical" in str(err.value)
    own_postgres.kill()
    with pytest.raises(ExternalError):
        validate_table(ORDERS, given, role="source")


async def test_a_publication_that_leaves_something_out_is_refused(shared_postgres, postgres_database):
    orders(shared_postgres, postgres_database, rows=1)
    given = options(shared_postgres, postgres_database, "orders", **{"debezium.publication.name": "mine"})
    for made, said in [
        ("CREATE PUBLICATION mine FOR TABLE orders WITH (publish = 'insert')", "leaves out changes"),
        ("CREATE PUBLICATION mine", "does not hold table"),
        ("CREATE PUBLICATION mine FOR TABLE orders WHERE (id > 5)", "rows or columns"),
    ]:
        shared_postgres.execute(f"DROP PUBLICATION IF EXISTS mine; {made}", database=postgres_database)
        with pytest.raises(ConnectorError, match=said):
            await Reading(ORDERS, given).start()


class TestPostgresCdcSnapshot(SourceConformance):
    """The kit of sources, on the bounded mode; the changes have their own tests above."""

    schema = ORDERS
    many_splits = False

    @pytest.fixture(autouse=True)
    def _orders(self, shared_postgres, postgres_database):
        self.server, self.database = shared_postgres, postgres_database
        orders(shared_postgres, postgres_database, rows=40)

    def connector(self):
        return get_connector("postgres-cdc").inner

    def options(self):
        more = {"scan.startup.mode": "snapshot", "scan.incremental.snapshot.chunk.size": "7"}
        return options(self.server, self.database, "orders", **more)

    def expected(self):
        return [(i * 2, f"name {i}", 0) for i in range(1, 41)]
