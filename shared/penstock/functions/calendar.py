"""Calendar arithmetic on whole arrays: fields, floors and ceilings of days and µs.

``days`` are days since 1970-01-01, ``us`` wall-clock µs since then.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.functions.intervals import shift_days

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
#: Units of fixed length, in µs.
FIXED_US = {
    "MICROSECOND": 1, "MILLISECOND": 1000, "SECOND": SECOND_US, "MINUTE": 60 * SECOND_US,
    "HOUR": 3600 * SECOND_US, "DAY": DAY_US, "WEEK": 7 * DAY_US,
}  # fmt: skip
#: Units of months.
MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12, "DECADE": 120, "CENTURY": 1200, "MILLENNIUM": 12000}
UNITS = ("NANOSECOND", *FIXED_US, *MONTHS)
FIELDS = (*UNITS, "DOY", "DOW", "ISODOW", "ISOYEAR", "EPOCH")


def unit_name(unit: str) -> str:
    """The canonical name of a unit: upper case, singular, without the SQL_TSI_ prefix."""
    name = unit.upper().removeprefix("SQL_TSI_")
    return name if name in FIELDS or not name.endswith("S") else name[:-1]


def truncated(a: Any, by: int) -> Any:
    """a / by towards zero (Java)."""
    a = np.asarray(a)
    if not a.size or a.min() >= 0:
        return a // by
    return np.where(a < 0, -(-a // by), a // by)


def remainder(a: Any, by: int) -> Any:
    """a % by with the sign of a (Java)."""
    return a - truncated(a, by) * by


def years(days: Any) -> Any:
    """The year of each day (int64)."""
    return _dates(days).astype("M8[Y]").astype(np.int64) + 1970


def _dates(days: Any) -> np.ndarray:
    return np.asarray(days, np.int64).view("M8[D]")


def _first_of_year(year: Any) -> Any:
    return np.asarray(year - 1970, np.int64).view("M8[Y]").astype("M8[D]").astype(np.int64)


def _iso_thursday(days: Any) -> Any:
    """The Thursday of the ISO week: its year is the ISO year."""
    return days - np.mod(days + 3, 7) + 3


def date_field(field: str, days: Any) -> Any:
    """A field of dates (days since the epoch), int64."""
    days = np.asarray(days, np.int64)
    match field:
        case "YEAR":
            return years(days)
        case "MONTH":
            return np.mod(_dates(days).astype("M8[M]").astype(np.int64), 12) + 1
        case "QUARTER":
            return np.mod(_dates(days).astype("M8[M]").astype(np.int64), 12) // 3 + 1
        case "DAY":
            return days - _dates(days).astype("M8[M]").astype("M8[D]").astype(np.int64) + 1
        case "DOY":
            return days - _first_of_year(years(days)) + 1
        case "DOW":
            return np.mod(days + 4, 7) + 1
        case "ISODOW":
            return np.mod(days + 3, 7) + 1
        case "WEEK":
            thursday = _iso_thursday(days)
            return (thursday - _first_of_year(years(thursday))) // 7 + 1
        case "ISOYEAR":
            return years(_iso_thursday(days))
        case "DECADE":
            return years(days) // 10
        case "CENTURY":
            return (years(days) + 99) // 100
        case "MILLENNIUM":
            return (years(days) + 999) // 1000
    raise KeyError(field)


def field_of(field: str, us: Any) -> Any:
    """A field of wall-clock µs; before 1970 with Java's truncation, as in Flink."""
    match field:
        case "HOUR":
            return remainder(truncated(us, FIXED_US["HOUR"]), 24)
        case "MINUTE":
            return remainder(truncated(us, FIXED_US["MINUTE"]), 60)
        case "SECOND":
            return remainder(truncated(us, SECOND_US), 60)
        case "MILLISECOND":
            return remainder(truncated(us, 1000), 1000)
        case "MICROSECOND":
            return remainder(us, SECOND_US)
        case "NANOSECOND":
            return remainder(us, SECOND_US) * 1000
        case "EPOCH":
            return truncated(us, SECOND_US)
    return date_field(field, truncated(us, DAY_US))


def floor_days(unit: str, days: Any) -> Any:
    """The first day of the week (Sunday), month, quarter … that contains each day."""
    days = np.asarray(days, np.int64)
    if unit == "WEEK":
        return days - np.mod(days + 4, 7)
    if unit not in MONTHS:
        return days
    months = _dates(days).astype("M8[M]").astype(np.int64)
    size = MONTHS[unit]
    # Centuries and millennia begin with their year 1 (2001).
    shift = 1970 * 12 - (12 if size >= 1200 else 0)
    first = np.floor_divide(months + shift, size) * size - shift
    return first.view("M8[M]").astype("M8[D]").astype(np.int64)


def floor_us(unit: str, us: Any) -> Any:
    """The start of the unit that contains each wall-clock time (µs)."""
    us = np.asarray(us, np.int64)
    if unit in FIXED_US and unit != "WEEK":
        size = FIXED_US[unit]
        return us if size == 1 else np.floor_divide(us, size) * size
    if unit == "NANOSECOND":
        return us
    return floor_days(unit, np.floor_divide(us, DAY_US)) * DAY_US


def ceil_us(unit: str, us: Any) -> Any:
    """The earliest start of a unit at or after each wall-clock time (µs)."""
    us = np.asarray(us, np.int64)
    floor = floor_us(unit, us)
    if unit == "NANOSECOND":
        return floor
    if unit in FIXED_US:
        following = floor + FIXED_US[unit]
    else:
        following = shift_days(floor // DAY_US, MONTHS[unit]) * DAY_US
    return np.where(floor == us, us, following)


def add_units(unit: str, us: Any, amount: Any) -> Any:
    """Wall-clock µs plus ``amount`` units."""
    us = np.asarray(us, np.int64)
    if unit == "NANOSECOND":
        return us + np.floor_divide(amount, 1000)
    if unit in FIXED_US:
        return us + amount * FIXED_US[unit]
    days = np.floor_divide(us, DAY_US)
    return shift_days(days, amount * MONTHS[unit]) * DAY_US + (us - days * DAY_US)


def months_between(end_us: Any, start_us: Any) -> Any:
    """The whole months from start to end; negative if the end is earlier."""
    end_us, start_us = np.broadcast_arrays(np.asarray(end_us, np.int64), np.asarray(start_us, np.int64))
    backward = end_us < start_us
    low, high = np.where(backward, end_us, start_us), np.where(backward, start_us, end_us)
    low_days, high_days = np.floor_divide(low, DAY_US), np.floor_divide(high, DAY_US)
    span = (_dates(high_days).astype("M8[M]") - _dates(low_days).astype("M8[M]")).astype(np.int64)
    reached = shift_days(low_days, span) * DAY_US + (low - low_days * DAY_US)
    whole = np.where(reached > high, span - 1, span)
    return np.where(backward, -whole, whole)


def units_between(unit: str, end_us: Any, start_us: Any) -> Any:
    """TIMESTAMPDIFF: whole units from start to end, towards zero."""
    if unit in FIXED_US:
        return truncated(np.asarray(end_us) - np.asarray(start_us), FIXED_US[unit])
    if unit == "NANOSECOND":
        return (np.asarray(end_us) - np.asarray(start_us)) * 1000
    return truncated(months_between(end_us, start_us), MONTHS[unit])
