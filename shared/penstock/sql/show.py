"""The rows of SHOW and DESCRIBE."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.errors import SpecError, SqlError, UnsupportedError
from penstock.functions.registry import known_functions
from penstock.plan.properties import is_proctime
from penstock.redaction import hidden_note, shown_options
from penstock.sql.calls import procedure_names
from penstock.sql.describing import described_function
from penstock.sql.partitions import matching_partitions, table_partitions

if TYPE_CHECKING:
    from penstock.sql.catalog import Catalog, Table, View
    from penstock.sql.statements import Describe, Pattern, Show

Rows = tuple[tuple[str, ...], tuple[tuple[Any, ...], ...]]


def show_rows(catalog: Catalog, statement: Show) -> Rows:
    """The result of a SHOW statement."""
    where = str(statement.position)
    if statement.what == "CREATE TABLE":
        table = catalog.table(statement.name or "", where)
        path = catalog.catalogs.path(table.name)
        own = table.name == path[2]
        quoted = "`" + ("" if own else "`.`".join(path[:2]) + "`.`") + f"{path[2]}`"
        shown = shown_options(table.options)
        text = create_table_text(replace(table, options=shown), quoted)
        return ("result",), ((hidden_note(shown) + text,),)
    if statement.what == "CREATE CATALOG":
        return ("result",), ((catalog.catalogs.statement(statement.name or "", where),),)
    if statement.what == "CREATE VIEW":
        return ("result",), ((_create_view(catalog.view(statement.name or "", where), where),),)
    if statement.what == "PARTITIONS":
        table = catalog.table(statement.name or "", where)
        wanted = {column.name: _literal(value, where) for column, value in statement.partition}
        names = matching_partitions(table, table_partitions(table, where), wanted, where)
        return ("partition name",), tuple((name,) for name in names)
    head, rows = _listed(catalog, statement, where)
    return head, tuple(row for row in rows if _fits(statement, str(row[0]), where))


def _literal(value: exp.Expression, where: str) -> str:
    """The text of a literal in PARTITION (column = literal)."""
    if not isinstance(value, exp.Literal):
        raise SqlError(
            "PARTITION of SHOW PARTITIONS takes literals only",
            expected="PARTITION (dt = '2024-01-01')",
            where=where,
        )
    return value.name


def _listed(catalog: Catalog, statement: Show, where: str) -> Rows:
    catalogs = catalog.catalogs
    place = (catalogs.catalog, catalogs.database)
    if statement.database is not None and statement.what in ("TABLES", "VIEWS"):
        place = catalogs.database_path(statement.database, where)
    match statement.what:
        case "TABLES":
            found = [*catalog.tables.listed(*place), *catalog.views.listed(*place)]
            return ("table name",), tuple((name,) for name in sorted(found))
        case "VIEWS":
            return ("view name",), tuple((name,) for name in sorted(catalog.views.listed(*place)))
        case "FUNCTIONS":
            return ("function name",), tuple((name,) for name in show_functions(catalog))
        case "USER FUNCTIONS":
            return ("function name",), tuple((name,) for name in catalog.functions.names())
        case "CATALOGS":
            return ("catalog name",), tuple((name,) for name in catalogs.names())
        case "CURRENT CATALOG":
            return ("catalog name",), ((catalogs.catalog,),)
        case "DATABASES":
            databases = catalogs.databases(statement.database or catalogs.catalog, where)
            return ("database name",), tuple((name,) for name in databases)
        case "CURRENT DATABASE":
            return ("database name",), ((catalogs.database,),)
        case "PROCEDURES":
            return ("procedure name",), tuple((name,) for name in procedure_names())
        case "MODULES":
            return ("module name",), (("core",),)
        case "FULL MODULES":
            return ("module name", "used"), (("core", True),)
    return column_rows(_find(catalog, statement.name or "", where))


def _fits(statement: Show, name: str, where: str) -> bool:
    """Whether SHOW lists ``name``. LIKE is exact about case, but a function that Penstock brings has both spellings, as
    Flink spells some of them in capitals (``ARRAY_SORT``) and others not (``upper``)."""
    pattern = statement.pattern
    if pattern is None:
        return True
    spellings = (
        {name, name.lower()} if statement.what == "FUNCTIONS" and name in known_functions() else {name}
    )
    return any(_like(pattern, spelling, where) for spelling in spellings) != pattern.negated


def _like(pattern: Pattern, text: str, where: str) -> bool:
    """Whether ``text`` fits the pattern of LIKE, in which ``%`` stands for any text, ``_`` for any character, and a
    backslash makes the character behind it stand for itself."""
    parts = []
    for escaped, character in re.findall(r"(\\?)(.|$)", pattern.text, re.DOTALL):
        if escaped and character not in ("%", "_", "\\"):
            raise SpecError(
                "a backslash in a pattern stands before nothing that it could protect",
                expected=r"\%, \_ or \\",
                got=repr(pattern.text),
                where=where,
                remedy=r"write \\ for a backslash",
            )
        wild = {"%": ".*", "_": "."}.get(character) if not escaped else None
        parts.append(wild or re.escape(character))
    flags = re.DOTALL | (re.IGNORECASE if pattern.ignore_case else 0)
    return bool(re.fullmatch("".join(parts), text, flags))


def show_functions(catalog: Catalog) -> list[str]:
    """The names of all functions, sorted: those that Penstock brings and those of the session."""
    words = [f for f in known_functions() if f[0].isalpha()]
    return sorted({*words, *catalog.functions.names()})


def describe_rows(catalog: Catalog, statement: Describe) -> Rows:
    """The result of a DESCRIBE statement."""
    if statement.function:
        return ("info name", "info value"), described_function(catalog.functions, statement)
    return column_rows(_find(catalog, statement.name, str(statement.position)))


def _find(catalog: Catalog, name: str, where: str) -> Table | View:
    if name in catalog.views:
        return catalog.views[name]
    if name in catalog.tables:
        return catalog.tables[name]
    raise catalog.unknown(name, where, catalog.names(), "table")


def column_rows(item: Table | View) -> Rows:
    """The columns in the form of Flink's DESCRIBE, with the column ``comment`` only if some column has a comment."""
    declared = {c.name: c for c in getattr(item, "columns", ()) if not isinstance(c, str)}
    clause = getattr(item, "watermark_clause", None)
    proctimes = {
        field.name
        for field, e in zip(item.schema.fields, getattr(item, "computed", None) or (), strict=False)
        if is_proctime(e)
    }
    key = getattr(item, "primary_key", ())
    rows = []
    for field in item.schema.fields:
        column = declared.get(field.name)
        type_ = field.type.sql()
        if item.schema.rowtime == field.name and declared:
            type_ += " *ROWTIME*"
        elif field.name in proctimes:
            type_ += " *PROCTIME*"
        extras = ""
        if column is not None and column.kind == "computed":
            extras = f"AS {column.expression_text}"
        elif column is not None and column.kind == "metadata":
            extras = f"METADATA FROM '{column.metadata_key}'" + (" VIRTUAL" if column.virtual else "")
        elif field.name in getattr(item, "partition_keys", ()):
            extras = "PARTITIONED BY"
        watermark = clause.text if clause is not None and clause.parts == (field.name,) else ""
        in_key = f"PRI({', '.join(key)})" if field.name in key else ""
        comment = column.comment if column is not None and column.comment else ""
        rows.append((field.name, type_, str(field.type.nullable).upper(), in_key, extras, watermark, comment))
    head = ("name", "type", "null", "key", "extras", "watermark", "comment")
    if not any(row[-1] for row in rows):
        return head[:-1], tuple(row[:-1] for row in rows)
    return head, tuple(rows)


