"""The built-in connectors, through the kits that outsiders run theirs through."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import uuid
from unittest import mock

import pytest

from penstock.connectors.base import TableInfo
from penstock.connectors.jdbc import database
from penstock.connectors.registry import get_connector
from penstock.formats import get_format
from penstock.testing.conformance import BadTable, LookupConformance, SinkConformance, SourceConformance
from penstock.testing.conformance.driving import Driver, all_rows, read_to_end
from penstock.types import Batch, Schema
from penstock.types import logical as t
from penstock.types.batch import RowKind

SCHEMA = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()), ("price", t.DoubleType()))


def made(first, count):
    return [(i, f"name {i}", i / 4) for i in range(first, first + count)]


class _Files(SourceConformance):
    schema = SCHEMA
    format = "json"
    more = {}

    def connector(self):
        return get_connector("filesystem")

    def options(self):
        folder = self.folder / "in"
        for n in range(3):
            self._file(folder, f"{n}.{self.format}", made(n * 20, 20))
        return {"connector": "filesystem", "path": str(folder), "format": self.format, **self.more}

    def expected(self):
        return made(0, 60)

    def _file(self, folder, name, rows):
        folder.mkdir(exist_ok=True)
        with (folder / name).open("wb") as file:
            writer = get_format(self.format).files.writer(file, self.schema, self.more)
            writer.write(Batch.of(self.schema, rows))
            writer.close()


class TestJsonFiles(_Files):
    more = {"source.split-size": "300"}

    def bad(self):
        folder = self.folder / "bad"
        self._file(folder, "1.json", made(0, 10))
        with (folder / "1.json").open("ab") as file:
            file.write(b'{"id": 1, oh\n{"id": "seven"}\n')
        return BadTable({"connector": "filesystem", "path": str(folder), "format": "json"}, made(0, 10), 2)

    def live_options(self):
        (self.folder / "live").mkdir()
        return {
            "connector": "filesystem",
            "path": str(self.folder / "live"),
            "format": "json",
            "source.monitor-interval": "1 s",
        }

    async def publish(self, options, rows):
        folder = self.folder / "live"
        name = f"{len(list(folder.iterdir())):03d}.json"
        self._file(self.folder / "elsewhere", name, rows)
        (self.folder / "elsewhere" / name).rename(folder / name)


class TestCsvFiles(_Files):
    format = "csv"
    more = {"csv.header": "true"}


class TestParquetFiles(_Files):
    format = "parquet"
    more = {"parquet.row-group-rows": "7", "source.split-size": "1"}


class TestOrcFiles(_Files):
    format = "orc"


class TestArrowFiles(_Files):
    format = "arrow"


class TestDatagen(SourceConformance):
    schema = Schema.of(("n", t.BigIntType()), ("x", t.IntType()))

    def connector(self):
        return get_connector("datagen")

    def options(self):
        return {
            "connector": "datagen",
            "rows-per-second": "0",
            "fields.n.kind": "sequence",
            "fields.n.start": "1",
            "fields.n.end": "60",
            "fields.x.kind": "sequence",
            "fields.x.start": "100",
            "fields.x.end": "159",
        }

    def expected(self):
        return [(i, i + 99) for i in range(1, 61)]


class TestNexmark(SourceConformance):
    schema = Schema.of(("event_type", t.IntType()), ("dateTime", t.TimestampType(3)))

    def connector(self):
        return get_connector("nexmark")

    def options(self):
        return {"connector": "nexmark", "events.num": "100", "splits": "3"}

    def expected(self):
        table = TableInfo(self.schema, self.options())
        driver = Driver(self.connector(), table, 1)

        async def read():
            reader = await driver.reader(await driver.splits())
            return all_rows(await read_to_end(reader))

        try:
            return _own_loop(read())
        finally:
            driver.helper.close()


def _own_loop(work):
    """In a thread of its own, since a check may run in a loop already."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


