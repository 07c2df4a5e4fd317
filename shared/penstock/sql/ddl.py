"""Carries out CREATE, ALTER and DROP on the session's catalog."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.config import LOCAL_TIME_ZONE
from penstock.connectors.registry import connector_of
from penstock.errors import ConnectorError, SqlError, UnsupportedError
from penstock.secrets import refuse_hidden
from penstock.sql import statements as st
from penstock.sql.altering import altered
from penstock.sql.catalog import Table, View, blame_option
from penstock.sql.declaring import build_table
from penstock.sql.errors import Source, did_you_mean
from penstock.sql.functions import load_function
from penstock.sql.queries import QueryBinder
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlglot import exp

    from penstock.sql.catalog import Catalog

Ddl = (
    st.CreateTable
    | st.CreateView
    | st.CreateFunction
    | st.AlterTable
    | st.AlterColumns
    | st.AlterView
    | st.Drop
)


def change_catalog(catalog: Catalog, config: Mapping[str, str], statement: Ddl) -> str:
    """Carry out the statement. Returns what was done, in words."""
    where = str(statement.position)
    match statement:
        case st.CreateTable():
            return _create_table(catalog, config, statement, where)
        case st.CreateView():
            return _create_view(catalog, config, statement, where)
        case st.CreateFunction():
            return _create_function(catalog, statement, where)
        case st.AlterTable():
            return _alter_table(catalog, statement, where)
        case st.AlterColumns():
            return _alter_columns(catalog, config, statement, where)
        case st.AlterView():
            return _alter_view(catalog, config, statement, where)
        case st.Drop():
            return _drop(catalog, statement, where)


# -- tables -------------------------------------------------------------------------------------


def _create_table(catalog: Catalog, config: Mapping[str, str], statement: st.CreateTable, where: str) -> str:
    if statement.name in catalog.tables and statement.if_not_exists:
        return f"table '{statement.name}' exists already"
    replaced = statement.or_replace and statement.name in catalog.tables
    if replaced and catalog.tables[statement.name].temporary != statement.temporary:
        raise SqlError(
            f"table '{statement.name}' is {'not ' if statement.temporary else ''}temporary",
            expected="a table of the same kind",
            where=where,
            remedy="DROP it first",
        )
    if not replaced:
        catalog.check_free(statement.name, where)
    if not statement.temporary:
        given = catalog.tables.given_options(statement.name, where)
        if given and statement.options:
            raise UnsupportedError(
                "options of a table in an Iceberg catalog",
                expected="no WITH: the catalog knows where its tables are",
                got=", ".join(statement.options),
                where=where,
                remedy="give them where the table is read or written, by the hint /*+ OPTIONS(…) */",
            )
        statement = replace(statement, options={**given, **statement.options})
    table = build_table(statement, catalog, zone=LOCAL_TIME_ZONE.read(config))
    _check_connector(table)
    catalog.tables[statement.name] = table
    return f"table '{statement.name}' {'replaced' if replaced else 'created'}"


def _check_connector(table: Table) -> None:
    try:
        where = f"table '{table.name}' ({table.where})"
        connector_of(table.options, where=where)
        refuse_hidden(table.options, where=where)
    except ConnectorError as err:
        raise blame_option(err, table) from None


def create_table_as(
    catalog: Catalog, config: Mapping[str, str], statement: st.CreateTable
) -> tuple[str, st.Insert | None]:
    """Declare the table of CREATE TABLE … AS, with the query's columns and those that the statement declares.

    Returns what was done, in words, and the INSERT that fills the table. There is no INSERT if the table
    exists and IF NOT EXISTS is given.
    """
    assert statement.query is not None
    where = str(statement.position)
    if statement.name in catalog.tables and statement.if_not_exists:
        return f"table '{statement.name}' exists already", None
    source = Source(statement.text)
    binder = QueryBinder(catalog, config, source)
    given = binder.statement(statement.query).visible
    if statement.like is not None:
        raise UnsupportedError("CREATE TABLE … LIKE … AS", where=where, remedy="leave LIKE or AS out")
    declared = {c.name for c in statement.columns}
    columns = [
        st.ColumnDef(c.name, "physical", statement.position, c.type, text=f"`{c.name}` {c.type.sql()}")
        for c in given
        if c.name not in declared
    ]
    created = replace(statement, query=None, columns=(*statement.columns, *columns))
    message = _create_table(catalog, config, created, where)
    table = catalog.tables[statement.name]
    names = tuple(_identifier(c.name, statement.query) for c in given)
    for name in names:
        if name.name not in table.physical.names:
            del catalog.tables[statement.name]
            raise SqlError(
                f"column '{name.name}' of the query is computed in the table",
                expected="a physical column, or another name in the query",
                got=repr(name.name),
                where=where,
            )
    return message, st.Insert(statement.name, statement.position, statement.query, names, text=statement.text)


def _identifier(name: str, near: exp.Expression) -> exp.Identifier:
    from sqlglot import exp as nodes

    made = nodes.to_identifier(name, quoted=True)
    start = next((n.meta["start"] for n in near.walk() if "start" in n.meta), None)
    if start is not None:
        made.meta["start"] = start
    return made


def _alter_table(catalog: Catalog, statement: st.AlterTable, where: str) -> str:
    name = statement.name
    if name not in catalog.tables and statement.if_exists:
        return f"no table '{name}'"
    table = catalog.table(name, where)
    if statement.new_name is not None:
        catalog.check_free(statement.new_name, where)
        catalog.tables.rename(name, statement.new_name, where)
        return f"table '{name}' is now '{statement.new_name}'"
    options = {**table.options, **statement.options}
    for key in statement.keys:
        if key not in options:
            raise SqlError(
                f"table '{name}' has no option '{key}'",
                expected="one of " + ", ".join(sorted(options)),
                got=repr(key),
                where=where,
                remedy=did_you_mean(key, options),
            )
        del options[key]
    changed = replace(table, options=options)
    _check_connector(changed)
    catalog.tables[name] = changed
    return f"table '{name}' altered"


def _alter_columns(
    catalog: Catalog, config: Mapping[str, str], statement: st.AlterColumns, where: str
) -> str:
    name = statement.name
    if name not in catalog.tables and statement.if_exists:
        return f"no table '{name}'"
    declared = altered(catalog.table(name, where), statement)
    changed = build_table(declared, catalog, zone=LOCAL_TIME_ZONE.read(config))
    _check_connector(changed)
    catalog.tables[name] = changed
    return f"table '{name}' altered"


# -- views and functions --------------------------------------------------------------------------


def _create_view(catalog: Catalog, config: Mapping[str, str], statement: st.CreateView, where: str) -> str:
    exists = statement.name in catalog.views
    if exists and statement.if_not_exists:
        return f"view '{statement.name}' exists already"
    if not (exists and statement.or_replace):
        catalog.check_free(statement.name, where)
    catalog.views[statement.name] = _view(catalog, config, statement)
    return f"view '{statement.name}' created"


def _view(catalog: Catalog, config: Mapping[str, str], statement: st.CreateView) -> View:
    binder = QueryBinder(catalog, config, Source(statement.text))
    relation = binder.statement(statement.query)
    if statement.columns and len(statement.columns) != len(relation.visible):
        raise SqlError(
            f"view '{statement.name}' names {len(statement.columns)} columns",
            expected=f"{len(relation.visible)} names",
            got=", ".join(statement.columns),
            where=str(statement.position),
        )
    names = statement.columns or tuple(c.name for c in relation.visible)
    types = [c.type for c in relation.visible]
    schema = t.Schema(tuple(t.Field(a, b) for a, b in zip(names, types, strict=True)))
    return View(
        statement.name,
        statement.query,
        tuple(names),
        schema,
        statement.text,
        statement.temporary,
        statement.query_text,
        statement.comment,
    )


def _alter_view(catalog: Catalog, config: Mapping[str, str], statement: st.AlterView, where: str) -> str:
    name = statement.name
    view = catalog.view(name, where)
    if statement.new_name is not None:
        catalog.check_free(statement.new_name, where)
        del catalog.views[name]
        catalog.views[statement.new_name] = replace(view, name=statement.new_name)
        return f"view '{name}' is now '{statement.new_name}'"
    assert statement.query is not None
    created = st.CreateView(
        name,
        statement.position,
        statement.query,
        statement.query_text,
        temporary=view.temporary,
        text=statement.text,
        comment=view.comment,
    )
    catalog.views[name] = _view(catalog, config, created)
    return f"view '{name}' altered"


def _create_function(catalog: Catalog, statement: st.CreateFunction, where: str) -> str:
    if statement.language != "PYTHON":
        raise UnsupportedError(
            f"functions in {statement.language}",
            expected="LANGUAGE PYTHON",
            got=f"LANGUAGE {statement.language}",
            where=where,
            remedy=f"write it in Python: CREATE FUNCTION {statement.name} AS 'module.function' LANGUAGE PYTHON",
        )
    if catalog.functions.has(statement.name):
        if statement.if_not_exists:
            return f"function '{statement.name}' exists already"
        raise SqlError(f"function '{statement.name}' exists already", where=where, remedy="DROP it first")
    catalog.functions.add(load_function(statement.name, statement.target, where=where))
    return f"function '{statement.name}' created"


def _drop(catalog: Catalog, statement: st.Drop, where: str) -> str:
    kind, name = statement.kind.lower(), statement.name
    if statement.kind != "FUNCTION":
        catalog.check_path(name, where)
    if statement.kind == "FUNCTION":
        found = catalog.functions.remove(name)
        known = catalog.functions.names()
    else:
        store: Any = catalog.tables if statement.kind == "TABLE" else catalog.views
        if statement.temporary and name in store and not store[name].temporary:
            raise SqlError(
                f"{kind} '{name}' is not temporary",
                expected=f"a temporary {kind}",
                where=where,
                remedy=f"DROP {kind.upper()} {name}",
            )
        known = list(store)
        found = store.pop(name, None) is not None
    if not found and not statement.if_exists and statement.kind != "FUNCTION":
        (catalog.table if statement.kind == "TABLE" else catalog.view)(name, where)
    if not found and not statement.if_exists:
        raise catalog.unknown(name, where, known, kind)
    return f"{kind} '{name}' dropped" if found else f"no {kind} '{name}'"
