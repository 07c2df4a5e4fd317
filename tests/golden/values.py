"""Rows as the case files spell them, and comparing them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any


def plain(value: Any) -> Any:
    """A value in JSON's words: decimals, times and bytes as text, maps as sorted pairs."""
    match value:
        case bool() | None | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Decimal():
            return format(value, "f")
        case datetime():
            if value.tzinfo is not None:
                return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ") + "Z"
            return value.isoformat(" ")
        case date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes():
            return "0x" + value.hex()
        case dict():
            return sorted(([plain(k), plain(v)] for k, v in value.items()), key=json.dumps)
        case [tuple(), *_]:
            return sorted(([plain(k), plain(v)] for k, v in value), key=json.dumps)
        case list() | tuple():
            return [plain(v) for v in value]
    raise TypeError(f"{type(value).__name__} {value!r} in a row")


def plain_rows(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    return [[plain(v) for v in row] for row in rows]


def same(a: Any, b: Any, *, kinds: bool = True) -> bool:
    """Equal; floats to nine digits, as their sums depend on the order of rows. ``kinds``:
    1, 1.0 and "1.00" are three things (DuckDB has other types than we have)."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y, kinds=kinds) for x, y in zip(a, b, strict=True))
    if isinstance(a, bool) or isinstance(b, bool) or a is None or b is None:
        return a is b
    if type(a) is not type(b) and not kinds and not (isinstance(a, list) or isinstance(b, list)):
        try:
            a, b = float(a), float(b)
        except ValueError:
            return False
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    return type(a) is type(b) and a == b


def _order(row: list[Any]) -> str:
    """Rows that are the same stand at the same place, but for the last digits of floats."""
    return json.dumps([_rounded(v) for v in row])


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(v) for v in value]
    if value is None or isinstance(value, bool):
        return [0, value]
    try:
        return [1, f"{float(value):.6e}"]
    except ValueError:
        return [2, value]


def arranged(rows: list[list[Any]], *, ordered: bool) -> list[list[Any]]:
    return rows if ordered else sorted(rows, key=_order)


def difference(got: list[list[Any]], want: list[list[Any]], *, ordered: bool, kinds: bool = True) -> str:
    """What is wrong with ``got``, in words; empty: nothing."""
    got, want = arranged(got, ordered=ordered), arranged(want, ordered=ordered)
    if len(got) == len(want) and all(same(a, b, kinds=kinds) for a, b in zip(got, want, strict=True)):
        return ""
    left = list(want)
    extra = []
    for row in got:
        match = next((i for i, other in enumerate(left) if same(row, other, kinds=kinds)), None)
        if match is None:
            extra.append(row)
        else:
            left.pop(match)
    if not extra and not left:
        return "the rows are right, their order is not"
    lines = [f"{len(got)} rows for {len(want)}"]
    lines += [f"+ {json.dumps(row)}" for row in extra[:12]] + [f"- {json.dumps(row)}" for row in left[:12]]
    return "\n".join(lines)
