"""Reads streams by the ids of their entries."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from penstock.connectors.base import SourceEnumerator, Split, TableInfo
from penstock.connectors.receiving import Arrived, Place, ReceivingReader
from penstock.connectors.redis.client import address, client, errors, failure
from penstock.connectors.redis.settings import METADATA, OPTIONS, OWNER
from penstock.connectors.redis.shape import Shape
from penstock.errors import ConnectorError, ExternalError, PenstockError
from penstock.types import Batch, Column, Field, Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redis.asyncio import Redis

    from penstock.connectors.away import Away
    from penstock.connectors.base import SourceContext

#: Entries of one answer, and how long the server waits for the next entry.
_ENTRIES, _BLOCK_MS = 2000, 1000
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def id_of(text: str) -> tuple[int, int]:
    """An entry's id as numbers. Raises ConnectorError."""
    ms, _, sequence = text.partition("-")
    if not ms.isdigit() or not (sequence or "0").isdigit():
        raise ConnectorError(
            "option 'scan.startup.id' is no id of an entry",
            expected="1700000000000-0",
            got=repr(text),
            where=OWNER,
        )
    return int(ms), int(sequence or 0)


class RedisEnumerator(SourceEnumerator):
    """A split for each stream. Where it begins and ends is fixed here."""

    def __init__(self, table: TableInfo) -> None:
        self._options = OPTIONS.read(table.options)

    async def discover(self, ctx: SourceContext, known: set[str]) -> Sequence[Split]:
        keys = [key.strip() for key in self._options["key"].split(";") if key.strip()]
        fresh = [key for key in keys if key not in known]
        if not fresh:
            return []
        where = f"{OWNER}, {address(self._options['url'])}"
        found = client(self._options["url"])
        try:
            return [await self._split(found, key) for key in fresh]
        except errors() as err:
            raise failure(err, where) from err
        finally:
            await found.aclose()

    async def _split(self, server: Redis, key: str) -> Split:
        last = await last_id(server, key)
        match self._options["scan.startup.mode"]:
            case "earliest":
                start = "0-0"
            case "latest":
                start = last
            case _:
                ms, sequence = id_of(self._options["scan.startup.id"])
                start = f"{ms}-{sequence}"
        payload: dict[str, Any] = {"key": key, "start": start}
        if self._options["scan.bounded.mode"] == "latest":
            payload["end"] = last
        return Split(key, payload)


async def last_id(server: Redis, key: str) -> str:
    """The id of the newest entry that a stream ever had; 0-0 if there is no stream."""
    import redis.exceptions

    try:
        told: Any = await server.xinfo_stream(key)
    except redis.exceptions.ResponseError as err:
        if "no such key" in str(err):
            return "0-0"
        raise
    return str(told["last-generated-id"].decode())


