"""``print``: one line for each row, ``+I[1, a]``, on the slot's standard output (or error)."""

from __future__ import annotations

import datetime as dt
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.columnar.python_values import is_bare, is_tuple
from penstock.connectors.base import SinkWriter, TableInfo
from penstock.connectors.simple import DeclaredConnector
from penstock.functions.formatting import double_text, float_text
from penstock.options import Option, OptionSet, boolean, choice, text
from penstock.types import logical as t
from penstock.types.text import interval_text

if TYPE_CHECKING:
    from penstock.types import Batch
    from penstock.types.logical import Schema

OPTIONS = OptionSet(
    "connector 'print'",
    [
        Option("print-identifier", text, "", "Put before every line."),
        Option("standard-error", boolean, False, "Write to standard error instead."),
        Option(
            "print-style",
            choice("changelog", "record"),
            "changelog",
            "`changelog`: a row with its kind, `+I[1, a]`; `record`: as a stream's `print()` does.",
        ),
    ],
)


def format_value(value: Any, type_: t.LogicalType) -> str:
    """A value as Flink's print sink writes it: times, numbers and bytes as in Java, whatever the session's
    time zone (an instant is in UTC), nested rows with their kind."""
    if value is None:
        return "null"
    if (interval := interval_text(value, type_)) is not None:
        return interval
    match type_:
        case t.FloatType():
            return float_text(np.float32(value))
        case t.DoubleType():
            return double_text(value)
        case t.BooleanType():
            return "true" if value else "false"
        case t.TimeType():
            return _time_text(value)
        case t.TimestampType():
            return f"{value.date().isoformat()}T{_time_text(value.time())}"
        case t.TimestampLtzType():
            utc = value.astimezone(dt.UTC)
            return f"{utc.date().isoformat()}T{_time_text(utc.time(), seconds=True)}Z"
        case t.ArrayType(element=element):
            return "[" + ", ".join(format_value(v, element) for v in value) + "]"
        case t.MapType(key=key, value=of):
            return "{" + ", ".join(f"{format_value(k, key)}={format_value(v, of)}" for k, v in value) + "}"
        case t.MultisetType(element=element):
            return "{" + ", ".join(f"{format_value(k, element)}={n}" for k, n in value) + "}"
        case t.RowType(fields=fields):
            parts = (format_value(v, f.type) for v, f in zip(value.values(), fields, strict=True))
            return f"+I[{', '.join(parts)}]"
        case t.BinaryType() | t.VarBinaryType():
            return "[" + ", ".join(str(b - 256 if b > 127 else b) for b in value) + "]"
    return str(value)


def _time_text(value: dt.time, *, seconds: bool = False) -> str:
    """A time as Java's ``LocalTime.toString`` writes it: without seconds if they are zero (unless
    ``seconds``), with a fraction of three or six digits."""
    if value.microsecond:
        return value.isoformat("microseconds" if value.microsecond % 1000 else "milliseconds")
    return value.isoformat("seconds" if seconds or value.second else "minutes")


def record_text(record: Any, schema: Schema) -> str:
    """A record of a stream as a stream's ``print()`` of PyFlink writes it.

    Args:
        record: As ``Batch.rows`` has it: a tuple of the columns.
        schema: The stream's columns.

    Returns:
        A bare value as it is, a tuple ``(a,1)``, a row with names ``+I[a,1]``; a value without a declared
        type as Python's ``str``.
    """
    if is_bare(schema):
        return _value_text(record[0], schema.types[0])
    if is_tuple(schema):
        return f"({','.join(map(_value_text, record, schema.types))})"
    return f"+I[{','.join(map(str, record))}]"


def _value_text(value: Any, type_: t.LogicalType) -> str:
    if isinstance(type_, t.RawType):
        return str(value)
    if isinstance(type_, t.RowType) and value is not None:
        return record_text(tuple(value.values()), t.Schema(type_.fields))
    return format_value(value, type_)


class PrintWriter(SinkWriter):
    """Prints each row to the slot's output."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._identifier = options["print-identifier"]
        self._standard_error = options["standard-error"]
        self._as_records = options["print-style"] == "record"

    def write(self, batch: Batch) -> None:
        prefix = self._identifier
        if self.ctx.parallelism > 1:
            prefix = f"{prefix}:{self.ctx.subtask_index + 1}" if prefix else str(self.ctx.subtask_index + 1)
        prefix = f"{prefix}> " if prefix else ""
        schema, types = batch.schema, batch.schema.types
        if self._as_records:
            lines = [f"{prefix}{record_text(row, schema)}\n" for _, row in batch.rows()]
        else:
            lines = [
                f"{prefix}{k.short}[{', '.join(map(format_value, row, types))}]\n" for k, row in batch.rows()
            ]
        # The stream is looked up now and not at import, because the slot redirects its standard output.
        stream = sys.stderr if self._standard_error else sys.stdout
        stream.write("".join(lines))
        stream.flush()


class PrintConnector(DeclaredConnector):
    """The sink ``print``, which prints rows to the slot's output."""

    name = "print"
    location = ()
    roles = ("sink",)

    def __init__(self) -> None:
        super().__init__(OPTIONS)

    def sink_modes(self, table: TableInfo) -> tuple[str, ...]:
        return ("append", "upsert", "retract")

    def writer(self, table: TableInfo) -> PrintWriter:
        return PrintWriter(OPTIONS.read(table.options))
