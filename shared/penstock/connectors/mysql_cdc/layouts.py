"""The layouts of followed tables in the binary log, compared with the tables as they were when the job began."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.connectors.mysql_cdc import events as ev
from penstock.connectors.mysql_cdc.database import place
from penstock.connectors.mysql_cdc.images import real_type
from penstock.errors import ConnectorError
from penstock.log_events import EventLog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.connectors.mysql_cdc.database import CdcTable

_log = EventLog("penstock.connectors.mysql_cdc")

_BLOBS = ("tinyblob", "blob", "mediumblob", "longblob", "tinytext", "text", "mediumtext", "longtext")
#: The server's type → its type in the log.
_CODES = {
    "tinyint": ev.TINY, "smallint": ev.SHORT, "mediumint": ev.INT24, "int": ev.LONG, "bigint": ev.LONGLONG,
    "float": ev.FLOAT, "double": ev.DOUBLE, "decimal": ev.DECIMAL, "date": ev.DATE, "time": ev.TIME2,
    "datetime": ev.DATETIME2, "timestamp": ev.TIMESTAMP2, "year": ev.YEAR, "bit": ev.BIT, "enum": ev.ENUM, "set": ev.SET,
    "char": ev.STRING, "binary": ev.STRING, "varchar": ev.VARCHAR, "varbinary": ev.VARCHAR, **dict.fromkeys(_BLOBS, ev.BLOB),
}  # fmt: skip
#: Types in the log of an older or another form → what to do.
_OTHER = {
    7: "ALTER TABLE … FORCE, with mysql56_temporal_format = ON: the column has times in the old form",
    11: "ALTER TABLE … FORCE, with mysql56_temporal_format = ON: the column has times in the old form",
    12: "ALTER TABLE … FORCE, with mysql56_temporal_format = ON: the column has times in the old form",
    140: "ALTER TABLE … MODIFY the column without COMPRESSED",
    141: "ALTER TABLE … MODIFY the column without COMPRESSED",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """How the rows of a table lie in events.

    Args:
        table: Index of the table.
        columns: Type and metadata of the columns that are present.
        names: Their names; empty for one that was added.
    """

    table: int
    columns: tuple[tuple[int, int], ...]
    names: tuple[str, ...]


class Layouts:
    """The layouts that were met. ``known``: in the order in which they were met."""

    def __init__(self, tables: Sequence[CdcTable], options: Mapping[str, Any]) -> None:
        self._tables, self._options = tables, options
        self._by_name = {(table.schema, table.name): i for i, table in enumerate(tables)}
        self._index: dict[tuple[Any, ...], int] = {}
        self.known: list[Layout] = []

    def table_of(self, found: ev.TableMap) -> int | None:
        """The index of a followed table; None: it is not followed."""
        return self._by_name.get((found.database, found.name))

    def layout(self, table: int, found: ev.TableMap, width: int, present: bytes) -> int:
        """The index of a layout, checked when it is new. ConnectorError for columns other than the table's."""
        key = (table, found.columns, width, present)
        at = self._index.get(key)
        if at is None:
            at = self._index[key] = len(self.known)
            self.known.append(self._checked(table, found, width, present))
        return at

    def _checked(self, index: int, found: ev.TableMap, width: int, present: bytes) -> Layout:
        table = self._tables[index]
        expected = table.columns
        if width != len(found.columns) or width < len(expected):
            raise self._changed(table, f"{width} columns")
        if width > len(expected):
            if self._options["scan.schema-change"] == "fail":
                raise self._changed(table, f"{width} columns", added=True)
            _log.warning(
                "mysql_columns_added",
                where=place(self._options),
                table=table.shown,
                columns=width - len(expected),
            )
        for column, (type_, meta) in zip(expected, found.columns, strict=False):
            real, size = real_type(type_, meta)
            want = _CODES.get(column.type.base)
            if real in _OTHER:
                raise self._changed(table, f"{column.name} in a form that is not read", remedy=_OTHER[real])
            precision = column.type.base == "decimal" and (size >> 8, size & 0xFF) != column.type.numbers
            digits = real in (ev.TIME2, ev.DATETIME2, ev.TIMESTAMP2) and (size,) != (
                column.type.numbers or (0,)
            )
            if want is not None and (real != want or precision or digits):
                raise self._changed(table, f"{column.name} of another type")
        there = [i for i in range(width) if present[i >> 3] >> (i & 7) & 1]
        names = [expected[i].name if i < len(expected) else "" for i in there]
        missing = [c.name for c in expected if not c.generated and c.name not in names]
        if missing:
            raise ConnectorError(
                f"the log has not all columns of table '{table.shown}'",
                expected="binlog_row_image = FULL, in each session, too",
                got=f"rows without {', '.join(missing)}",
                where=place(self._options),
                remedy="SET GLOBAL binlog_row_image = FULL, and start without this source's state",
            )
        return Layout(index, tuple(found.columns[i] for i in there), tuple(names))

    def _changed(
        self, table: CdcTable, got: str, *, added: bool = False, remedy: str | None = None
    ) -> ConnectorError:
        return columns_changed(table, got, self._options, added=added, remedy=remedy)


def columns_changed(
    table: CdcTable, got: str, options: Mapping[str, Any], *, added: bool = False, remedy: str | None = None
) -> ConnectorError:
    """The error for a table that is not as it was when the job began. ``added``: columns behind the last one."""
    told = (
        "set 'scan.schema-change' = 'ignore-added-columns' and restore the last checkpoint"
        if added
        else "declare the table as it is now, and start without this source's state"
    )
    return ConnectorError(
        f"the columns of table '{table.shown}' have changed",
        expected=", ".join(f"{column.name} {column.type.shown}" for column in table.columns),
        got=got,
        where=place(options),
        remedy=remedy or told,
    )
