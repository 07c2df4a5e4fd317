"""The output of results: tables, JSON lines, CSV."""

from __future__ import annotations

import csv
import json
import sys
from typing import TYPE_CHECKING, Any, TextIO

from penstock.config import LOCAL_TIME_ZONE, MAX_COLUMN_WIDTH
from penstock.functions.value_json import json_of
from penstock.functions.value_text import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from penstock.types.logical import LogicalType, Schema


#: A column width at which no value is cut.
WHOLE = 1_000_000


def write_rows(
    schema: Schema,
    rows: Iterable[Sequence[Any]],
    format_: str,
    out: TextIO | None = None,
    config: Mapping[str, str] | None = None,
) -> int:
    """Write rows to ``out`` as ``table``, ``json`` (one object per line) or ``csv``; return their number.

    ``config`` is the session's, for its time zone and the width of columns.
    """
    out = out or sys.stdout
    types, n, zone = schema.types, 0, LOCAL_TIME_ZONE.read(config or {})
    if format_ == "json":
        for row in rows:
            pairs = zip(schema.fields, row, strict=True)
            line = {f.name: json_of(v, f.type, zone) for f, v in pairs}
            out.write(json.dumps(line, ensure_ascii=False) + "\n")
            n += 1
    elif format_ == "csv":
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(schema.names)
        for row in rows:
            values = zip(row, types, strict=True)
            writer.writerow(["" if v is None else text_of(v, t, zone) for v, t in values])
            n += 1
    else:
        n = write_table(schema, list(rows), out, config)
    out.flush()
    return n


def write_table(
    schema: Schema, rows: Sequence[Sequence[Any]], out: TextIO, config: Mapping[str, str] | None = None
) -> int:
    """Write rows to ``out`` as a table with a line for their number; return that number."""
    from rich.console import Console

    # A pipe or a file has no width, so no value is cut there.
    terminal = out.isatty()
    console = Console(file=out, soft_wrap=not terminal, width=None if terminal else WHOLE)
    console.print(make_table(schema, rows, config=config, terminal=terminal))
    out.write(f"{len(rows)} row{'' if len(rows) == 1 else 's'} in set\n")
    return len(rows)


def make_table(
    schema: Schema,
    rows: Sequence[Sequence[Any]],
    title: str | None = None,
    *,
    config: Mapping[str, str] | None = None,
    terminal: bool = True,
) -> Any:
    """A rich table with numbers aligned right. On a terminal, long values of columns of variable length are cut
    and end with ``…``."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from penstock.types import logical as t

    zone, width = LOCAL_TIME_ZONE.read(config or {}), MAX_COLUMN_WIDTH.read(config or {})
    numbers = (*t.INTEGERS, t.FloatType, t.DoubleType, t.DecimalType)
    fixed = (*numbers, t.BooleanType, t.DateType, t.TimeType, *t.TIMESTAMPS, *t.INTERVALS)
    table = Table(box=box.ROUNDED if terminal else box.ASCII2, title=title)
    for field in schema.fields:
        right = isinstance(field.type, numbers)
        table.add_column(Text(field.name), justify="right" if right else "left", no_wrap=True)

    def cell(value: Any, type_: LogicalType) -> Text:
        text = text_of(value, type_, zone)
        if terminal and len(text) > width and not isinstance(type_, fixed):
            text = text[: max(0, width - 1)] + "…"
        return Text(text)

    for row in rows:
        table.add_row(*(cell(v, f.type) for v, f in zip(row, schema.fields, strict=True)))
    return table
