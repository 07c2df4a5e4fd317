"""Functions of dates, times and timestamps.

TIMESTAMP_LTZ values are UTC instants. Their visible form (fields, floors, texts) is local to the session
time zone, which the call carries as a trailing literal if it is not UTC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.errors import SqlError
from penstock.functions import calendar
from penstock.functions.calendar import DAY_US, FIELDS, MONTHS, UNITS, unit_name
from penstock.functions.casts import parse_distinct
from penstock.functions.dateformat import date_parser, format_us, tokens
from penstock.functions.inference import NUMERIC, string_literal
from penstock.functions.intervals import add_microseconds, add_months
from penstock.functions.parsing import parse_date, parse_iso_timestamps, parse_timestamp
from penstock.functions.signature import (
    AS_BIGINT,
    STR,
    STRING,
    FunctionDef,
    Param,
    Resolution,
    literal_value,
    register,
    resolver,
    rowwise,
    strict,
    strict_first,
)  # fmt: skip
from penstock.functions.vector import Scalar, as_column, is_null, merge_valid
from penstock.functions.zones import find_zone, instant_us, local_us, require_zone
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.functions.expr import Call
    from penstock.functions.vector import Vector

BIGINT, INT = t.BigIntType(), t.IntType()
_POINT_TYPES = (t.DateType, t.TimeType, *t.TIMESTAMPS)
DEFAULT_PATTERN = "yyyy-MM-dd HH:mm:ss"
_LONG_MIN = -(1 << 63)


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


def _zoned(call: Resolution, type_: t.LogicalType) -> None:
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
    _zoned(call, targets[1])
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
        _zoned(call, targets[0])
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
    _zoned(call, targets[0])
    return targets, result


def bind_rounding(function: Callable[[str, Any], Any]) -> Callable[[Call], Any]:
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
    """``function(us of argument first + 1, us of argument first)`` over UTC."""
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


# -- texts -----------------------------------------------------------------------------


def _check_pattern(call: Resolution, index: int, check: Callable[[str], Any]) -> None:
    """A constant pattern is checked while planning."""
    if index < len(call.args) and getattr(call.args[index], "value", None) is not None:
        try:
            check(call.args[index].value)  # type: ignore[union-attr]
        except SqlError as error:
            error.where = error.where or call.where
            raise


def _resolve_format(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    targets, result = resolver([STAMP_OR_TEXT, STR], STRING, nullable=True)(call)
    _check_pattern(call, 1, tokens)
    _zoned(call, targets[0])
    return targets, result


def _full_timestamp(text: str) -> int | None:
    return parse_timestamp(text, 6) if ":" in text else None


def _bind_format(call: Call) -> Any:
    pattern, zone = literal_value(call, 1), literal_value(call, 2) or "UTC"
    text = isinstance(call.args[0].type, t.STRINGS)

    def run(args: Sequence[Vector], n: int) -> Vector:
        if is_null(args[0]) or is_null(args[1]):
            return Scalar(call.type, None)
        column = as_column(args[0], n)
        if text:
            column = parse_distinct(column, t.TimestampType(6), _full_timestamp, True)
        if pattern is not None:
            return Column(call.type, format_us(column.values, column.valid, pattern, zone))
        out = [
            None if us is None or p is None else format_us(np.array([us]), None, p, zone)[0].as_py()
            for us, p in zip(column.storage_list(), as_column(args[1], n).storage_list(), strict=True)
        ]
        return Column(call.type, pa.array(out, pa.string()))

    return run


register(
    FunctionDef(
        "DATE_FORMAT", _resolve_format, _bind_format, fails=lambda call: literal_value(call, 1) is None
    )
)


def _parsed_us(text: str, pattern: str, *, roll: bool = False, zone: str = "UTC") -> int | None:
    """UTC instant (or wall-clock µs with zone UTC) of text in a pattern; with ``roll`` as
    SimpleDateFormat reads it."""
    found = date_parser(pattern).parse(text, roll=roll)
    if found is None:
        return None
    us, offset = found
    return us - offset if offset is not None else int(instant_us(us, zone, standard=roll))


def _resolve_to_timestamp(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    _check_pattern(call, 1, date_parser)
    return resolver([STR, STR], t.TimestampType(3), optional=1, nullable=True)(call)


def _bind_to_timestamp(call: Call) -> Any:
    pattern = DEFAULT_PATTERN if len(call.args) == 1 else literal_value(call, 1)
    type_: t.TimestampType = call.type  # type: ignore[assignment]
    cut = 10 ** (6 - type_.precision)

    def parse(text: str, pattern: str | None = None) -> int | None:
        us = parse_timestamp(text, 3) if pattern is None else _parsed_us(text, pattern)
        return None if us is None else us // cut * cut

    if pattern is None:
        return rowwise(call, parse)
    # The usual pattern and the default read the same texts, whole arrays at a time.
    iso = pattern == DEFAULT_PATTERN
    default = len(call.args) == 1

    def run(args: Sequence[Vector], n: int) -> Vector:
        if is_null(args[0]):
            return Scalar(type_, None)
        array = args[0].values
        values = (
            parse_iso_timestamps(array, type_.precision) if iso and (default or _all_seconds(array)) else None
        )
        if values is not None:
            return Column(type_, values)
        return parse_distinct(args[0], type_, parse if default else lambda text: parse(text, pattern), True)  # type: ignore[arg-type]

    return run


def _all_seconds(array: pa.StringArray) -> bool:
    """Whether the first text has the length of yyyy-MM-dd HH:mm:ss (then all are checked)."""
    return len(array) > 0 and array[0].is_valid and len(array[0].as_py()) == 19


def _resolve_to_date(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    _check_pattern(call, 1, date_parser)
    return resolver([STR, STR], t.DateType(), optional=1, nullable=True)(call)


def _bind_to_date(call: Call) -> Any:
    def parse(text: str, pattern: str | None = None) -> int | None:
        if pattern is None:
            return parse_date(text)
        us = _parsed_us(text, pattern)
        return None if us is None else us // DAY_US

    pattern = literal_value(call, 1)
    if len(call.args) == 2 and pattern is None:
        return rowwise(call, parse)

    def run(args: Sequence[Vector], n: int) -> Vector:
        if is_null(args[0]):
            return Scalar(call.type, None)
        return parse_distinct(args[0], call.type, lambda text: parse(text, pattern), True)  # type: ignore[arg-type]

    return run


def _resolve_to_ltz(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    call.count(1, 3)
    first = call.types[0]
    if isinstance(first, NUMERIC):
        call.count(1, 2)
        precision = 3 if len(call.args) == 1 else call.constant(1, "the precision")
        if precision not in (0, 3, 6):
            call.fail("the precision 0 (seconds), 3 (milliseconds) or 6 (microseconds)")
        source = first if isinstance(first, t.INTEGERS) else t.DoubleType()
        source = BIGINT if isinstance(first, t.INTEGERS) else source
        targets = [source.with_nullable(first.nullable), *call.types[1:]]
        return targets, t.TimestampLtzType(max(3, precision))
    _check_pattern(call, 1, date_parser)
    targets, result = resolver([STR, STR, STR], t.TimestampLtzType(3), optional=2, nullable=True)(call)
    if len(call.args) == 1:
        call.extra.append(string_literal(DEFAULT_PATTERN))
    if len(call.args) < 3:
        # Text without a zone is UTC here, whatever the session's zone (Flink).
        call.extra.append(string_literal("UTC"))
    return targets, result


def _bind_to_ltz(call: Call) -> Any:
    if isinstance(call.args[0].type, NUMERIC):
        precision = 3 if len(call.args) == 1 else literal_value(call, 1)
        unit = 10 ** (6 - precision)
        return strict_first(call, lambda values: (values * unit).astype(np.int64))

    def parse(text: str, pattern: str, zone: str) -> int | None:
        if pattern == DEFAULT_PATTERN:
            us = parse_timestamp(text, 3)
            return None if us is None else int(instant_us(us, zone))
        us = _parsed_us(text, pattern, zone=zone)
        return None if us is None else us // 1000 * 1000

    return rowwise(call, parse)


register(FunctionDef("TO_TIMESTAMP", _resolve_to_timestamp, _bind_to_timestamp, costly=True))
register(FunctionDef("TO_DATE", _resolve_to_date, _bind_to_date, costly=True))
register(FunctionDef("TO_TIMESTAMP_LTZ", _resolve_to_ltz, _bind_to_ltz, costly=True))


# -- seconds since the epoch ---------------------------------------------------------------


def _resolve_unix(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    call.count(1, 2)
    _check_pattern(call, 1, date_parser)
    targets, result = resolver([STR, STR], BIGINT, optional=1)(call)
    if len(call.args) == 1:
        call.extra.append(string_literal(DEFAULT_PATTERN))
    call.extra.append(string_literal(call.zone))
    return targets, result


def _unix_timestamp(text: str, pattern: str, zone: str) -> int:
    """Lenient, as Flink's SimpleDateFormat: trailing text is ignored, days roll over; text
    that does not fit is the least BIGINT."""
    us = _parsed_us(text, pattern, roll=True, zone=zone)
    if us is None and pattern == DEFAULT_PATTERN:
        us = _parsed_us(text[:19], pattern, roll=True, zone=zone)
    return _LONG_MIN if us is None else us // 1_000_000


def resolve_unix_timestamp(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    if not call.args:
        return [], BIGINT.not_null
    return _resolve_unix(call)


def bind_unix_timestamp(call: Call) -> Any:
    """Of a text; the form without arguments is in ``clock``."""
    return rowwise(call, _unix_timestamp)


def _resolve_from_unix(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    _check_pattern(call, 1, tokens)
    targets, result = resolver([AS_BIGINT, STR], STRING, optional=1, nullable=True)(call)
    if len(call.args) == 1:
        call.extra.append(string_literal(DEFAULT_PATTERN))
    call.extra.append(string_literal(call.zone))
    return targets, result


def _bind_from_unix(call: Call) -> Any:
    zone = literal_value(call, 2)
    pattern = literal_value(call, 1)
    if pattern is None:
        return rowwise(call, lambda s, p, z: format_us(np.array([s * 1_000_000]), None, p, z)[0].as_py())

    def run(args: Sequence[Vector], n: int) -> Vector:
        if is_null(args[0]):
            return Scalar(call.type, None)
        column = as_column(args[0], n)
        return Column(call.type, format_us(column.values * 1_000_000, column.valid, pattern, zone))

    return run


def _convert_tz(text: str, source: str, target: str) -> str | None:
    # An unknown zone is GMT, as java.util.TimeZone has it.
    source, target = (z if find_zone(z) is not None else "UTC" for z in (source, target))
    us = _parsed_us(text, DEFAULT_PATTERN, roll=True, zone=source)
    return None if us is None else format_us(np.array([us]), None, DEFAULT_PATTERN, target)[0].as_py()


register(FunctionDef("FROM_UNIXTIME", _resolve_from_unix, _bind_from_unix, costly=True))
register(
    FunctionDef(
        "CONVERT_TZ", resolver([STR, STR, STR], STRING, nullable=True),
        lambda call: rowwise(call, _convert_tz), costly=True,
    )
)  # fmt: skip
