"""Reads a table in chunks, in the order of its primary key, each chunk in a transaction of its own."""

from __future__ import annotations

import io
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pcsv

from penstock.connectors.postgres_cdc.database import failure, literal, quoted, rows
from penstock.connectors.postgres_cdc.position import View, lsn_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.connectors.postgres_cdc.database import CdcTable

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of rows, as texts.

    Args:
        columns: The columns that were asked for, as texts.
        keys: The columns of the primary key, as texts.
        view: The view of the chunk's transaction.
        high: The end of the server's log after the rows were read.
        last: Whether these are the table's last rows.
    """

    columns: list[pa.Array]
    keys: list[pa.Array]
    view: View
    high: int
    last: bool

    def __len__(self) -> int:
        return len(self.keys[0])

    def key(self, row: int) -> Key:
        """The primary key of a row."""
        return tuple(column[row].as_py() for column in self.keys)


class ChunkReader:
    """Reads chunks. ``follows``: changes are read, too, so each chunk has a view of its own and the log's
    position; otherwise all chunks are read in one view, for as long as the reader lives."""

    def __init__(self, connection: Any, options: Mapping[str, Any], *, follows: bool) -> None:
        self._connection, self._options, self._follows = connection, options, follows
        self._view: View | None = None

    def read(
        self, table: CdcTable, names: Sequence[str], after: Key | None, size: int, must_see: Sequence[int]
    ) -> Chunk:
        """Read the next ``size`` rows after ``after``, in a view that sees the transactions ``must_see``.
        Waiting for such a view is needed because a transaction is in the log a moment before other
        transactions see its rows."""
        import psycopg

        try:
            with self._connection.cursor() as cursor:
                view = self._view or _begin(cursor, must_see)
                if not self._follows:
                    self._view = view
                found = _copied(cursor, table, names, after, size)
                if self._follows:
                    cursor.execute("ROLLBACK")
        except psycopg.Error as err:
            raise failure(err, f"table '{table.shown}' cannot be read", self._options) from None
        width, last = len(names), len(found[0]) < size
        high = _end_of_log(self._connection, self._options) if self._follows else 0
        return Chunk(found[:width], found[width:], view, high, last)


def _begin(cursor: Any, must_see: Sequence[int]) -> View:
    pause_s = 0.001
    while True:
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        cursor.execute("SELECT pg_current_snapshot()::text")
        view = View.parse(cursor.fetchone()[0])
        if all(view.sees(xid) for xid in must_see):
            return view
        cursor.execute("ROLLBACK")
        time.sleep(pause_s)
        pause_s = min(0.2, pause_s * 2)


def _copied(
    cursor: Any, table: CdcTable, names: Sequence[str], after: Key | None, size: int
) -> list[pa.Array]:
    keys = [column.name for column in table.key]
    asked = [*names, *keys]
    order = ", ".join(_ordered(table))
    where = f"WHERE ({order}) > ({', '.join(_constants(table, after))}) " if after is not None else ""
    query = f"SELECT {', '.join(map(quoted, asked))} FROM ONLY {table.quoted} {where}ORDER BY {order} LIMIT {int(size)}"
    out = io.BytesIO()
    with cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)") as copy:
        for block in copy:
            out.write(block)
    if not out.tell():
        return [pa.array([], pa.string()) for _ in asked]
    out.seek(0)
    labels = [str(i) for i in range(len(asked))]
    found = pcsv.read_csv(
        out,
        read_options=pcsv.ReadOptions(
            column_names=labels, use_threads=False, block_size=max(1 << 20, len(out.getbuffer()) + 1)
        ),
        parse_options=pcsv.ParseOptions(newlines_in_values=True),
        convert_options=pcsv.ConvertOptions(
            column_types=dict.fromkeys(labels, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return [column.combine_chunks() for column in found.columns]


def _ordered(table: CdcTable) -> list[str]:
    return [quoted(c.name) + (f" COLLATE {c.collation}" if c.collation else "") for c in table.key]


def _constants(table: CdcTable, key: Key) -> list[str]:
    return [
        f"{literal(value)}::{c.type}" + (f" COLLATE {c.collation}" if c.collation else "")
        for value, c in zip(key, table.key, strict=True)
    ]


def _end_of_log(connection: Any, options: Mapping[str, Any]) -> int:
    """The place that the log has reached. A view may see a transaction whose commit is not on the disk yet;
    in that case the log is flushed, so that the stream passes this place soon."""
    [(end, written)] = rows(
        connection, options, "SELECT pg_current_wal_insert_lsn()::text, pg_current_wal_flush_lsn()::text"
    )
    if lsn_of(written) < lsn_of(end):
        rows(
            connection,
            options,
            "SET synchronous_commit = local; SELECT pg_logical_emit_message(true, 'penstock', '')",
        )
    return lsn_of(end)


def behind(
    connection: Any, options: Mapping[str, Any], table: CdcTable, keys: Sequence[pa.Array], bound: Key
) -> list[bool]:
    """For each key (texts, a column for each part), whether it comes after ``bound`` in the order of the
    chunks. Integers
    are compared here; of all other types only the server knows the order."""
    if all(c.type in ("smallint", "integer", "bigint") for c in table.key):
        limit = tuple(map(int, bound))
        parts = [column.cast(pa.string()).cast(pa.int64()).to_pylist() for column in keys]
        return [key > limit for key in zip(*parts, strict=True)]
    names = [f"k{i}" for i in range(len(keys))]
    shown = ", ".join(
        f"u.{name}::{c.type}" + (f" COLLATE {c.collation}" if c.collation else "")
        for name, c in zip(names, table.key, strict=True)
    )
    query = (
        f"SELECT ({shown}) > ({', '.join(_constants(table, bound)).replace('%', '%%')}) "
        f"FROM unnest({', '.join(['%s::text[]'] * len(keys))}) WITH ORDINALITY AS u({', '.join(names)}, n) ORDER BY n"
    )
    values = [column.cast(pa.string()).to_pylist() for column in keys]
    return [row[0] for row in rows(connection, options, query, *values)]
