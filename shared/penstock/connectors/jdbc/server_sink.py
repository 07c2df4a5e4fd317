"""Writes rows to a database server: at least once as they come, or exactly once with a marker in the
transaction."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

from penstock.connectors.away import Away, patiently
from penstock.connectors.base import SinkWriter, TableInfo
from penstock.connectors.jdbc.changing import ChangingWriter, check_count
from penstock.connectors.jdbc.server_values import server_parameters
from penstock.connectors.jdbc.servers import check_transactional, connect, failure, server_of
from penstock.connectors.jdbc.settings import OPTIONS
from penstock.connectors.jdbc.sink import RETRY_PAUSE_S, Change, JdbcWriter, Refused, changed_rows
from penstock.connectors.jdbc.staged import packed, unpacked
from penstock.connectors.jdbc.truncating import TruncatingWriter
from penstock.errors import ConnectorError, ExternalError, PenstockError, RecordError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from penstock.connectors.base import SourceContext
    from penstock.connectors.row_changes import RowChange
    from penstock.types.batch import Batch

#: The table of markers, beside the table that is written.
MARKERS = "penstock_commits"
#: An id is the time at which it was made, ms since 1970, and chance: 12 and 20 hexadecimal digits.
_ID_BYTES, _TIME_DIGITS = 32, 12
#: Markers are kept so long. Of rows that are a day younger than that, a marker can still be found.
_KEPT = {"PostgreSQL": "now() - INTERVAL '30 days'", "MySQL": "now() - INTERVAL 30 DAY"}
_OLDEST_MS = 29 * 86_400_000


class _Statements:
    """The statements that a writer runs on its table."""

    def __init__(self, table: TableInfo) -> None:
        self.server = server_of(table.options)
        self.table: str = OPTIONS.read(table.options)["table-name"]
        self.connection: Any = None

    def prepare(self, ctx: SourceContext) -> list[int]:
        """Builds the statements; returns the indices of the key columns."""
        names, keys = ctx.schema.names, list(ctx.pushed.get("keys") or ())
        named = [names[k] for k in keys]
        self.insert = self.server.insert(self.table, names, named)
        self.delete = self.server.delete(self.table, named) if named else ""
        return keys

    def reach(self) -> None:
        """Connects unless there is a connection, which may have been lost meanwhile. ExternalError if no server answers."""
        if self.connection is None:
            self.connection = connect(self.server)

    def transaction(
        self, rows: Sequence[Change], marker: str | None = None, *, skips: bool = False
    ) -> list[Refused]:
        """Writes the rows in order in one transaction, grouped into runs of one kind of statement. With a
        marker, writes them only if the marker does not exist yet. A failed connection is dropped, and with it
        the transaction. Raises RecordError for a row that the database refuses; with ``skips``, such rows are left
        out and returned, each with its error."""
        refused: list[Refused] = []
        try:
            self.reach()
            with self.connection.cursor() as cursor:
                if marker is None or self._marked(cursor, marker):
                    if skips:
                        refused = self._apply_each(cursor, rows)
                    else:
                        self._apply(cursor, rows)
            self.connection.commit()
            return refused
        except PenstockError:
            self.close()
            raise
        except Exception as err:
            self.close()
            raise failure(err, self.server) from None

    def _apply_each(self, cursor: Any, rows: Sequence[Change]) -> list[Refused]:
        """Writes the rows but those that the database refuses, which it finds by halves, each behind a savepoint."""
        cursor.execute("SAVEPOINT penstock_rows")
        try:
            self._apply(cursor, rows)
        except Exception as err:
            error = failure(err, self.server)
            if not isinstance(error, RecordError):
                raise
            cursor.execute("ROLLBACK TO SAVEPOINT penstock_rows")
            if len(rows) == 1:
                return [(rows[0], error)]
            half = len(rows) // 2
            return self._apply_each(cursor, rows[:half]) + self._apply_each(cursor, rows[half:])
        cursor.execute("RELEASE SAVEPOINT penstock_rows")
        return []

    def _apply(self, cursor: Any, rows: Sequence[Change]) -> None:
        start = 0
        while start < len(rows):
            delete, end = rows[start][0], start
            while end < len(rows) and rows[end][0] == delete:
                end += 1
            cursor.executemany(self.delete if delete else self.insert, [row for _, row in rows[start:end]])
            start = end

    def _marked(self, cursor: Any, marker: str) -> bool:
        """Writes the marker; returns False if it exists already, and so do the rows."""
        ignore = (
            ("INSERT INTO", "ON CONFLICT DO NOTHING")
            if self.server.product == "PostgreSQL"
            else ("INSERT IGNORE INTO", "")
        )
        cursor.execute(f"{ignore[0]} {MARKERS} (id, committed_at) VALUES (%s, now()) {ignore[1]}", (marker,))
        return bool(cursor.rowcount == 1)

    def make_markers(self) -> None:
        """Creates the table of markers if it is missing, and deletes old markers. ConnectorError if it or the
        written table has no transactions."""
        engine = " ENGINE = InnoDB" if self.server.product == "MySQL" else ""
        self.run(
            f"CREATE TABLE IF NOT EXISTS {MARKERS} (id varchar(64) PRIMARY KEY, committed_at timestamp NOT NULL){engine}"
        )
        for table in (MARKERS, self.table):
            check_transactional(self.connection, self.server, table)
        self.run(f"DELETE FROM {MARKERS} WHERE committed_at < {_KEPT[self.server.product]}")

    def run(self, statement: str) -> None:
        """Runs one statement in a transaction of its own."""
        try:
            self.reach()
            with self.connection.cursor() as cursor:
                cursor.execute(statement)
            self.connection.commit()
        except PenstockError:
            raise
        except Exception as err:
            self.close()
            raise failure(err, self.server) from None

    def change(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Runs the statement for each of the rows, each of which changes at most one, in one transaction."""
        try:
            self.reach()
            with self.connection.cursor() as cursor:
                cursor.executemany(statement, rows)
                check_count(cursor.rowcount, len(rows), self.table, self.server.where)
            self.connection.commit()
        except PenstockError:
            self.close()
            raise
        except Exception as err:
            self.close()
            raise failure(err, self.server) from None

    def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()


