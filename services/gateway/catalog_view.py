"""What the statements of a session may name, for editors: catalogs, databases, tables with columns and options, functions,
keywords. Passwords in options are hidden."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.redaction import shown_options
from penstock.sql.catalogs.names import OWN_CATALOG, OWN_DATABASE
from penstock.sql.completion import KEYWORDS
from penstock.sql.show import column_rows, show_functions

if TYPE_CHECKING:
    from penstock.sql.catalog import Catalog, Table, View

#: So many tables of one database are described.
MOST_TABLES = 300


def catalog_view(catalog: Catalog) -> dict[str, Any]:
    """The catalogs with the names of their databases. A catalog that does not answer says why in ``problem``."""
    catalogs, own = catalog.catalogs, set(catalog.functions.names())
    found = []
    for name in catalogs.names():
        databases, problem = [], ""
        try:
            databases = catalogs.databases(name, "the catalog browser")
        except PenstockError as err:
            problem = err.message
        found.append({"name": name, "databases": databases, "problem": problem})
    return {
        "catalog": catalogs.catalog,
        "database": catalogs.database,
        "catalogs": found,
        "functions": [{"name": name, "own": name in own} for name in show_functions(catalog)],
        "keywords": KEYWORDS,
    }


def tables_view(catalog: Catalog, of: str, database: str) -> dict[str, Any]:
    """The tables and views of a database; of more than ``MOST_TABLES`` the first, and in ``more`` how many are left.

    Raises:
        SqlError: There is no such catalog or database.
    """
    where = "the catalog browser"
    catalog.catalogs.database_path(f"{of}.{database}", where)
    views = set(catalog.views.listed(of, database))
    names = sorted({*catalog.tables.listed(of, database), *views})
    return {
        "tables": [_item(catalog, of, database, name, name in views) for name in names[:MOST_TABLES]],
        "more": max(0, len(names) - MOST_TABLES),
    }


def _item(catalog: Catalog, of: str, database: str, name: str, is_view: bool) -> dict[str, Any]:
    path = name if (of, database) == (OWN_CATALOG, OWN_DATABASE) else f"{of}.{database}.{name}"
    shown: dict[str, Any] = {
        "name": name,
        "view": is_view,
        "columns": [],
        "options": {},
        "comment": "",
        "problem": "",
    }
    try:
        item: Table | View = (catalog.views if is_view else catalog.tables)[path]
        shown["columns"] = _columns(item)
    except (
        PenstockError
    ) as err:  # a table that somebody else stored and that this version does not understand
        return {**shown, "problem": err.message}
    except KeyError:
        return {**shown, "problem": "it was dropped a moment ago"}
    shown["comment"] = str(item.comment or "")
    # Options know their places in the statement; JSON takes plain text alone.
    shown["options"] = {
        str(k): str(v) for k, v in sorted(shown_options(getattr(item, "options", {})).items())
    }
    return {**shown, "temporary": item.temporary}


def _columns(item: Table | View) -> list[dict[str, Any]]:
    head, rows = column_rows(item)
    return [{**dict(zip(head, map(str, row), strict=True)), "null": row[2] == "TRUE"} for row in rows]
