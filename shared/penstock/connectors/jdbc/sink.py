"""Writes rows in transactions: as inserts, or as upserts and deletes by primary key."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any

from penstock.connectors.base import SinkWriter, TableInfo
from penstock.connectors.jdbc.database import column_list, connect, failure, quoted
from penstock.connectors.jdbc.settings import OPTIONS
from penstock.connectors.jdbc.values import parameters
from penstock.errors import ExternalError, RecordError
from penstock.types.batch import RowKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from penstock.connectors.base import SourceContext
    from penstock.types.batch import Batch
    from penstock.types.column import Column

#: (whether a row is deleted, its values or those of its key)
Change = tuple[bool, tuple[Any, ...]]
#: A row that the database does not take, and why.
Refused = tuple[Change, RecordError]
#: The pause after an attempt is this many seconds times the attempt's number.
RETRY_PAUSE_S = 0.2


def changed_rows(
    parameters_of: Callable[[Sequence[Column]], list[tuple[Any, ...]]], batch: Batch, keys: Sequence[int]
) -> list[tuple[bool, tuple[Any, ...]]]:
    """The changes of a batch: (False, row to write) or (True, key to delete)."""
    rows = parameters_of(batch.columns)
    if batch.kinds is None:
        return [(False, row) for row in rows]
    out: list[tuple[bool, tuple[Any, ...]]] = []
    for kind, row in zip(batch.kinds.tolist(), rows, strict=True):
        if kind == RowKind.DELETE:
            out.append((True, tuple(row[k] for k in keys)))
        elif kind != RowKind.UPDATE_BEFORE:
            out.append((False, row))
    return out


class JdbcWriter(SinkWriter):
    """Writes at least once: a restart writes the rows since its checkpoint again, which upserts tolerate.

    Statements are run in order, and only one task writes at a time, so later rows never overtake rows that
    wait for another attempt. The last change of a key therefore remains.
    """

    #: How rows become parameters.
    _parameters = staticmethod(parameters)

    def __init__(self, table: TableInfo) -> None:
        self._options = OPTIONS.read(table.options)
        self._buffer: list[tuple[bool, tuple[Any, ...]]] = []  # (delete, parameters)
        self._connection: sqlite3.Connection | None = None
        #: Rows taken by ``write``, and how many of them are in the database.
        self._taken = self._written = 0
        #: The one task that writes. Only ``_start_flush`` makes it.
        self._flush: asyncio.Task[None] | None = None
        #: The error of a failed flush. Its rows are in no buffer any more, so nothing may be written after
        #: them.
        self._failure: BaseException | None = None
        self._closing = asyncio.Event()

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
        self._check()
        before = len(self._buffer)
        self._buffer += changed_rows(self._parameters, batch, self._keys)
        self._taken += len(self._buffer) - before
        waited_ms = self.ctx.now_ms() - self._flushed_ms
        if waited_ms >= self._options["sink.buffer-flush.interval"] or self._full():
            self._start_flush()

    def _full(self) -> bool:
        return len(self._buffer) >= self._options["sink.buffer-flush.max-rows"]

    def ready(self) -> bool:
        return self._flush is None or not self._full()

    async def wait_ready(self) -> None:
        while not self.ready():
            await self._flush_over()
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _start_flush(self) -> None:
        if self._flush is None and self._buffer:
            self._flush = asyncio.ensure_future(self._write_out())

    async def _flush_over(self) -> None:
        """Waits until the flush under way, if any, has ended; raises its error."""
        if self._flush is not None:
            # ``wait`` instead of a plain await: the waiting task may be cancelled, but the write must not be.
            await asyncio.wait([self._flush])
        self._check()

    async def flush(self) -> None:
        await self._until_written(self._taken)

    def begin_checkpoint(self, checkpoint_id: int) -> Awaitable[list[bytes]]:
        taken = self._taken

        async def written() -> list[bytes]:
            await self._until_written(taken)
            return []

        return written()

    async def _until_written(self, taken: int) -> None:
        """Waits until the first ``taken`` rows are in the database."""
        self._check()
        while self._written < taken:
            self._start_flush()
            await self._flush_over()

    async def _write_out(self) -> None:
        rows, self._buffer = self._buffer, []
        self._flushed_ms = self.ctx.now_ms()
        try:
            await self._attempts(rows)
            self._written += len(rows)
        except BaseException as err:
            self._failure = err
        finally:
            self._flush = None

    async def _attempts(self, rows: Sequence[tuple[bool, tuple[Any, ...]]]) -> None:
        attempt = 0
        while True:
            await self._reach()
            try:
                refused = await self.ctx.run(lambda: self._transaction(rows))
                self._left_out(refused)
                return
            except ExternalError:
                attempt += 1
                if attempt > self._options["sink.max-retries"] or await self._closing_within(
                    RETRY_PAUSE_S * attempt
                ):
                    raise

    async def _reach(self) -> None:
        """Waits until the database can be reached; a file always can."""

    async def _closing_within(self, pause_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), pause_s)
        return self._closing.is_set()

    def _left_out(self, refused: Sequence[Refused]) -> None:
        """Counts rows that were left out, or keeps them as dead letters, as ``on-error`` says."""
        for (_, values), error in refused:
            self.ctx.bad_record(error, repr(values).encode(), f"sink {self.ctx.uid}")

    def _transaction(self, rows: Sequence[Change]) -> Sequence[Refused]:
        """Writes the rows in a thread; returns those that the database refused."""
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
        return []

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
        # A transaction continues in its thread when its task is cancelled, and could overwrite rows that the
        # next attempt has written meanwhile. So close waits for the transaction; a failed one is not
        # repeated.
        self._closing.set()
        while self._flush is not None:
            await asyncio.wait([self._flush])
        if self._connection is not None:
            self._connection.close()