class TestJdbcSource(SourceConformance):
    schema = SCHEMA
    many_splits = False

    def connector(self):
        return get_connector("jdbc")

    def options(self):
        return self._database(made(0, 60))

    def _database(self, rows):
        path = self.folder / f"{uuid.uuid4().hex}.db"
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE t (id BIGINT, name TEXT, price DOUBLE)")
            database.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
        database.close()
        return {"connector": "jdbc", "url": f"jdbc:sqlite:{path}", "table-name": "t", "scan.fetch-size": "7"}

    def expected(self):
        return made(0, 60)


# -- sinks ------------------------------------------------------------------------------------


class _ToFiles(SinkConformance):
    schema = SCHEMA
    format = "json"

    def connector(self):
        return get_connector("filesystem")

    def options(self):
        folder = self.folder / uuid.uuid4().hex
        folder.mkdir()
        return {"connector": "filesystem", "path": str(folder), "format": self.format}

    def epochs(self):
        return [made(n * 10, 10) for n in range(3)]

    async def visible(self, options):
        connector = self.connector()
        table = TableInfo(self.schema, options, options["format"])
        driver = Driver(connector, table)
        try:
            from penstock.connectors.filesystem.opening import open_files

            files, path = open_files(options["path"], options)
            if not files.list(path):
                return []
            reader = await driver.reader(await driver.splits())
            rows = all_rows(await read_to_end(reader))
            await reader.close()
            return rows
        finally:
            driver.helper.close()


class TestToJsonFiles(_ToFiles):
    pass


class TestToParquetFiles(_ToFiles):
    format = "parquet"


class TestToJdbc(SinkConformance):
    schema = SCHEMA
    key = (0,)
    #: One file has one writer at a time.
    several_writers = True

    def connector(self):
        return get_connector("jdbc")

    def options(self):
        path = self.folder / f"{uuid.uuid4().hex}.db"
        database = sqlite3.connect(path)
        with database:
            database.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT, price DOUBLE)")
        database.close()
        return {"connector": "jdbc", "url": f"jdbc:sqlite:{path}", "table-name": "t"}

    def changes(self):
        first = [(RowKind.INSERT, row) for row in made(0, 10)]
        second = [(RowKind.UPDATE_AFTER, (3, "changed", 0.5)), (RowKind.DELETE, (4, "name 4", 1.0))]
        third = [(RowKind.INSERT, (4, "again", 1.0)), (RowKind.DELETE, (0, "name 0", 0.0))]
        return [first, second, third]

    async def visible(self, options):
        database = sqlite3.connect(options["url"].removeprefix("jdbc:sqlite:"))
        try:
            return database.execute("SELECT id, name, price FROM t").fetchall()
        finally:
            database.close()


# -- NATS --------------------------------------------------------------------------------------


@pytest.mark.cluster
class TestNatsSource(SourceConformance):
    schema = SCHEMA

    @pytest.fixture(autouse=True)
    def _server(self, shared_nats):
        self.url = shared_nats.url

    def connector(self):
        return get_connector("nats")

    def options(self):
        self.stream = f"K{uuid.uuid4().hex[:8]}"
        subjects = [f"{self.stream}.{n}" for n in range(3)]
        for n, subject in enumerate(subjects):
            self._publish(
                subject,
                [json.dumps(dict(zip(SCHEMA.names, r, strict=True))).encode() for r in made(n * 20, 20)],
            )
        return self._options("scan.bounded.mode", "latest")

    def expected(self):
        return made(0, 60)

    def bad(self):
        self.stream = f"K{uuid.uuid4().hex[:8]}"
        good = [json.dumps(dict(zip(SCHEMA.names, r, strict=True))).encode() for r in made(0, 10)]
        self._publish(f"{self.stream}.0", [*good[:5], b"{ no", *good[5:], b"[]"])
        return BadTable(self._options("scan.bounded.mode", "latest"), made(0, 10), 2)

    def _options(self, *more):
        return {
            "connector": "nats",
            "url": self.url,
            "stream": self.stream,
            "subject": f"{self.stream}.*",
            "format": "json",
            "scan.split": "subject",
            more[0]: more[1],
        }

    def _publish(self, subject, messages):
        import nats

        async def publish():
            client = await nats.connect(self.url)
            js = client.jetstream()
            try:
                await js.add_stream(name=self.stream, subjects=[f"{self.stream}.*"])
            except nats.js.errors.BadRequestError:
                pass
            for message in messages:
                await js.publish(subject, message)
            await client.close()

        _own_loop(publish())


