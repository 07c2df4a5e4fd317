"""Nested projection: fields of ROW columns become columns of the scan.

A field such as ``bid.price`` that is read right above a scan becomes a column of the scan. The ROW column is
then pruned if no consumer needs all its fields, and a connector with ``nested_projection`` makes only the
needed fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.functions.expr import Expr, FieldAccess, InputRef, transform
from penstock.plan import nodes as n
from penstock.plan.rewriting import bottom_up, walk
from penstock.types.logical import Field, Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

replace = msgspec.structs.replace
Path = tuple[int, int]


def flatten_rows(roots: Sequence[n.Node]) -> list[n.Node]:
    """Pushes fields that are read right above a scan into that scan. Sub-plans must be shared by identity,
    because all consumers of one scan must agree on its new columns."""
    nodes = walk(roots)
    consumers: dict[int, list[n.Node]] = {}
    for node in nodes:
        for child in n.inputs_of(node):
            consumers.setdefault(id(child), []).append(node)
    grown: dict[int, tuple[n.Scan, dict[Path, int]]] = {}
    for node in nodes:
        if isinstance(node, n.Scan) and node.projection is None:
            readers = _readers(node, consumers)
            fields = _fields(readers) if readers else {}
            if fields:
                grown[id(node)] = _grow(node, fields)
    if not grown:
        return list(roots)
    return _rewrite(list(roots), grown)


def _readers(node: n.Node, consumers: dict[int, list[n.Node]]) -> list[n.Filter | n.Project] | None:
    """The filters and projections above ``node``; None if a node of another kind reads its columns, by
    position."""
    out: list[n.Filter | n.Project] = []
    for consumer in consumers.get(id(node), []):
        if isinstance(consumer, n.Project):
            out.append(consumer)
        elif isinstance(consumer, n.Filter):
            above = _readers(consumer, consumers)
            if above is None:
                return None
            out += [consumer, *above]
        else:
            return None
    return out


def _expressions(node: n.Filter | n.Project) -> list[Expr]:
    return [node.condition] if isinstance(node, n.Filter) else list(node.expressions)


def _fields(readers: Sequence[n.Filter | n.Project]) -> dict[Path, FieldAccess]:
    found: dict[Path, FieldAccess] = {}

    def visit(expr: Expr) -> Expr:
        if isinstance(expr, FieldAccess) and isinstance(expr.arg, InputRef):
            found.setdefault((expr.arg.index, expr.index), expr)
        return expr

    for reader in readers:
        for expr in _expressions(reader):
            transform(expr, visit)
    return dict(sorted(found.items()))


def _grow(scan: n.Scan, fields: dict[Path, FieldAccess]) -> tuple[n.Scan, dict[Path, int]]:
    table = scan.table
    names, types = list(table.schema.names), table.schema.types
    computed = list(table.computed or (InputRef(i, type_) for i, type_ in enumerate(types)))
    declared = None if table.declared is None else list(table.declared)
    columns = list(table.schema.fields)
    at: dict[Path, int] = {}
    for (column, index), access in fields.items():
        row = access.arg.type
        name = f"{names[column]}.{row.fields[index].name}"  # type: ignore[union-attr]
        while name in names:
            name += "_"
        names.append(name)
        at[column, index] = len(columns)
        computed.append(FieldAccess(computed[column], index, access.type))
        if declared is not None:
            declared.append(FieldAccess(declared[column], index, access.type))
        columns.append(Field(name, access.type))
    schema = Schema(tuple(columns), table.schema.rowtime)
    table = replace(
        table, schema=schema, computed=tuple(computed), declared=None if declared is None else tuple(declared)
    )
    return replace(scan, table=table, schema=schema), at


def _rewrite(roots: list[n.Node], grown: dict[int, tuple[n.Scan, dict[Path, int]]]) -> list[n.Node]:
    by_new = {id(new): at for new, at in grown.values()}
    layouts: dict[int, dict[Path, int]] = dict(by_new)
    keep: list[n.Node] = []

    def flat(expr: Expr, at: dict[Path, int]) -> Expr:
        if isinstance(expr, FieldAccess) and isinstance(expr.arg, InputRef):
            column = at.get((expr.arg.index, expr.index))
            return expr if column is None else InputRef(column, expr.type)
        return expr

    def rule(node: n.Node) -> n.Node:
        if isinstance(node, n.Scan) and id(node) in grown:
            return grown[id(node)][0]
        if isinstance(node, (n.Filter, n.Project)) and id(node.input) in layouts:
            at = layouts[id(node.input)]
            if isinstance(node, n.Project):
                return replace(
                    node, expressions=tuple(transform(e, lambda x: flat(x, at)) for e in node.expressions)
                )
            condition = transform(node.condition, lambda x: flat(x, at))
            new = replace(node, condition=condition, schema=node.input.schema)
            layouts[id(new)] = at
            keep.append(new)
            return new
        return node

    memo: dict[int, tuple[Any, ...]] = {}
    return [bottom_up(r, rule, memo) for r in roots]
