"""``socket``: records of a TCP connection, against a real TCP server."""

from __future__ import annotations

import asyncio
import json

import pytest

from penstock.connectors.base import TableInfo
from penstock.connectors.registry import get_connector, validate_table
from penstock.errors import BrokerError, ConnectorError
from penstock.testing.conformance import BadTable, SinkConformance, SourceConformance
from penstock.types import Batch, Schema
from penstock.types import logical as t
from tests.connectors.web.tcp import TcpServer

SCHEMA = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()))


def made(first, count):
    return [(i, f"name {i}") for i in range(first, first + count)]


def lines(rows):
    return b"".join(json.dumps({"id": i, "name": name}).encode() + b"\n" for i, name in rows)


def table(server, **more):
    return {
        "connector": "socket",
        "hostname": "127.0.0.1",
        "port": str(server.port),
        "format": "json",
        **more,
    }


class _Socket:
    schema = SCHEMA

    def connector(self):
        return get_connector("socket")

    def setup_method(self):
        super().setup_method()
        self._servers = []

    def teardown_method(self):
        for server in self._servers:
            server.close()
        super().teardown_method()

    def server(self, greeting=None):
        self._servers.append(TcpServer(greeting))
        return self._servers[-1]


class TestSocketSource(_Socket, SourceConformance):
    many_splits = False

    def options(self):
        # The last record has no delimiter behind it.
        server = self.server(lines(made(0, 60))[:-1])
        return table(server, **{"scan.bounded.mode": "end-of-stream"})

    def expected(self):
        return made(0, 60)

    def bad(self):
        server = self.server(lines(made(0, 4)) + b'{"id": 1, oh\n' + lines(made(4, 2)))
        return BadTable(table(server, **{"scan.bounded.mode": "end-of-stream"}), made(0, 6), 1)

    def live_options(self):
        self._live = self.server()
        return table(self._live)

    async def publish(self, options, rows):
        async def listening():
            while not self._live.connections:  # noqa: ASYNC110 (another thread makes them)
                await asyncio.sleep(0.01)
            self._live.send(lines(rows))

        # The reader connects when it has its split, which is after the first call.
        self._sending = asyncio.ensure_future(listening())


class TestSocketSink(_Socket, SinkConformance):
    def options(self):
        self._sink = self.server()
        return table(self._sink)

    def epochs(self):
        return [made(n * 5, 5) for n in range(3)]

    async def visible(self, options):
        return [(row["id"], row["name"]) for row in map(json.loads, self._sink.text().decode().splitlines())]


def read(harness, options, count):
    async def main():
        reader = await harness.reader(SCHEMA, options)
        try:
            return [row for f in await harness.read(reader, rows=count) for row in f.batch.to_pylist()]
        finally:
            await reader.close()

    return asyncio.run(main())


def test_a_sender_that_is_away_is_waited_for_and_the_log_says_so(harness, caplog):
    with TcpServer() as server:
        pass
    again = []

    async def main():
        options = table(server, **{"scan.bounded.mode": "end-of-stream"})
        reader = await harness.reader(SCHEMA, options)
        while "connector_server_away" not in caplog.text:  # noqa: ASYNC110 (the log)
            await asyncio.sleep(0.01)
        again.append(TcpServer(lines(made(0, 3)), server.port))
        rows = [row for f in await harness.read(reader) for row in f.batch.to_pylist()]
        await reader.close()
        return rows

    caplog.set_level("INFO")
    assert asyncio.run(main()) == made(0, 3)
    again[0].close()
    assert "connector_server_back" in caplog.text


def test_another_delimiter(harness):
    with TcpServer(lines(made(0, 5)).replace(b"\n", b"\x00")) as server:
        options = table(server, **{"scan.bounded.mode": "end-of-stream", "byte-delimiter": "0"})
        assert read(harness, options, 5) == made(0, 5)


async def go_on(writer):
    for n in range(2, 200):
        writer.write(Batch.of(SCHEMA, made(0, 5)))
        await writer.begin_checkpoint(n)
        await asyncio.sleep(0.005)


def test_a_receiver_that_goes_fails_the_checkpoint(harness):
    async def main():
        with TcpServer() as server:
            writer = await harness.writer(SCHEMA, table(server))
            writer.write(Batch.of(SCHEMA, made(0, 5)))
            await writer.begin_checkpoint(1)
            assert server.text() == lines(made(0, 5)).replace(b": ", b":").replace(b", ", b",")
            for connection in server.connections:
                connection.shutdown(2)
            with pytest.raises(BrokerError, match="broke"):
                await go_on(writer)
            await writer.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"port": "70000"}, "not a port"),
        ({"byte-delimiter": "300"}, "not a byte"),
        ({"format": "avro"}, "cannot be told apart"),
        ({"hostnam": "x"}, "unknown option 'hostnam'"),
    ],
)
def test_wrong_options_are_refused_by_name(more, said):
    options = {"connector": "socket", "hostname": "h", "port": "9", "format": "json", **more}
    with pytest.raises(ConnectorError, match=said):
        validate_table(SCHEMA, options, role="source")


def test_explain_says_at_most_once():
    options = {"connector": "socket", "hostname": "h", "port": "9", "format": "json"}
    assert get_connector("socket").source_guarantee(TableInfo(SCHEMA, options)) == "at-most-once"
