"""``mysql-cdc`` on a real MariaDB and, in `make test-long`, a real MySQL: exact under concurrent writers, restores and
server crashes; refusals by name."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from penstock.connectors.registry import get_connector, validate_table
from penstock.errors import ConnectorError, ExternalError, PenstockError, RecordError
from penstock.testing.conformance import SourceConformance
from penstock.types import Schema
from penstock.types import logical as t
from penstock.types.batch import RowKind
from tests.connectors.mysql.followed import Reading, followed, options, orders

pytestmark = pytest.mark.cluster

INS, UB, UA, DEL = RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE
ORDERS = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()), ("n", t.IntType()))


SERVERS = ["mariadb", pytest.param("mysql", marks=pytest.mark.long)]


@pytest.fixture(params=SERVERS)
def server(request):
    return request.getfixturevalue(f"shared_{request.param}")


@pytest.fixture(params=SERVERS)
def own(request):
    """A server that the test may kill and set."""
    return request.getfixturevalue(f"own_{request.param}")


@pytest.fixture
def database(server):
    name = server.database()
    yield name
    server.drop(name)


@pytest.mark.parametrize(("seed", "batch_rows"), [(1, 32), (2, 5)])
async def test_the_rows_and_all_changes_come_exactly_once_over_restores(server, database, seed, batch_rows):
    orders(server, database)
    await followed(server, database, seed, ORDERS, batch_rows=batch_rows)


@pytest.mark.parametrize("rows", [0, 97, 194])
async def test_a_snapshot_whose_last_chunk_has_no_rows_ends(server, database, rows):
    """Nobody writes meanwhile, so that nothing else moves the reader on."""
    orders(server, database, rows=max(1, rows))
    server.execute("DELETE FROM orders WHERE id > %s", 2 * rows, database=database)
    given = options(server, database, "orders", **{"scan.incremental.snapshot.chunk.size": "97"})
    reading = Reading(ORDERS, given, batch_rows=97)
    await reading.start()
    try:
        assert len(await reading.rows()) == rows
        assert reading.position()[0].position["cursor"] is None
        server.execute("INSERT INTO orders VALUES (1, 'after', 0)", database=database)
        assert await reading.rows(1) == [(INS, (1, "after", 0))]
    finally:
        await reading.stop()


async def test_texts_are_cut_into_chunks_in_the_order_of_their_collation(server, database):
    schema = Schema.of(("id", t.VarCharType()), ("name", t.VarCharType()), ("n", t.IntType()))
    made = "CONCAT(CASE seq MOD 3 WHEN 0 THEN 'Ö' WHEN 1 THEN 'o' ELSE 'P''\\\\' END, seq * 2)"
    orders(server, database, key="varchar(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci", made=made)
    await followed(server, database, 3, schema, key="CONCAT('ö', %s)", rows=1_500)


async def test_a_server_that_is_killed_is_waited_for(own):
    database = own.database()
    orders(own, database)

    def crash():
        own.kill()
        own.start()

    await followed(own, database, 4, ORDERS, crash=crash, rows=2_000, most_restores=1)


async def test_a_mysql_that_is_killed_is_exact_too(own_mysql):
    """What `make test` proves of a MySQL; the rest of this module is run with it by `make test-long`."""
    database = own_mysql.database()
    orders(own_mysql, database)

    def crash():
        own_mysql.kill()
        own_mysql.start()

    await followed(own_mysql, database, 5, ORDERS, crash=crash, rows=2_000, most_restores=3)
    given = options(own_mysql, database, "orders")
    for mode in ("ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"):
        own_mysql.execute(f"SET GLOBAL gtid_mode = {mode}")
    with pytest.raises(ConnectorError, match="gtid_mode = ON"):
        validate_table(ORDERS, given, role="source")
    validate_table(ORDERS, given | {"scan.startup.mode": "latest-offset"}, role="source")


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 16))
async def test_many_restores_and_killed_servers(own, seed):
    """With 6 restores and a crash each: more than 30 faults."""
    database = own.database()
    orders(own, database)

    def crash():
        own.kill()
        own.start()

    await followed(own, database, seed, ORDERS, crash=crash, rows=8_000)


async def test_several_tables_say_which_they_are_in_the_order_of_the_log(server, database):
    for name in ("o_1", "o_2"):
        server.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, name text, n int)", database=database)
        server.execute(f"INSERT INTO {name} VALUES (1, '{name}', 0)", database=database)
    reading = Reading(
        ORDERS, options(server, database, r"o_\d"), metadata=("table_name", "database_name", "op_ts")
    )
    await reading.start()
    try:
        epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        assert await reading.rows(2) == [
            (INS, (1, "o_1", 0, "o_1", database, epoch)),
            (INS, (1, "o_2", 0, "o_2", database, epoch)),
        ]
        for statement in (
            "INSERT INTO o_2 VALUES (2, 'x', 0)",
            "INSERT INTO o_1 VALUES (2, 'x', 0)",
            "UPDATE o_2 SET n = 1 WHERE id = 2",
        ):
            server.execute(statement, database=database)
        changes = await reading.until(lambda rows: len(rows) == 4)
        assert [(kind, row[0], row[2], row[3]) for kind, row in changes] == [
            (INS, 2, 0, "o_2"), (INS, 2, 0, "o_1"), (UB, 2, 0, "o_2"), (UA, 2, 1, "o_2"),
        ]  # fmt: skip
        assert all(row[5] > dt.datetime.now(dt.UTC) - dt.timedelta(minutes=5) for _, row in changes)
    finally:
        await reading.stop()


async def test_upserts_give_the_newest_row_and_the_keys_of_deleted_ones(server, database):
    orders(server, database, rows=1)
    reading = Reading(ORDERS, options(server, database, "orders", **{"changelog-mode": "upsert"}))
    await reading.start()
    try:
        assert await reading.rows(1) == [(INS, (2, "name 1", 0))]
        for statement in ("UPDATE orders SET n = 5", "UPDATE orders SET id = 3", "DELETE FROM orders"):
            server.execute(statement, database=database)
        assert await reading.until(lambda rows: len(rows) == 4) == [
            (INS, (2, "name 1", 5)), (DEL, (2, None, None)), (INS, (3, "name 1", 5)), (DEL, (3, None, None)),
        ]  # fmt: skip
    finally:
        await reading.stop()


_ZONED = dt.datetime(2026, 6, 1, 6, 30, 0, 123456, tzinfo=dt.UTC)
TYPES = [
    ("tinyint", t.TinyIntType(), "-128", -128), ("tinyint unsigned", t.SmallIntType(), "255", 255),
    ("tinyint(1)", t.BooleanType(), "1", True), ("bool", t.IntType(), "7", 7),
    ("smallint", t.SmallIntType(), "-32768", -32768), ("smallint unsigned", t.IntType(), "65535", 65535),
    ("mediumint", t.IntType(), "-8388608", -8388608), ("mediumint unsigned", t.IntType(), "16777215", 16777215),
    ("int", t.IntType(), "-2147483648", -(2**31)), ("int unsigned", t.BigIntType(), "4294967295", 2**32 - 1),
    ("bigint", t.BigIntType(), "-9223372036854775808", -(2**63)), ("bigint unsigned", t.DecimalType(20, 0), "18446744073709551615", Decimal(2**64 - 1)),
    ("bigint unsigned", t.VarCharType(), "18446744073709551615", str(2**64 - 1)), ("int", t.DecimalType(12, 1), "-7", Decimal("-7.0")),
    ("float", t.FloatType(), "16777219", 16777220.0), ("float", t.DoubleType(), "0.1", 0.10000000149011612), ("double", t.DoubleType(), "0.1", 0.1),
    ("decimal(10,2)", t.DecimalType(10, 2), "-12345678.90", Decimal("-12345678.90")), ("decimal(10,2)", t.DecimalType(14, 4), "0.01", Decimal("0.0100")),
    ("decimal(38,9)", t.DecimalType(38, 9), "-12345678901234567890123456789.000000001", Decimal("-12345678901234567890123456789.000000001")),
    ("decimal(65,30)", t.VarCharType(), "-12345678901234567890123456789012345.000000000000000000000000000001", "-12345678901234567890123456789012345.000000000000000000000000000001"),
    ("decimal(3,3)", t.DecimalType(3, 3), "-0.125", Decimal("-0.125")), ("decimal(9,0)", t.DecimalType(9, 0), "0", Decimal(0)),
    ("date", t.DateType(), "'1000-01-01'", dt.date(1000, 1, 1)), ("date", t.DateType(), "'9999-12-31'", dt.date(9999, 12, 31)),
    ("time", t.TimeType(0), "'23:59:59'", dt.time(23, 59, 59)), ("time(6)", t.TimeType(6), "'00:00:00.000001'", dt.time(0, 0, 0, 1)),
    ("time(3)", t.TimeType(3), "'12:34:56.789'", dt.time(12, 34, 56, 789000)),
    ("datetime", t.TimestampType(0), "'2026-02-28 23:59:59'", dt.datetime(2026, 2, 28, 23, 59, 59)),
    ("datetime(1)", t.TimestampType(3), "'2026-02-28 23:59:59.5'", dt.datetime(2026, 2, 28, 23, 59, 59, 500000)),
    ("datetime(6)", t.TimestampType(6), "'1000-01-01 00:00:00.000001'", dt.datetime(1000, 1, 1, 0, 0, 0, 1)),
    ("timestamp(6) NULL", t.TimestampLtzType(6), "'2026-06-01 12:00:00.123456'", _ZONED),
    ("timestamp(6) NULL", t.TimestampType(6), "'2026-06-01 12:00:00.123456'", dt.datetime(2026, 6, 1, 8, 30, 0, 123456)),
    ("year", t.IntType(), "1901", 1901), ("year", t.IntType(), "0", 0),
    ("char(5)", t.VarCharType(5), "'ü  '", "ü"), ("varchar(300)", t.VarCharType(300), "'a\n\"b\\\\,''ü\U0001f600'", "a\n\"b\\,'ü\U0001f600"),
    ("varchar(10) CHARACTER SET latin1", t.VarCharType(), "'€ü'", "€ü"), ("varchar(10) CHARACTER SET ascii", t.VarCharType(), "''", ""),
    ("tinytext", t.VarCharType(), "'t'", "t"), ("longtext", t.VarCharType(), "REPEAT('ü', 70000)", "ü" * 70000),
    ("enum('a','b''c')", t.VarCharType(), "'b''c'", "b'c"), ("set('x','y','z')", t.VarCharType(), "'x,z'", "x,z"), ("set('x','y')", t.VarCharType(), "''", ""),
    ("binary(4)", t.VarBinaryType(), "X'0102'", b"\1\2\0\0"), ("varbinary(300)", t.VarBinaryType(), "X'00FF00'", b"\0\xff\0"),
    ("blob", t.VarBinaryType(), "X'FF'", b"\xff"), ("bit(1)", t.BooleanType(), "b'1'", True), ("bit(10)", t.VarBinaryType(), "b'1000000001'", b"\2\1"),
]  # fmt: skip


async def test_every_type_is_exact_in_the_snapshot_and_in_changes(server, database):
    kinds = TYPES
    columns = ", ".join(f"c{i} {sql}" for i, (sql, *_) in enumerate(kinds))
    connection = server.connect(database)
    with connection.cursor() as cursor:
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES'")
        cursor.execute(f"CREATE TABLE kinds (id int PRIMARY KEY, {columns}, more int AS (id + 1) VIRTUAL)")
        named = ", ".join(f"c{i}" for i in range(len(kinds)))
        cursor.execute(
            f"INSERT INTO kinds (id, {named}) VALUES (1, {', '.join(value for _, _, value, _ in kinds)})"
        )
        cursor.execute("INSERT INTO kinds (id) VALUES (2)")
    connection.close()
    schema = Schema.of(("id", t.IntType()), *((f"c{i}", type_) for i, (_, type_, *_) in enumerate(kinds)))
    given = options(server, database, "kinds", **{"server-time-zone": "Europe/Berlin"})
    validate_table(schema, given, role="source", primary_key=["id"])
    want, empty = tuple(value for *_, value in kinds), (None,) * len(kinds)
    reading = Reading(schema, given)
    await reading.start()
    try:
        first, second = await reading.rows(2)
        assert [(k, x, y) for k, x, y in zip(kinds, first[1][1:], want, strict=True) if x != y] == []
        assert second == (INS, (2, *empty))
        server.execute("UPDATE kinds SET id = id + 10 ORDER BY id", database=database)
        changes = await reading.until(lambda rows: len(rows) == 4)
        assert [(k, x, y) for k, x, y in zip(kinds, changes[0][1][1:], want, strict=True) if x != y] == []
        assert changes == [(DEL, (1, *want)), (INS, (11, *want)), (DEL, (2, *empty)), (INS, (12, *empty))]
    finally:
        await reading.stop()


@pytest.mark.parametrize(("sql", "type_", "value"), [
    ("date", t.DateType(), "'0000-00-00'"), ("datetime", t.TimestampType(0), "'0000-00-00 00:00:00'"), ("date", t.DateType(), "'2026-02-31'"),
    ("timestamp NULL", t.TimestampLtzType(0), "'0000-00-00 00:00:00'"), ("time", t.TimeType(0), "'-00:00:01'"), ("time", t.TimeType(0), "'838:59:59'"),
    ("tinyint(1)", t.BooleanType(), "2"), ("datetime(6)", t.TimestampType(3), "'2026-01-01 00:00:00.0001'"),
])  # fmt: skip
async def test_a_value_that_the_type_does_not_hold_is_refused_in_the_snapshot_and_in_changes(
    server, database, sql, type_, value
):
    connection = server.connect(database)
    with connection.cursor() as cursor:
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES'")
        cursor.execute(f"CREATE TABLE odd (id int PRIMARY KEY, c {sql})")
        cursor.execute(f"INSERT INTO odd VALUES (1, {value})")
        schema = Schema.of(("id", t.IntType()), ("c", type_))
        for mode in ("initial", "latest-offset"):
            reading = Reading(schema, options(server, database, "odd", **{"scan.startup.mode": mode}))
            await reading.start()
            try:
                if mode == "latest-offset":
                    cursor.execute("UPDATE odd SET id = id + 1")
                with pytest.raises(RecordError, match="column 'c'"):
                    await reading.rows(1)
            finally:
                await reading.stop()
    connection.close()


async def _refused(server, database, change, **more):
    """The rows, or the error, of a reader that follows ``orders`` when ``change`` comes."""
    orders(server, database, rows=1)
    reading = Reading(ORDERS, options(server, database, "orders", **more))
    await reading.start()
    try:
        await reading.rows(1)
        connection = server.connect(database)
        with connection.cursor() as cursor:
            for statement in change.split("; "):
                cursor.execute(statement)
        connection.close()
        server.execute("INSERT INTO orders (id, name) VALUES (77, 'behind')", database=database)
        return await reading.rows(1)
    finally:
        await reading.stop()


@pytest.mark.parametrize(("change", "said"), [
    ("TRUNCATE orders", "TRUNCATE"), ("ALTER TABLE orders ADD more int", "added: more"), ("ALTER TABLE orders DROP n", "have changed"),
    ("ALTER TABLE orders MODIFY n bigint", "have changed"), ("ALTER TABLE orders ADD first int FIRST", "have changed"),
    ("RENAME TABLE orders TO old; CREATE TABLE orders LIKE old", "RENAME"), ("DROP TABLE orders; CREATE TABLE orders (id bigint primary key, name text, n int)", "DROP"),
    ("SET SESSION binlog_format = STATEMENT; UPDATE orders SET n = 1", "logged as a statement"),
    ("SET SESSION binlog_row_image = MINIMAL; UPDATE orders SET n = 1", "binlog_row_image"),
    ("XA START 'a'; UPDATE orders SET n = 1; XA END 'a'; XA PREPARE 'a'; XA COMMIT 'a'", "XA"),
])  # fmt: skip
async def test_what_a_changelog_cannot_say_stops_with_a_clear_word(server, database, change, said):
    with pytest.raises(ConnectorError) as err:
        await _refused(server, database, change)
    assert said in str(err.value)
    assert err.value.remedy


@pytest.mark.parametrize(("change", "more"), [
    ("TRUNCATE orders", {"debezium.truncate.handling.mode": "skip"}), ("ALTER TABLE orders ADD more int", {"scan.schema-change": "ignore-added-columns"}),
    ("ALTER TABLE orders ADD INDEX (n)", {}), ("CREATE TABLE other LIKE orders; INSERT INTO other VALUES (1, 'x', 2)", {}),
    ("BEGIN; SAVEPOINT a; UPDATE orders SET n = 1; ROLLBACK TO a; COMMIT", {}), ("ANALYZE TABLE orders", {}),
])  # fmt: skip
async def test_other_statements_let_it_go_on(server, database, change, more):
    rows = await _refused(server, database, change, **more)
    assert rows[-1] == (INS, (77, "behind", None))


async def test_a_purged_log_is_a_clear_error(own):
    database = own.database()
    orders(own, database, rows=1)
    reading = Reading(ORDERS, options(own, database, "orders"))
    await reading.start()
    await reading.rows(1)
    reading.splits = reading.position()
    await reading.stop()
    for _ in range(2):
        own.execute("UPDATE orders SET n = n + 1", database=database)
        own.execute("FLUSH BINARY LOGS")
    [*_, last] = own.execute("SHOW BINARY LOGS")
    while len(own.execute("SHOW BINARY LOGS")) > 1:  # a file that a reader has open is kept
        own.execute(f"PURGE BINARY LOGS TO '{last[0]}'")
    await reading.start()
    try:
        with pytest.raises(ConnectorError, match="no longer has the changes"):
            await reading.rows(1)
    finally:
        await reading.stop()


@pytest.mark.parametrize("mode", ["earliest-offset", "latest-offset", "specific-offset", "timestamp"])
async def test_changes_begin_where_the_option_says(server, database, mode):
    orders(server, database, rows=1)
    status = (
        "SHOW MASTER STATUS"
        if "MariaDB" in server.execute("SELECT version()")[0][0]
        else "SHOW BINARY LOG STATUS"
    )
    file, pos, *_ = server.execute(status)[0]
    more = {
        "specific-offset": {
            "scan.startup.specific-offset.file": file,
            "scan.startup.specific-offset.pos": str(pos),
        },
        "timestamp": {"scan.startup.timestamp-millis": "1"},
    }.get(mode, {})
    server.execute("UPDATE orders SET n = 1", database=database)
    reading = Reading(ORDERS, options(server, database, "orders", **{"scan.startup.mode": mode}, **more))
    await reading.start()
    server.execute("UPDATE orders SET n = 2", database=database)
    wanted = [(UB, (2, "name 1", 1)), (UA, (2, "name 1", 2))]
    if mode != "latest-offset":
        wanted = [(UB, (2, "name 1", 0)), (UA, (2, "name 1", 1)), *wanted]
    if mode in ("earliest-offset", "timestamp"):
        wanted = [(INS, (2, "name 1", 0)), *wanted]
    try:
        assert await reading.until(lambda rows: len(rows) >= len(wanted)) == wanted
    finally:
        await reading.stop()


@pytest.mark.parametrize(("change", "key", "said"), [
    ({"password": "wrong"}, (), "Access denied"), ({"database-name": "nowhere"}, (), "no table"),
    ({"table-name": "ordres"}, (), "no table"), ({"server-id": "x"}, (), "server-id"), ({"table-name": "("}, (), "regular expression"),
    ({}, ("name",), "PRIMARY KEY (id)"), ({"scan.incremental.snapshot.chunk.size": "0"}, (), "chunk.size"),
    ({"server-time-zone": "Mars"}, (), "server-time-zone"), ({"scan.startup.mode": "specific-offset"}, (), "specific-offset"),
    ({"scan.startup.mode": "timestamp"}, (), "timestamp-millis"), ({"debezium.database.ssl.mode": "verify_ca"}, (), ""),
])  # fmt: skip
def test_wrong_options_are_refused_at_submission_with_a_remedy(server, database, change, key, said):
    orders(server, database, rows=1)
    with pytest.raises(PenstockError) as err:
        validate_table(ORDERS, options(server, database, "orders") | change, role="source", primary_key=key)
    assert said in str(err.value)
    assert "a-password-of-tests" not in str(err.value)


@pytest.mark.parametrize(("statement", "schema", "said"), [
    ("ALTER TABLE orders DROP PRIMARY KEY", ORDERS, "no primary key"), ("ALTER TABLE orders ENGINE = MyISAM", ORDERS, "InnoDB"),
    ("SELECT 1", Schema.of(("id", t.BigIntType()), ("nme", t.VarCharType())), "no column 'nme'"),
    ("SELECT 1", Schema.of(("id", t.IntType())), "bigint"), ("ALTER TABLE orders ADD g int AS (n + 1)", Schema.of(("g", t.IntType())), "generated"),
    ("ALTER TABLE orders ADD p point", Schema.of(("p", t.VarBinaryType())), "point"), ("ALTER TABLE orders ADD c char(3)", Schema.of(("c", t.CharType(3))), "char(3)"),
    ("ALTER TABLE orders ADD c varchar(9) CHARACTER SET utf16", Schema.of(("c", t.VarCharType())), "utf16"),
    ("CREATE TABLE p (id bigint PRIMARY KEY); ALTER TABLE orders ADD FOREIGN KEY (id) REFERENCES p (id) ON DELETE CASCADE", ORDERS, "CASCADE"),
])  # fmt: skip
def test_a_table_that_cannot_be_followed_is_refused_at_submission(server, database, statement, schema, said):
    orders(server, database, rows=0)
    server.execute("DELETE FROM orders", database=database)
    for part in statement.split("; "):
        server.execute(part, database=database)
    with pytest.raises(ConnectorError) as err:
        validate_table(schema, options(server, database, "orders"), role="source")
    assert said in str(err.value)


def test_a_server_with_another_log_and_a_user_without_rights_are_refused(own):
    database = own.database()
    orders(own, database, rows=1)
    given = options(own, database, "orders")
    own.execute("CREATE USER reader@'%' IDENTIFIED BY 'reader-password'")
    own.execute("GRANT SELECT ON *.* TO reader@'%'")
    with pytest.raises(ConnectorError) as err:
        validate_table(ORDERS, given | {"username": "reader", "password": "reader-password"}, role="source")
    assert "REPLICATION" in str(err.value)
    for name, value in (("binlog_format", "MIXED"), ("binlog_row_image", "MINIMAL")):
        own.execute(f"SET GLOBAL {name} = {value}")
        with pytest.raises(ConnectorError, match=f"SET GLOBAL {name}"):
            validate_table(ORDERS, given, role="source")
        own.execute(
            f"SET GLOBAL {name} = DEFAULT" if name != "binlog_format" else "SET GLOBAL binlog_format = ROW"
        )
    own.kill()
    with pytest.raises(ExternalError):
        validate_table(ORDERS, given, role="source")


class TestMySqlCdcSnapshot(SourceConformance):
    """The kit of sources, on the bounded mode; the changes have their own tests above."""

    schema = ORDERS
    many_splits = False

    @pytest.fixture(autouse=True)
    def _orders(self, server, database):
        self.server, self.database = server, database
        orders(server, database, rows=40)

    def connector(self):
        return get_connector("mysql-cdc").inner

    def options(self):
        more = {"scan.startup.mode": "snapshot", "scan.incremental.snapshot.chunk.size": "7"}
        return options(self.server, self.database, "orders", **more)

    def expected(self):
        return [(i * 2, f"name {i}", 0) for i in range(1, 41)]
