"""Makes a session's catalog, and runs the statements about catalogs and databases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.config import CATALOG_STORE_FOLDER, CATALOG_STORE_KIND, LOCAL_TIME_ZONE
from penstock.errors import SpecError, SqlError
from penstock.redaction import shown_options
from penstock.sql.catalog import Catalog, Table
from penstock.sql.catalogs.names import OWN_CATALOG, Names, SessionCatalogs
from penstock.sql.catalogs.opening import CatalogStore
from penstock.sql.catalogs.port import ChangedError
from penstock.sql.declaring import build_table
from penstock.sql.parsing import parse_script
from penstock.sql.show import create_table_text
from penstock.sql.statements import CatalogStatement, CreateTable

if TYPE_CHECKING:
    from penstock.sql.catalog import View

Rows = tuple[tuple[str, ...], tuple[tuple[Any, ...], ...]]


def session_catalog(config: Callable[[], Mapping[str, str]]) -> Catalog:
    """The catalog of a new session. ``config`` gives the session's current settings."""
    first = config()
    kind, folder = CATALOG_STORE_KIND.read(first), CATALOG_STORE_FOLDER.read(first)
    if kind == "file" and not folder:
        raise SpecError(
            f"'{CATALOG_STORE_KIND.key}' = 'file' needs a folder",
            expected=f"'{CATALOG_STORE_FOLDER.key}' = '/folder'",
            got="no such key",
        )
    catalogs = SessionCatalogs(CatalogStore(folder.removeprefix("file://") if kind == "file" else None))
    views: Names[View] = Names(catalogs, "view")

    def load(statement: str, name: str) -> Table:
        [parsed] = parse_script(statement)
        if not isinstance(parsed, CreateTable):
            raise SqlError("a catalog holds what is no table", got=statement[:80], where=f"table '{name}'")
        return build_table(replace(parsed, name=name), catalog, zone=LOCAL_TIME_ZONE.read(config()))

    tables: Names[Table] = Names(
        catalogs, "table", load, lambda table, name: create_table_text(table, f"`{name}`")
    )
    catalog = Catalog(tables, views, catalogs=catalogs)
    return catalog


def run_catalog_statement(catalogs: SessionCatalogs, statement: CatalogStatement) -> str | Rows:
    """Carry out the statement. Returns what was done, in words; for DESCRIBE CATALOG, the rows."""
    name, where = statement.name, str(statement.position)
    match statement.what:
        case "CREATE CATALOG":
            if catalogs.create(name, statement.options, where):
                return f"catalog '{name}' created"
            return _quietly(statement, f"catalog '{name}' exists already", "DROP CATALOG forgets it")
        case "DROP CATALOG":
            if catalogs.drop(name, where):
                return f"catalog '{name}' dropped"
            if statement.quiet:
                return f"no catalog '{name}'"
            raise catalogs.unknown(name, where)
        case "ALTER CATALOG":
            catalogs.alter(name, statement.options, statement.removed, where)
            return f"catalog '{name}' altered"
        case "DESCRIBE DATABASE":
            return ("info name", "info value"), _described_database(catalogs, statement, where)
        case "DESCRIBE CATALOG":
            return ("info name", "info value"), tuple(_described(catalogs, name, where).items())
    return _database(catalogs, statement, where)


def _described(catalogs: SessionCatalogs, name: str, where: str) -> dict[str, str]:
    if name == OWN_CATALOG:
        return {"name": name, "type": "generic_in_memory", "comment": ""}
    options = catalogs.store.get(name)
    if options is None:
        raise catalogs.unknown(name, where)
    more = {
        f"option:{k}": v for k, v in sorted(shown_options(options).items()) if k not in ("type", "comment")
    }
    return {"name": name, "type": options["type"], "comment": options.get("comment", ""), **more}


def _described_database(
    catalogs: SessionCatalogs, statement: CatalogStatement, where: str
) -> tuple[tuple[str, str], ...]:
    catalog, database = catalogs.database_path(statement.name, where)
    found = {} if catalog == OWN_CATALOG else dict(catalogs.opened(catalog, where).properties(database))
    rows = [("name", database), ("catalog", catalog), ("comment", found.pop("comment", ""))]
    if statement.extended:
        rows += [(f"property:{key}", value) for key, value in sorted(shown_options(found).items())]
    return tuple(rows)


def _database(catalogs: SessionCatalogs, statement: CatalogStatement, where: str) -> str:
    catalog, separator, database = statement.name.partition(".")
    if not separator or not catalogs.known(catalog):
        catalog, database = catalogs.catalog, statement.name
    if catalog == OWN_CATALOG:
        raise SqlError(
            f"catalog '{OWN_CATALOG}' has one database",
            expected="a database of another catalog",
            got=repr(statement.name),
            where=where,
            remedy="CREATE CATALOG … WITH ('type' = 'penstock', 'path' = …), and name it: CREATE DATABASE catalog.database",
        )
    stored = catalogs.opened(catalog, where)
    there = database in stored.databases()
    words = {"CREATE": f"database '{database}' exists already", "DROP": f"no database '{database}'"}
    verb = statement.what.split()[0]
    if verb in words and statement.quiet and there == (verb == "CREATE"):
        return words[verb]
    try:
        if verb == "CREATE":
            stored.create_database(database, {str(k): str(v) for k, v in statement.options.items()})
        elif verb == "ALTER":
            stored.alter_database(database, {str(k): str(v) for k, v in statement.options.items()})
        else:
            stored.drop_database(database, cascade=statement.cascade)
    except ChangedError as err:
        raise SqlError(
            str(err),
            got=repr(statement.name),
            where=where,
            remedy="CASCADE drops its tables, too"
            if "has tables" in str(err)
            else "SHOW DATABASES lists them",
        ) from None
    if verb == "DROP" and (catalog, database) == (catalogs.catalog, catalogs.database):
        catalogs.use_catalog(OWN_CATALOG, where)
    return f"database '{database}' " + {"CREATE": "created", "ALTER": "altered", "DROP": "dropped"}[verb]


def _quietly(statement: CatalogStatement, message: str, remedy: str) -> str:
    if statement.quiet:
        return message
    raise SqlError(message, got=repr(statement.name), where=str(statement.position), remedy=remedy)
