"""Looks up rows of a table by key: one query for many keys, given as VALUES, which uses the table's index."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from penstock.connectors.base import LookupSource, TableInfo
from penstock.connectors.jdbc.database import column_list, connect, failure, quoted
from penstock.connectors.jdbc.settings import OPTIONS
from penstock.connectors.jdbc.source import decoded
from penstock.connectors.jdbc.values import search_parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.base import SourceContext
    from penstock.types.batch import Batch

#: The most parameters of one statement; SQLite's own limit may be lower.
MOST_PARAMETERS = 8192


class JdbcLookup(LookupSource):
    """Looks keys up in a database table."""

    def __init__(self, table: TableInfo) -> None:
        options = OPTIONS.read(table.options)
        self._url: str = options["url"]
        self._table: str = options["table-name"]
        self._connection: sqlite3.Connection | None = None

    async def open(self, ctx: SourceContext) -> None:
        self.ctx = ctx
        self._schema = ctx.schema.select(ctx.projection)

    async def lookup(self, keys: Batch) -> Batch:
        asked = search_parameters(keys.columns)
        rows = await self.ctx.run(lambda: self._rows_of(keys.schema.names, asked))
        return decoded(self._schema, rows, self.ctx, f"lookup in '{self._table}'")

    async def load(self) -> Batch:
        statement = f"SELECT {column_list(self._schema.names)} FROM {quoted(self._table)}"
        rows = await self.ctx.run(lambda: self._execute(statement, ()))
        return decoded(self._schema, rows, self.ctx, f"table '{self._table}'")

    def _rows_of(self, names: Sequence[str], asked: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        width = len(names)
        limit = self._connected().getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)
        step = max(1, min(MOST_PARAMETERS, limit) // width)
        # IN applies the columns' affinity to the values that it compares, and returns a row once even if two
        # spellings find it.
        columns = ", ".join(f"t.{quoted(n)}" for n in names)
        left = columns if width == 1 else f"({columns})"
        out: list[tuple[Any, ...]] = []
        for at in range(0, len(asked), step):
            part = asked[at : at + step]
            values = ", ".join(["(" + ", ".join("?" * width) + ")"] * len(part))
            statement = (
                f"SELECT {column_list(self._schema.names, 't.')} FROM {quoted(self._table)} AS t "
                f"WHERE {left} IN (VALUES {values})"
            )
            out += self._execute(statement, [v for row in part for v in row])
        return out

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect(self._url, read_only=True)
        return self._connection

    def _execute(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        try:
            return self._connected().execute(statement, values).fetchall()
        except sqlite3.Error as err:
            raise failure(err, self._url) from err

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
