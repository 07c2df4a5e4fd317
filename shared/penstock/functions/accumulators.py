"""The partial state of each aggregate, as columns.

The planner uses it to type the exchange between a local and a global aggregation; the runtime keeps, merges
and snapshots the same columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.functions.expr import AggregateCall

_LONG = t.BigIntType(False)
_DOUBLE = t.DoubleType(False)
_FLAG = t.BooleanType(False)

SUMS = ("SUM", "SUM0", "$SUM0", "AVG")
EXTREMES = ("MIN", "MAX")
VARIANCES = ("STDDEV_POP", "STDDEV_SAMP", "STDDEV", "VAR_POP", "VAR_SAMP", "VARIANCE")


def sum_cells(type_: t.LogicalType) -> tuple[t.LogicalType, ...]:
    """The cells of an exact sum: one DOUBLE, one BIGINT, or the 32-bit limbs (low to high) of a DECIMAL."""
    match type_:
        case t.FloatType() | t.DoubleType():
            return (_DOUBLE,)
        case t.DecimalType(precision=p):
            return (_LONG,) * (2 if p <= t.MAX_UNSCALED_INT64_PRECISION else 4)
    return (_LONG,)


def square_cells(type_: t.LogicalType) -> tuple[t.LogicalType, ...]:
    """The cells of an exact sum of squares; squares of a DECIMAL have twice as many digits."""
    if isinstance(type_, t.DecimalType):
        return (_LONG,) * (4 if type_.precision <= t.MAX_UNSCALED_INT64_PRECISION else 9)
    return sum_cells(type_)


def is_ordered_fixed(type_: t.LogicalType) -> bool:
    """Whether int64 codes of the values sort as the values do."""
    if isinstance(type_, t.DecimalType):
        return type_.precision <= t.MAX_UNSCALED_INT64_PRECISION
    return isinstance(
        type_,
        (
            t.BooleanType, *t.INTEGERS, t.FloatType, t.DoubleType, t.DateType, t.TimeType,
            *t.TIMESTAMPS, *t.INTERVALS,
        ),
    )  # fmt: skip


def accumulator_types(
    call: AggregateCall, arg_types: Sequence[t.LogicalType]
) -> tuple[t.LogicalType, ...] | None:
    """Columns of the partial state of ``call``; None if it cannot be split in two phases.

    ``arg_types``: types of ``call.args``.
    """
    if call.distinct or call.python is not None:
        return None
    function = call.function.upper()
    if function == "COUNT":
        return (_LONG,)
    if function in SUMS:
        return (*sum_cells(arg_types[0]), _LONG)
    if function in EXTREMES:
        if is_ordered_fixed(arg_types[0]):
            return (_LONG, _FLAG)
        if isinstance(arg_types[0], (*t.STRINGS, *t.BINARIES)):
            return (arg_types[0].with_nullable(True),)
        return None
    if function in VARIANCES:
        return (*sum_cells(arg_types[0]), *square_cells(arg_types[0]), _LONG)
    return None
