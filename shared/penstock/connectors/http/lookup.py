"""Looks rows up by key: a request for each key."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.cancelling import end_tasks
from penstock.connectors.base import LookupSource
from penstock.connectors.http.bodies import records
from penstock.connectors.http.client import answer_of, client, place, refused
from penstock.connectors.http.settings import LOOKUP_HEADER, OPTIONS, OWNER, headers_of, own_table
from penstock.connectors.texts import KeyTemplate, written
from penstock.errors import ConnectorError, RecordError
from penstock.formats import message_format
from penstock.formats.api import FormatContext
from penstock.types import Batch, Column

if TYPE_CHECKING:
    import httpx

    from penstock.connectors.base import SourceContext, TableInfo


class HttpLookup(LookupSource):
    """Asks for several keys at a time; a status of ``ignored-response-codes`` is a key without rows."""

    def __init__(self, table: TableInfo) -> None:
        table = own_table(table)
        self._table = table
        self._options = OPTIONS.read(table.options)
        self._template = KeyTemplate(self._options["url"], table.schema, OWNER, "url", in_url=True)
        self._kind = "array" if self._options["http.source.lookup.result-type"] == "array" else "record"
        self._where = f"{OWNER}, {place(self._options['url'])}"
        self._most: int = self._options["http.source.lookup.request.thread-pool.size"]
        self._client: httpx.AsyncClient | None = None

    async def open(self, ctx: SourceContext) -> None:
        self.ctx = ctx
        self._schema = ctx.schema.select(ctx.projection)
        format_ = message_format(self._table.format, where=OWNER)
        self._decoder = format_.decoder(
            FormatContext(ctx.schema, ctx.projection, self._table.options, ctx.bad_record)
        )
        self._client = client(
            self._options,
            headers_of(self._table.options, LOOKUP_HEADER),
            role="source.lookup",
            most=self._most,
        )
        self._free = asyncio.Semaphore(self._most)

    async def lookup(self, keys: Batch) -> Batch:
        requests = self._requests(keys)
        tasks = [asyncio.ensure_future(self._one(keys, i, request)) for i, request in enumerate(requests)]
        try:
            answers = await asyncio.gather(*tasks)
        finally:
            await end_tasks(tasks)
        found = [batch for batch in answers if len(batch)]
        return Batch.concat(found) if found else Batch.empty(self._schema)

    def _requests(self, keys: Batch) -> list[httpx.Request]:
        assert self._client is not None, "the lookup was used before open()"
        names = keys.schema.names
        in_url = [self._table.schema.names[i] for i in self._template.columns]
        if missing := [name for name in in_url if name not in names]:
            raise ConnectorError(
                "the join does not compare the columns of the address",
                expected=f"= for each of {', '.join(in_url)}, which are in 'url' = '{self._template.text}'",
                got="no comparison of " + ", ".join(missing),
                where=OWNER,
                remedy="add the comparison to ON",
            )
        urls = [url.decode() for url in self._template.keys(keys) if url is not None]
        method = self._options["lookup-method"]
        rest = [i for i, name in enumerate(names) if name not in in_url]
        if method == "GET":
            texts = written([keys.columns[i] for i in rest]) if rest else [()] * len(keys)
            return [
                self._client.build_request(
                    "GET", _with(url, {names[i]: v for i, v in zip(rest, values, strict=True)})
                )
                for url, values in zip(urls, texts, strict=True)
            ]
        bodies = message_format("json", where=OWNER).encoder(keys.schema, {}).encode(keys)
        return [
            self._client.build_request(
                method, url, content=body, headers={"Content-Type": "application/json"}
            )
            for url, body in zip(urls, bodies, strict=True)
        ]

    async def _one(self, keys: Batch, i: int, request: httpx.Request) -> Batch:
        assert self._client is not None
        async with self._free:
            answer = await answer_of(self._client, request, self._options["http.source.lookup.retry-codes"])
        if answer.status_code in self._options["http.source.lookup.ignored-response-codes"]:
            return Batch.empty(self._schema)
        if answer.status_code not in self._options["http.source.lookup.success-codes"]:
            raise refused(answer)
        body = answer.content
        if not body.strip():
            return Batch.empty(self._schema)
        where = f"{self._where}, answer for {keys.slice(i, 1).to_pylist()[0]!r}"
        try:
            found = records(body, self._kind, self._options["body.pointer"], where)
        except RecordError as err:
            self.ctx.bad_record(err, body, where)
            return Batch.empty(self._schema)
        if (missing := self._decoder.prepare(found)) is not None:
            await missing
        return self._of_key(self._decoder.decode(found, lambda n: f"{where}, record {n + 1}"), keys, i, where)

    def _of_key(self, rows: Batch, keys: Batch, i: int, where: str) -> Batch:
        """The rows with the key in columns that the answer leaves out. A row of another key is a bad record."""
        kept = np.ones(len(rows), bool)
        columns = list(rows.columns)
        for name, key in zip(keys.schema.names, keys.slice(i, 1).columns, strict=True):
            at = rows.schema.index(name)
            [asked] = key.to_pylist()
            values = columns[at].to_pylist()
            if any(value is None for value in values):
                values = [asked if value is None else value for value in values]
                columns[at] = Column.of(rows.schema.types[at], values)
            kept &= np.array([value == asked for value in values], bool)
        rows = Batch(rows.schema, columns, num_rows=len(rows))
        if kept.all():
            return rows
        for row in rows.filter(~kept).to_pylist():
            error = RecordError(
                "an answer is of another key",
                expected=f"rows with {dict(zip(keys.schema.names, keys.slice(i, 1).to_pylist()[0], strict=True))}",
                got=repr(row),
                where=where,
                remedy="correct 'url', or declare the key's columns as the server names them",
            )
            self.ctx.bad_record(error, None, where)
        return rows.filter(kept)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


def _with(url: str, parameters: dict[str, Any]) -> Any:
    """The URL with these parameters behind its own."""
    import httpx

    texts = {k: v.decode() if isinstance(v, bytes) else v for k, v in parameters.items()}
    return httpx.URL(url).copy_merge_params(texts)
