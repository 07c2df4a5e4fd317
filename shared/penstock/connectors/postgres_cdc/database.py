"""Connects to PostgreSQL, turns its errors into Penstock's, and reads descriptions of tables from its
catalog."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.connectors.postgres_cdc.settings import OWNER
from penstock.connectors.postgres_cdc.values import SESSION, DatabaseType
from penstock.errors import ConnectorError, ExternalError, PenstockError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The oldest supported server version: the first with ``pg_current_snapshot``.
OLDEST = 130_000


class KeyColumn(msgspec.Struct, frozen=True):
    """A column of a primary key. ``type``: its type in SQL; ``collation``: quoted, or empty."""

    name: str
    type: str
    collation: str = ""


class CdcTable(msgspec.Struct, frozen=True):
    """A table that is followed, as it was when the job began.

    Args:
        schema: Its schema.
        name: Its name.
        columns: Names of all columns.
        types: OID and modifier of each column's type.
        key: The columns of the primary key.
        generated: Names of generated columns, which the stream lacks.
    """

    schema: str
    name: str
    columns: tuple[str, ...]
    types: tuple[tuple[int, int], ...]
    key: tuple[KeyColumn, ...]
    generated: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """``schema.table``."""
        return f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        """The name in SQL."""
        return f"{quoted(self.schema)}.{quoted(self.name)}"


def quoted(name: str) -> str:
    """A name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as an SQL literal, whatever ``standard_conforming_strings`` says."""
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def place(options: Mapping[str, Any]) -> str:
    """The database, for errors; without credentials."""
    return f"{OWNER}, {options['hostname']}:{options['port']}/{options['database-name']}"


def connection_words(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as libpq's parameters."""
    words = {
        "host": options["hostname"],
        "port": options["port"],
        "user": options["username"],
        "password": options["password"],
        "dbname": options["database-name"],
        "connect_timeout": max(1, options["connect.timeout"] // 1000),
        "application_name": "penstock postgres-cdc",
        "keepalives_idle": 20,
        "keepalives_interval": 5,
        "keepalives_count": 4,
        "client_encoding": "UTF8",
        "options": " ".join(f"-c {key}={value}" for key, value in SESSION.items()),
    }
    words |= {
        key.rpartition(".")[2]: value
        for key, value in options.items()
        if key.startswith("debezium.database.")
    }
    return {key: value for key, value in words.items() if value is not None}


def connect(options: Mapping[str, Any]) -> Any:
    """A connection in which each statement is a transaction."""
    import psycopg

    try:
        return psycopg.connect(**connection_words(options), autocommit=True)
    except psycopg.Error as err:
        raise failure(err, "the database cannot be opened", options) from None


_LOGIN = re.compile(
    r"authentication failed|no password supplied|no pg_hba.conf entry|does not exist|permission denied"
)


def failure(err: Exception, what: str, options: Mapping[str, Any]) -> PenstockError:
    """The error for a client's error: of the declaration or of rights, or an ExternalError that another
    attempt may mend."""
    import psycopg

    said = " ".join(str(err).split()) or type(err).__name__
    code = getattr(err, "sqlstate", None) or ""
    words = {"got": said[:500], "where": place(options)}
    if code.startswith("28") or (not code and _LOGIN.search(said)):
        return ConnectorError(
            what,
            **words,
            remedy="correct 'username', 'password' and 'database-name', and the server's pg_hba.conf",
        )
    if code == "42501":
        return ConnectorError(
            what,
            **words,
            remedy="GRANT SELECT on the table, and ALTER ROLE … REPLICATION, to the user of the table",
        )
    if code in ("42P01", "42703"):
        return ConnectorError(what, **words, remedy="declare the tables and columns that the database has")
    if isinstance(err, (psycopg.OperationalError, psycopg.InterfaceError)) or code[:2] in ("08", "53", "57"):
        return ExternalError(
            what, **words, remedy="check that the server runs and is reached at 'hostname' and 'port'"
        )
    return ConnectorError(what, **words, remedy="compare the table's options with the database")


def rows(connection: Any, options: Mapping[str, Any], statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """The rows of a statement; empty if the statement returns none. Raises as ``failure`` says."""
    import psycopg

    try:
        with connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall()) if cursor.description is not None else []
    except psycopg.Error as err:
        raise failure(err, "the database refused a statement", options) from None


_TABLES = """
SELECT n.nspname, c.relname, c.relkind::text, c.relreplident::text, c.oid::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname ~ %s AND c.relname ~ %s AND c.relkind IN ('r', 'p')
  AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
ORDER BY n.nspname COLLATE "C", c.relname COLLATE "C"
"""
_COLUMNS = """
SELECT a.attname, a.atttypid::bigint, a.atttypmod, format_type(a.atttypid, a.atttypmod),
       COALESCE(e.typname, bt.typname, y.typname), y.typelem <> 0 AND y.typlen = -1 AND e.oid IS NOT NULL,
       a.attgenerated::text
FROM pg_attribute a JOIN pg_type y ON y.oid = a.atttypid
LEFT JOIN pg_type e ON e.oid = y.typelem AND y.typcategory = 'A'
LEFT JOIN pg_type bt ON bt.oid = y.typbasetype AND y.typtype = 'd' AND bt.typtype <> 'd'
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_KEY = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod),
       CASE WHEN a.attcollation <> 0 THEN quote_ident(cn.nspname) || '.' || quote_ident(co.collname) ELSE '' END
FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(attnum, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
LEFT JOIN pg_collation co ON co.oid = a.attcollation LEFT JOIN pg_namespace cn ON cn.oid = co.collnamespace
WHERE i.indrelid = %s AND i.indisprimary AND k.place <= i.indnkeyatts ORDER BY k.place
"""


class Described(msgspec.Struct, frozen=True):
    """A table with facts that only the checks need. ``identity``: the replica identity, ``d``, ``f``, ``n``
    or ``i``."""

    table: CdcTable
    identity: str
    types: dict[str, DatabaseType]


def find_tables(connection: Any, options: Mapping[str, Any]) -> list[Described]:
    """The tables whose names match, sorted. ConnectorError if there is none, or one cannot be followed."""
    names = [f"^({options[key]})$" for key in ("schema-name", "table-name")]
    found = rows(connection, options, _TABLES, *names)
    if not found:
        known = [f"{schema}.{name}" for schema, name, *_ in rows(connection, options, _TABLES, ".*", ".*")]
        asked = f"{options['schema-name']}.{options['table-name']}"
        raise ConnectorError(
            f"the database has no table '{asked}'",
            expected="one of " + (", ".join(known[:20]) or "(it is empty)"),
            got=repr(asked),
            where=f"{place(options)}, options 'schema-name' and 'table-name'",
            remedy=nearest(asked, known) or "create the table in the database first",
        )
    return [_described(connection, options, *row) for row in found]


def _described(
    connection: Any, options: Mapping[str, Any], schema: str, name: str, kind: str, identity: str, oid: int
) -> Described:
    if kind == "p":
        raise ConnectorError(
            f"table '{schema}.{name}' is partitioned",
            expected="a table that is not partitioned, or its partitions",
            got="a partitioned table",
            where=place(options),
            remedy="name the partitions with a regular expression in 'table-name'",
        )
    columns = rows(connection, options, _COLUMNS, oid)
    key = tuple(KeyColumn(*row) for row in rows(connection, options, _KEY, oid))
    if not key:
        raise ConnectorError(
            f"table '{schema}.{name}' has no primary key",
            expected="a primary key: the snapshot is read in its order",
            got="none",
            where=place(options),
            remedy=f"ALTER TABLE {quoted(schema)}.{quoted(name)} ADD PRIMARY KEY (…)",
        )
    table = CdcTable(
        schema,
        name,
        tuple(c[0] for c in columns),
        tuple((c[1], c[2]) for c in columns),
        key,
        tuple(c[0] for c in columns if c[6]),
    )
    return Described(table, identity, {c[0]: DatabaseType(c[4], c[3], c[2], bool(c[5])) for c in columns})
