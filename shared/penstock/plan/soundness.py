"""Checks of single nodes: the input has every column that the node names, and the column has the expected
type.

Nodes build their own check (``Node.check``) of these functions; ``plan.plan_check`` runs it after every rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.functions.expr import FieldAccess, InputRef, children
from penstock.plan.operators.join.keys import stored_alike
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.functions.expr import AggregateCall, Expr
    from penstock.jobgraph.specs import WatermarkSpec
    from penstock.types.logical import LogicalType


class Unsound(Exception):
    """A node is not sound: what was expected of the node, and what it has."""

    def __init__(self, expected: str, got: str) -> None:
        super().__init__(expected, got)
        self.expected = expected
        self.got = got


def calls(made: Iterable[AggregateCall], given: Sequence[LogicalType]) -> None:
    """Checks the arguments and filters of aggregates."""
    for call in made:
        indices(call.args, given)
        if call.filter is not None:
            indices([call.filter], given)
            type_of(given[call.filter], t.BooleanType(), f"the filter of {call.function}")


def within(expr: Expr, width: int) -> None:
    """Checks the columns of an expression whose types are not known."""
    if isinstance(expr, InputRef) and not 0 <= expr.index < width:
        raise Unsound(f"one of {width} columns", f"column {expr.index}")
    for child in children(expr):
        within(child, width)


def expression(expr: Expr, given: Sequence[LogicalType]) -> None:
    """Checks that the columns and fields of an expression exist and have the expected types."""
    if isinstance(expr, InputRef):
        indices([expr.index], given)
        type_of(expr.type, given[expr.index], f"column {expr.index}")
        return
    if isinstance(expr, FieldAccess):
        row = expr.arg.type
        if not isinstance(row, t.RowType) or not 0 <= expr.index < len(row.fields):
            raise Unsound(f"a row with a field {expr.index}", str(row))
        type_of(expr.type, row.fields[expr.index].type, f"field {expr.index} of {row}")
    for child in children(expr):
        expression(child, given)


def indices(columns: Iterable[int], given: Sequence[LogicalType]) -> None:
    """Checks that indices are columns of the input."""
    for column in columns:
        if not 0 <= column < len(given):
            raise Unsound(f"one of the input's {len(given)} columns", f"column {column}")


def types(own: Sequence[LogicalType], given: Sequence[LogicalType]) -> None:
    """Checks that there are as many columns as given, of these types."""
    if len(own) != len(given):
        raise Unsound(f"{len(given)} columns ({_listed(given)})", f"{len(own)} columns ({_listed(own)})")
    for i, (a, b) in enumerate(zip(own, given, strict=True)):
        type_of(a, b, f"column {i}")


def appended(own: Sequence[LogicalType], given: Sequence[LogicalType], count: int) -> None:
    """Checks that the node's columns are the input's columns, followed by ``count`` columns of the node's
    own."""
    if len(own) != len(given) + count:
        raise Unsound(f"{len(given)} columns and {count} more", f"{len(own)} columns ({_listed(own)})")
    types(own[: len(given)], given)


def type_of(own: LogicalType, given: LogicalType, what: str, *, exact: bool = True) -> None:
    """Checks that two types are equal apart from nullability, because a rule may learn that a column is never
    NULL."""
    if own is given or (type(own) is type(given) if not exact else _same(own, given)):
        return
    raise Unsound(f"{what}: {given}", str(own))


def boolean(type_: LogicalType, what: str) -> None:
    """Raise Unsound unless the type is BOOLEAN; ``what`` names the expression."""
    type_of(type_, t.BooleanType(), what)


def watermark(mark: WatermarkSpec, given: Sequence[LogicalType]) -> None:
    """Checks the columns of a watermark strategy."""
    indices([] if mark.rowtime is None else [mark.rowtime], given)
    if mark.expr is not None:
        expression(mark.expr, given)


def equal_keys(
    left_keys: Sequence[int],
    right_keys: Sequence[int],
    left: Sequence[LogicalType],
    right: Sequence[LogicalType],
) -> None:
    """Checks that both sides have the same number of keys, of the same types."""
    if len(left_keys) != len(right_keys):
        raise Unsound(f"as many right keys as left ones ({left_keys})", str(right_keys))
    for a, b in zip(left_keys, right_keys, strict=True):
        if not stored_alike(left[a], right[b]):
            raise Unsound(
                f"join keys that are stored alike (left column {a}: {left[a]})", f"column {b}: {right[b]}"
            )


def _same(a: LogicalType, b: LogicalType) -> bool:
    return a == b or a.with_nullable(True) == b.with_nullable(True)


def _listed(types: Sequence[LogicalType]) -> str:
    return ", ".join(map(str, types))
