"""``jdbc`` on a real PostgreSQL and a real MariaDB: the public kits, exact types, refusals, exactly once."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal

import pytest

from penstock.connectors.jdbc.server_parts import JdbcServerConnector
from penstock.connectors.registry import validate_table
from penstock.errors import ConnectorError, PenstockError, RecordError
from penstock.sql.session import SqlSession
from penstock.testing import run_graph
from penstock.testing.conformance import LookupConformance, SinkConformance, SourceConformance
from penstock.types import Schema
from penstock.types import logical as t
from tests.servers.postgres_server import PASSWORD, USER

pytestmark = pytest.mark.cluster

SCHEMA = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()))


class Direct(JdbcServerConnector):
    """The same parts, in this process: a helper for each of hundreds of readers takes minutes."""

    runs = "native"


def _placed(request):
    """A server and a new database in it."""
    postgres = request.param == "postgresql"
    server = request.getfixturevalue("shared_postgres" if postgres else "shared_mariadb")
    database = server.database()
    yield Place(server, database, request.param)
    server.drop(database)


@pytest.fixture(params=["postgresql", "mariadb"])
def place(request):
    yield from _placed(request)


@pytest.fixture(params=["postgresql", pytest.param("mariadb", marks=pytest.mark.soak)])
def kit_place(request):
    """The kits take minutes a server."""
    yield from _placed(request)


class Place:
    def __init__(self, server, database, product):
        self.server, self.database, self.product = server, database, product

    def execute(self, statement, *values):
        return self.server.execute(statement, *values, database=self.database)

    def options(self, table="t", **more):
        return {
            "connector": "jdbc", "url": f"jdbc:{self.product}://127.0.0.1:{self.server.port}/{self.database}",
            "table-name": table, "username": USER, "password": PASSWORD, **more,
        }  # fmt: skip

    def ddl(self, columns, table="t", **more):
        words = ", ".join(f"'{k}' = '{v}'" for k, v in self.options(table, **more).items())
        return f"CREATE TABLE {table} ({columns}) WITH ({words});"


class _OnServer:
    @pytest.fixture(autouse=True)
    def _place(self, kit_place):
        self.place = kit_place

    in_helpers = False

    def connector(self):
        return JdbcServerConnector() if self.in_helpers else Direct()


class _Measured(_OnServer):
    def test_it_runs_as_it_declares(self):
        """As it is declared: in helper processes."""
        self.in_helpers = True
        super().test_it_runs_as_it_declares()


class TestScan(_Measured, SourceConformance):
    schema = SCHEMA

    def options(self):
        name = f"t{uuid.uuid4().hex[:8]}"
        self.place.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, name varchar(50))")
        for i in range(30):
            self.place.execute(f"INSERT INTO {name} VALUES (%s, %s)", i, f"name {i}")
        parts = {"column": "id", "num": "3", "lower-bound": "0", "upper-bound": "25"}
        return self.place.options(
            name, **{f"scan.partition.{k}": v for k, v in parts.items()}, **{"scan.fetch-size": "4"}
        )

    def expected(self):
        return [(i, f"name {i}") for i in range(30)]


class TestSink(_OnServer, SinkConformance):
    schema = SCHEMA
    more = {}

    def options(self):
        name = f"t{uuid.uuid4().hex[:8]}"
        self.place.execute(f"CREATE TABLE {name} (id bigint, name varchar(50))")
        return self.place.options(name, **self.more)

    def epochs(self):
        return [[(n * 5 + i, f"name {n * 5 + i}") for i in range(5)] for n in range(3)]

    async def visible(self, options):
        return list(self.place.execute(f"SELECT id, name FROM {options['table-name']}"))


class TestExactlyOnceSink(TestSink):
    more = {"sink.delivery-guarantee": "exactly-once"}


COLUMNS = "id INT, ok BOOLEAN, big BIGINT, x DOUBLE, price DECIMAL(10, 2), name STRING, raw BYTES, d DATE, tm TIME(6), ts TIMESTAMP(6), ltz TIMESTAMP_LTZ(6)"  # fmt: skip
DDL = {
    "postgresql": "CREATE TABLE {} (id int PRIMARY KEY, ok boolean, big bigint, x double precision, price numeric(10, 2), name text, raw bytea, d date, tm time, ts timestamp, ltz timestamptz)",
    "mariadb": "CREATE TABLE {} (id int PRIMARY KEY, ok boolean, big bigint, x double, price decimal(10, 2), name text, raw blob, d date, tm time(6), ts datetime(6), ltz datetime(6))",
}
ROW = (1, True, 2**40, 0.1, Decimal("12.30"), "ä'\\\"%", b"\x00\xff", dt.date(2024, 2, 29), dt.time(1, 2, 3, 4), dt.datetime(2024, 1, 2, 3, 4, 5, 678001), dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC))  # fmt: skip
LITERALS = """1, TRUE, 1099511627776, 0.1e0, 12.30, 'ä''\\"%', x'00ff', DATE '2024-02-29', CAST(TIME '01:02:03.000004' AS TIME(6)),
  TIMESTAMP '2024-01-02 03:04:05.678001', CAST(TIMESTAMP '2024-01-02 03:04:05' AS TIMESTAMP_LTZ(6))"""


def run(*statements):
    """Rows of the last statement; inserts before it are run, in helper processes."""
    session, out = SqlSession(), []
    for result in session.run_script("\n".join(statements)):
        if result.job is not None:
            out = run_graph(result.job.job_graph).rows
    return out


def test_every_type_goes_in_and_comes_out_and_rows_are_overwritten_by_key(place):
    place.execute(DDL[place.product].format("t"))
    table = place.ddl(f"{COLUMNS}, PRIMARY KEY (id) NOT ENFORCED")
    insert = f"INSERT INTO t SELECT {LITERALS};"
    rows = run(table, insert, insert, "INSERT INTO t (id) SELECT 2;", "SELECT * FROM t")
    assert sorted(rows, key=lambda r: r[0]) == [ROW, (2, *([None] * 10))]


def test_exactly_once_of_a_job_and_its_marker(place):
    place.execute(DDL[place.product].format("t"))
    run(place.ddl(COLUMNS, **{"sink.delivery-guarantee": "exactly-once"}), f"INSERT INTO t SELECT {LITERALS}")
    assert list(place.execute("SELECT COUNT(*) FROM t")) == [(1,)]
    assert len(place.execute("SELECT id FROM penstock_commits")) == 1


@pytest.mark.parametrize(("change", "columns", "said"), [
    ({"password": "wrong-password"}, SCHEMA, "username"), ({"table-name": "nowhere"}, SCHEMA, "nowhere"),
    ({}, Schema.of(("nme", t.VarCharType())), "no column 'nme'"), ({"scan.partition.num": "2"}, SCHEMA, "scan.partition.column"),
    ({"url": "?tcpKeepAlive=true"}, SCHEMA, "tcpKeepAlive"),
])  # fmt: skip
def test_wrong_tables_are_refused_at_submission(place, change, columns, said):
    place.execute("CREATE TABLE t (id bigint PRIMARY KEY, name varchar(50))")
    given = place.options()
    if "url" in change:
        change = {"url": given["url"] + change["url"]}
    with pytest.raises(PenstockError) as err:
        validate_table(columns, given | change, role="source")
    assert said in f"{err.value} {err.value.remedy}"
    assert PASSWORD not in str(err.value)
    assert "wrong-password" not in str(err.value)


def test_a_value_that_does_not_fit_is_refused_by_name(place):
    place.execute("CREATE TABLE t (id bigint PRIMARY KEY, x numeric(10, 4))")
    place.execute("INSERT INTO t VALUES (1, 1.2345)")
    with pytest.raises(PenstockError, match="column 'x'"):
        run(place.ddl("id BIGINT, x DECIMAL(10, 2)"), "SELECT * FROM t")


@pytest.mark.parametrize("place", ["mariadb"], indirect=True)
def test_exactly_once_of_a_table_without_transactions_is_refused(place):
    """At submission, and where a table has lost its transactions, when the job opens it."""
    once = {"sink.delivery-guarantee": "exactly-once"}
    place.execute("CREATE TABLE t (id int PRIMARY KEY) ENGINE = InnoDB")
    place.execute("CREATE VIEW v AS SELECT * FROM t")
    for engine in ("MyISAM", "Aria"):
        place.execute(f"CREATE TABLE {engine.lower()} (id int PRIMARY KEY) ENGINE = {engine}")
    for table, got in (("myisam", "ENGINE = MyISAM"), ("aria", "ENGINE = Aria"), ("v", "a view")):
        with pytest.raises(ConnectorError, match="has no transactions") as caught:
            run(place.ddl("id INT", table, **once), f"INSERT INTO {table} VALUES (1)")
        assert caught.value.got == got
        assert "at-least-once" in (caught.value.remedy or "")
        assert place.execute(f"SELECT * FROM {table}") == []
    run(place.ddl("id INT", "aria"), "INSERT INTO aria VALUES (1)")
    assert place.execute("SELECT * FROM aria") == [(1,)]

    session = SqlSession()
    session.execute(place.ddl("id INT", **once).rstrip(";"))
    graph = session.execute("INSERT INTO t VALUES (1)").job.job_graph
    place.execute("ALTER TABLE t ENGINE = MyISAM")
    with pytest.raises(ConnectorError, match="table 't', which has no transactions"):
        run_graph(graph)
    place.execute("ALTER TABLE t ENGINE = InnoDB")
    place.execute("ALTER TABLE penstock_commits ENGINE = MyISAM")
    with pytest.raises(ConnectorError, match="table 'penstock_commits', which has no transactions"):
        run_graph(graph)
    assert place.execute("SELECT * FROM t") == []


def test_exactly_once_of_sqlite_is_refused(tmp_path):
    options = {"connector": "jdbc", "url": f"jdbc:sqlite:{tmp_path}/x.db", "table-name": "t", "sink.delivery-guarantee": "exactly-once"}  # fmt: skip
    with pytest.raises(ConnectorError, match="exactly-once"):
        validate_table(SCHEMA, options, role="sink")


class TestLookup(_Measured, LookupConformance):
    schema = SCHEMA

    def options(self):
        name = f"t{uuid.uuid4().hex[:8]}"
        self.place.execute(f"CREATE TABLE {name} (id bigint, name varchar(50))")
        for row in self.rows():
            self.place.execute(f"INSERT INTO {name} VALUES (%s, %s)", *row)
        return self.place.options(name)

    def rows(self):
        return [(1, "one"), (1, "one"), (1, "another"), (2, "two"), (3, None), (None, "nobody")]

    def absent(self):
        return [(-1,), (7,)]


class TestLookupByTwo(TestLookup):
    keys = (1, 0)

    def absent(self):
        return [("one", 2), ("three", 3)]


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_truncate_deletes_all_rows_of_a_server(place, guarantee):
    place.execute("CREATE TABLE t (id bigint PRIMARY KEY, name varchar(50))")
    place.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    session = SqlSession()
    session.execute(place.ddl("id BIGINT, name STRING", **{"sink.delivery-guarantee": guarantee}))
    run_graph(session.execute("TRUNCATE TABLE t").job.job_graph)
    assert place.execute("SELECT COUNT(*) FROM t") == [(0,)]


def test_rows_of_a_server_are_updated_and_deleted(place):
    """Columns that the table does not declare stay, and nothing changes before all rows were read."""
    place.execute(
        "CREATE TABLE t (a bigint, b varchar(50), n bigint, kept varchar(9) NOT NULL, PRIMARY KEY (a, b))"
    )
    place.execute("INSERT INTO t VALUES (1, 'x', 1, 'k'), (1, 'y', 2, 'k'), (2, 'x', 3, 'k')")
    session = SqlSession({"parallelism.default": "1"})
    session.execute(place.ddl("a BIGINT, b STRING, n BIGINT, PRIMARY KEY (a, b) NOT ENFORCED"))
    for statement in (
        "UPDATE t SET n = n * 10 WHERE a = 1",
        "DELETE FROM t AS x WHERE x.n = (SELECT MAX(n) FROM t)",
    ):
        run_graph(session.execute(statement).job.job_graph)
    assert place.execute("SELECT * FROM t ORDER BY n") == [(2, "x", 3, "k"), (1, "x", 10, "k")]
    session.execute("DROP TABLE t")
    session.execute(place.ddl("b STRING, n BIGINT, PRIMARY KEY (b) NOT ENFORCED"))
    with pytest.raises(ConnectorError, match="does not name one row each"):
        run_graph(session.execute("UPDATE t SET n = 0 WHERE n = 3").job.job_graph)
    assert place.execute("SELECT MIN(n) FROM t") == [(3,)]


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_row_that_the_database_refuses_is_one_bad_record(place, guarantee):
    place.execute("CREATE TABLE t (id bigint PRIMARY KEY, name varchar(5))")
    values = ", ".join(f"({i}, '{'too long' if i % 40 == 7 else 'ok'}')" for i in range(100))
    insert = f"INSERT INTO t VALUES {values}"
    given = {"sink.delivery-guarantee": guarantee}
    with pytest.raises(RecordError, match="refuses a row"):
        run(place.ddl("id BIGINT, name STRING", **given), insert)
    session = SqlSession({"parallelism.default": "1"})
    session.execute(place.ddl("id BIGINT, name STRING", **given, **{"on-error": "skip"}).rstrip(";"))
    result = run_graph(session.execute(insert).job.job_graph)
    assert result.counters["numRecordsInErrors"] == 3
    assert [row[0] for row in place.execute("SELECT id FROM t ORDER BY id")] == [
        i for i in range(100) if i % 40 != 7
    ]


def test_no_row_without_a_key_stays_or_goes_silently(place):
    """The database lets a key be NULL that the table declares."""
    place.execute("CREATE TABLE t (id bigint UNIQUE, name varchar(5))")
    place.execute("INSERT INTO t VALUES (NULL, 'a'), (1, 'b')")
    session = SqlSession({"parallelism.default": "1"})
    session.execute(place.ddl("id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED").rstrip(";"))
    for statement in ("DELETE FROM t WHERE name = 'a'", "UPDATE t SET name = 'x' WHERE name = 'a'", "INSERT INTO t SELECT CAST(NULL AS BIGINT), 'c'"):  # fmt: skip
        with pytest.raises(RecordError, match=r"'id' is N|'id' is no BIGINT NOT NULL"):
            run_graph(session.execute(statement).job.job_graph)
    assert len(place.execute("SELECT * FROM t")) == 2
