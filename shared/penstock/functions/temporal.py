"""Functions of dates, times and timestamps: their fields, floors, sums and differences.

TIMESTAMP_LTZ values are UTC instants. Their visible form (fields, floors, texts) is local to the session
time zone, which the call carries as a trailing literal if it is not UTC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import SqlError
from penstock.functions import calendar
from penstock.functions.calendar import DAY_US, FIELDS, MONTHS, UNITS, unit_name
from penstock.functions.inference import string_literal
from penstock.functions.intervals import add_microseconds, add_months
from penstock.functions.signature import (
    AS_BIGINT,
    STR,
    FunctionDef,
    Param,
    Resolution,
    literal_value,
    register,
    resolver,
    strict,
)  # fmt: skip
from penstock.functions.vector import Scalar, as_column, is_null, merge_valid
from penstock.functions.zones import instant_us, local_us, require_zone
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.functions.expr import Call
    from penstock.functions.vector import Vector

BIGINT, INT = t.BigIntType(), t.IntType()
_POINT_TYPES = (t.DateType, t.TimeType, *t.TIMESTAMPS)


def _kind(label: str, kinds: tuple[type, ...]) -> Param:
    def accept(type_: t.LogicalType) -> t.LogicalType | None:
        if isinstance(type_, t.NullType):
            return t.TimestampType(3)
        return type_ if isinstance(type_, kinds) else None

    return Param(label, accept)


POINT = _kind("a date, time or timestamp", _POINT_TYPES)
STAMP_OR_TEXT = _kind("a timestamp or string", (*t.TIMESTAMPS, *t.STRINGS))
FIELDED = _kind("a date, time, timestamp or interval", (*_POINT_TYPES, *t.INTERVALS))


def _unit(call: Resolution, index: int, known: Sequence[str]) -> str:
    text = call.constant(index, "the time unit")
    name = unit_name(str(text))
    if name not in known:
        raise SqlError(
            f"{text} is no time unit for {call.name}",
            expected=", ".join(known),
            got=str(text),
            where=call.where,
        )
    return name


def append_zone(call: Resolution, type_: t.LogicalType) -> None:
    """Append the session's time zone to the call's arguments if ``type_`` is TIMESTAMP_LTZ and the zone is not
    UTC."""
    if isinstance(type_, t.TimestampLtzType) and call.zone != "UTC":
        require_zone(call.zone)
        call.extra.append(string_literal(call.zone))


def wall_us(column: Column, zone: str) -> Any:
    """Wall-clock µs of a date, time or timestamp column."""
    if isinstance(column.type, t.DateType):
        return column.values.astype(np.int64) * DAY_US
    if isinstance(column.type, t.TimestampLtzType):
        return local_us(column.values, zone)
    return column.values


def _from_wall(type_: t.LogicalType, us: Any, zone: str) -> Any:
    if isinstance(type_, t.DateType):
        return np.floor_divide(us, DAY_US).astype(np.int32)
    if isinstance(type_, t.TimestampLtzType):
        return instant_us(us, zone)
    return np.mod(us, DAY_US) if isinstance(type_, t.TimeType) else us


# -- fields --------------------------------------------------------------------------


def _resolve_extract(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    call.count(2)
    _unit(call, 0, FIELDS)
    targets, result = resolver([STR, FIELDED], BIGINT)(call)
    append_zone(call, targets[1])
    return targets, result


def _bind_extract(call: Call) -> Any:
    return _field_kernel(call, unit_name(literal_value(call, 0)), 1, literal_value(call, 2) or "UTC")


def _field_kernel(call: Call, field: str, index: int, zone: str) -> Any:
    type_, source = call.type, call.args[index].type

    def run(args: Sequence[Vector], n: int) -> Vector:
        if is_null(args[index]):
            return Scalar(type_, None)
        column = as_column(args[index], n)
        if isinstance(source, t.YearMonthIntervalType):
            values = _interval_months(field, column.values)
        elif isinstance(source, t.DayTimeIntervalType) and field == "DAY":
            values = calendar.truncated(column.values, DAY_US)
        elif isinstance(source, t.DateType) and field not in ("EPOCH", *list(calendar.FIXED_US)[:5]):
            values = calendar.date_field(field, column.values)
        else:
            values = calendar.field_of(field, wall_us(column, zone))
        return Column(type_, np.asarray(values, np.int64), column.valid)

    return run


def _interval_months(field: str, months: Any) -> Any:
    if field == "YEAR":
        return calendar.truncated(months, 12)
    return calendar.remainder(months, 12) if field == "MONTH" else np.zeros(len(months), np.int64)


def _field_function(name: str, field: str) -> None:
    def resolve(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
        targets, result = resolver([POINT], BIGINT)(call)
        append_zone(call, targets[0])
        return targets, result

    def bind(call: Call) -> Any:
        return _field_kernel(call, field, 0, literal_value(call, 1) or "UTC")

    register(FunctionDef(name, resolve, bind))


register(FunctionDef("EXTRACT", _resolve_extract, _bind_extract))
for _name, _field in {
    "YEAR": "YEAR", "QUARTER": "QUARTER", "MONTH": "MONTH", "WEEK": "WEEK", "DAYOFYEAR": "DOY",
    "DAYOFMONTH": "DAY", "DAYOFWEEK": "DOW", "HOUR": "HOUR", "MINUTE": "MINUTE", "SECOND": "SECOND",
}.items():  # fmt: skip
    _field_function(_name, _field)


# -- floors, sums, differences ---------------------------------------------------------


def resolve_rounding(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    """FLOOR(x TO unit) and CEIL(x TO unit); the numeric forms are in ``math``."""
    _unit(call, 1, UNITS)
    targets, result = resolver([POINT, STR], lambda types: types[0])(call)
    append_zone(call, targets[0])
    return targets, result


def bind_rounding(function: Callable[[str, Any], Any]) -> Callable[[Call], Any]:
    """A binder of FLOOR or CEIL to a unit; ``function(unit, us)`` rounds wall-clock µs."""

    def bind(call: Call) -> Any:
        unit, zone = unit_name(literal_value(call, 1)), literal_value(call, 2) or "UTC"
        type_ = call.type

        def run(args: Sequence[Vector], n: int) -> Vector:
            if is_null(args[0]):
                return Scalar(type_, None)
            column = as_column(args[0], n)
            us = function(unit, wall_us(column, zone))
            return Column(type_, _from_wall(type_, us, zone), column.valid)

        return run

    return bind


def _resolve_add(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    call.count(3)
    unit = _unit(call, 0, UNITS)
    targets, result = resolver([STR, AS_BIGINT, POINT], lambda types: types[2])(call)
    if isinstance(result, t.DateType) and unit not in MONTHS and unit not in ("DAY", "WEEK"):
        targets[2] = t.TimestampType(6, nullable=targets[2].nullable)
        result = t.TimestampType(6, nullable=result.nullable)
    elif isinstance(result, t.TIMESTAMPS):
        needed = {"MILLISECOND": 3, "MICROSECOND": 6, "NANOSECOND": 6}.get(unit, 0)
        if result.precision < needed:
            result = type(result)(needed, result.nullable)
    return targets, result


def _bind_add(call: Call) -> Any:
    unit, type_ = unit_name(literal_value(call, 0)), call.type

    def run(args: Sequence[Vector], n: int) -> Vector:
        if is_null(args[1]) or is_null(args[2]):
            return Scalar(type_, None)
        point = as_column(args[2], n)
        # An instant moves by real time; months are counted in UTC, as Flink does.
        us = wall_us(point, "UTC")
        return Column(
            type_, _from_wall(type_, calendar.add_units(unit, us, args[1].values), "UTC"), merge_valid(args)
        )

    return run


def _common_point(call: Resolution, a: t.LogicalType, b: t.LogicalType) -> list[t.LogicalType]:
    """Both as dates, as timestamps or as instants, if that is possible."""
    if type(a) is type(b):
        return [a, b]
    if isinstance(a, t.TimeType) or isinstance(b, t.TimeType):
        call.fail("two dates or timestamps, or two times")
    ltz = isinstance(a, t.TimestampLtzType) or isinstance(b, t.TimestampLtzType)
    target = t.TimestampLtzType(6) if ltz else t.TimestampType(6)
    return [target.with_nullable(a.nullable), target.with_nullable(b.nullable)]


def _resolve_diff(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    call.count(3)
    _unit(call, 0, UNITS)
    targets, result = resolver([STR, POINT, POINT], INT)(call)
    return [targets[0], *_common_point(call, targets[1], targets[2])], result


def _difference(call: Call, first: int, function: Callable[[Any, Any], Any]) -> Any:
    """A kernel of ``function(us of argument first + 1, us of argument first)``, both in UTC."""
    type_ = call.type
    dtype = Column.nulls(type_, 0).values.dtype

    def run(args: Sequence[Vector], n: int) -> Vector:
        pair = args[first : first + 2]
        if any(is_null(a) for a in pair):
            return Scalar(type_, None)
        start, end = (wall_us(as_column(a, n), "UTC") for a in pair)
        return Column(type_, np.asarray(function(end, start)).astype(dtype, copy=False), merge_valid(pair))

    return run


def _bind_diff(call: Call) -> Any:
    unit = unit_name(literal_value(call, 0))
    return _difference(call, 1, lambda end, start: calendar.units_between(unit, end, start))


def _resolve_minus(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    call.count(2)
    if not isinstance(call.type, t.INTERVALS):
        call.fail("an interval type as the result")
    targets, _ = resolver([POINT, POINT], call.type)(call)
    return _common_point(call, *targets), call.type.with_nullable(call.any_nullable)


def _bind_minus(call: Call) -> Any:
    if isinstance(call.type, t.YearMonthIntervalType):
        return _difference(call, 0, lambda end, start: calendar.months_between(start, end))
    return _difference(call, 0, lambda end, start: start - end)


def _resolve_overlaps(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    call.count(4)
    a, b, c, d = call.types
    points = [x for x in (a, b, c, d) if not isinstance(x, t.INTERVALS)]
    fits = all(isinstance(x, _POINT_TYPES) for x in points) and len({type(x) for x in points}) == 1
    if not fits or isinstance(a, t.INTERVALS) or isinstance(c, t.INTERVALS):
        call.fail("two periods: a point and a point of the same type, or a point and an interval")
    return call.types, t.BooleanType(nullable=call.any_nullable)


def _bind_overlaps(call: Call) -> Any:
    types = [a.type for a in call.args]

    def end_of(start: Any, end: Any, index: int) -> Any:
        if isinstance(types[index], t.YearMonthIntervalType):
            return add_months(types[index - 1], start, end)
        if isinstance(types[index], t.DayTimeIntervalType):
            return add_microseconds(types[index - 1], start, end)
        return end

    def kernel(a: Any, b: Any, c: Any, d: Any) -> Any:
        b, d = end_of(a, b, 1), end_of(c, d, 3)
        first, second = (np.minimum(a, b), np.maximum(a, b)), (np.minimum(c, d), np.maximum(c, d))
        return (first[1] >= second[0]) & (second[1] >= first[0])

    return strict(call, kernel)


register(FunctionDef("TIMESTAMPADD", _resolve_add, _bind_add))
register(FunctionDef("TIMESTAMPDIFF", _resolve_diff, _bind_diff))
register(FunctionDef("MINUS_TEMPORAL", _resolve_minus, _bind_minus))
register(FunctionDef("OVERLAPS", _resolve_overlaps, _bind_overlaps))
