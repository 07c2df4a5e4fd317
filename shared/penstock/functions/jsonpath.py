"""SQL/JSON paths: ``lax $.a.b[0]``, ``strict $['a b'][*].c``.

Documents are parsed with numbers kept as written (``Decimal``), so 1.50 stays 1.50.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

_MODE = re.compile(r"\s*(lax|strict)\s+(.*)", re.IGNORECASE | re.DOTALL)
_STEP = re.compile(
    r"""\.(?P<name>[\w-]+)|\.\*|\.?\[(?P<index>\d+)\]|\.?\['(?P<quoted>(?:[^'\\]|\\.)*)'\]"""
    r"""|\.?\["(?P<double>(?:[^"\\]|\\.)*)"\]|\[\*\]"""
)
#: The document has no value at the path.
MISSING = object()
#: The text is not a JSON document, or the path is malformed.
BROKEN = object()


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A compiled path. A step is a name, an index, or None for a wildcard."""

    strict: bool
    steps: tuple[str | int | None, ...]

    @property
    def definite(self) -> bool:
        """Whether the path has no wildcard. A path with a wildcard gives the list of all matches."""
        return None not in self.steps

    def find(self, document: Any) -> Any:
        """The value, a list for an indefinite path, or MISSING."""
        found = [document]
        for step in self.steps:
            found = [value for item in found for value in _descend(item, step)]
        if not self.definite:
            return found
        return found[0] if found else MISSING


def _descend(item: Any, step: str | int | None) -> list[Any]:
    if step is None:
        return list(item.values()) if isinstance(item, dict) else list(item) if isinstance(item, list) else []
    if isinstance(step, int):
        return [item[step]] if isinstance(item, list) and step < len(item) else []
    return [item[step]] if isinstance(item, dict) and step in item else []


@lru_cache(maxsize=1024)
def compile_path(text: str) -> JsonPath | None:
    """The compiled path; None if the text is malformed."""
    mode = _MODE.match(text)
    strict = bool(mode) and mode[1].lower() == "strict"  # type: ignore[index]
    rest = (mode[2] if mode else text).strip()
    if not rest.startswith("$"):
        return None
    position = 1
    steps: list[str | int | None] = []
    while position < len(rest):
        match = _STEP.match(rest, position)
        if match is None:
            return None
        if match["index"] is not None:
            steps.append(int(match["index"]))
        else:
            name = next((match[g] for g in ("name", "quoted", "double") if match[g] is not None), None)
            steps.append(None if name is None else re.sub(r"\\(.)", r"\1", name))
        position = match.end()
    return JsonPath(strict, tuple(steps))


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


@lru_cache(maxsize=8)
def parse(text: str) -> Any:
    """The document, or BROKEN. The last few are cached, because several functions often read one."""
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return BROKEN


def dump(value: Any) -> str:
    """Compact text with keys in order, as Flink writes documents."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case dict():
            return "{" + ",".join(f"{quote(k)}:{dump(value[k])}" for k in sorted(value)) + "}"
        case list():
            return "[" + ",".join(dump(v) for v in value) + "]"
        case str():
            return quote(value)
    return number_text(value)


def quote(text: str) -> str:
    """A text as a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def number_text(value: Any) -> str:
    """An int or Decimal as BigDecimal.toString writes it."""
    return str(value)
