"""``elasticsearch-7``, ``elasticsearch-8`` and ``opensearch``, on a real OpenSearch node."""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid

import pytest

from penstock.connectors.registry import get_connector, validate_table
from penstock.connectors.search.index import IndexName
from penstock.errors import ConnectorError, RecordError
from penstock.testing.conformance import SinkConformance
from penstock.types import Batch, RowKind, Schema
from penstock.types import logical as t
from tests.connectors.web.tcp import TcpServer

SCHEMA = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()))
A, V, D = RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE


def made(first, count):
    return [(i, f"name {i}") for i in range(first, first + count)]


def table(server, index, name="opensearch", **more):
    return {"connector": name, "hosts": server.url, "index": index, **more}


@pytest.mark.cluster
@pytest.mark.soak  # an index is made anew some thirty times, which takes the server minutes
class _Sink(SinkConformance):
    schema = SCHEMA
    name = "opensearch"

    @pytest.fixture(autouse=True)
    def _server(self, shared_opensearch):
        self.server = shared_opensearch

    def connector(self):
        return get_connector(self.name)

    def options(self):
        return table(self.server, f"i{uuid.uuid4().hex}", self.name)

    def epochs(self):
        return [made(n * 5, 5) for n in range(3)]

    async def visible(self, options):
        found = await asyncio.to_thread(self.server.documents, options["index"])
        return [(row["id"], row.get("name")) for row in found.values()]


class TestAppended(_Sink):
    name = "elasticsearch-7"


class TestByKey(_Sink):
    key = (0,)

    def changes(self):
        first = [(A, row) for row in made(0, 5)]
        second = [(V, (1, "again")), (D, (2, "name 2")), (A, (7, None))]
        return [first, second, [(A, (2, "back")), (D, (1, "again"))]]


@pytest.mark.cluster
def test_a_document_that_does_not_fit_is_one_bad_record(harness, shared_opensearch):
    index = f"i{uuid.uuid4().hex}"
    shared_opensearch.request("PUT", index, {"mappings": {"properties": {"name": {"type": "integer"}}}})
    rows = [(1, "1"), (2, "two"), (3, "3")]

    async def write():
        writer = await harness.writer(SCHEMA, table(shared_opensearch, index), pushed={"keys": [0]})
        writer.write(Batch.of(SCHEMA, rows))
        await writer.begin_checkpoint(1)
        await writer.close()

    with pytest.raises(RecordError, match=r"(?s)refuses a document.*mapper_parsing_exception"):
        asyncio.run(write())
    harness.on_error = "skip"
    asyncio.run(write())
    assert [raw for _, raw, _ in harness.bad] == [b'{"id":2,"name":"two"}']
    assert set(shared_opensearch.documents(index)) == {"1", "3"}


@pytest.mark.cluster
def test_several_columns_make_the_id_and_the_index(harness, shared_opensearch):
    word = f"i{uuid.uuid4().hex}"
    schema = Schema.of(("a", t.IntType()), ("b", t.VarCharType()), ("at", t.TimestampType(3)))
    options = table(shared_opensearch, word + "-{at|yyyy-MM}", **{"document-id.key-delimiter": "/"})

    async def write():
        writer = await harness.writer(schema, options, pushed={"keys": [0, 1, 2]})
        times = [dt.datetime(2024, 1, 31), dt.datetime(2024, 2, 1)]
        writer.write(Batch.of(schema, [(1, "x", times[0]), (2, "y", times[1])]))
        await writer.begin_checkpoint(1)
        writer.write(Batch.of(schema, [(1, "x", times[0])], [D]))
        await writer.begin_checkpoint(2)
        await writer.close()

    asyncio.run(write())
    assert shared_opensearch.documents(f"{word}-2024-01") == {}
    assert list(shared_opensearch.documents(f"{word}-2024-02")) == ["2/y/2024-02-01 00:00:00.000"]


@pytest.mark.cluster
def test_keys_with_the_delimiter_in_them_are_documents_of_their_own(harness, shared_opensearch):
    index = f"i{uuid.uuid4().hex}"
    schema = Schema.of(("a", t.VarCharType()), ("b", t.VarCharType()))

    async def write():
        writer = await harness.writer(schema, table(shared_opensearch, index), pushed={"keys": [0, 1]})
        writer.write(Batch.of(schema, [("a_b", "c"), ("a", "b_c"), ("x\\", "y")]))
        await writer.begin_checkpoint(1)
        writer.write(Batch.of(schema, [("a", "b_c")], [D]))
        await writer.begin_checkpoint(2)
        await writer.close()

    asyncio.run(write())
    assert set(shared_opensearch.documents(index)) == {"a\\_b_c", "x\\\\_y"}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("all", "all"),
        ("{name}-x", "n-x"),
        ("{at|yyyy.MM.dd}", "2024.01.31"),
        ("{at}", "2024_01_31_10_20_30"),
        ("log-{now()|yyyy}", "log-2025"),
    ],
)
def test_names_of_indices(text, name):
    schema = Schema.of(("name", t.VarCharType()), ("at", t.TimestampType(3)))
    batch = Batch.of(schema, [("n", dt.datetime(2024, 1, 31, 10, 20, 30)), (None, None)])
    now = dt.datetime(2025, 5, 5)
    assert IndexName(text, schema, "owner").names(batch, now)[0] == name


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"index": "{nam}"}, "names no column"),
        ({"index": "{id|yyyy}"}, "no time"),
        ({"index": "{now()|QQQ}"}, "not understood"),
        ({"hosts": "localhost:9200"}, "no URL"),
        ({"format": "csv"}, "documents are JSON"),
        ({"sink.bulk-flush.max-acton": "1"}, "unknown option"),
    ],
)
def test_wrong_options_are_refused_by_name(more, said):
    options = {"connector": "elasticsearch-8", "hosts": "http://127.0.0.1:1", "index": "i", **more}
    with pytest.raises(ConnectorError, match=said):
        validate_table(SCHEMA, options, role="sink")


def test_wrong_credentials_are_refused_at_planning_and_never_shown():
    """OpenSearch's own test node has no users: the answer is that of one that has."""
    answer = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\n{}"
    with TcpServer(answer) as server:
        options = {
            "connector": "elasticsearch-7",
            "hosts": f"http://127.0.0.1:{server.port}",
            "index": "i",
            "username": "me",
            "password": "wrongpassword",
        }
        with pytest.raises(ConnectorError, match=r"(?s)refuses.*401.*username") as caught:
            validate_table(SCHEMA, options, role="sink")
    assert "wrongpassword" not in str(caught.value)
