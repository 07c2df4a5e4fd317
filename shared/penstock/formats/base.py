"""What every format offers."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from penstock.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.connectors.base import Decoder, Encoder, FormatContext
    from penstock.connectors.options import OptionSet
    from penstock.types.logical import Schema


class Format(ABC):
    """A named format. Its options carry its name as prefix (``json.…``)."""

    name: str
    options: OptionSet
    #: True when records are text lines, so that a file may be cut at line ends.
    lines: bool = False
    #: File name extension, without the dot.
    extension: str = ""

    def check(self, schema: Schema, options: Mapping[str, str]) -> None:
        """Malformed options or a schema that the format cannot hold."""
        self.options.check({k: v for k, v in options.items() if k.startswith(f"{self.name}.")})

    @abstractmethod
    def decoder(self, ctx: FormatContext) -> Decoder: ...

    @abstractmethod
    def encoder(self, schema: Schema, options: Mapping[str, str]) -> Encoder: ...


def unsupported_type(format_name: str, column: str, type_: object) -> UnsupportedError:
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
        return found[0]  # a key
    return '"' + _DIGIT.sub("9", _LETTER.sub("x", found[1])) + '"'


def redact(raw: bytes | str, limit: int = 160) -> str:
    """A record fit for a log: keys and numbers stay, the letters and digits of quoted
    strings are masked, and what is beyond ``limit`` characters is cut."""
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
    masked = _STRING.sub(_mask, text[: 4 * limit])
    return masked if len(masked) <= limit and len(text) <= 4 * limit else masked[:limit] + "…"


def shorten(value: object, limit: int = 40) -> str:
    """One value, quoted and cut, for 'got' of an error."""
    text = repr(value)
    return text if len(text) <= limit else text[:limit] + "…"
