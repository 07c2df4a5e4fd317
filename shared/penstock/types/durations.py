"""Durations as text for people: ``1 h 30 min``, ``10 s``, ``500 ms``."""

from __future__ import annotations

_UNITS = (
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("min", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1000),
    ("µs", 1),
)


def duration_text(us: int) -> str:
    """The exact text of a duration of ``us`` microseconds."""
    if not us:
        return "0 s"
    parts, rest = [], abs(us)
    for name, size in _UNITS:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {name}")
    return ("-" if us < 0 else "") + " ".join(parts)


def shifted(column: str, us: int) -> str:
    """The text of a time column plus a duration: ``ts - 1 h``; only the column for 0."""
    return f"{column} {'-' if us < 0 else '+'} {duration_text(abs(us))}" if us else column