def create_table_text(table: Table, quoted: str) -> str:
    """The statement that declares the table again, with plain text passwords, if it has some. ``quoted``: its name, in backticks."""
    lines = [f"  {c.text}" for c in table.columns]
    if table.watermark_clause is not None:
        name = ".".join(f"`{p}`" for p in table.watermark_clause.parts)
        lines.append(f"  WATERMARK FOR {name} AS {table.watermark_clause.text}")
    inline = any(c.primary_key for c in table.columns)
    if table.primary_key and not inline:
        lines.append("  PRIMARY KEY (" + ", ".join(f"`{k}`" for k in table.primary_key) + ") NOT ENFORCED")
    options = ",\n".join(f"  {_quoted(k)} = {_quoted(v)}" for k, v in sorted(table.options.items()))
    temporary = "TEMPORARY " if table.temporary else ""
    comment = f"COMMENT {_quoted(table.comment)}\n" if table.comment is not None else ""
    declared = f"CREATE {temporary}TABLE {quoted} (\n" + ",\n".join(lines)
    keys = ", ".join(f"`{k}`" for k in table.partition_keys)
    partitioned = f"PARTITIONED BY ({keys})\n" if keys else ""
    between = "\n" + comment + partitioned if comment or partitioned else " "
    return f"{declared}\n){between}WITH (\n{options}\n)"


def _create_view(view: View, where: str) -> str:
    if not view.query_text:
        raise UnsupportedError(
            f"SHOW CREATE VIEW of '{view.name}': a program has made the view of a Table, not of a text",
            expected="a view made by CREATE VIEW",
            got=f"create_view or create_temporary_view('{view.name}', table)",
            where=where,
            remedy=f"DESCRIBE {view.name} shows its columns, and explain() of the table its plan",
        )
    columns = ", ".join(f"`{c}`" for c in view.columns)
    temporary = "TEMPORARY " if view.temporary else ""
    comment = f" COMMENT {_quoted(view.comment)}" if view.comment is not None else ""
    return f"CREATE {temporary}VIEW `{view.name}` ({columns}){comment} AS\n{view.query_text}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
