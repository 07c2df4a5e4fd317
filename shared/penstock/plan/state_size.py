"""Estimates how many bytes of state an operator keeps for each row or key, from types alone.

Texts and other values of no fixed width count with an assumed length. Every entry of an index also costs its
slot, hash and bookkeeping. The planner does not know how many rows there will be, so it estimates bytes for
one row: the user multiplies them by the number of rows kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.functions.accumulators import accumulator_types
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.functions.expr import AggregateCall
    from penstock.types.logical import LogicalType, Schema

#: Assumed bytes of a text or binary value, an array, a map.
TEXT_BYTES, COLLECTION_BYTES = 32, 96
#: Bytes of an index entry: its places in the hash table, its slot number, its change marks.
INDEX_BYTES = 24
#: The rate of rows that estimates of ever growing state assume.
ASSUMED_ROWS_PER_S = 1_000
_FIXED: tuple[tuple[tuple[type, ...], int], ...] = (
    ((t.BooleanType, t.TinyIntType), 1),
    ((t.SmallIntType,), 2),
    ((t.IntType, t.DateType, t.FloatType), 4),
    ((t.ArrayType, t.MapType, t.MultisetType), COLLECTION_BYTES),
    ((*t.STRINGS, *t.BINARIES), TEXT_BYTES),
)


def row_bytes(types: Iterable[LogicalType]) -> int:
    """Bytes of one row of these columns."""
    total = 0
    for type_ in types:
        match type_:
            case t.RowType(fields=fields):
                total += row_bytes(f.type for f in fields)
            case t.DecimalType(precision=p):
                total += 8 if p <= t.MAX_UNSCALED_INT64_PRECISION else 16
            case _:
                total += next((size for kinds, size in _FIXED if isinstance(type_, kinds)), 8)
    return total


def a_row(schema: Schema) -> str:
    """A stored row of this schema, in words."""
    return about(INDEX_BYTES + row_bytes(schema.types), "row")


def about(n_bytes: int, unit: str) -> str:
    """``about 40 B a key``: ``n_bytes`` for each ``unit``."""
    return f"about {n_bytes} B a {unit}"


def aggregates_bytes(
    keys: Sequence[LogicalType], calls: Sequence[AggregateCall], types: Sequence[LogicalType]
) -> tuple[int, str]:
    """(bytes of one key's accumulators, words on the functions whose state grows with the number
    of values)."""
    total = INDEX_BYTES + row_bytes(keys)
    growing: list[str] = []
    for call in calls:
        cells = accumulator_types(call, [types[a] for a in call.args])
        if cells is None:
            growing.append(call.function + ("(DISTINCT)" if call.distinct else ""))
        else:
            total += row_bytes(cells)
    if not growing:
        return total, ""
    return total, ", besides the values of " + ", ".join(dict.fromkeys(growing))


def join_words(left: Sequence[LogicalType], right: Sequence[LogicalType]) -> str:
    """The estimated bytes of state per row of each side of a join, in words."""
    a, b = (INDEX_BYTES + row_bytes(side) for side in (left, right))
    return f"about {a} B a left and {b} B a right row"


def join_growth(left: Sequence[LogicalType], right: Sequence[LogicalType]) -> str:
    """The growth of the state of a join without a time to live, in words."""
    a_day = ASSUMED_ROWS_PER_S * 86_400 * sum(INDEX_BYTES + row_bytes(side) for side in (left, right))
    return f"{join_words(left, right)}: {a_day / 1e9:.0f} GB a day at {ASSUMED_ROWS_PER_S} rows/s a side"
