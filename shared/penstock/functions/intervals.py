"""Arithmetic of times and intervals: ``+ - *`` with at least one such operand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.functions.signature import strict
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.functions.expr import Call

DAY_US = 86_400_000_000
_POINTS = (t.DateType, t.TimeType, *t.TIMESTAMPS)


def resolve(op: str, a: t.LogicalType, b: t.LogicalType) -> tuple[list[t.LogicalType], t.LogicalType] | None:
    """Argument types and result of ``a op b``, or None if there is no such operation."""
    if op in "+-":
        if isinstance(a, _POINTS) and isinstance(b, t.INTERVALS):
            return (
                None if isinstance(a, t.TimeType) and isinstance(b, t.YearMonthIntervalType) else ([a, b], a)
            )
        if op == "+" and isinstance(a, t.INTERVALS) and isinstance(b, _POINTS):
            return [a, b], b
        if isinstance(a, t.INTERVALS) and type(a) is type(b):
            return [a, b], a
    if op == "*":
        if isinstance(a, t.INTERVALS) and isinstance(b, t.INTEGERS):
            return [a, t.BigIntType()], a
        if isinstance(b, t.INTERVALS) and isinstance(a, t.INTEGERS):
            return [t.BigIntType(), b], b
    return None


def bind(op: str, call: Call) -> Any:
    """The kernel of such an operation."""
    left, right = (a.type for a in call.args)
    if isinstance(call.type, t.INTERVALS):
        dtype = np.int32 if isinstance(call.type, t.YearMonthIntervalType) else np.int64
        function = {"+": np.add, "-": np.subtract, "*": np.multiply}[op]
        return strict(call, lambda a, b: function(a, b).astype(dtype, copy=False))
    swapped = isinstance(left, t.INTERVALS)
    interval = left if swapped else right
    sign = -1 if op == "-" else 1
    add = add_months if isinstance(interval, t.YearMonthIntervalType) else add_microseconds
    type_ = call.type

    def kernel(a: Any, b: Any) -> Any:
        point, amount = (b, a) if swapped else (a, b)
        return add(type_, point, sign * amount)

    return strict(call, kernel)


def add_microseconds(type_: t.LogicalType, point: Any, amount_us: Any) -> Any:
    """A point in time plus µs. A date moves by the whole days of the amount; a time of day wraps around at
    midnight."""
    if isinstance(type_, t.DateType):
        whole_days = np.sign(amount_us) * (np.abs(amount_us) // DAY_US)
        return (point + whole_days).astype(np.int32)
    if isinstance(type_, t.TimeType):
        return np.mod(point + amount_us, DAY_US)
    return point + amount_us


def add_months(type_: t.LogicalType, point: Any, months: Any) -> Any:
    """A point in time plus months: the same day of another month, or that month's last day if it is shorter."""
    if isinstance(type_, t.DateType):
        return shift_days(np.asarray(point), months).astype(np.int32)
    days = np.floor_divide(point, DAY_US)
    return shift_days(np.asarray(days), months) * DAY_US + (point - days * DAY_US)


def shift_days(days: np.ndarray, months: Any) -> np.ndarray:
    """Days since the epoch, moved by months."""
    dates = np.asarray(days, np.int64).view("M8[D]")
    month = dates.astype("M8[M]")
    day_of_month = (dates - month.astype("M8[D]")).astype(np.int64)
    target = month + np.asarray(months, np.int64).astype("m8[M]")
    first = target.astype("M8[D]").astype(np.int64)
    length = (target + np.timedelta64(1, "M")).astype("M8[D]").astype(np.int64) - first
    return first + np.minimum(day_of_month, length - 1)
