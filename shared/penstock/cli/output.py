"""How results and errors look: tables, JSON lines, CSV; one error format everywhere."""

from __future__ import annotations

import csv
import datetime as dt
import json
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TextIO

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.types.logical import LogicalType, Schema


#: Columns of a table that is written to a file: more than any has.
_NO_WIDTH = 1_000_000


def text_of(value: Any, type_: LogicalType | None = None) -> str:
    """A value as SQL prints it: timestamps with their declared precision, NULL, TRUE."""
    from penstock.types import logical as t
    from penstock.types.text import interval_text, shortest_float

    if value is None:
        return "NULL"
    if (interval := interval_text(value, type_)) is not None:
        return interval
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case dt.datetime():
            base = value.strftime("%Y-%m-%d %H:%M:%S")
            precision = type_.precision if isinstance(type_, t.TIMESTAMPS) else 6
            return base if not precision else f"{base}.{value.microsecond:06d}"[: 20 + precision]
        case bytes():
            return "x'" + value.hex() + "'"
        case list():
            element = type_.element if isinstance(type_, t.ArrayType) else None
            if isinstance(type_, t.MapType | t.MultisetType):
                return "{" + ", ".join(f"{text_of(k)}={text_of(v)}" for k, v in value) + "}"
            return "[" + ", ".join(text_of(v, element) for v in value) + "]"
        case dict():
            types = {f.name: f.type for f in type_.fields} if isinstance(type_, t.RowType) else {}
            return "(" + ", ".join(text_of(v, types.get(k)) for k, v in value.items()) + ")"
        case float():
            return repr(shortest_float(value) if isinstance(type_, t.FloatType) else value)
    return str(value)


def json_of(value: Any, type_: LogicalType | None = None) -> Any:
    """A value as JSON: decimals as numbers' text, times as SQL text, maps as objects."""
    from penstock.types import logical as t
    from penstock.types.text import shortest_float

    if isinstance(type_, t.YearMonthIntervalType) and value is not None:
        return text_of(value, type_)
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            if value != value or abs(value) == float("inf"):
                return str(value)
            return shortest_float(value) if isinstance(type_, t.FloatType) else value
        case Decimal():
            return str(value)
        case dict():
            fields = {f.name: f.type for f in type_.fields} if isinstance(type_, t.RowType) else {}
            return {k: json_of(v, fields.get(k)) for k, v in value.items()}
        case list():
            if isinstance(type_, t.MapType | t.MultisetType):
                return {str(json_of(k)): json_of(v) for k, v in value}
            element = type_.element if isinstance(type_, t.ArrayType) else None
            return [json_of(v, element) for v in value]
    return text_of(value, type_)


def write_rows(schema: Schema, rows: Iterable[Sequence[Any]], format_: str, out: TextIO | None = None) -> int:
    """Rows to ``out`` as ``table``, ``json`` (one object a line) or ``csv``; how many."""
    out = out or sys.stdout
    types, n = schema.types, 0
    if format_ == "json":
        for row in rows:
            pairs = zip(schema.fields, row, strict=True)
            line = {f.name: json_of(v, f.type) for f, v in pairs}
            out.write(json.dumps(line, ensure_ascii=False) + "\n")
            n += 1
    elif format_ == "csv":
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(schema.names)
        for row in rows:
            values = zip(row, types, strict=True)
            writer.writerow(["" if v is None else text_of(v, t) for v, t in values])
            n += 1
    else:
        n = write_table(schema, list(rows), out)
    out.flush()
    return n


def write_table(schema: Schema, rows: Sequence[Sequence[Any]], out: TextIO) -> int:
    from rich.console import Console

    # A pipe or a file has no width: nothing is cut there.
    Console(file=out, soft_wrap=not out.isatty(), width=None if out.isatty() else _NO_WIDTH).print(
        make_table(schema, rows)
    )
    out.write(f"{len(rows)} row{'' if len(rows) == 1 else 's'} in set\n")
    return len(rows)


def make_table(schema: Schema, rows: Sequence[Sequence[Any]], title: str | None = None) -> Any:
    """A rich table; numbers to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from penstock.types import logical as t

    numbers = (*t.INTEGERS, t.FloatType, t.DoubleType, t.DecimalType)
    table = Table(box=box.ASCII2 if not sys.stdout.isatty() else box.ROUNDED, title=title)
    for field in schema.fields:
        right = isinstance(field.type, numbers)
        table.add_column(Text(field.name), justify="right" if right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(text_of(v, f.type)) for v, f in zip(row, schema.fields, strict=True)))
    return table


def print_error(err: BaseException) -> None:
    """To stderr: a PenstockError's own lines, anything else with its type."""
    text = str(err) if isinstance(err, PenstockError) else f"{type(err).__name__}: {err}"
    sys.stderr.write(f"error: {text}\n")
