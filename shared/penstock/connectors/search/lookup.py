"""Looks documents up by the values of fields: one request for the keys of a batch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
import numpy as np

from penstock.connectors.base import LookupSource
from penstock.connectors.search.bulk import Server, refused
from penstock.connectors.search.fields import ExactField, check_key, exact_field
from penstock.connectors.search.index import IndexName
from penstock.errors import BrokerError, ConnectorError
from penstock.formats import message_format
from penstock.formats.api import FormatContext
from penstock.types import Batch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.connectors.base import SourceContext, TableInfo

#: Hits of one search: the limit that servers have by default (``index.max_result_window``).
_MOST_HITS = 10_000
#: Keys of one search; servers allow 65,536 values of one field and 1,024 clauses.
_MOST_VALUES, _MOST_CLAUSES = 10_000, 250
_SCROLL = "2m"
_PLAIN = re.compile(r"\w+")


class _Hit(msgspec.Struct):
    source: msgspec.Raw = msgspec.field(name="_source", default=msgspec.Raw(b"{}"))


class _Hits(msgspec.Struct):
    hits: list[_Hit] = []


class _Shards(msgspec.Struct):
    failed: int = 0


class _Found(msgspec.Struct):
    """The answer to one search."""

    hits: _Hits = msgspec.field(default_factory=_Hits)
    shards: _Shards = msgspec.field(name="_shards", default_factory=_Shards)
    timed_out: bool = False
    scroll_id: str | None = msgspec.field(name="_scroll_id", default=None)
    status: int = 200
    error: msgspec.Raw | None = None


class _Several(msgspec.Struct):
    responses: list[_Found]


class SearchLookup(LookupSource):
    """Looks keys up in an index. It finds what a search finds: documents since the index's last refresh."""

    def __init__(self, table: TableInfo, options: Mapping[str, Any], owner: str) -> None:
        name = IndexName(options["index"], table.schema, owner)
        if name.columns or "{" in options["index"]:
            raise ConnectorError(
                "a lookup reads one index",
                expected="'index' without '{…}'; an alias or a pattern (orders-*) stands for several",
                got=repr(options["index"]),
                where=owner,
                remedy="declare a table of its own for the lookup",
            )
        self._table, self._owner = table, owner
        self._index: str = options["index"]
        self._server = Server(options, owner)
        self._fields: dict[str, ExactField] = {}

    @property
    def _where(self) -> str:
        return f"{self._server.where}, index '{self._index}'"

    async def open(self, ctx: SourceContext) -> None:
        self.ctx = ctx
        self._schema = ctx.schema.select(ctx.projection)
        self._decoder = message_format("json", where=self._owner).decoder(
            FormatContext(ctx.schema, ctx.projection, self._table.options, ctx.bad_record)
        )
        names = self._schema.names
        # A name with other characters could be read as a path or a pattern: then whole documents come.
        self._source: Any = names if all(map(_PLAIN.fullmatch, names)) else True

    async def lookup(self, keys: Batch) -> Batch:
        check_key(list(keys.schema.fields), self._owner)
        fields = await self._exact(keys)
        if fields is None:
            return Batch.empty(self._schema)
        rows = [
            tuple(f.value(v, self._where) for f, v in zip(fields, key, strict=True))
            for key in keys.to_pylist()
        ]
        step = _MOST_VALUES if len(fields) == 1 else max(1, _MOST_CLAUSES // (len(fields) + 1))
        queries = [_query(fields, rows[at : at + step]) for at in range(0, len(rows), step)]
        sources = await self._search(queries)
        return self._of_keys(await self._decoded(sources), keys)

    async def _exact(self, keys: Batch) -> list[ExactField] | None:
        """The fields to ask for; None if no document has one of them."""
        lacking = [f for f in keys.schema.fields if f.name not in self._fields]
        if lacking:
            answer = await self._server.ask("GET", f"{quote(self._index, safe='*,')}/_mapping")
            mappings = msgspec.json.decode(self._content(answer))
            for field in lacking:
                found = exact_field(field, mappings, self._where)
                if found is None:
                    return None  # asked again for the next batch: documents that have it may come
                self._fields[field.name] = found
        return [self._fields[name] for name in keys.schema.names]

    async def _search(self, queries: Sequence[Mapping[str, Any]]) -> list[bytes]:
        """The documents that the queries find, each document as often as queries find it."""
        head = msgspec.json.encode({"index": self._index, "allow_partial_search_results": False})
        body = b"".join(
            head
            + b"\n"
            + msgspec.json.encode({"query": q, "size": _MOST_HITS, "_source": self._source})
            + b"\n"
            for q in queries
        )
        answer = await self._server.ask("POST", "_msearch", body, "application/x-ndjson")
        found = msgspec.json.decode(self._content(answer), type=_Several).responses
        out: list[bytes] = []
        for query, one in zip(queries, found, strict=True):
            sources = self._sources(one)
            # There may be more than one search gives: read them page by page.
            out += sources if len(sources) < _MOST_HITS else await self._scrolled(query)
        return out

    async def load(self) -> Batch:
        return await self._decoded(await self._scrolled({"match_all": {}}))

    async def _scrolled(self, query: Mapping[str, Any]) -> list[bytes]:
        """All documents of a query, as the index was at the first page."""
        path = f"{quote(self._index, safe='*,')}/_search?scroll={_SCROLL}&allow_partial_search_results=false"
        body = msgspec.json.encode(
            {"query": query, "size": _MOST_HITS, "_source": self._source, "sort": ["_doc"]}
        )
        out: list[bytes] = []
        answer = await self._server.ask("POST", path, body)
        while True:
            found = msgspec.json.decode(self._content(answer), type=_Found)
            page = self._sources(found)
            out += page
            if len(page) < _MOST_HITS:
                if found.scroll_id is not None:
                    ended = msgspec.json.encode({"scroll_id": found.scroll_id})
                    await self._server.ask("DELETE", "_search/scroll", ended)
                return out
            more = msgspec.json.encode({"scroll": _SCROLL, "scroll_id": found.scroll_id})
            answer = await self._server.ask("POST", "_search/scroll", more)

    def _content(self, answer: Any) -> bytes:
        if answer.status_code == 404:
            raise ConnectorError(
                "the index is not there",
                expected="an index, alias or pattern that the server has",
                got=answer.text[:300],
                where=self._where,
                remedy="create it, or correct 'index' and 'connection.path-prefix'",
            )
        if answer.status_code != 200:
            raise refused(answer.status_code, answer.text, self._where)
        content: bytes = answer.content
        return content

    def _sources(self, found: _Found) -> list[bytes]:
        """The documents of an answer that is whole."""
        if found.error is not None:
            raise refused(found.status, bytes(found.error).decode(errors="replace"), self._where)
        if found.timed_out or found.shards.failed:
            raise BrokerError(
                "the search server answered for a part of the index",
                expected="an answer of every shard",
                got="a timeout" if found.timed_out else f"{found.shards.failed} shards that failed",
                where=self._where,
            )
        return [bytes(hit.source) for hit in found.hits.hits]

    async def _decoded(self, sources: Sequence[bytes]) -> Batch:
        if not sources:
            return Batch.empty(self._schema)
        where = self._where
        if (missing := self._decoder.prepare(sources)) is not None:
            await missing
        return self._decoder.decode(sources, lambda n: f"{where}, document {n + 1} of an answer")

    def _of_keys(self, rows: Batch, keys: Batch) -> Batch:
        """Only rows that equal one of ``keys``: a field's mapping may take several values for one."""
        if not len(rows):
            return rows
        wanted = set(keys.to_pylist())
        found = zip(*(rows.column(name).to_pylist() for name in keys.schema.names), strict=True)
        return rows.filter(np.array([row in wanted for row in found], np.bool_))

    async def close(self) -> None:
        await self._server.close()


def _query(fields: Sequence[ExactField], keys: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    if len(fields) == 1:
        return {"constant_score": {"filter": {"terms": {fields[0].path: [key[0] for key in keys]}}}}
    each = [
        {"bool": {"filter": [{"term": {f.path: v}} for f, v in zip(fields, key, strict=True)]}}
        for key in keys
    ]
    return {"constant_score": {"filter": {"bool": {"should": each, "minimum_should_match": 1}}}}
