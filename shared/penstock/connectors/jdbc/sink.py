"""Writing rows: inserts, or upserts and deletes by primary key, in transactions."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING, Any

from penstock.connectors.base import SinkWriter, TableInfo
from penstock.connectors.jdbc.connector import OPTIONS
from penstock.connectors.jdbc.database import column_list, connect, failure, quoted
from penstock.connectors.jdbc.values import parameters
from penstock.errors import ExternalError
from penstock.types.batch import RowKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from penstock.connectors.base import SourceContext
    from penstock.types.batch import Batch

#: Between two attempts, times the number of the attempt.
RETRY_PAUSE_S = 0.2


class JdbcWriter(SinkWriter):
    """At least once: a restart writes the rows since its checkpoint again, which upserts bear.

    Runs of statements of one kind stay in order, so the last change of a key is what remains.
    """

    def __init__(self, table: TableInfo) -> None:
        self._options = OPTIONS.read(table.options)
        self._buffer: list[tuple[bool, tuple[Any, ...]]] = []  # (delete, parameters)
        self._connection: sqlite3.Connection | None = None
        self._flush: asyncio.Task[None] | None = None

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        self.ctx = ctx
        names = ctx.schema.names
        table = quoted(self._options["table-name"])
        self._keys: list[int] = list(ctx.pushed.get("keys") or ())
        marks = ", ".join("?" * len(names))
        self._insert = f"INSERT INTO {table} ({column_list(names)}) VALUES ({marks})"
        self._delete = ""
        if self._keys:
            keys = [names[k] for k in self._keys]
            rest = [name for name in names if name not in keys]
            update = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in rest)
            action = f"DO UPDATE SET {update}" if rest else "DO NOTHING"
            self._insert += f" ON CONFLICT ({column_list(keys)}) {action}"
            self._delete = f"DELETE FROM {table} WHERE " + " AND ".join(f"{quoted(k)} = ?" for k in keys)
        self._flushed_ms = ctx.now_ms()
        self._connection = await ctx.run(lambda: connect(self._options["url"], read_only=False))

    def write(self, batch: Batch) -> None:
        rows = parameters(batch.columns)
        if batch.kinds is None:
            self._buffer += [(False, row) for row in rows]
        else:
            for kind, row in zip(batch.kinds.tolist(), rows, strict=True):
                if kind == RowKind.DELETE:
                    self._buffer.append((True, tuple(row[k] for k in self._keys)))
                elif kind != RowKind.UPDATE_BEFORE:
                    self._buffer.append((False, row))
        self._take_outcome()
        waited_ms = self.ctx.now_ms() - self._flushed_ms
        due = waited_ms >= self._options["sink.buffer-flush.interval"]
        if (due or self._full()) and self._flush is None:
            self._flush = asyncio.ensure_future(self._write_out())

    def _full(self) -> bool:
        return len(self._buffer) >= self._options["sink.buffer-flush.max-rows"]

    def ready(self) -> bool:
        return self._flush is None or not self._full()

    async def wait_ready(self) -> None:
        if self._flush is not None:
            # Not awaited itself: who waits may be cancelled, the write may not.
            await asyncio.wait([self._flush])
            self._take_outcome()

    def _take_outcome(self) -> None:
        """Forget a write that is over; raise what it raised."""
        if self._flush is not None and self._flush.done():
            flush, self._flush = self._flush, None
            flush.result()

    async def flush(self) -> None:
        await self.wait_ready()
        await self._write_out()

    def begin_checkpoint(self, checkpoint_id: int) -> Awaitable[list[bytes]]:
        async def written() -> list[bytes]:
            await self.flush()
            return []

        return written()

    async def _write_out(self) -> None:
        rows, self._buffer = self._buffer, []
        self._flushed_ms = self.ctx.now_ms()
        attempt = 0
        while rows:
            try:
                await self.ctx.run(lambda: self._transaction(rows))
                return
            except ExternalError:
                attempt += 1
                if attempt > self._options["sink.max-retries"]:
                    raise
            await asyncio.sleep(RETRY_PAUSE_S * attempt)

    def _transaction(self, rows: Sequence[tuple[bool, tuple[Any, ...]]]) -> None:
        assert self._connection is not None
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._apply(rows)
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
        except sqlite3.Error as err:
            raise failure(err, self._options["url"]) from err

    def _apply(self, rows: Sequence[tuple[bool, tuple[Any, ...]]]) -> None:
        assert self._connection is not None
        start = 0
        while start < len(rows):
            delete = rows[start][0]
            end = start
            while end < len(rows) and rows[end][0] == delete:
                end += 1
            statement = self._delete if delete else self._insert
            self._connection.executemany(statement, [row for _, row in rows[start:end]])
            start = end

    async def close(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
            await asyncio.gather(self._flush, return_exceptions=True)
        if self._connection is not None:
            self._connection.close()
