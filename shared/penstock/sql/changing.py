"""DELETE and UPDATE: a query over the table itself gives the rows that go or change, or those that stay."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
from sqlglot import exp

from penstock import config as conf
from penstock.connectors.registry import get_connector
from penstock.connectors.row_changes import ROW_CHANGE, RowChange
from penstock.errors import SqlError, UnsupportedError
from penstock.plan import nodes as n
from penstock.sql.catalog import resolved_table, sink_ref, with_options
from penstock.sql.errors import Source, did_you_mean
from penstock.sql.queries import QueryBinder
from penstock.sql.syntax import OptionsHint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.connectors.row_changes import ChangedBy
    from penstock.plan.tables import TableRef
    from penstock.sql.catalog import Catalog, Table
    from penstock.sql.scope import Relation
    from penstock.sql.statements import Change, Insert

#: Fits a relation to the columns of a table, as INSERT does.
Fit = "Callable[[QueryBinder, Insert, Relation, TableRef], n.Node]"
#: The column that says whether a row is one of those to be changed.
_CHANGED = "$changed"


def bind_change(
    catalog: Catalog,
    config: Mapping[str, str],
    insert: Insert,
    table: Table,
    fit: Callable[[QueryBinder, Insert, Relation, TableRef], n.Node],
) -> n.Sink:
    """The statement as a sink over a query of its own table. ``fit``: gives the query's columns the table's types."""
    change, where = insert.change, str(insert.position)
    assert change is not None
    _check_mode(config, change, where)
    by = _changed_by(table, change, where)
    source = Source(insert.text)
    table = with_options(table, by.options)
    ref = sink_ref(table, where=where)
    assigned = _assigned(source, change, table, ref)
    stated = RowChange(
        delete=change.verb == "DELETE", columns=tuple(ref.schema.names.index(c) for c in assigned)
    )
    options = {**ref.options, ROW_CHANGE: msgspec.json.encode(stated).decode()}
    ref = msgspec.structs.replace(ref, options=options, sink_modes=("append",))
    query = (_all_rows if by.whole else _changed_rows)(change, ref.schema.names, assigned, by.options)
    binder = QueryBinder(catalog, config, source)
    node = fit(binder, replace(insert, query=query), binder.statement(query), ref)
    # One writer, so that all changes are one transaction.
    return n.Sink(
        input=node,
        table=ref,
        upsert_keys=(),
        parallelism=1,
        columns=tuple(ref.schema.names),
        schema=ref.schema,
    )


def _check_mode(config: Mapping[str, str], change: Change, where: str) -> None:
    if conf.RUNTIME_MODE.read(config) == "STREAMING":
        raise UnsupportedError(
            f"{change.verb} in streaming mode",
            expected=f"{conf.RUNTIME_MODE.key} = BATCH or AUTOMATIC",
            got="STREAMING",
            where=where,
            remedy=f"SET '{conf.RUNTIME_MODE.key}' = 'BATCH'",
        )


def _changed_by(table: Table, change: Change, where: str) -> ChangedBy:
    resolved = resolved_table(table)
    connector = get_connector(resolved.options["connector"])
    by = connector.row_changes(resolved.info())
    if by is None:
        raise UnsupportedError(
            f"{change.verb} of connector '{connector.name}'",
            expected="a table of connector 'jdbc' (with a PRIMARY KEY), 'delta' or 'iceberg'",
            got=f"table '{table.name}'",
            where=where,
            remedy="change the rows in the system in which they lie, or write a query's result to another table",
        )
    if not by.whole and not table.primary_key:
        raise SqlError(
            f"{change.verb} of table '{table.name}', which has no primary key",
            expected="PRIMARY KEY (…) NOT ENFORCED: the columns by which the database finds a row",
            got="a table without it",
            where=where,
            remedy="declare the database's own key",
        )
    return by


def _assigned(source: Source, change: Change, table: Table, ref: TableRef) -> dict[str, exp.Expression]:
    """The new values by column. Raises SqlError for a column that cannot be assigned."""
    out: dict[str, exp.Expression] = {}
    for column, value in change.assignments:
        name = column.name
        problem = remedy = None
        if name not in ref.schema.names:
            known = any(c.name == name for c in table.columns)
            problem = (
                f"column '{name}' is computed" if known else f"table '{table.name}' has no column '{name}'"
            )
            remedy = did_you_mean(name, ref.schema.names)
        elif name in out:
            problem, remedy = f"column '{name}' is assigned twice", "leave one of the two out"
        elif name in table.primary_key:
            problem = f"column '{name}' is part of the primary key"
            remedy = "DELETE the row, and INSERT it with its new key"
        if problem is not None:
            free = [c for c in ref.schema.names if c not in table.primary_key]
            raise source.error(
                problem, column, expected="one of " + ", ".join(free), got=repr(name), remedy=remedy
            )
        out[name] = value
    return out


def _table(change: Change, options: Mapping[str, str]) -> exp.Expression:
    """The table as FROM has it, read as the connector asks for."""
    table = change.table
    if options:
        hint = OptionsHint(this="")
        hint.meta["options"] = dict(options)
        table.set("options_hint", hint)
    return table


def _changed_rows(
    change: Change, names: Sequence[str], assigned: Mapping[str, exp.Expression], options: Mapping[str, str]
) -> exp.Select:
    """The query of the rows that change, with their new values, or of those that go."""
    query = _select([assigned.get(c) or _column(c) for c in names], names, _table(change, options))
    if change.condition is not None:
        query.set("where", exp.Where(this=change.condition))
    return query


def _all_rows(
    change: Change, names: Sequence[str], assigned: Mapping[str, exp.Expression], options: Mapping[str, str]
) -> exp.Select:
    """The query of all rows of the table as they are afterwards."""
    table = _table(change, options)
    condition: exp.Expression = change.condition or exp.true()
    if not assigned:
        query = _select([_column(c) for c in names], names, table)
        stays = exp.Not(this=exp.Is(this=exp.Paren(this=condition), expression=exp.true()))
        query.set("where", exp.Where(this=stays))
        return query
    marked = _select([*map(_column, names), condition], [*names, _CHANGED], table)
    rows = exp.Subquery(this=marked, alias=exp.TableAlias(this=_name(table.alias_or_name)))
    values: list[exp.Expression] = []
    for name in names:
        if name in assigned:
            when = exp.If(this=_column(_CHANGED), true=assigned[name])
            values.append(exp.Case(ifs=[when], default=_column(name)))
        else:
            values.append(_column(name))
    return _select(values, names, rows)


def _select(values: Sequence[exp.Expression], names: Sequence[str], source: exp.Expression) -> exp.Select:
    named = [exp.Alias(this=value, alias=_name(name)) for value, name in zip(values, names, strict=True)]
    return exp.Select(expressions=named, from_=exp.From(this=source))


def _name(name: str) -> exp.Identifier:
    return exp.Identifier(this=name, quoted=True)


def _column(name: str) -> exp.Column:
    return exp.Column(this=_name(name))
