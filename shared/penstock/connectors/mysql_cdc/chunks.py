"""Reads tables in chunks, in the order of their primary keys, without a lock."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.connectors.mysql_cdc.database import (
    failure,
    has_gtids,
    is_mariadb,
    log_end,
    place,
    quoted,
    rows,
)
from penstock.connectors.mysql_cdc.keys import behind_sql, key_part
from penstock.connectors.mysql_cdc.position import Gtids, Place
from penstock.connectors.mysql_cdc.values import column_of_texts
from penstock.errors import ExternalError
from penstock.types.logical import Field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.connectors.mysql_cdc.database import CdcTable
    from penstock.connectors.mysql_cdc.position import Key
    from penstock.types.batch import Batch

_SNAPSHOT = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
#: A view comes to what the log already has within milliseconds; the reader's slot stands still meanwhile.
_MOST_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of rows.

    Args:
        columns: The columns that were asked for, as texts.
        keys: The primary keys.
        high: The place that the stream must pass before all is known that the chunk may have seen.
        last: Whether these are the table's last rows.
    """

    columns: list[Sequence[Any]]
    keys: list[Key]
    high: tuple[int, int]
    last: bool


@dataclass(slots=True)
class Held:
    """A chunk that waits for the stream: keys of table ``table`` after ``after`` up to ``upto`` (None: to the last).

    Args:
        rows: Its rows.
        keys: Their keys.
        newer: Keys that changed meanwhile, each with its newest row; None: it was deleted.
    """

    table: int
    after: Key | None
    upto: Key | None
    high: tuple[int, int]
    rows: Batch
    keys: list[Key]
    newer: dict[Key, Batch | None] = field(default_factory=dict)


class ChunkReader:
    """Reads chunks. ``follows``: changes are read, too, so each chunk is of its own moment; otherwise all chunks
    are read in one view, for as long as the reader lives."""

    def __init__(self, connection: Any, options: Mapping[str, Any], *, follows: bool) -> None:
        self._connection, self._options, self._follows = connection, options, follows
        self._mariadb = is_mariadb(connection)
        self._begun = False

    def read(
        self, table: CdcTable, names: Sequence[str], after: Key | None, size: int, seen: Place | None
    ) -> Chunk:
        """Read the next ``size`` rows after ``after``, in a view that sees the transactions before ``seen``: one is in
        the log a moment before others see its rows."""
        import pymysql

        asked = [_expression(table, name) for name in [*names, *table.key]]
        where = f" WHERE {behind_sql(table, after)}" if after is not None else ""
        order = ", ".join(map(quoted, table.key))
        query = f"SELECT {', '.join(asked)} FROM {table.quoted}{where} ORDER BY {order} LIMIT {int(size)}"
        try:
            with self._connection.cursor() as cursor:
                high = self._begin(cursor, seen) if self._follows else self._begin_once(cursor)
                cursor.execute(query)
                found = cursor.fetchall()
                if self._follows:
                    cursor.execute("ROLLBACK")
        except (pymysql.Error, OSError) as err:
            raise failure(err, f"table '{table.shown}' cannot be read", self._options) from None
        if high is None:
            high = Place(*log_end(self._connection, self._options)[:2]).order if self._follows else (0, 0)
        columns: list[Sequence[Any]] = list(zip(*found, strict=True)) if found else [()] * len(asked)
        parts = []
        for name, texts in zip(table.key, columns[len(names) :], strict=True):
            type_ = table.column(name).type
            assert type_.natural is not None
            whole = column_of_texts(Field(name, type_.natural), type_, texts, "UTC")
            parts.append([key_part(value) for value in whole.to_pylist()])
        return Chunk(columns[: len(names)], list(zip(*parts, strict=True)), high, len(found) < size)

    def _begin_once(self, cursor: Any) -> tuple[int, int]:
        if not self._begun:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute(_SNAPSHOT)
            self._begun = True
        return 0, 0

    def _begin(self, cursor: Any, seen: Place | None) -> tuple[int, int] | None:
        """Begin the chunk's transaction. Gives the place of the log that its view is of, where the server says
        it (MariaDB); None: what it may have seen must be asked for afterwards. ExternalError if no view comes that has
        seen ``seen``."""
        pause_s, until = 0.001, time.monotonic() + _MOST_WAIT_S
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        while True:
            if not self._mariadb:
                assert seen is not None
                assert seen.gtids is not None
                cursor.execute("SELECT GTID_SUBSET(%s, @@GLOBAL.gtid_executed)", (seen.gtids,))
                if str(cursor.fetchone()[0]) == "1":
                    cursor.execute(_SNAPSHOT)
                    return None
            else:
                cursor.execute(_SNAPSHOT)
                cursor.execute("SHOW STATUS LIKE 'binlog_snapshot_%'")
                there = {str(name).lower(): value for name, value in cursor.fetchall()}
                file, pos = there["binlog_snapshot_file"], int(there["binlog_snapshot_position"])
                if seen is None or self._saw(cursor, file, pos, seen):
                    return Place(file, pos).order
                cursor.execute("ROLLBACK")
            if time.monotonic() > until:
                raise ExternalError(
                    "the server shows no rows as new as the changes that its log has given",
                    expected=f"a view that has seen {seen}",
                    got="none" if not self._mariadb else f"one of {file}, byte {pos}",
                    where=place(self._options),
                    remedy="check that the server is the one that wrote the log, and no replica that lags behind it",
                )
            time.sleep(pause_s)
            pause_s = min(0.2, pause_s * 2)

    def _saw(self, cursor: Any, file: str, pos: int, seen: Place) -> bool:
        if seen.gtids is None:
            return Place(file, pos).order >= seen.order
        cursor.execute("SELECT BINLOG_GTID_POS(%s, %s)", (file, pos))
        [found] = cursor.fetchone()
        return found is not None and Gtids(found, mariadb=True).covers(Gtids(seen.gtids, mariadb=True))


def _expression(table: CdcTable, name: str) -> str:
    """A column in SELECT. The text of a FLOAT has six digits, that of a DOUBLE all."""
    return f"{quoted(name)} + 0E0" if table.column(name).type.base == "float" else quoted(name)


def start_place(connection: Any, options: Mapping[str, Any]) -> Place:
    """Where the stream of a new job begins, by ``scan.startup.mode``."""
    mode, mariadb = options["scan.startup.mode"], is_mariadb(connection)
    if mode == "specific-offset":
        gtids = options["scan.startup.specific-offset.gtid-set"]
        if gtids is not None:
            return Place("", 4, gtids)
        file, pos = options["scan.startup.specific-offset.file"], options["scan.startup.specific-offset.pos"]
    elif mode in ("earliest-offset", "timestamp"):
        file, pos = str(rows(connection, options, "SHOW BINARY LOGS")[0][0]), 4
    else:
        file, pos, _ = log_end(connection, options)
    if mariadb:
        [(gtids,)] = rows(connection, options, "SELECT BINLOG_GTID_POS(%s, %s)", file, pos)
        return Place(file, pos, gtids)
    if mode == "specific-offset" or not has_gtids(connection, options):
        return Place(file, pos)
    name = "gtid_purged" if mode in ("earliest-offset", "timestamp") else "gtid_executed"
    [(gtids,)] = rows(connection, options, f"SELECT @@GLOBAL.{name}")
    return Place(file, pos, "".join(str(gtids).split()))
