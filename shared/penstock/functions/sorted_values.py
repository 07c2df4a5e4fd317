"""``LISTAGG(x ORDER BY y)`` and ``ARRAY_AGG(x ORDER BY y)``: what is made of the collected rows (y …, x)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.functions.collection import external_rows
from penstock.functions.signature import STRING, FunctionDef, register
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.functions.expr import Call
    from penstock.functions.signature import Resolution

#: ``$SORTED_VALUES(rows, directions)`` and ``$SORTED_TEXT(rows, directions, separator)``. ``rows`` is an
#: ARRAY<ROW<y …, x>>; ``directions`` has two letters for each y: A or D (descending), and F or L (NULLs first or
#: last).
SORTED_VALUES, SORTED_TEXT = "$SORTED_VALUES", "$SORTED_TEXT"


def _value_type(call: Resolution) -> t.LogicalType:
    (array, *_) = call.types
    assert isinstance(array, t.ArrayType)
    assert isinstance(array.element, t.RowType)
    return array.element.fields[-1].type


def _resolve_values(call: Resolution) -> tuple[Sequence[t.LogicalType], t.LogicalType]:
    return call.types, t.ArrayType(_value_type(call), nullable=call.types[0].nullable)


def _resolve_text(call: Resolution) -> tuple[Sequence[t.LogicalType], t.LogicalType]:
    return call.types, STRING


def in_order(rows: Sequence[Any], directions: str) -> list[Any]:
    """The last values of ``rows``, sorted by the values before them. Equal rows keep their order."""
    found = [tuple(row.values()) if isinstance(row, dict) else tuple(row) for row in rows]
    for i in reversed(range(len(directions) // 2)):
        descending, nulls_first = directions[2 * i] == "D", directions[2 * i + 1] == "F"
        given = sorted((r for r in found if r[i] is not None), key=_key(i), reverse=descending)
        missing = [r for r in found if r[i] is None]
        found = missing + given if nulls_first else given + missing
    return [row[-1] for row in found]


def _key(i: int) -> Callable[[tuple[Any, ...]], Any]:
    """NaN is the greatest number, as in ORDER BY. A reversed sort keeps the order of equal rows, too."""
    return lambda row: (row[i] != row[i], 0 if row[i] != row[i] else row[i])


def _bind_values(call: Call) -> Any:
    return external_rows(call, in_order)


def _text(rows: Sequence[Any], directions: str, separator: str) -> str | None:
    values = [value for value in in_order(rows, directions) if value is not None]
    return separator.join(values) if values else None


def _bind_text(call: Call) -> Any:
    return external_rows(call, _text)


register(FunctionDef(SORTED_VALUES, _resolve_values, _bind_values, costly=True))
register(FunctionDef(SORTED_TEXT, _resolve_text, _bind_text, costly=True))
