"""Converts text to values as Flink's CAST from STRING does.

Every parser returns the storage value, or None if the text is malformed: the caller then raises (CAST) or gives
NULL (TRY_CAST).
"""

from __future__ import annotations

import re
from calendar import monthrange
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.types import logical as t
from penstock.types.arrow_buffers import equal_length_bytes

_INTEGER = re.compile(r"\s*([+-]?)(\d+)(?:\.\d*)?\s*$")
_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ ].*)?)?)?$")
_TIME = re.compile(r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?$")
_TIMESTAMP = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ ](\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,9}))?)?$")
_DOUBLE = re.compile(r"[+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?)$")
_HEX_DOUBLE = re.compile(r"[+-]?0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*[pP][+-]?\d+[fFdD]?$")
_TRUE, _FALSE = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}
_BITS = {t.TinyIntType: 8, t.SmallIntType: 16, t.IntType: 32, t.BigIntType: 64}
_WIDE = Context(prec=120)
DAY_US = 86_400_000_000


def parser(target: t.LogicalType) -> Any:
    """The function ``str -> storage value | None`` of a target type; None if there is none."""
    match target:
        case t.TinyIntType() | t.SmallIntType() | t.IntType() | t.BigIntType():
            bits = _BITS[type(target)]
            return lambda text: parse_integer(text, bits)
        case t.FloatType() | t.DoubleType():
            return parse_double
        case t.DecimalType(precision=p, scale=s):
            return lambda text: parse_decimal(text, p, s)
        case t.BooleanType():
            return parse_boolean
        case t.DateType():
            return parse_date
        case t.TimeType(precision=p):
            return lambda text: parse_time(text, p)
        case t.TimestampType(precision=p) | t.TimestampLtzType(precision=p):
            return lambda text: parse_timestamp(text, p)
    return None


def parse_integer(text: str, bits: int) -> int | None:
    """An integer of ``bits`` bits; a fraction is truncated."""
    match = _INTEGER.match(text)
    if match is None:
        return None
    value = int(match[1] + match[2])
    return value if -(1 << bits - 1) <= value < 1 << bits - 1 else None


def parse_double(text: str) -> float | None:
    """A double in Java's spelling (with f or d suffix, hexadecimal, NaN, Infinity)."""
    text = text.strip()
    if _DOUBLE.match(text):
        bare = text if text[-1:] in "Ny" else text.rstrip("fFdD")
        return float(bare)
    if _HEX_DOUBLE.match(text):
        return float.fromhex(text.rstrip("dDfF"))
    return None


def parse_decimal(text: str, precision: int, scale: int) -> int | Decimal | None:
    """A DECIMAL, rounded half up: the unscaled int for p <= 18, a Decimal above."""
    number = text_to_number(text)
    if number is None:
        return None
    return fit_decimal(number, precision, scale)


def text_to_number(text: str) -> Decimal | None:
    """The exact number; None for malformed text and for NaN and infinities."""
    text = text.strip()
    if not text or "_" in text:
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def fit_decimal(number: Decimal, precision: int, scale: int) -> int | Decimal | None:
    """The number rounded half up to the scale; None if it exceeds the precision."""
    if number.adjusted() > 100:
        return None
    rounded = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _WIDE)
    unscaled = int(rounded.scaleb(scale, _WIDE))
    if abs(unscaled) >= 10**precision:
        return None
    return unscaled if precision <= t.MAX_UNSCALED_INT64_PRECISION else rounded


def parse_boolean(text: str) -> bool | None:
    """TRUE or FALSE in any of Flink's spellings."""
    lower = text.lower()
    return True if lower in _TRUE else False if lower in _FALSE else None


def days_of(year: int, month: int, day: int) -> int | None:
    """Days since the epoch; None if there is no such day. Years are 0 to 9999."""
    if not (1 <= month <= 12 and 1 <= day <= days_in_month(year, month)):
        return None
    # The civil calendar repeats every 400 years; datetime has no year 0.
    from datetime import date

    shift = 400 if year < 1 else 0
    return date(year + shift, month, day).toordinal() - 719163 - (146097 if shift else 0)


def days_in_month(year: int, month: int) -> int:
    """The number of days of a month."""
    return monthrange(year + 400 if year < 1 else year, month)[1]


def parse_date(text: str) -> int | None:
    """Days since the epoch of ``yyyy[-M[-d]]``; text after a space is ignored."""
    match = _DATE.match(text.strip())
    if match is None:
        return None
    return days_of(int(match[1]), int(match[2] or 1), int(match[3] or 1))


