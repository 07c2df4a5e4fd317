"""PostgreSQL and MySQL or MariaDB behind a ``jdbc:`` URL: connections, statements and errors."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from penstock.errors import ConnectorError, ExternalError, PenstockError, RecordError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.types.logical import Schema

_OWNER = "connector 'jdbc'"
#: Scheme of the URL → the product.
_PRODUCTS = {"postgresql": "PostgreSQL", "mysql": "MySQL", "mariadb": "MySQL"}
_CLIENTS = {"PostgreSQL": ("psycopg", "postgres"), "MySQL": ("pymysql", "mysql")}
#: SQLSTATE classes, and numbers of MySQL and MariaDB, of errors that the values of a row cause: data and constraints.
_DATA_STATES = ("22", "23")
_DATA_NUMBERS = (
    1048, 1062, 1216, 1217, 1264, 1265, 1292, 1364, 1366, 1367, 1406, 1451, 1452, 1525, 1690, 3819, 3140, 4025, 1411, 1416,
)  # fmt: skip
_PORTS = {"PostgreSQL": 5432, "MySQL": 3306}
_PARAMETERS = {"PostgreSQL": ("user", "password", "sslmode", "sslrootcert"), "MySQL": ("user", "password")}


@dataclass(frozen=True, slots=True)
class Server:
    """A database server. ``product``: ``PostgreSQL`` or ``MySQL`` (MariaDB, too)."""

    product: str
    host: str
    port: int
    database: str
    user: str | None
    password: str | None
    tls: tuple[tuple[str, str], ...] = ()

    @property
    def where(self) -> str:
        """For errors; without credentials."""
        return f"{_OWNER}, {self.product} at {self.host}:{self.port}/{self.database}"

    def quoted(self, name: str) -> str:
        """A name as a quoted identifier."""
        mark = '"' if self.product == "PostgreSQL" else "`"
        return mark + name.replace(mark, mark * 2) + mark

    def table(self, name: str) -> str:
        """A table, with its schema if there is one: ``schema.table``."""
        return ".".join(map(self.quoted, name.split(".")))

    def columns(self, names: Sequence[str]) -> str:
        """Quoted names, separated by commas."""
        return ", ".join(map(self.quoted, names))

    def insert(self, table: str, names: Sequence[str], keys: Sequence[str]) -> str:
        """The statement that inserts rows; with ``keys`` it overwrites the row of an existing key."""
        marks = ", ".join(["%s"] * len(names))
        statement = f"INSERT INTO {self.table(table)} ({self.columns(names)}) VALUES ({marks})"
        if not keys:
            return statement
        rest = [name for name in names if name not in keys]
        if self.product == "PostgreSQL":
            update = ", ".join(f"{self.quoted(n)} = excluded.{self.quoted(n)}" for n in rest)
            action = f"DO UPDATE SET {update}" if rest else "DO NOTHING"
            return f"{statement} ON CONFLICT ({self.columns(keys)}) {action}"
        update = ", ".join(f"{self.quoted(n)} = VALUES({self.quoted(n)})" for n in rest or keys[:1])
        return f"{statement} ON DUPLICATE KEY UPDATE {update}"

    def delete(self, table: str, keys: Sequence[str]) -> str:
        """The statement that deletes the row of a key."""
        return f"DELETE FROM {self.table(table)} WHERE " + " AND ".join(
            f"{self.quoted(k)} = %s" for k in keys
        )

    def primary_key(self, connection: Any, table: str) -> list[str]:
        """The columns of a table's primary key; none for a view or a table without one."""
        with connection.cursor() as cursor:
            if self.product == "PostgreSQL":
                cursor.execute(
                    "SELECT a.attname FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY k(n, place) "
                    "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.n "
                    "WHERE i.indrelid = %s::regclass AND i.indisprimary ORDER BY k.place",
                    (self.table(table),),
                )
                return [row[0] for row in cursor.fetchall()]
            cursor.execute(f"SHOW KEYS FROM {self.table(table)} WHERE Key_name = 'PRIMARY'")
            return [row[4] for row in cursor.fetchall()]


def check_transactional(connection: Any, server: Server, table: str) -> None:
    """ConnectorError unless the table takes part in transactions: in MySQL and MariaDB the tables of some storage
    engines (MyISAM, Aria, MEMORY) do not, and what was written there before a failure stays written."""
    if server.product != "MySQL":
        return
    database, _, name = table.rpartition(".")
    with connection.cursor() as cursor:
        # Where names differ in case only, the exact one counts.
        cursor.execute(
            "SELECT t.TABLE_TYPE, t.ENGINE, e.TRANSACTIONS FROM information_schema.TABLES t "
            "LEFT JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE "
            "WHERE t.TABLE_SCHEMA = %s AND t.TABLE_NAME = %s ORDER BY BINARY t.TABLE_NAME = %s DESC LIMIT 1",
            (database or server.database, name, name),
        )
        found = cursor.fetchone()
    kind, engine, transactions = found or (None, None, None)
    if transactions == "YES":
        return
    raise ConnectorError(
        f"'sink.delivery-guarantee' = 'exactly-once' of table '{table}', which has no transactions",
        expected="a table of a storage engine with transactions, as InnoDB",
        got=f"ENGINE = {engine}"
        if engine
        else f"a {str(kind or 'table that information_schema does not show').lower()}",
        where=server.where,
        remedy=f"ALTER TABLE {server.table(table)} ENGINE = InnoDB, or set 'sink.delivery-guarantee' = 'at-least-once'"
        if engine
        else "write to the table below it, or set 'sink.delivery-guarantee' = 'at-least-once'",
    )


