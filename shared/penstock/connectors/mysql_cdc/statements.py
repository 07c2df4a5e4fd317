"""The statements in the binary log: those that change a followed table in a way that no row tells."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock.connectors.mysql_cdc.database import place
from penstock.connectors.mysql_cdc.layouts import columns_changed
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.connectors.mysql_cdc.database import CdcColumn, CdcTable

_COMMENT = re.compile(r"/\*(?![!M]).*?\*/|--[ \t][^\n]*|#[^\n]*", re.DOTALL)
_DML = ("insert", "update", "delete", "replace", "load")
#: Changes of a table that remove or replace rows.
_ROWS_GO = re.compile(
    r"\b(drop|truncate|exchange|discard|import|remove|coalesce|reorganize)\s+(partition|tablespace|partitioning)\b"
)
_RENAMES = re.compile(r"\brename\s+(?!(column|index|key|constraint)\b)")


class Statements:
    """Looks at statements. ``columns_now``: the columns of a table as it is now in the database; none if it is
    gone."""

    def __init__(
        self,
        tables: Sequence[CdcTable],
        options: Mapping[str, Any],
        columns_now: Callable[[CdcTable], Sequence[CdcColumn]],
    ) -> None:
        self._tables, self._options, self._columns_now = tables, options, columns_now
        self._names = [
            (re.compile(_word(table.name), re.IGNORECASE), re.compile(_word(table.schema), re.IGNORECASE))
            for table in tables
        ]

    def check(self, database: str, text: str, *, rows: int) -> None:
        """ConnectorError for a statement after which the rows read so far are not the table's.

        ``database``: the one in use; ``rows``: events of rows that the transaction had.
        """
        plain = _COMMENT.sub(" ", text).strip()
        words = plain.lower().split(None, 2)
        first = words[0] if words else ""
        if first in ("savepoint", "release"):
            return
        if first == "rollback":
            if rows:
                raise self._stopped(
                    "a transaction was rolled back in the log", "no rollback behind rows", plain
                )
            return
        second = words[1] if len(words) > 1 else ""
        if first == "drop" and second in ("database", "schema"):
            for table, (_, schema) in zip(self._tables, self._names, strict=True):
                if schema.search(plain):
                    raise columns_changed(table, plain[:200], self._options)
            return
        for table, (name, schema) in zip(self._tables, self._names, strict=True):
            if name.search(plain) and (database == table.schema or schema.search(plain)):
                self._named(table, first, second, plain)

    def _named(self, table: CdcTable, first: str, second: str, plain: str) -> None:
        low = plain.lower()
        if first in _DML:
            raise self._stopped(
                f"a change of table '{table.shown}' was logged as a statement",
                "binlog_format = ROW, in each session, too",
                plain,
            )
        if first == "truncate":
            if self._options["debezium.truncate.handling.mode"] == "skip":
                return
            raise self._stopped(
                f"table '{table.shown}' was emptied by TRUNCATE",
                "DELETE, which says which rows are gone",
                plain,
                "; 'debezium.truncate.handling.mode' = 'skip' goes on as if nothing had happened",
            )
        if second == "temporary" or first not in ("alter", "rename", "drop", "create"):
            return
        if first == "alter" and second != "table" and not low.startswith(("alter online", "alter ignore")):
            return
        removed = (first == "drop" and second == "table") or (first == "create" and _replaces(table, plain))
        if (
            removed
            or first == "rename"
            or (first == "alter" and (_ROWS_GO.search(low) or _RENAMES.search(low)))
        ):
            raise columns_changed(table, plain[:200], self._options)
        now = self._columns_now(table)
        if tuple(now[: len(table.columns)]) != table.columns:
            raise columns_changed(table, plain[:200], self._options)
        if len(now) > len(table.columns) and self._options["scan.schema-change"] == "fail":
            raise columns_changed(
                table,
                f"added: {', '.join(c.name for c in now[len(table.columns) :])}",
                self._options,
                added=True,
            )

    def _stopped(self, what: str, expected: str, got: str, more: str = "") -> ConnectorError:
        return ConnectorError(
            what,
            expected=expected,
            got=got[:200],
            where=place(self._options),
            remedy="start without this source's state" + more,
        )


def _replaces(table: CdcTable, plain: str) -> bool:
    """Whether the statement makes the table anew."""
    names = rf"(`?{re.escape(table.schema)}`?\s*\.\s*)?`?{re.escape(table.name)}`?(?![\w$])"
    return re.match(rf"create\s+or\s+replace\s+table\s+{names}", plain, re.IGNORECASE) is not None


def _word(name: str) -> str:
    return rf"(?<![\w$]){re.escape(name)}(?![\w$])"
