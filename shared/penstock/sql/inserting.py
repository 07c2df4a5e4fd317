"""INSERT: the query's columns become the table's columns, cast where SQL needs no CAST."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.connectors.registry import get_connector
from penstock.errors import SqlError
from penstock.functions.expr import Expr
from penstock.functions.expr import Literal as LiteralExpr
from penstock.functions.registry import make_call
from penstock.plan import nodes as n
from penstock.sql.assigning import assignable, nullable
from penstock.sql.catalog import UID_HINT, resolved_table, sink_ref, with_options
from penstock.sql.changing import bind_change
from penstock.sql.errors import Source, did_you_mean, start_of
from penstock.sql.partitions import static_partition, static_texts
from penstock.sql.queries import QueryBinder
from penstock.sql.statements import Change
from penstock.sql.values import encode_rows
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.sql.catalog import Catalog, Table
    from penstock.sql.scope import Relation, ScopeColumn
    from penstock.sql.statements import Insert


def bind_insert(catalog: Catalog, config: Mapping[str, str], insert: Insert) -> n.Sink:
    """The statement as a sink over its query."""
    if insert.table in catalog.views:
        raise SqlError(
            f"'{insert.table}' is a view",
            expected="a table",
            got=repr(insert.table),
            where=str(insert.position),
            remedy="name the table that it reads, or CREATE TABLE with a connector",
        )
    table = catalog.table(insert.table, str(insert.position))
    if insert.truncate and _deleted_by_rows(table):
        everything = exp.Table(this=exp.to_identifier(insert.table, quoted=True))
        insert = replace(insert, change=Change("DELETE", everything))
    elif insert.truncate:
        ref = sink_ref(table, truncate=True, where=str(insert.position))
        nothing = n.Values(schema=ref.schema, data=encode_rows(ref.schema, []))
        return n.Sink(
            input=nothing, table=ref, upsert_keys=(), columns=tuple(ref.schema.names), schema=ref.schema
        )
    options = {key: value for key, value in insert.options.items() if key != UID_HINT}
    if insert.change is not None:
        changed = with_options(table, options)
        return bind_change(
            catalog,
            config,
            insert,
            changed,
            lambda binder, made, relation, ref: _fit(
                binder, made, relation, ref, _in_order(changed, ref), fixed={}
            ),
        )
    label = insert.options.get(UID_HINT)
    binder = QueryBinder(catalog, config, Source(insert.text, target=f"INSERT INTO {table.name}"))
    fixed = static_partition(binder, insert, table)
    ref = sink_ref(
        with_options(table, options),
        overwrite=insert.overwrite,
        partition=static_texts(table, fixed),
        where=str(insert.position),
    )
    relation = binder.statement(insert.query)
    node = _fit(binder, insert, relation, ref, _in_order(table, ref), fixed)
    names = [i.name for i in insert.columns or ()] or [c.name for c in relation.visible]
    return n.Sink(
        input=node,
        table=ref,
        upsert_keys=(),
        label=None if label is None else str(label),
        columns=tuple(names),
        schema=ref.schema,
    )


def _deleted_by_rows(table: Table) -> bool:
    """Whether TRUNCATE TABLE is a DELETE without a condition: the connector has no other way."""
    info = resolved_table(table).info()
    connector = get_connector(info.options["connector"])
    return not connector.truncates and connector.row_changes(info) is not None


def _in_order(table: Table, ref: n.TableRef) -> list[t.Field]:
    """The columns that INSERT gives values, in the order and with the types of the declaration. (``ref`` has
    those of metadata last, with the connector's types.)"""
    fields = {f.name: f for f in ref.schema.fields}
    metadata = {column.name for column in ref.metadata}
    found = []
    for column in table.columns:
        if (field_ := fields.get(column.name)) is not None:
            declared = column.type if column.name in metadata else None
            found.append(field_ if declared is None else t.Field(column.name, declared))
    return found if metadata else list(ref.schema.fields)


def _fit(
    binder: QueryBinder,
    insert: Insert,
    relation: Relation,
    table: n.TableRef,
    wanted: Sequence[t.Field],
    fixed: Mapping[str, LiteralExpr],
) -> n.Node:
    """The query's columns, by position, as the table's columns. ``wanted``: those as declared; ``fixed``:
    columns whose value PARTITION gives."""
    source = binder.source
    targets = [f for f in wanted if f.name not in fixed]
    if insert.columns:
        names = {f.name: f for f in wanted}
        for identifier in insert.columns:
            if identifier.name not in names:
                raise source.error(
                    f"table '{table.name}' has no column '{identifier.name}'",
                    identifier,
                    expected="one of " + ", ".join(names),
                    got=repr(identifier.name),
                    remedy=did_you_mean(identifier.name, names) or f"DESCRIBE {table.name} shows its columns",
                )
            if identifier.name in fixed:
                raise source.error(
                    f"PARTITION gives column '{identifier.name}' its value already",
                    identifier,
                    expected="one of " + ", ".join(f.name for f in targets),
                    got=repr(identifier.name),
                    remedy="leave it out of one of them",
                )
        targets = [names[i.name] for i in insert.columns]
        for at, identifier in enumerate(insert.columns):
            if targets[at] in targets[:at]:
                raise source.error(
                    f"column '{identifier.name}' is named twice",
                    identifier,
                    expected="each column once",
                    got=", ".join(field.name for field in targets),
                    remedy="leave one out, with its value in the query",
                )
    given = relation.visible
    if len(given) != len(targets):
        raise SqlError(
            f"the query gives {len(given)} columns, table '{table.name}' takes {len(targets)}",
            expected=", ".join(f"{f.name} {f.type}" for f in targets),
            got=", ".join(f"{c.name} {c.type}" for c in given),
            where=source.where(insert.query),
            remedy=_columns_remedy(table.name, [c.name for c in given], [f.name for f in targets]),
        )
    values: dict[str, Expr] = dict(fixed)
    for at, (column, field_) in enumerate(zip(given, targets, strict=True)):
        if not assignable(column.type, nullable(field_.type)):
            raise _mismatch(binder, insert, table.name, given, targets, at)
        item = _item(insert.query, at, len(given))
        values[field_.name] = _assigned(binder, relation.ref(column), field_, table.name, item)
    for field_ in wanted:
        value = values.get(field_.name)
        if value is None:
            if not field_.type.nullable:
                raise SqlError(
                    f"column '{field_.name}' of '{table.name}' is NOT NULL and gets no value",
                    expected=f"a value for {field_.name}",
                    got="INSERT INTO … (" + ", ".join(field.name for field in targets) + ")",
                    where=str(insert.position),
                    remedy="select a value for it, or declare it without NOT NULL",
                )
            value = LiteralExpr(None, field_.type)
        values[field_.name] = value
    expressions = [_assigned(binder, values[f.name], f, table.name) for f in table.schema.fields]
    schema = t.Schema(
        tuple(t.Field(f.name, e.type) for f, e in zip(table.schema.fields, expressions, strict=True))
    )
    return n.Project(input=relation.node, expressions=tuple(expressions), schema=schema)


def _columns_remedy(table: str, given: list[str], targets: list[str]) -> str:
    if len(given) > len(targets):
        return f"select only what goes into {', '.join(targets)}, in this order"
    named = ", ".join(targets[: len(given)])
    return f"select a value for each, or name those that get one (others become NULL): INSERT INTO {table} ({named})"


def _mismatch(
    binder: QueryBinder,
    insert: Insert,
    table: str,
    given: Sequence[ScopeColumn],
    targets: Sequence[t.Field],
    at: int,
) -> SqlError:
    """The error, in Flink's words, for a column whose values INSERT would narrow or change silently."""
    column, target = given[at], targets[at]
    item = _item(insert.query, at, len(given))
    written = item.this if isinstance(item, exp.Alias) else item
    known = item is not insert.query and isinstance(item, exp.Expression)
    value = _text(binder.source.text, written) if known else None
    cast = f"CAST({value or column.name} AS {target.type.sql()})"
    return SqlError(
        f"Column types of query result and sink for 'default_catalog.default_database.{table}' do not match. "
        f"Cause: Incompatible types for sink column '{target.name}' at position {at}.",
        expected="Sink schema: [" + ", ".join(f"{f.name}: {f.type}" for f in targets) + "]",
        got="Query schema: [" + ", ".join(f"{c.name}: {c.type}" for c in given) + "]",
        where=binder.source.where(item),
        remedy=f"write {cast}, or declare {target.name} {column.type.sql()}",
    )


def _item(query: exp.Expression, at: int, width: int) -> exp.Expression:
    """The expression of column ``at`` of a query with ``width`` columns; the query itself if it has none for each."""
    items = _items(query)
    return items[at] if len(items) == width else query


def _items(query: exp.Expression) -> list[exp.Expression]:
    """The expressions of a query's columns; empty if the query is neither a SELECT nor VALUES."""
    if isinstance(query, exp.Select):
        return list(query.expressions)
    if isinstance(query, exp.Values) and query.expressions:
        first = query.expressions[0]
        return list(first.expressions) if isinstance(first, exp.Tuple) else [first]
    return []


def _text(text: str, node: exp.Expression) -> str | None:
    """An expression as the user wrote it; None if its text is not in one piece."""
    ends = [n.meta["end"] for n in node.walk() if "end" in n.meta]
    start = start_of(node)
    if start is None or not ends or isinstance(node, exp.Star):
        return None
    written = text[start : max(ends) + 1]
    return written if written.count("(") == written.count(")") and "\n" not in written else None


def _assigned(
    binder: QueryBinder, value: Expr, target: t.Field, table: str, item: exp.Expression | None = None
) -> Expr:
    """``value`` as the type of the column ``target`` of ``table``. ``item``: its expression in the text."""
    if value.type.with_nullable(True) == target.type.with_nullable(True):
        return value
    place = binder.source.position(item)
    return make_call(
        "CAST",
        [value],
        type=target.type.with_nullable(value.type.nullable),
        line=place.line,
        column=place.column,
        within=f"INSERT INTO {table} ({target.name})",
        zone=binder.zone,
    )
