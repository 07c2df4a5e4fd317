"""ROW columns narrowed to the fields that are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.functions.expr import Expr, FieldAccess, InputRef, children
from penstock.types.logical import Field, RowType, Schema

if TYPE_CHECKING:
    pass


def unread_fields(physical: Schema, columns: tuple[int, ...], exprs: list[Expr]) -> dict[str, list[str]]:
    """The fields that no expression reads, of ROW columns that none reads whole: column → fields. ``exprs`` as of
    ``narrow_rows``."""
    found = {}
    for position, fields in _used(exprs).items():
        if fields is None or position >= len(columns):
            continue
        column = physical.fields[columns[position]]
        if isinstance(column.type, RowType) and len(fields) < len(column.type.fields):
            found[column.name] = [f.name for i, f in enumerate(column.type.fields) if i not in fields]
    return found


def _used(exprs: list[Expr]) -> dict[int, set[int] | None]:
    """The fields that are read of each input; None: all of it."""
    used: dict[int, set[int] | None] = {}

    def collect(expr: Expr) -> None:
        if isinstance(expr, FieldAccess) and isinstance(expr.arg, InputRef):
            fields = used.setdefault(expr.arg.index, set())
            if fields is not None:
                fields.add(expr.index)
            return
        if isinstance(expr, InputRef):
            used[expr.index] = None
        for child in children(expr):
            collect(child)

    for expr in exprs:
        collect(expr)
    return used


def narrow_rows(physical: Schema, columns: tuple[int, ...], exprs: list[Expr]) -> tuple[Schema, list[Expr]]:
    """Narrows a ROW column to the fields that are read, if no expression reads the whole ROW.

    ``exprs`` are over the columns as read (position in ``columns``).
    """
    used = _used(exprs)
    new_types: dict[int, RowType] = {}
    moved: dict[int, dict[int, int]] = {}
    for position, fields in used.items():
        if fields is None or position >= len(columns):
            continue
        type_ = physical.types[columns[position]]
        if not isinstance(type_, RowType) or len(fields) == len(type_.fields):
            continue
        kept = sorted(fields)
        moved[position] = {old: i for i, old in enumerate(kept)}
        new_types[position] = RowType(tuple(type_.fields[i] for i in kept), type_.nullable)
    if not new_types:
        return physical, exprs

    def rewrite(expr: Expr) -> Expr:
        if isinstance(expr, FieldAccess) and isinstance(expr.arg, InputRef) and expr.arg.index in moved:
            at = expr.arg.index
            return FieldAccess(InputRef(at, new_types[at]), moved[at][expr.index], expr.type)
        if isinstance(expr, FieldAccess):
            return msgspec.structs.replace(expr, arg=rewrite(expr.arg))
        if children(expr):
            return msgspec.structs.replace(expr, args=tuple(rewrite(c) for c in children(expr)))
        return expr

    by_column = {columns[p]: type_ for p, type_ in new_types.items()}
    fields_ = tuple(Field(f.name, by_column.get(i, f.type)) for i, f in enumerate(physical.fields))
    return Schema(fields_), [rewrite(e) for e in exprs]
