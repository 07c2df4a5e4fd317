"""Connects to MySQL or MariaDB, turns its errors into Penstock's, and reads descriptions of tables."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.connectors.mysql_cdc.settings import OWNER
from penstock.connectors.mysql_cdc.types import MySqlType
from penstock.errors import ConnectorError, ExternalError, PenstockError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

_SYSTEM = ("mysql", "information_schema", "performance_schema", "sys")
#: The server's numbers of errors that another attempt may mend: too many connections, shutdown, lost connections,
#: deadlocks, a table that was altered under the reader, and another reader with the same number.
_PASSING = frozenset(
    (1040, 1053, 1077, 1152, 1159, 1160, 1161, 1184, 1205, 1213, 1412, 1927, 2003, 2006, 2013, 2055)
)
#: The client's number for a server without TLS.
_NO_TLS = 2026
_LOGIN = frozenset((1044, 1045, 1049, 1142, 1143, 1227, 1698, 2054, 2059))


class CdcColumn(msgspec.Struct, frozen=True):
    """A column of a followed table. ``generated``: computed from others; ``collation``: empty where it has none."""

    name: str
    type: MySqlType
    collation: str = ""
    generated: bool = False


class CdcTable(msgspec.Struct, frozen=True):
    """A table that is followed, as it was when the job began. ``key``: names of the primary key's columns."""

    schema: str
    name: str
    columns: tuple[CdcColumn, ...]
    key: tuple[str, ...]

    @property
    def shown(self) -> str:
        """``database.table``."""
        return f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        """The name in SQL."""
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    def column(self, name: str) -> CdcColumn:
        """The column of that name."""
        return next(column for column in self.columns if column.name == name)


def quoted(name: str) -> str:
    """A name as a quoted SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def place(options: Mapping[str, Any]) -> str:
    """The server, for errors; without credentials."""
    return f"{OWNER}, {options['hostname']}:{options['port']}"


def connect(options: Mapping[str, Any], *, timeout_s: float | None = None) -> Any:
    """A connection in which each statement is a transaction; its values are texts, its times UTC. ``timeout_s``: of
    one read; None: none."""
    import pymysql
    from pymysql.converters import conversions

    words: dict[str, Any] = {
        "host": options["hostname"],
        "port": options["port"],
        "user": options["username"],
        "password": options["password"] or "",
        "charset": "utf8mb4",
        "autocommit": True,
        "connect_timeout": max(1, options["connect.timeout"] // 1000),
        "read_timeout": timeout_s,
        "conv": {key: value for key, value in conversions.items() if not isinstance(key, int)},
        "init_command": "SET time_zone = '+00:00', sql_mode = '', SESSION wait_timeout = 604800",
    }
    mode, tls = options["debezium.database.ssl.mode"], _tls(options)
    try:
        try:
            return pymysql.connect(**words, ssl=tls)
        except pymysql.OperationalError as err:
            if mode != "preferred" or err.args[:1] != (_NO_TLS,):
                raise
            return pymysql.connect(**words)
    except ImportError as err:  # the package that the login's method needs
        raise _no_package(str(err)) from None
    except (pymysql.Error, OSError, RuntimeError) as err:
        raise failure(err, "the server cannot be opened", options) from None


def _tls(options: Mapping[str, Any]) -> Any:
    mode = options["debezium.database.ssl.mode"]
    return None if mode == "disabled" else _context(mode, options["debezium.database.ssl.ca"])


@functools.cache
def _context(mode: str, authorities: str | None) -> Any:
    """Making one takes long: it reads the system's certificates."""
    import ssl

    context = ssl.create_default_context(cafile=authorities)
    context.check_hostname = mode == "verify_identity"
    if mode in ("preferred", "required"):
        context.verify_mode = ssl.CERT_NONE
    return context


def _no_package(got: str) -> ConnectorError:
    return ConnectorError(
        "the login needs a package that is not installed",
        expected="the extra's packages",
        got=got,
        where=OWNER,
        remedy="pip install 'penstock[mysql-cdc]', on every machine that plans or runs the job",
    )


def failure(err: Exception, what: str, options: Mapping[str, Any]) -> PenstockError:
    """The error for a client's error: of the declaration or of rights, or an ExternalError that another
    attempt may mend."""
    said = " ".join(str(err).split())[:500] or type(err).__name__
    number = err.args[0] if err.args and isinstance(err.args[0], int) else 0
    words = {"got": said, "where": place(options)}
    if number in _LOGIN:
        return ConnectorError(
            what,
            **words,
            remedy="correct 'username' and 'password', and GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.*",
        )
    if number in (1146, 1054):
        return ConnectorError(what, **words, remedy="declare the tables and columns that the database has")
    if number in _PASSING or not number:
        return ExternalError(
            what, **words, remedy="check that the server runs and is reached at 'hostname' and 'port'"
        )
    return ConnectorError(what, **words, remedy="compare the table's options with the server")


