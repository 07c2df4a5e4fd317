"""``elasticsearch-7``, ``elasticsearch-8`` and ``opensearch``, on a real OpenSearch node."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import uuid
from typing import Any, ClassVar
from unittest import mock

import httpx
import pytest

from penstock.connectors.base import TableInfo
from penstock.connectors.registry import get_connector, validate_table
from penstock.connectors.search.index import IndexName
from penstock.errors import ConnectorError, RecordError, UnsupportedError
from penstock.testing.conformance import LookupConformance, SinkConformance
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


# -- lookups ------------------------------------------------------------------------------------------


LOOKED_UP = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()), ("vip", t.BooleanType()))
MAPPING = {
    "mappings": {
        "properties": {
            "id": {"type": "long"},
            "name": {"type": "text", "fields": {"exact": {"type": "keyword", "ignore_above": 20}}},
            "prose": {"type": "text"},
            "vip": {"type": "boolean"},
        }
    }
}
DOCUMENTS = [
    (1, "ann", True),
    (2, "bob", None),
    (2, "Bob", False),
    (None, "nobody", None),
    (7, "ann lee", True),
    (7, "ann lee", False),
]


def fill(server: Any, documents: Any, mapping: Any = None) -> str:
    """A new index of these documents."""
    index = f"i{uuid.uuid4().hex}"
    server.request("PUT", index, mapping)
    put_documents(server, index, documents)
    return index


def put_documents(server: Any, index: str, documents: Any) -> None:
    lines = [
        json.dumps({"index": {}}) + "\n" + json.dumps(dict(zip(LOOKED_UP.names, row, strict=True))) for row in documents
    ]  # fmt: skip
    answer = httpx.post(
        f"{server.url}/{index}/_bulk?refresh=true", content="\n".join(lines) + "\n",
        headers={"Content-Type": "application/x-ndjson"}, timeout=60,
    )  # fmt: skip
    assert not answer.json()["errors"], answer.text


@pytest.mark.cluster
class TestLookup(LookupConformance):
    """By a number; the index is made once, since making one takes the server a second."""

    schema = LOOKED_UP
    _made: ClassVar[dict[str, str]] = {}

    @pytest.fixture(autouse=True)
    def _server(self, shared_opensearch):
        self.server = shared_opensearch

    def connector(self):
        return get_connector("elasticsearch-7")

    def options(self):
        if self.server.url not in self._made:
            self._made[self.server.url] = fill(self.server, self.rows(), MAPPING)
        return table(self.server, self._made[self.server.url], "elasticsearch-7")

    def rows(self):
        return DOCUMENTS

    def absent(self):
        return [(-1,), (99,)]

    @contextlib.asynccontextmanager
    async def outage(self, options):
        with mock.patch.object(httpx.AsyncClient, "request", side_effect=httpx.ConnectError("cut")):
            yield


class TestLookupOfTwoColumns(TestLookup):
    """Texts are found in the keyword beside an analysed field: 'ann' is not 'ann lee', 'bob' is not 'Bob'."""

    keys = (1, 0)
    _made: ClassVar[dict[str, str]] = {}

    def absent(self):
        return [("ann", 2), ("lee", 7), ("ANN", 1)]

    def many_absent(self):
        return [(f"absent {i}", i) for i in range(2_000)]


def ask(harness, server, index, keys, **names):
    """The rows of ``keys``, whose columns are ``names``."""

    async def main():
        options = table(server, index)
        source = get_connector("opensearch").lookup(TableInfo(LOOKED_UP, options))
        await source.open(harness.ctx(LOOKED_UP, options))
        try:
            return sorted(
                (await source.lookup(Batch.of(Schema.of(*names.items()), keys))).to_pylist(), key=repr
            )
        finally:
            await source.close()

    return asyncio.run(main())


@pytest.mark.cluster
def test_a_key_with_more_documents_than_a_search_gives_has_all_of_them(harness, shared_opensearch):
    rows = [(5, f"row {i}", None) for i in range(10_001)]
    index = fill(shared_opensearch, rows, MAPPING)
    assert ask(harness, shared_opensearch, index, [(5,), (6,)], id=t.BigIntType()) == sorted(rows, key=repr)


@pytest.mark.cluster
def test_what_cannot_be_asked_exactly_is_refused_by_name(harness, shared_opensearch):
    index = fill(shared_opensearch, DOCUMENTS, MAPPING)
    with pytest.raises(RecordError, match=r"(?s)longer than what the server indexes.*ignore_above"):
        ask(harness, shared_opensearch, index, [("x" * 21,)], name=t.VarCharType())
    with pytest.raises(ConnectorError, match="cannot be asked for exactly"):
        ask(harness, shared_opensearch, index, [("words",)], prose=t.VarCharType())
    with pytest.raises(ConnectorError, match="cannot be looked up"):
        ask(harness, shared_opensearch, index, [(1.5,)], id=t.DoubleType())
    with pytest.raises(ConnectorError, match="index is not there"):
        ask(harness, shared_opensearch, "no-such-index", [(1,)], id=t.BigIntType())


def test_a_lookup_reads_one_index_and_no_table_is_scanned():
    options = {"connector": "opensearch", "hosts": "http://127.0.0.1:1", "index": "i-{name}"}
    table_info = TableInfo(LOOKED_UP, options)
    with pytest.raises(ConnectorError, match="reads one index"):
        get_connector("opensearch").lookup(table_info)
    with pytest.raises(UnsupportedError, match="lookup join"):
        get_connector("opensearch").enumerator(table_info)
