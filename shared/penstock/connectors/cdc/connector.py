"""What the connectors share that follow the changes of a database: what a table is, and the checks for which no
server is asked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock.connectors.simple import DeclaredConnector
from penstock.errors import ConnectorError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.connectors.base import SourceMode, TableInfo


class FollowingConnector(DeclaredConnector):
    """A source of rows and then of their changes; in the mode ``snapshot`` of the rows alone."""

    roles = ("source",)
    #: Decoding runs Python and NumPy for long, and queries block.
    runs = "helper"

    def is_bounded(self, table: TableInfo) -> bool:
        """Whether only the snapshot is read."""
        return bool(self.option_set.read_one(table.options, "scan.startup.mode") == "snapshot")

    def source_mode(self, table: TableInfo) -> SourceMode:
        """``append`` for a snapshot, else as ``changelog-mode`` says."""
        if self.is_bounded(table):
            return "append"
        upserts = self.option_set.read_one(table.options, "changelog-mode") == "upsert"
        return "upsert" if upserts else "retract"

    def source_guarantee(self, table: TableInfo) -> str:
        """What a restart leads to."""
        return "exactly-once while the table does not change" if self.is_bounded(table) else "exactly-once"


def wrong(owner: str, key: str, expected: str, got: str) -> ConnectorError:
    """The error of an option whose value does not fit. ``owner``: the connector, for the error."""
    return ConnectorError(
        f"option '{key}' cannot be as it is",
        expected=expected,
        got=got,
        where=owner,
        remedy=f"correct '{key}'",
    )


def check_options(options: Mapping[str, Any], owner: str, *, patterns: Iterable[str]) -> None:
    """Check the options of the snapshot, and those that are regular expressions (``patterns``). Raises ConnectorError."""
    if not options["scan.incremental.snapshot.enabled"]:
        raise wrong(
            owner,
            "scan.incremental.snapshot.enabled",
            "true: the snapshot is taken in chunks, without a lock",
            "false",
        )
    for key in ("scan.incremental.snapshot.chunk.size", "scan.snapshot.fetch.size"):
        if options[key] < 1:
            raise wrong(owner, key, "1 or more", str(options[key]))
    for key in patterns:
        try:
            re.compile(options[key])
        except re.error as err:
            raise wrong(
                owner, key, "a name, or a regular expression for whole names", f"{options[key]!r}: {err}"
            ) from None


def check_key(shown: str, key: Sequence[str], primary_key: Sequence[str], where: str) -> None:
    """ConnectorError if a primary key is declared that is not the table's. ``shown``: the table's name; ``key``: the
    columns of its primary key; ``where``: the server, for the error."""
    if primary_key and sorted(primary_key) != sorted(key):
        raise ConnectorError(
            f"the declared primary key is not that of table '{shown}'",
            expected=f"PRIMARY KEY ({', '.join(key)}) NOT ENFORCED",
            got=f"PRIMARY KEY ({', '.join(primary_key)})",
            where=where,
        )


def no_column(shown: str, name: str, known: Iterable[str], where: str) -> ConnectorError:
    """The error of a declared column ``name`` that table ``shown`` does not have. ``known``: its columns."""
    there = list(known)
    return ConnectorError(
        f"table '{shown}' of the database has no column '{name}'",
        expected="one of " + ", ".join(there),
        got=repr(name),
        where=where,
        remedy=nearest(name, there) or "declare the columns that the table has",
    )