class _ToNats(SinkConformance):
    schema = SCHEMA
    guarantee = "exactly-once"

    @pytest.fixture(autouse=True)
    def _server(self, shared_nats):
        self.url = shared_nats.url

    def connector(self):
        return get_connector("nats")

    def options(self):
        stream = f"K{uuid.uuid4().hex[:8]}"
        return {
            "connector": "nats",
            "url": self.url,
            "stream": stream,
            "subject": f"{stream}.rows",
            "stream.create": "true",
            "format": "json",
            "sink.delivery-guarantee": self.guarantee,
        }

    def epochs(self):
        return [made(n * 10, 10) for n in range(3)]

    async def visible(self, options):
        import nats

        client = await nats.connect(self.url)
        try:
            js = client.jetstream()
            try:
                info = await js.stream_info(options["stream"])
            except nats.js.errors.NotFoundError:
                return []
            out = []
            for sequence in range(info.state.first_seq or 1, info.state.last_seq + 1):
                message = await js.get_msg(options["stream"], sequence)
                if message.subject == options["subject"]:
                    row = json.loads(message.data)
                    out.append(tuple(row[name] for name in SCHEMA.names))
            return out
        finally:
            await client.close()


@pytest.mark.cluster
class TestToNatsExactlyOnce(_ToNats):
    pass


@pytest.mark.cluster
class TestToNatsAtLeastOnce(_ToNats):
    guarantee = "at-least-once"


# -- lookups ----------------------------------------------------------------------------------

LOOKED_UP = [
    (1, "one", 0.5),
    (2, "two", None),
    (2, "zwei", 1.5),
    (2, "two", 2.5),
    (3, None, 2.5),
    (None, "nobody", 3.5),
]


class TestJdbcLookup(LookupConformance):
    schema = SCHEMA

    def connector(self):
        return get_connector("jdbc")

    def options(self):
        path = self.folder / f"{uuid.uuid4().hex}.db"
        with sqlite3.connect(path) as made:
            made.execute("CREATE TABLE t (id BIGINT, name TEXT, price DOUBLE)")
            made.executemany("INSERT INTO t VALUES (?, ?, ?)", LOOKED_UP)
        made.close()
        return {"connector": "jdbc", "url": f"jdbc:sqlite:{path}", "table-name": "t"}

    def rows(self):
        return LOOKED_UP

    def absent(self):
        return [(-1,), (7,)]

    @contextlib.asynccontextmanager
    async def outage(self, options):
        """Somebody else writes, and lets nobody read."""
        other = sqlite3.connect(options["url"].removeprefix("jdbc:sqlite:"), isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        with mock.patch.object(database, "BUSY_S", 0.05):
            yield
        other.execute("ROLLBACK")
        other.close()


class TestJdbcLookupByTwo(TestJdbcLookup):
    keys = (1, 0)

    def absent(self):
        return [("one", 2), ("three", 3)]


class TestFilesLookup(LookupConformance):
    schema = SCHEMA

    def connector(self):
        return get_connector("filesystem")

    def options(self):
        folder = self.folder / uuid.uuid4().hex
        folder.mkdir()
        lines = [json.dumps(dict(zip(SCHEMA.names, row, strict=True))) for row in LOOKED_UP]
        (folder / "1.json").write_text("\n".join(lines) + "\n")
        return {"connector": "filesystem", "path": str(folder), "format": "json"}

    def rows(self):
        return LOOKED_UP

    def absent(self):
        return [(-1,), (7,)]
