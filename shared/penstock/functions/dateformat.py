"""Java's date patterns (``yyyy-MM-dd HH:mm:ss.SSS``): formatting and parsing.

Formatting truncates to the finest unit that the pattern shows and formats each distinct
value once: a batch within one day costs one ``strftime`` for ``yyyy-MM-dd``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import SqlError
from penstock.functions.calendar import DAY_US, FIXED_US, SECOND_US
from penstock.functions.parsing import days_in_month, days_of, fraction_us
from penstock.functions.zones import local_us, require_zone
from penstock.time_zones import is_utc

_EPOCH = datetime(1970, 1, 1)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
#: Pattern letter → unit whose change it shows.
_UNIT = {
    **dict.fromkeys("GyuYMLdDEeFwWQq", "DAY"), **dict.fromkeys("HkKha", "HOUR"),
    **dict.fromkeys("mzZXxVO", "MINUTE"), "s": "SECOND", "S": "MICROSECOND",
}  # fmt: skip
_ZONED = frozenset("zZXxVO")


@lru_cache(maxsize=1024)
def tokens(pattern: str) -> tuple[tuple[str, int], ...]:
    """(letter, count), or (text, 0) for literal text. SqlError on an unknown letter."""
    out: list[tuple[str, int]] = []
    i = 0
    while i < len(pattern):
        char = pattern[i]
        if char == "'":
            end = i + 1
            text = ""
            while end < len(pattern):
                if pattern[end] == "'":
                    if pattern[end + 1 : end + 2] != "'":
                        break
                    end += 1
                text += pattern[end]
                end += 1
            else:
                raise SqlError(f"unterminated quote in the date pattern {pattern!r}", got=pattern)
            out.append((text or "'", 0))
            i = end + 1
        elif char.isascii() and char.isalpha():
            end = i
            while end < len(pattern) and pattern[end] == char:
                end += 1
            if char not in _UNIT:
                raise SqlError(
                    f"unknown letter {char!r} in the date pattern {pattern!r}",
                    expected="letters of Java's DateTimeFormatter, other text in single quotes",
                    got=pattern,
                )
            out.append((char, end - i))
            i = end
        elif char in "{}#":
            raise SqlError(f"reserved character {char!r} in the date pattern {pattern!r}", got=pattern)
        else:
            out.append((char, 0))
            i += 1
    return tuple(out)


# -- formatting --------------------------------------------------------------------


def format_us(us: np.ndarray, valid: np.ndarray | None, pattern: str, zone: str = "UTC") -> pa.StringArray:
    """Instants (or wall-clock µs with zone UTC) as text in the zone."""
    parts = tokens(pattern)
    letters = {letter for letter, count in parts if count}
    zoned = bool(letters & _ZONED)
    # With a zone letter the instants are kept: the offset is part of the text.
    shown = us if zoned else local_us(us, zone)
    if valid is not None:
        shown = shown[valid]
    if not len(shown):
        return pa.nulls(len(us), pa.string())
    unit = min((FIXED_US[_UNIT[letter]] for letter in letters), default=DAY_US)
    buckets = np.floor_divide(shown, unit) if unit > 1 else shown
    low, span = int(buckets.min()), int(buckets.max()) - int(buckets.min()) + 1
    if span <= max(1024, len(buckets)):
        index = buckets - low
        present = np.zeros(span, np.bool_)
        present[index] = True
        distinct = np.flatnonzero(present) + low
        position = (np.cumsum(present) - 1)[index]
    else:
        distinct, position = np.unique(buckets, return_inverse=True)
    texts = [_format_one(b * unit, parts, zone if zoned else "UTC") for b in distinct.tolist()]
    out = pa.array(texts, pa.string())
    if valid is None:
        return out.take(pa.array(position))
    rows = np.zeros(len(us), np.int64)
    rows[valid] = position
    return out.take(pa.array(rows, mask=~valid))


@lru_cache(maxsize=65536)
def _format_one(us: int, parts: tuple[tuple[str, int], ...], zone: str) -> str:
    moment = (_EPOCH + timedelta(microseconds=us)).replace(tzinfo=UTC)
    if not is_utc(zone):
        moment = moment.astimezone(require_zone(zone))
    return "".join(_field(letter, count, moment, zone) if count else letter for letter, count in parts)


def _field(letter: str, count: int, moment: datetime, zone: str) -> str:
    match letter:
        case "y" | "u":
            return _year(moment.year, count)
        case "Y":
            # Weeks of the default locale (US) begin on Sunday, week 1 holds January 1st.
            return _year(_us_week(moment)[0], count)
        case "w":
            return str(_us_week(moment)[1]).rjust(count, "0")
        case "W":
            first = moment.replace(day=1)
            return str((moment.day + first.isoweekday() % 7 - 1) // 7 + 1).rjust(count, "0")
        case "M" | "L":
            return _name(_MONTHS[moment.month - 1], moment.month, count)
        case "d":
            return str(moment.day).rjust(count, "0")
        case "D":
            return str(moment.timetuple().tm_yday).rjust(count, "0")
        case "F":
            return str((moment.day - 1) // 7 + 1).rjust(count, "0")
        case "E":
            return _name(_DAYS[moment.weekday()], 0, max(count, 3))
        case "e":
            return str(moment.isoweekday() % 7 + 1).rjust(count, "0")
        case "Q" | "q":
            quarter = (moment.month - 1) // 3 + 1
            return f"Q{quarter}" if count == 3 else str(quarter).rjust(min(count, 2), "0")
        case "G":
            return "AD"
        case "a":
            return "AM" if moment.hour < 12 else "PM"
        case "H" | "k" | "K" | "h":
            hour = {
                "H": moment.hour,
                "k": moment.hour or 24,
                "K": moment.hour % 12,
                "h": moment.hour % 12 or 12,
            }
            return str(hour[letter]).rjust(count, "0")
        case "m":
            return str(moment.minute).rjust(count, "0")
        case "s":
            return str(moment.second).rjust(count, "0")
        case "S":
            return f"{moment.microsecond:06d}000"[:count].ljust(count, "0")
        case "V":
            return zone
        case "z":
            return moment.tzname() or zone
    return _offset(letter, count, moment)


def _year(year: int, count: int) -> str:
    return f"{year % 100:02d}" if count == 2 else str(year).rjust(count, "0")


def _name(name: str, number: int, count: int) -> str:
    if count >= 4:
        return name[0] if count == 5 else name
    return name[:3] if count == 3 else str(number).rjust(count, "0")


def _us_week(moment: datetime) -> tuple[int, int]:
    day = moment.date()
    sunday = day - timedelta(days=day.isoweekday() % 7)
    saturday = sunday + timedelta(days=6)
    first = saturday.replace(month=1, day=1)
    first_sunday = first - timedelta(days=first.isoweekday() % 7)
    return saturday.year, (sunday - first_sunday).days // 7 + 1


def _offset(letter: str, count: int, moment: datetime) -> str:
    offset = moment.utcoffset() or timedelta()
    minutes = int(offset.total_seconds()) // 60
    if letter == "X" and not minutes:
        return "Z"
    sign = "-" if minutes < 0 else "+"
    hours, rest = divmod(abs(minutes), 60)
    if letter == "O":
        return "GMT" if not minutes else f"GMT{sign}{hours}" + (f":{rest:02d}" if rest else "")
    if count == 1 and letter in "Xx":
        return f"{sign}{hours:02d}" + (f"{rest:02d}" if rest else "")
    colon = ":" if (letter in "Xx" and count in (3, 5)) or (letter == "Z" and count == 5) else ""
    return f"{sign}{hours:02d}{colon}{rest:02d}"


# -- parsing -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DateParser:
    """Reads text by a pattern. ``strict`` fields take exactly as many digits as letters."""

    regex: re.Pattern[str]
    fields: tuple[str, ...]

    def parse(self, text: str, *, roll: bool = False) -> tuple[int, int | None] | None:
        """(wall-clock µs, offset µs or None), or None when the text does not fit.

        A day past the month's end is its last day, or with ``roll`` flows into the next
        month (SimpleDateFormat).
        """
        match = self.regex.match(text)
        if match is None:
            return None
        found = dict(zip(self.fields, match.groups(), strict=True))
        year, month, day = _year_of(found), _month_of(found), int(found.get("d") or 1)
        if month is None or not 1 <= month <= 12 or not 1 <= day <= 31:
            return None
        if "D" in found:
            month, day, extra = 1, 1, int(found["D"]) - 1
        else:
            length = days_in_month(year, month)
            extra = max(day - length, 0) if roll else 0
            day = min(day, length)
        days = days_of(year, month, day)
        time = _time_of(found)
        if days is None or time is None:
            return None
        return (days + extra) * DAY_US + time, _parsed_offset(found)


_DIGITS = {"d": 2, "D": 3, "H": 2, "k": 2, "K": 2, "h": 2, "m": 2, "s": 2, "Q": 1, "w": 2}


@lru_cache(maxsize=1024)
def date_parser(pattern: str) -> DateParser:
    """The parser of a pattern; SqlError when a letter cannot be parsed."""
    out, fields = [], []
    parts = tokens(pattern)
    for i, (letter, count) in enumerate(parts):
        if not count:
            out.append(re.escape(letter))
            continue
        follows_digits = i + 1 < len(parts) and parts[i + 1][1] > 0
        fields.append("M" if letter == "L" else "y" if letter == "u" else letter)
        if letter in "yuY":
            fields[-1] = "yy" if count == 2 else "y"
            out.append(
                r"(\d{2})"
                if count == 2
                else rf"(\d{{{count}}})"
                if follows_digits
                else r"(\d{1,9})"
                if count < 4
                else rf"(\d{{{count},9}})"
            )
        elif letter in "ML" and count >= 3:
            fields[-1] = "MMM"
            out.append(r"([A-Za-z]+)")
        elif letter == "S":
            out.append(rf"(\d{{{count}}})")
        elif letter in "Ea":
            out.append(r"([A-Za-z]+)")
        elif letter in "ZXx":
            fields[-1] = "Z"
            out.append(r"(Z|[+-]\d{2}(?::?\d{2})?)")
        elif letter in _DIGITS or letter in "ML":
            most = _DIGITS.get(letter, 2)
            out.append(
                rf"(\d{{{count}}})" if count > 1 or (follows_digits and count > 1) else rf"(\d{{1,{most}}})"
            )
        else:
            raise SqlError(
                f"the letter {letter!r} of the date pattern {pattern!r} cannot be parsed", got=pattern
            )
    if len(set(fields)) != len(fields):
        raise SqlError(f"a field twice in the date pattern {pattern!r}", got=pattern)
    return DateParser(re.compile("".join(out) + r"\Z"), tuple(fields))


def _year_of(found: dict[str, str]) -> int:
    if "yy" in found:
        return 2000 + int(found["yy"])
    return int(found.get("y") or 1970)


def _month_of(found: dict[str, str]) -> int | None:
    name = found.get("MMM")
    if name is not None:
        short = [m[:3].lower() for m in _MONTHS]
        return short.index(name[:3].lower()) + 1 if name[:3].lower() in short else None
    return int(found.get("M") or 1)


def _time_of(found: dict[str, str]) -> int | None:
    hour = int(found.get("H") or 0)
    if "k" in found:
        hour = int(found["k"]) % 24
    half = found.get("h") or found.get("K")
    if half is not None:
        hour = int(half) % 12 + (12 if (found.get("a") or "").upper() == "PM" else 0)
    minute, second = int(found.get("m") or 0), int(found.get("s") or 0)
    if hour > 23 or minute > 59 or second > 59:
        return None
    return ((hour * 60 + minute) * 60 + second) * SECOND_US + fraction_us(found.get("S"))


def _parsed_offset(found: dict[str, Any]) -> int | None:
    text = found.get("Z")
    if text is None:
        return None
    if text == "Z":
        return 0
    digits = text[1:].replace(":", "").ljust(4, "0")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return (-seconds if text[0] == "-" else seconds) * SECOND_US