class RedisReader(ReceivingReader):
    """Reads exactly once: the position is the id of the last entry. Entries that were removed before they
    were read are an error."""

    metadata = METADATA

    def __init__(self, table: TableInfo) -> None:
        self._options = OPTIONS.read(table.options)
        self._shape = Shape(table)
        super().__init__(OWNER, f"{OWNER}, {address(self._options['url'])}")

    async def open(self, ctx: SourceContext) -> None:
        self.ctx = ctx
        self._rows = _EntryRows(ctx, self._shape)  # type: ignore[assignment]

    async def receive(self, place: Place, away: Away) -> None:
        server = client(self._options["url"])
        try:
            await self._follow(place, away, server)
        except errors() as err:
            if isinstance(err, PenstockError | ExternalError):
                raise
            raise failure(err, self._where) from err
        finally:
            await server.aclose()

    async def _follow(self, place: Place, away: Away, server: Redis) -> None:
        payload = place.split.payload
        key, end = payload["key"], payload.get("end")
        read, count = self._behind(place)
        if end is not None and id_of(read) >= id_of(end):
            return
        while True:
            told, entries = await self._next(server, key, read)
            away.answered()
            count = self._checked(key, read, count, told, fresh=read == payload["start"])
            for name, fields in entries:
                read = name.decode()
                if end is not None and id_of(read) > id_of(end):
                    return
                count = None if count is None else count + 1
                ms, _ = id_of(read)
                values = {"key": key, "id": read, "timestamp": _EPOCH + dt.timedelta(milliseconds=ms)}
                where = f"stream '{key}', entry {read}"
                await self.put(place, Arrived(b"", where, values, ms * 1000, (read, fields, count)))
            if end is not None and id_of(read) >= id_of(end):
                return
            if not entries:
                # This call only waits for entries. They are read again together with the number of removed
                # entries.
                await server.xread({key: read}, count=1, block=_BLOCK_MS)

    async def _next(
        self, server: Redis, key: str, read: str
    ) -> tuple[Any, list[tuple[bytes, dict[bytes, bytes]]]]:
        """The server's facts about the stream (None: there is no stream) and the next entries, both read in
        one transaction."""
        import redis.exceptions

        async with server.pipeline(transaction=True) as pipeline:
            pipeline.xinfo_stream(key)
            pipeline.xread({key: read}, count=_ENTRIES)
            told, found = await pipeline.execute(raise_on_error=False)
        if isinstance(told, redis.exceptions.ResponseError) and "no such key" in str(told):
            told = None
        for answer in (told, found):
            if isinstance(answer, Exception):
                raise answer
        return told, _entries(found)

    def _behind(self, place: Place) -> tuple[str, int | None]:
        """The id of the last entry that was received, also if it waits to be polled, and how many entries of the stream
        come up to it; None: not known."""
        if place.waiting:
            name, _, count = place.waiting[-1].token
            return name, count
        position = place.position or {}
        return position.get("id") or place.split.payload["start"], position.get("count")

    def _checked(self, key: str, read: str, count: int | None, told: Any, *, fresh: bool) -> int | None:
        """The number of entries up to ``read``. ConnectorError if entries after it were removed, or if the
        stream is another one. ``fresh``: nothing was read yet."""
        if told is None:
            if not fresh:
                raise self._gone(key, read, "no such stream")
            return count
        added, length = told.get("entries-added"), told["length"]
        if fresh:
            # When a stream is read from its beginning, entries that were removed earlier do not count as
            # lost.
            return None if added is None or read != "0-0" else added - length
        last = told["last-generated-id"].decode()
        deleted = (told.get("max-deleted-entry-id") or b"0-0").decode()
        if id_of(last) < id_of(read):
            raise self._gone(key, read, f"a stream whose newest entry is {last}")
        if id_of(deleted) > id_of(read):
            raise self._gone(key, read, f"entries up to {deleted} were deleted")
        if count is not None and added is not None and added - length > count:
            raise self._gone(key, read, f"{added - length - count} of them were trimmed")
        return count

    def _gone(self, key: str, read: str, got: str) -> ConnectorError:
        return ConnectorError(
            f"the stream '{key}' no longer has the entries that are needed",
            expected=f"all entries behind {read}",
            got=got,
            where=self._where,
            remedy="keep more entries (MAXLEN, XTRIM); to go on without what is lost, start without this state",
        )

    def advance(self, place: Place, messages: Sequence[Arrived]) -> Any:
        name, _, count = messages[-1].token
        return {"id": name, "count": count}

    def caught_up(self, split_id: str) -> bool:
        place = self._places[split_id]
        return place.done if "end" in place.split.payload else not place.waiting


def _entries(found: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """The entries of an answer about one stream, in either protocol."""
    if not found:
        return []
    if isinstance(found, dict):
        [pages] = found.values()
        return [entry for page in pages for entry in (page if isinstance(page, list) else [page])]
    return list(found[0][1])


class _EntryRows:
    """Decodes entries to a batch; each field is the column of the same name."""

    def __init__(self, ctx: SourceContext, shape: Shape) -> None:
        self._ctx, self._shape = ctx, shape
        told = [Field(name, METADATA[name]) for name in ctx.metadata]
        self._schema = Schema((*ctx.schema.select(ctx.projection).fields, *told))

    def prepare(self, messages: Sequence[Arrived]) -> None:
        """Does nothing: entries need no preparation."""

    def decode(self, messages: Sequence[Arrived]) -> Batch:
        """The rows of entries. Bad entries are handled by the table's policy."""
        rows, times = [], []
        for message in messages:
            fields = message.token[1]
            try:
                row = self._shape.row_of_fields(fields, self._ctx.projection, message.where)
            except PenstockError as err:
                self._ctx.bad_record(err, repr(fields).encode(), message.where)
                continue
            rows.append((*row, *(message.told[name] for name in self._ctx.metadata)))
            times.append(message.time_us)
        import numpy as np

        columns = [Column.of(f.type, [row[i] for row in rows]) for i, f in enumerate(self._schema.fields)]
        return Batch(self._schema, columns, times=np.array(times, np.int64), num_rows=len(rows))
