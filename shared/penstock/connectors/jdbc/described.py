"""What a database says of its tables: their names, columns with SQL types, and primary keys."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.connectors.jdbc import database
from penstock.connectors.jdbc.servers import Server, connect, failure
from penstock.errors import PenstockError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: SQLite has one database in a file.
SQLITE_DATABASE = "main"
#: A DECIMAL has no more digits.
_MOST_DIGITS = 38


@dataclass(frozen=True, slots=True)
class DescribedColumn:
    """A column of a database's table; ``type``: in SQL, with NOT NULL where it has no NULL."""

    name: str
    type: str


def ask(server: Server, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """The rows of a query. ConnectorError or ExternalError, if the server refuses it or does not answer."""
    try:
        with closing(connect(server)) as connection, connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())
    except PenstockError:
        raise
    except Exception as err:
        raise failure(err, server) from None


# -- servers -------------------------------------------------------------------------------

_SYSTEM = {
    "PostgreSQL": ("information_schema", "pg_catalog", "pg_toast"),
    "MySQL": ("information_schema", "mysql", "performance_schema", "sys"),
}
_DATABASES = {
    "PostgreSQL": "SELECT datname FROM pg_database WHERE datallowconn AND NOT datistemplate ORDER BY datname",
    "MySQL": "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA ORDER BY SCHEMA_NAME",
}


def server_databases(server: Server) -> list[str]:
    """The databases of a server, without those of its own."""
    return [name for (name,) in ask(server, _DATABASES[server.product]) if name not in _SYSTEM["MySQL"]]


def server_tables(server: Server) -> list[str]:
    """The tables and views of the database; in PostgreSQL with their schema before them."""
    if server.product == "PostgreSQL":
        hidden = "', '".join(_SYSTEM["PostgreSQL"])
        found = ask(
            server,
            "SELECT table_schema || '.' || table_name FROM information_schema.tables "
            f"WHERE table_schema NOT IN ('{hidden}') AND table_schema NOT LIKE 'pg\\_temp\\_%%' ESCAPE '\\'",
        )
    else:
        found = ask(
            server,
            "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s",
            server.database,
        )
    return sorted(name for (name,) in found)


def server_columns(server: Server, table: str) -> list[DescribedColumn]:
    """The columns of a table (in PostgreSQL ``schema.table``) in their order; none: there is no such table.
    UnsupportedError for a type that a column cannot have here."""
    if server.product == "PostgreSQL":
        schema, _, name = table.partition(".")
        found = ask(
            server,
            "SELECT c.column_name, c.data_type, c.is_nullable, c.character_maximum_length, c.numeric_precision, "
            "c.numeric_scale, c.datetime_precision, t.typtype::text, c.udt_name FROM information_schema.columns c "
            "LEFT JOIN pg_namespace n ON n.nspname = c.udt_schema "
            "LEFT JOIN pg_type t ON t.typnamespace = n.oid AND t.typname = c.udt_name "
            "WHERE c.table_schema = %s AND c.table_name = %s ORDER BY c.ordinal_position",
            schema, name,
        )  # fmt: skip
        typed = _of_postgres
    else:
        found = ask(
            server,
            "SELECT COLUMN_NAME, DATA_TYPE, IS_NULLABLE, CHARACTER_MAXIMUM_LENGTH, NUMERIC_PRECISION, NUMERIC_SCALE, "
            "DATETIME_PRECISION, COLUMN_TYPE, COLUMN_TYPE FROM information_schema.COLUMNS "
            "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
            server.database, table,
        )  # fmt: skip
        typed = _of_mysql
    return [
        DescribedColumn(
            row[0],
            _declared(typed(row[1].lower(), *row[3:8]), row[2] == "YES", f"column '{row[0]}' of table '{table}'", row[8]),
        )
        for row in found
    ]  # fmt: skip


def server_key(server: Server, table: str) -> list[str]:
    """The columns of the primary key, in its order."""
    try:
        with closing(connect(server)) as connection:
            return server.primary_key(connection, table)
    except PenstockError:
        raise
    except Exception as err:
        raise failure(err, server) from None


def _declared(type_: str | None, nullable: bool, where: str, got: str) -> str:
    if type_ is None:
        raise UnsupportedError(
            f"{where} has a type that this catalog does not read",
            expected="a number of at most 38 digits, boolean, text, bytes, date, time or timestamp",
            got=got,
            where="catalog of the type 'jdbc'",
            remedy="CREATE TEMPORARY TABLE … WITH ('connector' = 'jdbc', …) with the columns that you need",
        )
    return type_ if nullable else f"{type_} NOT NULL"


def _decimal(digits: int | None, scale: int | None) -> str | None:
    if digits is None:
        return f"DECIMAL({_MOST_DIGITS}, 18)"
    return f"DECIMAL({digits}, {scale or 0})" if digits <= _MOST_DIGITS and (scale or 0) >= 0 else None


