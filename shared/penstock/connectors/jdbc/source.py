"""Reads a whole table as one split, in the database's order."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.connectors.base import Fetched, SourceEnumerator, SourceReader, Split, TableInfo
from penstock.connectors.jdbc.database import column_list, connect, failure, quoted
from penstock.connectors.jdbc.settings import OPTIONS
from penstock.connectors.jdbc.values import column_from_database
from penstock.errors import RecordError
from penstock.halving import by_halves
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.base import SourceContext
    from penstock.types.logical import Schema

    _Rows = Sequence[tuple[Any, ...]]

SPLIT = "table"


class JdbcEnumerator(SourceEnumerator):
    """Discovers the one split of a database table."""

    async def discover(self, ctx: SourceContext, known: set[str]) -> Sequence[Split]:
        return [] if SPLIT in known else [Split(SPLIT)]


class JdbcReader(SourceReader):
    """Reads the table. A position is the number of rows delivered and, if the table has rowids, the last
    row's id, so that deleting rows before it does not move the position."""

    def __init__(self, table: TableInfo) -> None:
        self._options = OPTIONS.read(table.options)
        self._split: Split | None = None
        self._row = 0
        self._rowid: int | None = None
        self._has_rowid = False
        self._done = False
        self._rows: list[tuple[Any, ...]] | None = None
        self._cursor: sqlite3.Cursor | None = None
        self._connection: sqlite3.Connection | None = None
        self._event = asyncio.Event()

    async def open(self, ctx: SourceContext) -> None:
        self.ctx = ctx
        self._schema = ctx.schema.select(ctx.projection)

    def add_splits(self, splits: Sequence[Split]) -> None:
        for split in splits:
            self._split = split
            if split.position is not None:
                self._row, self._done = split.position["row"], split.position["done"]
                self._rowid = split.position.get("rowid")
        self._event.set()

    def poll(self) -> Fetched | None:
        rows, self._rows = self._rows, None
        if rows is None or self._split is None:
            return None
        if not rows:
            self._done = True
            return None
        if self._has_rowid:
            self._rowid, rows = rows[-1][-1], [row[:-1] for row in rows]
        batch = decoded(self._schema, rows, self.ctx, f"row {self._row + 1} and after")
        self._row += len(rows)
        return Fetched(self._split.id, batch)

    async def wait(self) -> None:
        if self._split is None or self._done:
            self._event.clear()
            await self._event.wait()
        elif self._rows is None:
            self._rows = await self.ctx.run(self._fetch)

    def _fetch(self) -> list[tuple[Any, ...]]:
        url, table = self._options["url"], quoted(self._options["table-name"])
        try:
            if self._cursor is None:
                self._connection = connect(url, read_only=True)
                names = column_list(self._schema.names) if len(self._schema) else "NULL"
                self._has_rowid = _has_rowid(self._connection, table)
                names += ", rowid" if self._has_rowid else ""
                if self._rowid is not None:
                    which, begin = "WHERE rowid > ? ORDER BY rowid", self._rowid
                else:
                    order = "ORDER BY rowid " if self._has_rowid else ""
                    which, begin = f"{order}LIMIT -1 OFFSET ?", self._row
                self._cursor = self._connection.execute(f"SELECT {names} FROM {table} {which}", (begin,))
            return self._cursor.fetchmany(min(self._options["scan.fetch-size"], self.ctx.batch_rows))
        except sqlite3.Error as err:
            raise failure(err, url) from err

    def finished_splits(self) -> set[str]:
        return {self._split.id} if self._split is not None and self._done else set()

    def caught_up(self, split_id: str) -> bool:
        return self._done

    def snapshot(self) -> list[Split]:
        if self._split is None:
            return []
        position = {"row": self._row, "rowid": self._rowid, "done": self._done}
        return [msgspec.structs.replace(self._split, position=position)]

    async def close(self) -> None:
        if self._cursor is not None:
            self._cursor.close()  # otherwise the cursor would hold the database's lock until it is garbage-collected
        if self._connection is not None:
            self._connection.close()


def _has_rowid(connection: sqlite3.Connection, table: str) -> bool:
    """Whether the table has rowids. Views and tables WITHOUT ROWID have none; a column named rowid hides the
    table's own."""
    try:
        connection.execute(f"SELECT rowid FROM {table} LIMIT 0")
    except sqlite3.OperationalError:
        return False
    columns = connection.execute(f"SELECT * FROM {table} LIMIT 0").description
    return all(column[0].lower() != "rowid" for column in columns)


def decoded(schema: Schema, rows: _Rows, ctx: SourceContext, where: str) -> Batch:
    """The rows as a batch; ``on-error`` decides about a row that does not fit."""

    def columns_of(part: _Rows) -> Batch:
        columns = [column_from_database(f, [r[i] for r in part]) for i, f in enumerate(schema.fields)]
        return Batch(schema, columns, num_rows=len(part))

    def refused(row: _Rows, err: Exception) -> None:
        ctx.bad_record(err, repr(row[0]).encode(), where)

    parts = list(by_halves(rows, columns_of, refused, halves=_halves, errors=RecordError))
    return Batch.concat(parts) if parts else Batch.empty(schema)


def _halves(rows: _Rows) -> tuple[_Rows, _Rows] | None:
    half = len(rows) // 2
    return (rows[:half], rows[half:]) if half else None
