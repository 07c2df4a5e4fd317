"""Reads a table of a database server as one split, or as parts by ranges of a column, each in a fixed
order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.connectors.base import Fetched, LookupSource, SourceEnumerator, SourceReader, Split, TableInfo
from penstock.connectors.jdbc.server_values import column_from_server, server_parameters
from penstock.connectors.jdbc.servers import connect, failure, server_of
from penstock.connectors.jdbc.settings import OPTIONS
from penstock.errors import ConnectorError, PenstockError, RecordError
from penstock.halving import by_halves
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.base import SourceContext
    from penstock.types.logical import Schema

#: The most keys of one query.
_MOST_KEYS = 1000
_PARTS = tuple(f"scan.partition.{key}" for key in ("column", "num", "lower-bound", "upper-bound"))


def partitions(options: Any) -> list[dict[str, Any]]:
    """The parts of a scan: ``low`` ≤ column < ``high``; the first part has no lower bound and includes NULL,
    the last part has no upper bound, so that every row is in exactly one part. ConnectorError if only some of
    the options are given."""
    given = [options[key] for key in _PARTS]
    if all(value is None for value in given):
        return [{}]
    try:
        count, low, high = int(given[1]), int(given[2]), int(given[3])
        if given[0] is None or count < 1 or low > high:
            raise ValueError
    except (TypeError, ValueError):
        raise ConnectorError(
            "the parts of the scan are not in order",
            expected="all of " + ", ".join(_PARTS) + ", bounds that are whole numbers, and one part or more",
            got=", ".join(f"{key} = {value}" for key, value in zip(_PARTS, given, strict=True)),
            where="connector 'jdbc'",
            remedy="give all four, or none",
        ) from None
    span = high - low + 1
    count = min(count, span)
    cuts = [low + span * i // count for i in range(1, count)]
    return [
        {"column": given[0], "low": begin, "high": end}
        for begin, end in zip([None, *cuts], [*cuts, None], strict=True)
    ]


class ServerEnumerator(SourceEnumerator):
    """Discovers the parts of a table."""

    def __init__(self, table: TableInfo) -> None:
        self._options = OPTIONS.read(table.options)

    async def discover(self, ctx: SourceContext, known: set[str]) -> Sequence[Split]:
        parts = partitions(self._options)
        splits = [Split(f"part-{i}-of-{len(parts)}", part) for i, part in enumerate(parts)]
        return [split for split in splits if split.id not in known]


class ServerReader(SourceReader):
    """Reads a part. A position is the number of rows delivered in the order of the primary key, or of all
    columns if there is none."""

    def __init__(self, table: TableInfo) -> None:
        self._options = OPTIONS.read(table.options)
        self._server = server_of(table.options)
        self._splits: dict[str, Split] = {}
        self._done: set[str] = set()
        self._open: str | None = None
        self._cursor: Any = None
        self._connection: Any = None
        self._event = asyncio.Event()

    async def open(self, ctx: SourceContext) -> None:
        self.ctx = ctx
        self._schema = ctx.schema.select(ctx.projection)

    def add_splits(self, splits: Sequence[Split]) -> None:
        for split in splits:
            position = split.position or {"row": 0, "done": False}
            self._splits[split.id] = msgspec.structs.replace(split, position=position)
            if position["done"]:
                self._done.add(split.id)
        self._event.set()

    def poll(self) -> Fetched | None:
        waiting = next((id_ for id_ in self._splits if id_ not in self._done), None)
        if waiting is None:
            return None
        split = self._splits[waiting]
        rows = self._fetch(split)
        row = split.position["row"]
        done = not rows
        self._splits[waiting] = msgspec.structs.replace(
            split, position={"row": row + len(rows), "done": done}
        )
        if done:
            self._done.add(waiting)
            self._close_cursor()
            return None
        return Fetched(
            waiting, decoded(self._schema, rows, self.ctx, f"{self._server.where}, row {row + 1} and after")
        )

    def _fetch(self, split: Split) -> Sequence[tuple[Any, ...]]:
        try:
            if self._open != split.id:
                self._close_cursor()
                self._begin(split)
            found: Sequence[tuple[Any, ...]] = self._cursor.fetchmany(
                max(1, min(self._options["scan.fetch-size"], self.ctx.batch_rows))
            )
            return found
        except PenstockError:
            raise
        except Exception as err:
            raise failure(err, self._server) from None

    def _begin(self, split: Split) -> None:
        server, table, part = self._server, self._options["table-name"], split.payload
        if self._connection is None:
            self._connection = connect(server)
        order = server.primary_key(self._connection, table) or list(self.ctx.schema.names)
        names = server.columns(self._schema.names) if len(self._schema) else "NULL"
        values: list[Any] = []
        where = []
        if part:
            column = server.quoted(part["column"])
            if part["low"] is not None:
                where.append(f"{column} >= %s")
                values.append(part["low"])
            if part["high"] is not None:
                where.append(
                    f"{column} < %s" if part["low"] is not None else f"({column} < %s OR {column} IS NULL)"
                )
                values.append(part["high"])
        statement = (
            f"SELECT {names} FROM {server.table(table)} {'WHERE ' + ' AND '.join(where) if where else ''} "
        )
        statement += f"ORDER BY {server.columns(order)} LIMIT %s OFFSET %s"
        if server.product == "PostgreSQL":
            self._cursor = self._connection.cursor(name="penstock_scan")
            self._cursor.itersize = self._options["scan.fetch-size"]
        else:
            from pymysql.cursors import SSCursor

            self._cursor = self._connection.cursor(SSCursor)
        self._cursor.execute(statement, (*values, 2**62, split.position["row"]))
        self._open = split.id

    def _close_cursor(self) -> None:
        if self._cursor is not None:
            self._cursor.close()
        self._cursor = self._open = None

    async def wait(self) -> None:
        if self._done >= self._splits.keys():
            self._event.clear()
            await self._event.wait()

    def finished_splits(self) -> set[str]:
        return set(self._done)

    def caught_up(self, split_id: str) -> bool:
        return split_id in self._done

    def snapshot(self) -> list[Split]:
        return list(self._splits.values())

    async def close(self) -> None:
        self._cursor = None
        if self._connection is not None:
            self._connection.close()


class ServerLookup(LookupSource):
    """Looks keys up, many in one query."""

    def __init__(self, table: TableInfo) -> None:
        self._options = OPTIONS.read(table.options)
        self._server = server_of(table.options)
        self._connection: Any = None

    async def open(self, ctx: SourceContext) -> None:
        self.ctx = ctx
        self._schema = ctx.schema.select(ctx.projection)
        self._select = f"SELECT {self._server.columns(self._schema.names)} FROM {self._server.table(self._options['table-name'])}"

    async def lookup(self, keys: Batch) -> Batch:
        asked, names = server_parameters(keys.columns), keys.schema.names
        row = f"({', '.join(['%s'] * len(names))})" if len(names) > 1 else "%s"
        left = f"({self._server.columns(names)})" if len(names) > 1 else self._server.columns(names)
        out: list[tuple[Any, ...]] = []
        for at in range(0, len(asked), _MOST_KEYS):
            part = asked[at : at + _MOST_KEYS]
            statement = f"{self._select} WHERE {left} IN ({', '.join([row] * len(part))})"
            out += self._rows(statement, [value for key in part for value in key])
        return decoded(self._schema, out, self.ctx, f"lookup, {self._server.where}")

    async def load(self) -> Batch:
        return decoded(self._schema, self._rows(self._select, []), self.ctx, self._server.where)

    def _rows(self, statement: str, values: Sequence[Any]) -> Sequence[tuple[Any, ...]]:
        try:
            if self._connection is None:
                self._connection = connect(self._server)
                # Each query sees the rows committed so far.
                if self._server.product == "PostgreSQL":
                    self._connection.autocommit = True
                else:
                    self._connection.autocommit(True)
            with self._connection.cursor() as cursor:
                cursor.execute(statement, values or None)
                found: Sequence[tuple[Any, ...]] = list(cursor.fetchall())
                return found
        except PenstockError:
            raise
        except Exception as err:
            broken, self._connection = self._connection, None
            if broken is not None:
                broken.close()
            raise failure(err, self._server) from None

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def decoded(schema: Schema, rows: Sequence[tuple[Any, ...]], ctx: SourceContext, where: str) -> Batch:
    """The rows as a batch; ``on-error`` decides about a row that does not fit."""

    def columns_of(part: Sequence[tuple[Any, ...]]) -> Batch:
        columns = [column_from_server(f, [r[i] for r in part]) for i, f in enumerate(schema.fields)]
        return Batch(schema, columns, num_rows=len(part))

    def refused(part: Sequence[tuple[Any, ...]], err: Exception) -> None:
        ctx.bad_record(err, repr(part[0]).encode(), where)

    def halves(part: Sequence[tuple[Any, ...]]) -> Any:
        half = len(part) // 2
        return (part[:half], part[half:]) if half else None

    parts = list(by_halves(rows, columns_of, refused, halves=halves, errors=RecordError)) if rows else []
    return Batch.concat(parts) if parts else Batch.empty(schema)