def rows(connection: Any, options: Mapping[str, Any], statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """The rows of a statement; empty if the statement returns none. Raises as ``failure`` says."""
    import pymysql

    try:
        with connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())
    except (pymysql.Error, OSError) as err:
        raise failure(err, "the server refused a statement", options) from None


_TABLES = """
SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, COALESCE(ENGINE, '') FROM information_schema.TABLES
WHERE TABLE_TYPE <> 'VIEW' AND TABLE_TYPE <> 'SYSTEM VIEW' ORDER BY BINARY TABLE_SCHEMA, BINARY TABLE_NAME
"""
_COLUMNS = """
SELECT COLUMN_NAME, COLUMN_TYPE, CHARACTER_SET_NAME, COALESCE(COLLATION_NAME, ''), COALESCE(GENERATION_EXPRESSION, '') <> ''
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""
_KEY = """
SELECT COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND INDEX_NAME = 'PRIMARY' ORDER BY SEQ_IN_INDEX
"""


class Described(msgspec.Struct, frozen=True):
    """A table with facts that only the checks need. ``kind``: ``BASE TABLE``, ``SYSTEM VERSIONED``, …"""

    table: CdcTable
    kind: str
    engine: str
    parts: tuple[str, ...]


def find_tables(connection: Any, options: Mapping[str, Any]) -> list[Described]:
    """The tables whose names match, sorted. ConnectorError if there is none, or one has no primary key."""
    every = [row for row in rows(connection, options, _TABLES) if row[0] not in _SYSTEM]
    found = [
        row
        for row in every
        if re.fullmatch(options["database-name"], row[0]) and re.fullmatch(options["table-name"], row[1])
    ]
    if not found:
        known = [f"{schema}.{name}" for schema, name, *_ in every]
        asked = f"{options['database-name']}.{options['table-name']}"
        raise ConnectorError(
            f"the server has no table '{asked}'",
            expected="one of " + (", ".join(known[:20]) or "(none that this user may see)"),
            got=repr(asked),
            where=f"{place(options)}, options 'database-name' and 'table-name'",
            remedy=nearest(asked, known) or "create the table first, or GRANT SELECT on it",
        )
    return [_described(connection, options, *row) for row in found]


def _described(
    connection: Any, options: Mapping[str, Any], schema: str, name: str, kind: str, engine: str
) -> Described:
    key = rows(connection, options, _KEY, schema, name)
    if not key:
        raise ConnectorError(
            f"table '{schema}.{name}' has no primary key",
            expected="a primary key: the snapshot is read in its order",
            got="none",
            where=place(options),
            remedy=f"ALTER TABLE {quoted(schema)}.{quoted(name)} ADD PRIMARY KEY (…)",
        )
    columns = columns_of(connection, options, schema, name)
    table = CdcTable(schema, name, columns, tuple(row[0] for row in key))
    return Described(table, kind, engine, tuple(row[0] for row in key if row[1] is not None))


def columns_of(connection: Any, options: Mapping[str, Any], schema: str, name: str) -> tuple[CdcColumn, ...]:
    """The columns of a table as it is now; none if it is gone."""
    return tuple(
        CdcColumn(column, MySqlType.parse(shown, charset), collation, generated in ("1", 1))
        for column, shown, charset, collation, generated in rows(connection, options, _COLUMNS, schema, name)
    )


def variables(connection: Any, options: Mapping[str, Any], *names: str) -> dict[str, str]:
    """The server's global variables of these names that it has."""
    marks = ", ".join(["%s"] * len(names))
    found = rows(connection, options, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({marks})", *names)
    return {str(name).lower(): str(value) for name, value in found}


def is_mariadb(connection: Any) -> bool:
    """Whether the server is a MariaDB."""
    return "mariadb" in connection.get_server_info().lower()


def log_end(connection: Any, options: Mapping[str, Any]) -> tuple[str, int, str]:
    """The file and the byte that the binary log has reached, and MySQL's executed GTIDs (empty: none)."""
    statement = (
        "SHOW MASTER STATUS" if is_mariadb(connection) or _old(connection) else "SHOW BINARY LOG STATUS"
    )
    found = rows(connection, options, statement)
    if not found:
        raise ConnectorError(
            "the server writes no binary log",
            expected="log_bin",
            got="log_bin = OFF",
            where=place(options),
            remedy="set log_bin = ON, binlog_format = ROW and a server_id in its configuration, and restart it",
        )
    return str(found[0][0]), int(found[0][1]), str(found[0][4]) if len(found[0]) > 4 else ""


def _old(connection: Any) -> bool:
    """Whether this MySQL does not know the statement of version 8.2 and newer."""
    version = re.match(r"(\d+)\.(\d+)", connection.get_server_info())
    return version is not None and (int(version.group(1)), int(version.group(2))) < (8, 2)


def has_gtids(connection: Any, options: Mapping[str, Any]) -> bool:
    """Whether every transaction of a MySQL has a GTID."""
    return rows(connection, options, "SELECT @@GLOBAL.gtid_mode") == [("ON",)]
