"""Prints results as Flink's client does."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

from penstock.functions.value_text import text_of
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

#: The greatest width of a column, in columns of a terminal. A longer value is cut.
MAX_WIDTH = 30
_CUT = "..."


def table_lines(
    schema: t.Schema, rows: Iterable[Any], *, changelog: bool, zone: str = "UTC"
) -> Iterator[str]:
    """The lines of a printed result, as the rows come.

    Args:
        schema: The columns.
        rows: The rows; those of a changelog have ``get_row_kind()``.
        changelog: True: there is a column ``op`` in front, and widths follow types, so that a line can be
            printed before all rows are there. False: widths follow contents.
        zone: The session's time zone.
    """
    names, types = schema.names, schema.types

    def cells(row: Any) -> list[str]:
        texts = [
            "<NULL>" if v is None else text_of(v, type_, zone) for v, type_ in zip(row, types, strict=True)
        ]
        return [row.get_row_kind().short, *texts] if changelog else texts

    if changelog:
        heads = ["op", *names]
        widths = [2, *(_type_width(n, type_) for n, type_ in zip(names, types, strict=True))]
        printed: Iterable[list[str]] = map(cells, rows)
    else:
        heads = list(names)
        printed = [cells(row) for row in rows]
        widths = [
            min(MAX_WIDTH, max(map(_width, column))) for column in zip(*([[*heads], *printed]), strict=True)
        ]
        widths = [max(w, min(_width(h), MAX_WIDTH)) for w, h in zip(widths, heads, strict=True)]
    rule = "+" + "+".join("-" * (w + 2) for w in widths) + "+"
    count = 0
    for row in printed:
        if not count:
            yield from (rule, _line(heads, widths), rule)
        count += 1
        yield _line(row, widths)
    if not count:
        yield "Empty set"
        return
    yield rule
    yield f"{count} row{'' if count == 1 else 's'} in set"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "|" + "|".join(f" {_fitted(cell, w)} " for cell, w in zip(cells, widths, strict=True)) + "|"


def _fitted(text: str, width: int) -> str:
    if _width(text) > width:
        kept, room = "", width - len(_CUT)
        for c in text:
            if _width(kept + c) > room:
                break
            kept += c
        text = kept + _CUT
    return " " * (width - _width(text)) + text


def _width(text: str) -> int:
    """The width in columns of a terminal. A wide East Asian character takes two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _type_width(name: str, type_: t.LogicalType) -> int:
    match type_:
        case t.BooleanType():
            width = 5
        case t.TinyIntType():
            width = 4
        case t.SmallIntType():
            width = 6
        case t.IntType():
            width = 11
        case t.BigIntType():
            width = 20
        case t.DecimalType(precision=precision):
            width = precision + 2
        case t.DateType():
            width = 10
        case t.TimeType(precision=precision):
            width = 8 if not precision else precision + 9
        case t.TimestampType(precision=precision) | t.TimestampLtzType(precision=precision):
            width = 19 if not precision else precision + 20
        case t.CharType(length=length) | t.VarCharType(length=length):
            width = length
        case _:
            width = MAX_WIDTH
    return min(MAX_WIDTH, max(_width(name), width))
