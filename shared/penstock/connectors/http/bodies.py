"""The records in a body. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.errors import RecordError

_RAWS = msgspec.json.Decoder(list[msgspec.Raw])


def at_pointer(body: bytes, pointer: str) -> bytes | None:
    """The JSON at an RFC 6901 pointer (``/data/items``) of ``body``; None if there is none. Raises msgspec.DecodeError."""
    value: Any = msgspec.Raw(body)
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        found = msgspec.json.decode(value, type=dict[str, msgspec.Raw] | list[msgspec.Raw] | None)
        if isinstance(found, dict):
            value = found.get(name)
        elif isinstance(found, list) and name.isdigit() and int(name) < len(found):
            value = found[int(name)]
        else:
            value = None
        if value is None:
            return None
    return bytes(value)


def records(body: bytes, kind: str, pointer: str | None, where: str) -> list[bytes]:
    """The records in ``body``. ``kind``: ``record``, ``array`` or ``lines``. Raises RecordError for a body of another shape."""
    if kind == "lines":
        return [line for line in body.split(b"\n") if line.strip()]
    try:
        if pointer:
            found = at_pointer(body, pointer)
            if found is None:
                raise _unlike(body, f"JSON with a value at '{pointer}'", where)
            body = found
        return [bytes(raw) for raw in _RAWS.decode(body)] if kind == "array" else [body]
    except msgspec.DecodeError as err:
        expected = "a JSON array of records" if kind == "array" else "JSON"
        raise _unlike(body, f"{expected} ({err})", where) from None


def text_at(body: bytes, pointer: str) -> str | None:
    """The string or number at a pointer, as text; None: there is none, or null, or an empty string. Raises ValueError for
    anything else."""
    found = at_pointer(body, pointer)
    value = None if found is None else msgspec.json.decode(found)
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"{found!r} is neither a string nor a number")
    return str(value)


def _unlike(body: bytes, expected: str, where: str) -> RecordError:
    return RecordError(
        "a body has another shape",
        expected=expected,
        got=repr(body[:200]),
        where=where,
        remedy="correct 'body', 'body.pointer' or 'http.source.lookup.result-type'",
    )
