"""SHOW and DESCRIBE."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penstock.functions.registry import known_functions

if TYPE_CHECKING:
    from penstock.sql.catalog import Catalog, Table, View
    from penstock.sql.statements import Describe, Pattern, Show

Rows = tuple[tuple[str, ...], tuple[tuple[Any, ...], ...]]


def show_rows(catalog: Catalog, statement: Show) -> Rows:
    where = str(statement.position)
    if statement.database not in (None, "default_database", "default_catalog"):
        raise catalog.unknown(statement.database or "", where, ["default_database"], "database")
    if statement.what == "CREATE TABLE":
        return ("result",), ((_create_table(catalog.table(statement.name or "", where)),),)
    if statement.what == "CREATE VIEW":
        view = catalog.views.get(statement.name or "")
        if view is None:
            raise catalog.unknown(statement.name or "", where, list(catalog.views), "view")
        return ("result",), ((_create_view(view),),)
    head, rows = _listed(catalog, statement, where)
    return head, tuple(
        row for row in rows if statement.pattern is None or _like(statement.pattern, str(row[0]))
    )


def _listed(catalog: Catalog, statement: Show, where: str) -> Rows:
    match statement.what:
        case "TABLES":
            return ("table name",), tuple((name,) for name in catalog.names())
        case "VIEWS":
            return ("view name",), tuple((name,) for name in sorted(catalog.views))
        case "FUNCTIONS":
            words = [f for f in known_functions() if f[0].isalpha()]
            return ("function name",), tuple((name,) for name in sorted({*words, *catalog.functions.names()}))
        case "USER FUNCTIONS":
            return ("function name",), tuple((name,) for name in catalog.functions.names())
        case "CATALOGS" | "CURRENT CATALOG":
            return ("catalog name",), (("default_catalog",),)
        case "DATABASES" | "CURRENT DATABASE":
            return ("database name",), (("default_database",),)
        case "MODULES":
            return ("module name",), (("core",),)
        case "FULL MODULES":
            return ("module name", "used"), (("core", True),)
    return _columns(_find(catalog, statement.name or "", where))


def _like(pattern: Pattern, text: str) -> bool:
    """SQL's LIKE: ``%`` any text, ``_`` any character."""
    parts = [".*" if c == "%" else "." if c == "_" else re.escape(c) for c in pattern.text]
    flags = re.DOTALL | (re.IGNORECASE if pattern.ignore_case else 0)
    return bool(re.fullmatch("".join(parts), text, flags)) != pattern.negated


def describe_rows(catalog: Catalog, statement: Describe) -> Rows:
    return _columns(_find(catalog, statement.name, str(statement.position)))


def _find(catalog: Catalog, name: str, where: str) -> Table | View:
    if name in catalog.views:
        return catalog.views[name]
    if name in catalog.tables:
        return catalog.tables[name]
    raise catalog.unknown(name, where, catalog.names(), "table")


def _columns(item: Table | View) -> Rows:
    head = ("name", "type", "null", "key", "extras", "watermark")
    declared = {c.name: c for c in getattr(item, "columns", ()) if not isinstance(c, str)}
    key = getattr(item, "primary_key", ())
    rows = []
    for field in item.schema.fields:
        column = declared.get(field.name)
        extras = ""
        if column is not None and column.kind == "computed":
            extras = "computed"
        elif column is not None and column.kind == "metadata":
            extras = f"METADATA FROM '{column.metadata_key}'" + (" VIRTUAL" if column.virtual else "")
        watermark = "yes" if item.schema.rowtime == field.name and declared else ""
        in_key = f"PRI({', '.join(key)})" if field.name in key else ""
        rows.append(
            (field.name, field.type.sql(), str(field.type.nullable).upper(), in_key, extras, watermark)
        )
    return head, tuple(rows)


def _create_table(table: Table) -> str:
    """The statement that declares the table again."""
    lines = [f"  {c.text}" for c in table.columns]
    if table.watermark_clause is not None:
        name = ".".join(f"`{p}`" for p in table.watermark_clause.parts)
        lines.append(f"  WATERMARK FOR {name} AS {table.watermark_clause.text}")
    inline = any(c.primary_key for c in table.columns)
    if table.primary_key and not inline:
        lines.append("  PRIMARY KEY (" + ", ".join(f"`{k}`" for k in table.primary_key) + ") NOT ENFORCED")
    options = ",\n".join(f"  {_quoted(k)} = {_quoted(v)}" for k, v in sorted(table.options.items()))
    temporary = "TEMPORARY " if table.temporary else ""
    return (
        f"CREATE {temporary}TABLE `{table.name}` (\n" + ",\n".join(lines) + "\n) WITH (\n" + options + "\n)"
    )


def _create_view(view: View) -> str:
    columns = ", ".join(f"`{c}`" for c in view.columns)
    temporary = "TEMPORARY " if view.temporary else ""
    return f"CREATE {temporary}VIEW `{view.name}` ({columns}) AS\n{view.query_text}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
