"""Literals: SQL text → storage values with Flink's types."""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from penstock.errors import SqlError
from penstock.functions.expr import Literal
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.sql.syntax import TypedLiteral

_UNIT_US = {"DAY": 86_400_000_000, "HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1_000_000,
            "WEEK": 7 * 86_400_000_000}  # fmt: skip
_ORDER = ["DAY", "HOUR", "MINUTE", "SECOND"]
_EPOCH = datetime(1970, 1, 1)


def number(text: str) -> Literal:
    """A number's literal: integers are INT or BIGINT, ``1.5`` is DECIMAL, ``1e3`` is DOUBLE."""
    if "e" in text.lower():
        return Literal(float(text), t.DoubleType(nullable=False))
    if "." in text:
        return decimal(Decimal(text))
    value = int(text)
    if -(2**31) <= value < 2**31:
        return Literal(value, t.IntType(nullable=False))
    if -(2**63) <= value < 2**63:
        return Literal(value, t.BigIntType(nullable=False))
    raise SqlError(
        "the number is out of range",
        expected="a BIGINT, -9223372036854775808 to 9223372036854775807",
        got=text,
        remedy=f"write CAST('{text}' AS DECIMAL({len(text.lstrip('-'))}, 0))",
    )


def decimal(value: Decimal) -> Literal:
    """A DECIMAL literal. Raises SqlError for more than 38 digits."""
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    # Flink counts the zero in front of the point.
    precision = max(len(digits), scale + 1)
    if precision > t.MAX_DECIMAL_PRECISION:
        raise SqlError(
            "the number has too many digits",
            expected=f"at most {t.MAX_DECIMAL_PRECISION} digits",
            got=f"{precision} digits",
        )
    type_ = t.DecimalType(precision, scale, nullable=False)
    if precision <= t.MAX_UNSCALED_INT64_PRECISION:
        return Literal(int(value.scaleb(scale)), type_)
    return Literal(format(value, "f"), type_)


def string(text: str) -> Literal:
    """A string literal, whose type is CHAR(length) NOT NULL, as in Flink."""
    if not text:
        return Literal("", t.CharType(0, nullable=False))
    # Lengths of types count UTF-16 units, as Java's strings do.
    return Literal(text, t.CharType(len(text.encode("utf-16-le")) // 2, nullable=False))


def typed(node: TypedLiteral) -> Literal:
    """A DATE, TIME, TIMESTAMP or INTERVAL literal. Raises SqlError without a position for malformed text."""
    kind, text = node.args["kind"], node.args["text"]
    if kind == "INTERVAL":
        return interval(text, node.args["unit"], node.args.get("to"))
    try:
        if kind == "DATE":
            return Literal((date.fromisoformat(_padded_date(text)) - _EPOCH.date()).days, t.DateType(False))
        if kind == "TIME":
            return Literal(_time_us(text), t.TimeType(_fraction_digits(text), False))
        return Literal(timestamp_us(text), t.TimestampType(min(6, _fraction_digits(text)), False))
    except ValueError:
        forms = {"DATE": "'2024-02-29'", "TIME": "'12:34:56'", "TIMESTAMP": "'2024-02-29 12:34:56.789'"}
        raise SqlError(f"not a {kind}", expected=f"{kind} {forms[kind]}", got=f"{kind} '{text}'") from None


def _padded_date(text: str) -> str:
    parts = text.strip().split("-")
    if len(parts) != 3:
        raise ValueError(text)
    return f"{int(parts[0]):04d}-{int(parts[1]):02d}-{int(parts[2]):02d}"


def _fraction_digits(text: str) -> int:
    return len(text.rsplit(".", 1)[1]) if "." in text else 0


def _time_us(text: str) -> int:
    found = re.fullmatch(r"\s*(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6})\d*)?)?\s*", text)
    if not found:
        raise ValueError(text)
    hours, minutes, seconds = int(found[1]), int(found[2]), int(found[3] or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError(text)
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + int((found[4] or "").ljust(6, "0"))


def timestamp_us(text: str) -> int:
    """µs since the epoch of ``yyyy-M-d[ H:m:s[.fraction]]``. Raises ValueError for other text."""
    day, _, clock = text.strip().partition(" ")
    days = (date.fromisoformat(_padded_date(day)) - _EPOCH.date()).days
    return days * 86_400_000_000 + (_time_us(clock) if clock else 0)


def interval(text: str, unit: str, to: str | None) -> Literal:
    """An INTERVAL literal. Raises SqlError for malformed text."""
    sign = -1 if text.strip().startswith("-") else 1
    body = text.strip().lstrip("+-").strip()
    wrong = SqlError(
        "not an interval",
        expected="INTERVAL '10' SECOND, INTERVAL '1:30' HOUR TO MINUTE, INTERVAL '1-6' YEAR TO MONTH",
        got=f"INTERVAL '{text}' {unit}" + (f" TO {to}" if to else ""),
    )
    if unit in ("YEAR", "MONTH", "QUARTER"):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", body)
        if not found or bool(found[2]) != bool(to):
            raise wrong
        months = int(found[1]) * {"YEAR": 12, "MONTH": 1, "QUARTER": 3}[unit] + int(found[2] or 0)
        return Literal(sign * months, t.YearMonthIntervalType(False))
    if unit not in _UNIT_US:
        raise wrong
    if to is None:
        found = re.fullmatch(r"(\d+)(?:\.(\d{1,6})\d*)?", body)
        if not found or (found[2] and unit != "SECOND"):
            raise wrong
        micros = int(found[1]) * _UNIT_US[unit] + int((found[2] or "").ljust(6, "0"))
        return Literal(sign * micros, t.DayTimeIntervalType(False))
    if unit not in _ORDER or to not in _ORDER or _ORDER.index(to) <= _ORDER.index(unit):
        raise wrong
    parts = re.split(r"[ :]", body)
    units = _ORDER[_ORDER.index(unit) : _ORDER.index(to) + 1]
    if len(parts) != len(units):
        raise wrong
    micros = 0
    for part, name in zip(parts, units, strict=True):
        found = re.fullmatch(r"(\d+)(?:\.(\d{1,6})\d*)?", part)
        if not found or (found[2] and name != "SECOND"):
            raise wrong
        micros += int(found[1]) * _UNIT_US[name] + int((found[2] or "").ljust(6, "0"))
    return Literal(sign * micros, t.DayTimeIntervalType(False))