def is_server(options: Mapping[str, str]) -> bool:
    """Whether the URL names a database server that this engine reaches itself."""
    scheme = options.get("url", "").lower().removeprefix("jdbc:").partition("://")
    return bool(scheme[1]) and scheme[0] in _PRODUCTS and options["url"].lower().startswith("jdbc:")


def server_of(options: Mapping[str, Any]) -> Server:
    """The server that the table's options name. ConnectorError for a URL without a database, or with a
    parameter that is not supported."""
    parts = urlsplit(options["url"][len("jdbc:") :])
    product = _PRODUCTS[parts.scheme.lower()]
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = next((key for key in given if key not in _PARAMETERS[product]), None)
    database = unquote(parts.path.lstrip("/"))
    if unknown is not None or not database or not parts.hostname or "@" in parts.netloc:
        raise ConnectorError(
            "option 'url': not a database that can be opened"
            if unknown is None
            else f"option 'url': parameter '{unknown}' has no effect",
            expected=f"jdbc:{parts.scheme}://host:port/database, with parameters {', '.join(_PARAMETERS[product])}",
            got=options["url"].partition("?")[0],
            where=_OWNER,
            remedy="name host and database; put the login into 'username' and 'password'"
            if unknown is None
            else "remove it",
        )
    return Server(
        product, parts.hostname, parts.port or _PORTS[product], database,
        options.get("username") or given.get("user"), options.get("password") or given.get("password"),
        tuple((key, given[key]) for key in ("sslmode", "sslrootcert") if key in given),
    )  # fmt: skip


def has_client(server: Server) -> bool:
    """Whether the client library is installed."""
    return importlib.util.find_spec(_CLIENTS[server.product][0]) is not None


def need_client(server: Server) -> None:
    """ConnectorError that names the extra where the client library is not installed."""
    package, extra = _CLIENTS[server.product]
    if not has_client(server):
        raise ConnectorError(
            f"the client library of {server.product} is not installed",
            expected=f"the Python package {package}",
            got="no such package",
            where=_OWNER,
            remedy=f"pip install 'penstock[{extra}]', on every machine that plans or runs the job",
        )


def connect(server: Server) -> Any:
    """A connection in which the caller begins and ends transactions; its times are UTC."""
    need_client(server)
    try:
        if server.product == "PostgreSQL":
            import psycopg

            words: dict[str, Any] = {
                "host": server.host, "port": server.port, "dbname": server.database, "user": server.user,
                "password": server.password, "connect_timeout": 30, "client_encoding": "UTF8",
                "options": "-c timezone=UTC -c datestyle=ISO -c extra_float_digits=3", **dict(server.tls),
            }  # fmt: skip
            return psycopg.connect(**{k: v for k, v in words.items() if v is not None})
        import pymysql

        return pymysql.connect(
            host=server.host, port=server.port, database=server.database, user=server.user,
            password=server.password or "", charset="utf8mb4", connect_timeout=30,
            init_command="SET time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
        )  # fmt: skip
    except Exception as err:
        raise failure(err, server) from None


def failure(err: Exception, server: Server) -> PenstockError:
    """The error for a failure of the database: ExternalError if another attempt may succeed, RecordError if the values of
    a row are refused, else an error of the table's declaration or of rights."""
    said = " ".join(str(err).split())[:500] or type(err).__name__
    state = getattr(err, "sqlstate", None) or ""
    number = err.args[0] if server.product == "MySQL" and err.args and isinstance(err.args[0], int) else 0
    passing = type(err).__name__ in (
        "OperationalError",
        "InterfaceError",
        "AdminShutdown",
        "SerializationFailure",
    )
    login = (
        state.startswith("28")
        or number in (1044, 1045, 1049)
        or "authentication failed" in said
        or "does not exist" in said
    )
    if state[:2] in _DATA_STATES or number in _DATA_NUMBERS:
        return RecordError(
            f"the database refuses a row: {said}",
            got=type(err).__name__,
            where=server.where,
            remedy="filter such rows, widen the column, or set 'on-error' = 'skip' or 'dead-letter'",
        )
    if (
        state[:2] in ("40", "57", "08", "53")
        or number in (1205, 1213, 2003, 2006, 2013)
        or (passing and not login)
    ):
        return ExternalError(
            f"the database does not answer, or asks for another try: {said}",
            got=type(err).__name__,
            where=server.where,
            remedy="check that the server runs and is reached",
        )
    return ConnectorError(
        f"the database refused a statement: {said}",
        got=type(err).__name__,
        where=server.where,
        remedy="correct 'username', 'password' and the database's name"
        if login
        else "compare the declared columns, types and primary key with the table, and the user's rights",
    )


def check_server_table(schema: Schema, options: Mapping[str, Any], *, transactional: bool = False) -> None:
    """ConnectorError or ExternalError unless the table is there and has the declared columns; with
    ``transactional``, also if it takes no part in transactions."""
    server = server_of(options)
    connection = connect(server)
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {server.table(options['table-name'])} WHERE 1 = 0")
            there = [column[0] for column in cursor.description]
        if transactional:
            check_transactional(connection, server, options["table-name"])
    except PenstockError:
        raise
    except Exception as err:
        raise failure(err, server) from None
    finally:
        connection.close()
    for field in schema.fields:
        if field.name not in there:
            raise ConnectorError(
                f"table '{options['table-name']}' of the database has no column '{field.name}'",
                expected="one of " + ", ".join(there),
                got=repr(field.name),
                where=server.where,
                remedy=nearest(field.name, there) or "declare the columns that the table has",
            )
