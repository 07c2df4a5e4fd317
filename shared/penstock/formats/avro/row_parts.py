"""Avro records by the compiled kernel: a table's columns as parts of ``row_kernel``, where the schema has only such."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.formats.row_kernel import BYTE, BYTES, FIXED, ZIGZAG, Part, kernel_of
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.formats.avro.schema import Node
    from penstock.formats.row_kernel import RowKernel
    from penstock.types.logical import LogicalType, Schema

_KINDS: dict[type[LogicalType], tuple[int, str]] = {
    t.BooleanType: (BYTE, "boolean"), t.TinyIntType: (ZIGZAG, "int"), t.SmallIntType: (ZIGZAG, "int"),
    t.IntType: (ZIGZAG, "int"), t.BigIntType: (ZIGZAG, "long"), t.FloatType: (FIXED, "float"),
    t.DoubleType: (FIXED, "double"), t.CharType: (BYTES, "string"), t.VarCharType: (BYTES, "string"),
    t.BinaryType: (BYTES, "bytes"), t.VarBinaryType: (BYTES, "bytes"), t.DateType: (ZIGZAG, "int"),
    t.TimeType: (ZIGZAG, "int"), t.TimestampType: (ZIGZAG, "long"), t.TimestampLtzType: (ZIGZAG, "long"),
}  # fmt: skip


def row_kernel_of(schema: Node, columns: Schema, lead: bytes = b"") -> RowKernel | None:
    """An encoder of records of ``schema``, which has no logical types of times (``Writer.plain``), each behind ``lead``;
    None where the kernel cannot write them: then fastavro does, and says what does not fit."""
    fields = schema["fields"]
    if [f["name"] for f in fields] != list(columns.names):
        return None
    parts = [_part(f["type"], column.type) for f, column in zip(fields, columns.fields, strict=True)]
    if lead and parts and parts[0] is not None:
        first = parts[0]
        null = None if first.null is None else lead + first.null
        parts[0] = Part(first.kind, lead + first.lead, null, first.unit)
    return kernel_of(parts)


def _part(node: Node, type_: LogicalType) -> Part | None:
    before, null = b"", None
    if isinstance(node, list):
        # A branch is its number as a zigzag: 0, 1 are the bytes 0, 2.
        if len(node) != 2 or node.count("null") != 1:
            return None
        at = node.index("null")
        before, null, node = bytes([2 * (1 - at)]), bytes([2 * at]), node[1 - at]
    kind, name = _KINDS.get(type(type_), (0, ""))
    if not name or _plain(node) != name:
        return None
    unit = 1
    if isinstance(type_, t.TimeType | t.TimestampType | t.TimestampLtzType):
        unit = 1 if type_.precision > 3 else 1000
    return Part(kind, before, null, unit)


def _plain(node: Any) -> str | None:
    """The name of a type that is nothing but a primitive one."""
    if isinstance(node, dict) and set(node) == {"type"}:
        node = node["type"]
    return node if isinstance(node, str) else None