class ServerWriter(JdbcWriter):
    """Writes at least once; buffers, retries and keeps the order as SQLite's writer does."""

    _parameters = staticmethod(server_parameters)

    def __init__(self, table: TableInfo) -> None:
        super().__init__(table)
        self._statements = _Statements(table)
        self._server = Away(self._statements.server.where)

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        self.ctx = ctx
        self._keys = self._statements.prepare(ctx)
        self._flushed_ms = ctx.now_ms()
        # Of a job that wrote exactly once before: perhaps they are in the table already, perhaps not.
        for item in restored:
            await self._attempts(_rows_of(item, ctx, self._keys))

    async def _reach(self) -> None:
        while True:
            try:
                await self.ctx.run(self._statements.reach)
            except ExternalError as err:
                if await self._closing_within(self._server.failed(err)):
                    raise
            else:
                self._server.answered()
                return

    def away(self) -> str | None:
        return self._server.reason

    def _transaction(self, rows: Sequence[Change]) -> Sequence[Refused]:
        return self._statements.transaction(rows, skips=self.ctx.on_error != "fail")

    async def close(self) -> None:
        await super().close()
        self._statements.close()


class ExactlyOnceWriter(SinkWriter):
    """The rows of an epoch are kept in its checkpoint. When the checkpoint is complete, they are written in
    one transaction with a marker; an existing marker says that they were written before."""

    def __init__(self, table: TableInfo) -> None:
        self._retries: int = OPTIONS.read(table.options)["sink.max-retries"]
        self._statements = _Statements(table)
        self._server = Away(self._statements.server.where)
        self._batches: list[Batch] = []
        self._staged: list[tuple[int, bytes]] = []

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        self.ctx = ctx
        self._keys = self._statements.prepare(ctx)
        for item in restored:
            check_age(item, ctx.now_ms(), self._statements.table)
        await patiently(lambda: ctx.run(self._statements.make_markers), self._server, None)
        for item in restored:
            await self._write(item)

    def away(self) -> str | None:
        return self._server.reason

    def write(self, batch: Batch) -> None:
        self._batches.append(batch)

    def begin_checkpoint(self, checkpoint_id: int) -> Awaitable[list[bytes]]:
        batches, self._batches = self._batches, []
        if batches:
            self._staged.append((checkpoint_id, _packed(batches, self.ctx.now_ms())))

        async def staged() -> list[bytes]:
            return [item for at, item in self._staged if at <= checkpoint_id]

        return staged()

    async def commit(self, checkpoint_id: int) -> None:
        while self._staged and self._staged[0][0] <= checkpoint_id:
            await self._write(self._staged[0][1])
            self._staged.pop(0)

    def needs_commit(self) -> bool:
        return bool(self._batches or self._staged)

    async def _write(self, item: bytes) -> None:
        rows = _rows_of(item, self.ctx, self._keys)
        marker, skips = item[:_ID_BYTES].decode(), self.ctx.on_error != "fail"
        attempt = 0
        while True:
            await patiently(lambda: self.ctx.run(self._statements.reach), self._server, None)
            try:
                refused = await self.ctx.run(lambda: self._statements.transaction(rows, marker, skips=skips))
                for (_, values), error in refused:
                    self.ctx.bad_record(error, repr(values).encode(), f"sink {self.ctx.uid}")
                return
            except ExternalError:
                attempt += 1
                if attempt > self._retries:
                    raise
                await asyncio.sleep(RETRY_PAUSE_S * attempt)

    async def close(self) -> None:
        if self._statements.connection is not None:
            # A transaction goes on in its thread when the task that awaits it is cancelled.
            await self.ctx.run(self._statements.close)


