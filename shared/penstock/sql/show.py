"""SHOW and DESCRIBE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.sql.catalog import Catalog, Table, View
    from penstock.sql.statements import Describe, Show

Rows = tuple[tuple[str, ...], tuple[tuple[Any, ...], ...]]


def show_rows(catalog: Catalog, statement: Show) -> Rows:
    match statement.what:
        case "TABLES":
            return ("table name",), tuple((name,) for name in catalog.names())
        case "VIEWS":
            return ("view name",), tuple((name,) for name in sorted(catalog.views))
        case "FUNCTIONS":
            from penstock.functions.registry import known_functions

            words = [f for f in known_functions() if f[0].isalpha()]
            return ("function name",), tuple((name,) for name in sorted({*words, *catalog.functions.names()}))
        case "USER FUNCTIONS":
            return ("function name",), tuple((name,) for name in catalog.functions.names())
        case "CATALOGS" | "CURRENT CATALOG":
            return ("catalog name",), (("default_catalog",),)
        case "DATABASES" | "CURRENT DATABASE":
            return ("database name",), (("default_database",),)
        case "COLUMNS":
            return _columns(_find(catalog, statement.name or "", str(statement.position)))
        case "CREATE TABLE":
            return ("result",), (
                (_create_table(catalog.table(statement.name or "", str(statement.position))),),
            )
    view = catalog.views.get(statement.name or "")
    if view is None:
        raise catalog.unknown(statement.name or "", str(statement.position), list(catalog.views), "view")
    columns = ", ".join(f"`{c}`" for c in view.columns)
    return ("result",), ((f"CREATE VIEW `{view.name}` ({columns}) AS …",),)


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
    lines = [f"  `{f.name}` {f.type}" for f in table.physical.fields]
    lines += [f"  `{m.name}` … METADATA FROM '{m.key}'" for m in table.metadata]
    if table.primary_key:
        lines.append("  PRIMARY KEY (" + ", ".join(f"`{k}`" for k in table.primary_key) + ") NOT ENFORCED")
    options = ",\n".join(f"  '{k}' = '{v}'" for k, v in sorted(table.options.items()))
    return f"CREATE TABLE `{table.name}` (\n" + ",\n".join(lines) + "\n) WITH (\n" + options + "\n)"
