"""SQLite behind a ``jdbc:sqlite:`` URL: connections, names and errors."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.connectors.jdbc.values import is_storable
from penstock.errors import ConnectorError, ExternalError, PenstockError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.types.logical import Schema

PREFIX = "jdbc:sqlite:"
_OWNER = "connector 'jdbc'"
#: Seconds that a statement waits for another process's lock.
BUSY_S = 5.0


def database_path(url: str) -> str:
    """The file that a URL names."""
    path = url[len(PREFIX) :] if url.lower().startswith(PREFIX) else ""
    if not path or path.startswith((":memory:", "?")):
        raise ConnectorError(
            "option 'url': not a database that can be opened",
            expected="jdbc:sqlite:/path/to/file.db",
            got=repr(url),
            where=_OWNER,
            remedy="put the table into a SQLite file, or name the database's Java class with 'driver' and run the job on Spark"
            if not url.lower().startswith(PREFIX)
            else "name a file: a database in memory is seen by one process only",
        )
    return path


def connect(url: str, *, read_only: bool) -> sqlite3.Connection:
    """A connection for one thread at a time. ConnectorError if there is no such file."""
    path = database_path(url)
    if not Path(path).is_file():
        raise ConnectorError(
            f"no database at '{path}'",
            expected="an existing SQLite file",
            got="nothing there",
            where=f"{_OWNER}, option 'url'",
            remedy="check the path; it must be readable on every task manager",
        )
    uri = f"{Path(path).absolute().as_uri()}?mode={'ro' if read_only else 'rw'}"
    try:
        return sqlite3.connect(uri, uri=True, timeout=BUSY_S, check_same_thread=False, isolation_level=None)
    except sqlite3.Error as err:
        raise failure(err, url) from err


def failure(err: sqlite3.Error, url: str) -> PenstockError:
    """The error for a failure of the database: ExternalError if another attempt may succeed, else an error of
    the table's declaration."""
    if isinstance(err, sqlite3.OperationalError) and ("locked" in str(err) or "busy" in str(err)):
        return ExternalError(
            f"the database is locked: {err}",
            expected=f"a lock within {BUSY_S:g} s",
            got=str(err),
            where=f"{_OWNER}, {url}",
            remedy="end the long transaction of the other process, or set the database to journal_mode = WAL",
        )
    kind = (
        ExternalError if isinstance(err, sqlite3.OperationalError) and "disk" in str(err) else ConnectorError
    )
    return kind(
        f"the database refused a statement: {err}",
        expected="a SQLite database with the declared table",
        got=type(err).__name__,
        where=f"{_OWNER}, {url}",
        remedy="compare the declared columns, types and primary key with the table",
    )


def quoted(name: str) -> str:
    """A name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def column_list(names: Sequence[str], table: str = "") -> str:
    """Quoted column names, separated by commas; ``table`` is a prefix of each."""
    return ", ".join(table + quoted(name) for name in names)


def check_types(schema: Schema) -> None:
    """Raise ConnectorError for a column that cannot be stored in a database."""
    for field in schema.fields:
        if not is_storable(field.type):
            raise ConnectorError(
                f"column '{field.name}' cannot be stored in a database",
                expected="a number, BOOLEAN, STRING, BYTES, DATE, TIME or TIMESTAMP",
                got=str(field.type),
                where=_OWNER,
                remedy="leave the column out, or write it as text (JSON_STRING)",
            )


def check_table(schema: Schema, options: Mapping[str, str]) -> None:
    """Checks that the table exists and has the declared columns, of types that can be stored."""
    url, table = options["url"], options["table-name"]
    check_types(schema)
    connection = connect(url, read_only=True)
    try:
        there = [row[1] for row in connection.execute(f"PRAGMA table_info({quoted(table)})")]
        if not there:
            kinds = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name"
            known = [row[0] for row in connection.execute(kinds)]
            raise ConnectorError(
                f"the database has no table '{table}'",
                expected="one of " + (", ".join(known) or "(it is empty)"),
                got=repr(table),
                where=f"{_OWNER}, option 'table-name'",
                remedy=nearest(table, known) or "create the table in the database first",
            )
    except sqlite3.Error as err:
        raise failure(err, url) from err
    finally:
        connection.close()
    lower = {name.lower() for name in there}
    for field in schema.fields:
        if field.name.lower() not in lower:
            raise ConnectorError(
                f"table '{table}' of the database has no column '{field.name}'",
                expected="one of " + ", ".join(there),
                got=repr(field.name),
                where=_OWNER,
                remedy=nearest(field.name, there) or "declare the columns that the table has",
            )
