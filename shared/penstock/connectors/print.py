"""``print``: one line a row, ``+I[1, a]``, on the slot's standard output (or error)."""

from __future__ import annotations

import datetime as dt
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.connectors.base import SinkWriter, TableInfo
from penstock.connectors.simple import DeclaredConnector
from penstock.functions.formatting import double_text, float_text
from penstock.options import Option, OptionSet, boolean, text
from penstock.types import logical as t
from penstock.types.text import interval_text

if TYPE_CHECKING:
    from penstock.types import Batch

OPTIONS = OptionSet(
    "connector 'print'",
    [
        Option("print-identifier", text, "", "Put before every line."),
        Option("standard-error", boolean, False, "Write to standard error instead."),
    ],
)


def format_value(value: Any, type_: t.LogicalType | None = None) -> str:
    """A value as Flink prints it: ISO time stamps, ``null``, nested rows in brackets."""
    if (interval := interval_text(value, type_)) is not None:
        return interval
    if isinstance(value, float):
        return float_text(np.float32(value)) if isinstance(type_, t.FloatType) else double_text(value)
    if isinstance(value, list) and isinstance(type_, t.ArrayType):
        return "[" + ", ".join(format_value(v, type_.element) for v in value) + "]"
    if isinstance(value, dict) and isinstance(type_, t.RowType):
        fields = {f.name: f.type for f in type_.fields}
        return "{" + ", ".join(f"{k}={format_value(v, fields.get(k))}" for k, v in value.items()) + "}"
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case dt.datetime():
            return value.replace(tzinfo=None).isoformat() + ("Z" if value.tzinfo else "")
        case dict():
            return "{" + ", ".join(f"{format_value(k)}={format_value(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(format_value, value)) + "]"
        case bytes():
            return value.hex()
    return str(value)


class PrintWriter(SinkWriter):
    def __init__(self, options: dict[str, Any]) -> None:
        self._identifier = options["print-identifier"]
        self._standard_error = options["standard-error"]

    def write(self, batch: Batch) -> None:
        prefix = self._identifier
        if self.ctx.parallelism > 1:
            prefix = f"{prefix}:{self.ctx.subtask_index + 1}" if prefix else str(self.ctx.subtask_index + 1)
        prefix = f"{prefix}> " if prefix else ""
        types = batch.schema.types
        lines = [
            f"{prefix}{k.short}[{', '.join(map(format_value, row, types))}]\n" for k, row in batch.rows()
        ]
        # Looked up now, not at import: the slot redirects its standard output.
        stream = sys.stderr if self._standard_error else sys.stdout
        stream.write("".join(lines))
        stream.flush()


class PrintConnector(DeclaredConnector):
    name = "print"
    location = ()
    roles = ("sink",)

    def __init__(self) -> None:
        super().__init__(OPTIONS)

    def sink_modes(self, table: TableInfo) -> tuple[str, ...]:
        return ("append", "upsert", "retract")

    def writer(self, table: TableInfo) -> PrintWriter:
        return PrintWriter(OPTIONS.read(table.options))