_POSTGRES = {
    "smallint": "SMALLINT", "integer": "INT", "bigint": "BIGINT", "real": "FLOAT", "double precision": "DOUBLE",
    "boolean": "BOOLEAN", "text": "STRING", "name": "STRING", "uuid": "STRING", "bytea": "BYTES", "date": "DATE",
}  # fmt: skip


def _of_postgres(
    kind: str, length: int | None, digits: int | None, scale: int | None, fraction: int | None, more: str | None
) -> str | None:  # fmt: skip
    match kind:
        case "numeric":
            return _decimal(digits, scale)
        case "character varying":
            return f"VARCHAR({length})" if length else "STRING"
        case "character":
            return f"CHAR({length})"
        case "time without time zone":
            return f"TIME({fraction})"
        case "timestamp without time zone":
            return f"TIMESTAMP({fraction})"
        case "timestamp with time zone":
            return f"TIMESTAMP_LTZ({fraction})"
        case "user-defined":
            return "STRING" if more == "e" else None  # an enum
    return _POSTGRES.get(kind)


_MYSQL = {
    "smallint": "SMALLINT", "mediumint": "INT", "int": "INT", "bigint": "BIGINT", "float": "FLOAT", "double": "DOUBLE",
    "year": "INT", "date": "DATE", "char": "STRING", "varchar": "STRING", "tinytext": "STRING", "text": "STRING",
    "mediumtext": "STRING", "longtext": "STRING", "json": "STRING", "enum": "STRING", "set": "STRING",
    "binary": "BYTES", "varbinary": "BYTES", "tinyblob": "BYTES", "blob": "BYTES", "mediumblob": "BYTES",
    "longblob": "BYTES",
}  # fmt: skip
_UNSIGNED = {
    "tinyint": "SMALLINT",
    "smallint": "INT",
    "mediumint": "INT",
    "int": "BIGINT",
    "bigint": "DECIMAL(20, 0)",
}


def _of_mysql(
    kind: str, length: int | None, digits: int | None, scale: int | None, fraction: int | None, more: str | None
) -> str | None:  # fmt: skip
    whole = more or ""
    if kind in _UNSIGNED and "unsigned" in whole:
        return _UNSIGNED[kind]
    match kind:
        case "tinyint":
            return "BOOLEAN" if whole.startswith("tinyint(1)") else "TINYINT"
        case "bit":
            return "BOOLEAN" if whole == "bit(1)" else None
        case "decimal":
            return _decimal(digits, scale)
        case "varchar":
            return f"VARCHAR({length})" if length else "STRING"
        case "time":
            return f"TIME({fraction})"
        case "datetime":
            return f"TIMESTAMP({fraction})"
        case "timestamp":
            return f"TIMESTAMP_LTZ({fraction})"
    return _MYSQL.get(kind)


# -- SQLite --------------------------------------------------------------------------------


def sqlite_tables(url: str) -> list[str]:
    """The tables and views of the file."""
    kinds = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    return sorted(row[0] for row in _sqlite(url, kinds))


def sqlite_columns(url: str, table: str) -> tuple[list[DescribedColumn], list[str]]:
    """The columns of a table and those of its primary key; none: there is no such table."""
    rows = _sqlite(url, f"PRAGMA table_info({database.quoted(table)})")
    key = [row[1] for row in sorted((row for row in rows if row[5]), key=lambda row: row[5])]
    columns = [
        DescribedColumn(
            name,
            _declared(_of_sqlite(type_.upper()), not not_null and not place, f"column '{name}' of table '{table}'", type_ or "no type"),
        )
        for _, name, type_, not_null, _, place in rows
    ]  # fmt: skip
    return columns, key


def _sqlite(url: str, statement: str) -> Sequence[tuple[Any, ...]]:
    import sqlite3

    try:
        with closing(database.connect(url, read_only=True)) as connection:
            return connection.execute(statement).fetchall()
    except sqlite3.Error as err:
        raise database.failure(err, url) from err


#: What a declared type holds → the SQL type; SQLite's own rules come behind those that name a kind of time.
_SQLITE = (
    ("BOOL", "BOOLEAN"), ("TIMESTAMP", "TIMESTAMP(6)"), ("DATETIME", "TIMESTAMP(6)"), ("DATE", "DATE"), ("TIME", "TIME(6)"),
    ("INT", "BIGINT"), ("CHAR", "STRING"), ("CLOB", "STRING"), ("TEXT", "STRING"), ("BLOB", "BYTES"),
    ("REAL", "DOUBLE"), ("FLOA", "DOUBLE"), ("DOUB", "DOUBLE"),
)  # fmt: skip


def _of_sqlite(type_: str) -> str | None:
    numeric = re.fullmatch(r"(?:DECIMAL|NUMERIC)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?", type_)
    if numeric:
        return _decimal(*(None if part is None else int(part) for part in numeric.groups()))
    return next((sql for word, sql in _SQLITE if word in type_), None)
