"""Dates and timestamps as text: formatting, parsing by a pattern, seconds since the epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.errors import SqlError
from penstock.functions.calendar import DAY_US
from penstock.functions.casts import parse_distinct
from penstock.functions.dateformat import date_parser, format_us, tokens
from penstock.functions.inference import NUMERIC, string_literal
from penstock.functions.parsing import parse_date, parse_iso_timestamps, parse_timestamp
from penstock.functions.signature import (
    AS_BIGINT,
    STR,
    STRING,
    FunctionDef,
    Resolution,
    literal_value,
    register,
    resolver,
    rowwise,
    strict_first,
)  # fmt: skip
from penstock.functions.temporal import STAMP_OR_TEXT, append_zone
from penstock.functions.vector import Scalar, as_column, is_null
from penstock.functions.zones import instant_us
from penstock.time_zones import find_zone
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.functions.expr import Call
    from penstock.functions.vector import Vector


BIGINT = t.BigIntType()
DEFAULT_PATTERN = "yyyy-MM-dd HH:mm:ss"
_LONG_MIN = -(1 << 63)


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
    append_zone(call, targets[0])
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
    """The UTC instant (µs) of a text in a pattern; wall-clock µs if ``zone`` is UTC; None if it does not fit.

    With ``roll`` it reads as SimpleDateFormat does.
    """
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
    # The usual pattern is the default: whole arrays are parsed at a time.
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
    """Whether the first text has the length of yyyy-MM-dd HH:mm:ss. The parser then checks all of them."""
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
    """Types of UNIX_TIMESTAMP with zero to two arguments."""
    if not call.args:
        return [], BIGINT.not_null
    return _resolve_unix(call)


def bind_unix_timestamp(call: Call) -> Any:
    """The kernel of UNIX_TIMESTAMP of a text. The form without arguments is in ``clock``."""
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
    # An unknown zone means GMT, as in java.util.TimeZone.
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
