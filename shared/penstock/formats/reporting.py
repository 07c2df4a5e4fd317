"""Error messages for values that formats refuse, without personal data."""

from __future__ import annotations

import re

from penstock.errors import UnsupportedError


def unsupported_type(format_name: str, column: str, type_: object) -> UnsupportedError:
    """The error for a column whose type the format cannot hold."""
    return UnsupportedError(
        f"format '{format_name}' cannot hold column '{column}'",
        expected="a type that the format knows",
        got=str(type_),
        where=f"column '{column}'",
        remedy="CAST it to STRING, or use another format",
    )


_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?')
_LETTER, _DIGIT = re.compile(r"[^\W\d_]"), re.compile(r"\d")


def _mask(found: re.Match[str]) -> str:
    if found[2]:
        return found[0]  # a key is shown
    return '"' + _DIGIT.sub("9", _LETTER.sub("x", found[1])) + '"'


def redact(raw: bytes | str, limit: int = 160) -> str:
    """A record for a log: keys and numbers stay, the letters and digits of quoted strings are masked, and
    text beyond ``limit`` characters is cut."""
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
    masked = _STRING.sub(_mask, text[: 4 * limit])
    return masked if len(masked) <= limit and len(text) <= 4 * limit else masked[:limit] + "…"


def shorten(value: object, limit: int = 40) -> str:
    """One value, quoted and cut, for the field 'got' of an error."""
    text = repr(value)
    return text if len(text) <= limit else text[:limit] + "…"