def _packed(batches: Sequence[Batch], now_ms: int) -> bytes:
    """The rows as bytes, after a new id, which becomes the marker."""
    return made_id(now_ms) + packed(batches)


def _rows_of(item: bytes, ctx: SourceContext, keys: Sequence[int]) -> list[tuple[bool, tuple[Any, ...]]]:
    """The rows of a staged epoch, as ``transaction`` takes them."""
    rows: list[tuple[bool, tuple[Any, ...]]] = []
    for batch in unpacked(item[_ID_BYTES:], ctx.schema):
        rows += changed_rows(server_parameters, batch, keys)
    return rows


def made_id(now_ms: int) -> bytes:
    """A new id of an epoch that is staged at ``now_ms``."""
    random = uuid.uuid4().hex[: _ID_BYTES - _TIME_DIGITS]
    return f"{now_ms:0{_TIME_DIGITS}x}{random}".encode()


def check_age(item: bytes, now_ms: int, table: str) -> None:
    """Raises ConnectorError for restored rows that are so old that their marker may have been deleted: whether they
    were written cannot be told any more."""
    staged_ms = int(item[:_TIME_DIGITS], 16)
    if now_ms - staged_ms <= _OLDEST_MS:
        return
    raise ConnectorError(
        f"rows for table '{table}' were staged too long ago to be written exactly once",
        expected=f"a checkpoint or savepoint of the last {_OLDEST_MS // 86_400_000} days: markers in {MARKERS} are kept for 30",
        got=f"rows of {(now_ms - staged_ms) // 86_400_000} days ago",
        where="the state of the sink",
        remedy="start from a newer savepoint; or set 'sink.delivery-guarantee' = 'at-least-once' and look for doubled rows",
    )


class TruncatingServer(TruncatingWriter):
    """Empties a table of a server."""

    def _delete_all(self) -> None:
        statements = _Statements(self._table)
        try:
            statements.run(f"DELETE FROM {statements.server.table(statements.table)}")
        finally:
            statements.close()


class ChangingServer(ChangingWriter):
    """Changes a table of a server."""

    _parameters = staticmethod(server_parameters)
    _mark = "%s"

    def __init__(self, table: TableInfo, change: RowChange) -> None:
        super().__init__(table, change)
        self._statements = _Statements(table)

    def _quoted(self, name: str) -> str:
        return self._statements.server.quoted(name)

    def _table(self, name: str) -> str:
        return self._statements.server.table(name)

    def _transaction(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self._statements.change(self._statement, rows)

    async def close(self) -> None:
        self._statements.close()
