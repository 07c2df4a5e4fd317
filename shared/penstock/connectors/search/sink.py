"""Writes documents in bulk."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import TYPE_CHECKING, Any

from penstock.connectors.away import FIRST_PAUSE_S, MOST_PAUSE_S
from penstock.connectors.buffered import BufferedWriter
from penstock.connectors.search.bulk import Action, Server, passing, record_error
from penstock.connectors.search.ids import DocumentIds
from penstock.connectors.search.index import IndexName
from penstock.errors import BrokerError, ConnectorError, RecordError
from penstock.formats import message_format
from penstock.types.batch import RowKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.connectors.base import SourceContext, TableInfo
    from penstock.types import Batch

#: Elasticsearch's limit for an id.
_MOST_ID_BYTES = 512


class SearchWriter(BufferedWriter):
    """Writes at least once. With a primary key, a document's id is made from the key, so writing a document
    again changes nothing. Without one, each row gets a new id once: repeating a request then duplicates
    nothing, but a restart may."""

    def __init__(self, table: TableInfo, options: Mapping[str, Any], owner: str) -> None:
        self._options, self._owner = options, owner
        self._server = Server(options, owner)
        pauses = self._pauses()
        waits = options["sink.delivery-guarantee"] == "at-least-once" and options["sink.flush-on-checkpoint"]
        super().__init__(
            self._server.where,
            max_items=options["sink.bulk-flush.max-actions"]
            if options["sink.bulk-flush.max-actions"] > 0
            else 1000,
            max_bytes=options["sink.bulk-flush.max-size"] or None,
            interval_ms=options["sink.bulk-flush.interval"],
            retries=self._most_retries(),
            pauses_s=pauses,
            waits=waits,
        )
        self._index = IndexName(options["index"], table.schema, owner)
        format_ = message_format(table.options.get("format", "json"), where=owner)
        self._encoder = format_.encoder(table.schema, table.options)
        self._types = table.schema.types
        self._prefix, self._count = uuid.uuid4().hex, 0

    def _most_retries(self) -> int | None:
        strategy = self._options["sink.bulk-flush.backoff.strategy"]
        most: int | None = self._options["sink.bulk-flush.backoff.max-retries"]
        return None if strategy is None else 0 if strategy == "DISABLED" else most if most is not None else 8

    def _pauses(self) -> tuple[float, float]:
        delay = self._options["sink.bulk-flush.backoff.delay"]
        first = FIRST_PAUSE_S if delay is None else delay / 1000
        constant = self._options["sink.bulk-flush.backoff.strategy"] == "CONSTANT"
        return first, first if constant else max(first, MOST_PAUSE_S)

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        self.ctx = ctx
        self._keys: list[int] = list(ctx.pushed.get("keys") or ())
        types = [self._types[k] for k in self._keys]
        self._made = DocumentIds(self._options["document-id.key-delimiter"], types, self._owner)
        await self._encoder.open()

    def encode(self, batch: Batch) -> Sequence[Action]:
        now = dt.datetime.fromtimestamp(self.ctx.now_ms() / 1000, dt.UTC)
        names, ids = self._index.names(batch, now), self._ids(batch)
        kinds = [RowKind.INSERT] * len(batch) if batch.kinds is None else batch.kinds.tolist()
        sources = self._encoder.encode(batch.with_kinds(None))
        out = []
        for i, kind in enumerate(kinds):
            if kind == RowKind.UPDATE_BEFORE:
                continue
            index, key, gone = names[i], ids[i], kind == RowKind.DELETE
            if gone and not set(self._index.columns) <= set(self._keys):
                raise self._index_of_a_deletion()
            if index is None or key is None or len(key.encode()) > _MOST_ID_BYTES:
                self._reject(batch, i)
                continue
            out.append(Action(index, key, None if gone else sources[i], bool(self._keys)))
        return out

    def _ids(self, batch: Batch) -> list[str | None]:
        if not self._keys:
            first, self._count = self._count, self._count + len(batch)
            return [f"{self._prefix}-{i}" for i in range(first, self._count)]
        return self._made.of([batch.columns[k] for k in self._keys])

    def _index_of_a_deletion(self) -> ConnectorError:
        return ConnectorError(
            "a row is deleted whose index cannot be told",
            expected="columns of 'index' that are in the primary key",
            got=repr(self._options["index"]),
            where=self._owner,
            remedy="add the columns to the PRIMARY KEY, or take them out of 'index'",
        )

    def _reject(self, batch: Batch, i: int) -> None:
        error = RecordError(
            "a row has no index or id",
            expected=f"values in the columns of 'index' and of the primary key, with at most {_MOST_ID_BYTES} bytes as an id",
            got="NULL, or more bytes",
            where=self._owner,
            remedy="filter such rows, or declare the columns NOT NULL",
        )
        self.ctx.bad_record(error, repr(batch.slice(i, 1).to_pylist()[0]).encode(), f"sink {self.ctx.uid}")

    def size_of(self, item: Action) -> int:
        return len(item.source or b"") + len(item.id) + len(item.index) + 64

    async def send(self, items: Sequence[Action]) -> Sequence[Action]:
        again, words = [], ""
        # If an earlier update of a document must be sent again, its later updates must follow it.
        behind: set[tuple[str, str]] = set()
        for action, status, said in await self._server.bulk(items):
            at = (action.index, action.id)
            if passing(status):
                again.append(action)
                behind.add(at)
                words = f"status {status}, {said}"
            elif at in behind:
                again.append(action)
            elif status >= 300 and not (status == 404 and action.source is None):
                where = self._server.where
                self.ctx.bad_record(record_error(action, status, said, where), action.source, where)
        if words and len(again) == len(items):
            raise BrokerError("the search server takes no documents", got=words, where=self._server.where)
        return again

    async def close(self) -> None:
        await super().close()
        await self._server.close()
