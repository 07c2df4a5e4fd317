"""Catalogs of the type ``jdbc``: the databases and tables of a database server, or of a SQLite file, as they are now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

from penstock.connectors.jdbc import described
from penstock.connectors.jdbc.database import PREFIX
from penstock.connectors.jdbc.servers import is_server, server_of
from penstock.errors import SqlError, UnsupportedError
from penstock.secrets import resolved
from penstock.sql.catalogs.port import Properties, StoredCatalog
from penstock.sql.catalogs.stating import create_statement

if TYPE_CHECKING:
    from penstock.connectors.jdbc.servers import Server

#: The schema of PostgreSQL that a name may leave out.
_PUBLIC = "public"


class JdbcCatalog(StoredCatalog):
    """Reads what the database says of itself; it makes, changes and drops nothing. ``options``: as written, so that a
    table's statement names a secret as its catalog does.

    A table of PostgreSQL is named ``schema.table``, or ``table`` in the schema ``public``.
    """

    def __init__(self, name: str, options: Mapping[str, str], default_database: str) -> None:
        self.default_database = default_database
        self._where = f"catalog '{name}'"
        self._written = dict(options)
        self._known: frozenset[str] = frozenset()
        self._sqlite = options["base-url"].lower().startswith(PREFIX)
        if not self._sqlite and not is_server({"url": options["base-url"]}):
            raise SqlError(
                f"{self._where} cannot be opened",
                expected="jdbc:postgresql://host:port/, jdbc:mysql://…, jdbc:mariadb://… or jdbc:sqlite:/path/to/file.db",
                got=options["base-url"].partition("?")[0],
                where=f"{self._where}, option 'base-url'",
            )
        if self._sqlite and default_database != described.SQLITE_DATABASE:
            raise SqlError(
                f"{self._where}: a SQLite file has one database",
                expected=f"'default-database' = '{described.SQLITE_DATABASE}'",
                got=repr(default_database),
                where=f"{self._where}, option 'default-database'",
            )

    # -- databases -------------------------------------------------------------------------

    def databases(self) -> Sequence[str]:
        found = [described.SQLITE_DATABASE] if self._sqlite else described.server_databases(self._server())
        if self._sqlite:
            self._sqlite_tables  # noqa: B018 (the file must be there)
        self._known = frozenset(found)
        return found

    @property
    def _sqlite_tables(self) -> list[str]:
        return described.sqlite_tables(self._written["base-url"])

    def properties(self, database: str) -> Properties:
        return {}

    def create_database(self, name: str, properties: Properties) -> None:
        self._refuse("CREATE DATABASE")

    def alter_database(self, name: str, properties: Properties) -> None:
        self._refuse("ALTER DATABASE")

    def drop_database(self, name: str, *, cascade: bool) -> None:
        self._refuse("DROP DATABASE")

    # -- tables ----------------------------------------------------------------------------

    def tables(self, database: str) -> Sequence[str]:
        if not self._is_database(database):
            return []
        return self._sqlite_tables if self._sqlite else described.server_tables(self._server(database))

    def table(self, database: str, name: str) -> str | None:
        if not self._is_database(database):
            return None
        if self._sqlite:
            columns, key = described.sqlite_columns(self._written["base-url"], name)
        else:
            server, stored = self._server(database), self._stored_name(name)
            columns = described.server_columns(server, stored)
            key = described.server_key(server, stored) if columns else []
        if not columns:
            return None
        typed = [(column.name, column.type) for column in columns]
        return create_statement(name, typed, key, self._options(database, name))

    def put_table(self, database: str, name: str, statement: str, *, seen: str | None) -> None:
        self._refuse("CREATE TABLE" if seen is None else "ALTER TABLE")

    def drop_table(self, database: str, name: str) -> bool:
        self._refuse("DROP TABLE")

    def rename_table(self, database: str, name: str, new: str) -> None:
        self._refuse("ALTER TABLE … RENAME TO")

    def given_options(self, database: str, name: str) -> Mapping[str, str]:
        """Only CREATE TABLE asks for them."""
        self._refuse("CREATE TABLE")

    def located(self, parts: Sequence[str], current: str) -> tuple[str, str]:
        """The first part is the database, if there is one of that name; what follows, or all, is the table's name with its
        schema."""
        if len(parts) > 1 and self._is_database(parts[0]):
            return parts[0], ".".join(parts[1:])
        return current, ".".join(parts)

    # -- inside ----------------------------------------------------------------------------

    def _options(self, database: str, name: str) -> Mapping[str, str]:
        login = {key: value for key, value in self._written.items() if key in ("username", "password")}
        table = name if self._sqlite else self._stored_name(name)
        return {"connector": "jdbc", "url": self._url(database), "table-name": table, **login}

    def _is_database(self, name: str) -> bool:
        return name in self._known or name in self.databases()

    def _stored_name(self, name: str) -> str:
        return f"{_PUBLIC}.{name}" if self._product == "PostgreSQL" and "." not in name else name

    @cached_property
    def _product(self) -> str:
        return "SQLite" if self._sqlite else self._server().product

    def _url(self, database: str) -> str:
        base, mark, parameters = self._written["base-url"].partition("?")
        return base if self._sqlite else f"{base.rstrip('/')}/{quote(database, safe='')}{mark}{parameters}"

    def _server(self, database: str | None = None) -> Server:
        options: dict[str, Any] = {**self._written, "url": self._url(database or self.default_database)}
        return server_of(resolved(options, where=self._where))

    def _refuse(self, statement: str) -> NoReturn:
        raise UnsupportedError(
            f"{statement} in a catalog of the type 'jdbc'",
            expected="SHOW, DESCRIBE, SELECT, INSERT",
            got=statement,
            where=self._where,
            remedy="do it in the database; CREATE TEMPORARY TABLE declares a table for this session",
        )
