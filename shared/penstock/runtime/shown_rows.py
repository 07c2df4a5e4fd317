"""Rows as a preview shows them: JSON values of bounded size, without secrets. Pure."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.functions.value_json import json_of
from penstock.redaction import HIDDEN, sensitive, without_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.types import Schema

#: The most characters of a text, items of an array or map, and levels of nesting that are shown.
MAX_TEXT, MAX_ITEMS, MAX_DEPTH = 500, 50, 8
#: A row whose JSON is larger is shown as one text a column, of at most ``SHORT_TEXT`` characters.
MAX_ROW_BYTES, SHORT_TEXT = 8 * 1024, 100
_LONGEST_INT = 2**63


def shower(schema: Schema, hidden: Sequence[str]) -> Callable[[Sequence[Any]], list[Any]]:
    """A function from a row, as Python values, to its values as JSON. Columns and fields whose names fit a pattern of
    ``hidden``, or whose names say that they hold a secret, are not shown."""
    fields = schema.fields

    def conceal(name: str) -> bool:
        return sensitive(name) or any(fnmatchcase(name.lower(), pattern.lower()) for pattern in hidden)

    concealed = [conceal(f.name) for f in fields]

    def show(row: Sequence[Any]) -> list[Any]:
        shown = [
            HIDDEN if secret and value is not None else _bounded(_json(value, f.type), conceal, MAX_DEPTH)
            for value, f, secret in zip(row, fields, concealed, strict=True)
        ]
        if len(msgspec.json.encode(shown)) > MAX_ROW_BYTES:
            return [_cut(_text(value), SHORT_TEXT) for value in shown]
        return shown

    return show


def _json(value: Any, type_: Any) -> Any:
    """The value as JSON. An object of the user's that cannot be shown must not fail the job that has it."""
    try:
        return json_of(value, type_)
    except Exception as err:
        return f"<{type(value).__name__} that cannot be shown: {type(err).__name__}>"


def _bounded(value: Any, conceal: Callable[[str], bool], depth: int) -> Any:
    match value:
        case str():
            return _cut(without_credentials(_encodable(value)), MAX_TEXT)
        case bool() | float() | None:
            return value
        case int():
            return value if -_LONGEST_INT <= value < _LONGEST_INT else _cut(str(value), MAX_TEXT)
        case list() | dict() if depth == 0:
            return "…"
        case list():
            items = [_bounded(v, conceal, depth - 1) for v in value[:MAX_ITEMS]]
            return [*items, f"… {len(value) - MAX_ITEMS} more"] if len(value) > MAX_ITEMS else items
        case dict():
            shown = {
                _cut(_encodable(str(k)), SHORT_TEXT): HIDDEN
                if conceal(str(k)) and v is not None
                else _bounded(v, conceal, depth - 1)
                for k, v in list(value.items())[:MAX_ITEMS]
            }
            return {**shown, "…": f"{len(value) - MAX_ITEMS} more"} if len(value) > MAX_ITEMS else shown
    return _cut(_encodable(str(value)), MAX_TEXT)


def _encodable(text: str) -> str:
    """Half of a surrogate pair has no form in UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