def fraction_us(digits: str | None, precision: int = 6) -> int:
    """The digits of a fraction of a second as µs, truncated to the precision."""
    return int(((digits or "")[:precision]).ljust(6, "0")) if digits else 0


def parse_time(text: str, precision: int) -> int | None:
    """µs since midnight of ``H[:m[:s[.fraction]]]``, truncated to the precision."""
    match = _TIME.match(text.strip())
    if match is None:
        return None
    return _time_us(int(match[1]), int(match[2] or 0), int(match[3] or 0), fraction_us(match[4], precision))


def _time_us(hour: int, minute: int, second: int, fraction: int) -> int | None:
    if hour > 23 or minute > 59 or second > 59:
        return None
    return ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction


def parse_timestamp(text: str, precision: int) -> int | None:
    """Wall-clock µs of ``yyyy-M-d[ H:m:s[.fraction]]``. A day past the month's end is its last day."""
    match = _TIMESTAMP.match(text)
    if match is None:
        return None
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    if not 1 <= month <= 12 or not 1 <= day <= 31:
        return None
    days = days_of(year, month, min(day, days_in_month(year, month)))
    time = _time_us(
        int(match[4] or 0), int(match[5] or 0), int(match[6] or 0), fraction_us(match[7], precision)
    )
    return None if time is None or days is None else days * DAY_US + time


# -- whole arrays ------------------------------------------------------------------

_LAYOUT = {
    "year": (0, 4),
    "month": (5, 7),
    "day": (8, 10),
    "hour": (11, 13),
    "minute": (14, 16),
    "second": (17, 19),
}


def parse_iso_timestamps(array: pa.StringArray, precision: int) -> np.ndarray | None:
    """µs of ``yyyy-MM-dd[ HH:mm:ss[.SSS…]]`` where all texts have one length; None if any does not fit.

    Works on the bytes: about 30 ns a text.
    """
    data = equal_length_bytes(array)
    length = 0 if data is None else data.shape[1]
    if data is None or not (length in (10, 19) or 21 <= length <= 26):
        return None
    separators = {4: "-", 7: "-", 10: " ", 13: ":", 16: ":", 19: "."}
    positions = [p for p in range(length) if p not in separators]
    if any((data[:, p] != ord(c)).any() for p, c in separators.items() if p < length):
        return None
    digits = data - np.uint8(48)
    if (digits[:, positions] > 9).any():
        return None
    part = {name: _number(digits, a, b) for name, (a, b) in _LAYOUT.items() if b <= length}
    year, month, day = part["year"], part["month"], part["day"]
    if (month < 1).any() or (month > 12).any() or (day < 1).any() or (day > 28).any():
        return _checked_days(part, digits, length, precision)
    return _combine(year, month, day, part, digits, length, precision)


def _checked_days(part: dict[str, Any], digits: Any, length: int, precision: int) -> np.ndarray | None:
    """Days 29 to 31 exist only in some months; a text with a day past the month's end is parsed the slow
    way."""
    year, month, day = part["year"], part["month"], part["day"]
    if (month < 1).any() or (month > 12).any() or (day < 1).any():
        return None
    months = (year - 1970) * 12 + month - 1
    first = months.view("M8[M]").astype("M8[D]")
    following = (months + 1).view("M8[M]").astype("M8[D]")
    if (day > (following - first).astype(np.int64)).any():
        return None
    return _combine(year, month, day, part, digits, length, precision)


def _combine(
    year: Any, month: Any, day: Any, part: dict[str, Any], digits: Any, length: int, precision: int
) -> np.ndarray | None:
    months = np.ascontiguousarray((year - 1970) * 12 + month - 1)
    days = months.view("M8[M]").astype("M8[D]").astype(np.int64) + day - 1
    out = days * DAY_US
    if length == 10:
        return out
    hour, minute, second = part["hour"], part["minute"], part["second"]
    if (hour > 23).any() or (minute > 59).any() or (second > 59).any():
        return None
    out = out + ((hour * 60 + minute) * 60 + second) * 1_000_000
    count = min(max(length - 20, 0), precision)
    if count > 0:
        out = out + _number(digits, 20, 20 + count) * 10 ** (6 - count)
    return out


def _number(digits: np.ndarray, start: int, stop: int) -> np.ndarray:
    out = digits[:, start].astype(np.int64)
    for position in range(start + 1, stop):
        out = out * 10 + digits[:, position]
    return out
