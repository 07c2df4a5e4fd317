"""An Avro schema that the user gives for a table that is written: it must be the table's, in the user's words.

Names, namespaces, documentation, defaults, aliases and the order of fields are the user's. Everything that
decides the bytes of a value must be what the table's columns say.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import fastavro

from penstock.errors import ConnectorError
from penstock.formats.avro.schema import UNITS, Writer, record_in
from penstock.formats.reporting import shorten
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.formats.avro.schema import Node

#: The kind that a writer of the table's values needs; wider ones would change what a value means to a reader.
_KINDS: dict[type, tuple[str, ...]] = {
    t.BooleanType: ("boolean",), t.TinyIntType: ("int", "long"), t.SmallIntType: ("int", "long"),
    t.IntType: ("int", "long"), t.BigIntType: ("long",), t.FloatType: ("float", "double"),
    t.DoubleType: ("double",), t.CharType: ("string", "enum"), t.VarCharType: ("string", "enum"),
    t.BinaryType: ("bytes", "fixed"), t.VarBinaryType: ("bytes", "fixed"),
}  # fmt: skip


def parse(text: str, where: str) -> Node:
    """A schema that was given as text. ConnectorError unless it is an Avro record, or a union of null and one."""
    try:
        found = json.loads(text)
        fastavro.parse_schema(found)
    except (ValueError, TypeError, KeyError, fastavro.schema.SchemaParseException) as err:
        raise _malformed(err, where) from None
    try:
        record = record_in(found, where).schema
    except ConnectorError:
        raise ConnectorError(
            "the Avro schema that the table gives is no record",
            expected='{"type": "record", …}, or a union of null and one', got=shorten(text, 120), where=where,
        ) from None  # fmt: skip
    try:
        Writer(record, t.Schema(()), where)
    except (ValueError, TypeError, KeyError) as err:
        raise _malformed(err, where) from None
    return found


def _malformed(err: Exception, where: str) -> ConnectorError:
    return ConnectorError(
        "the Avro schema that the table gives is malformed",
        expected="an Avro schema, as JSON",
        got=f"{type(err).__name__} {err}",
        where=where,
        remedy="correct the option 'schema', or leave it out: the table's columns give one",
    )


def check_given(given: dict[str, Any], schema: t.Schema, where: str) -> None:
    """ConnectorError, which names the column, unless rows of ``schema`` can be written as ``given``."""
    _Matched(Writer(given, schema, where), where).record(t.RowType(schema.fields), given, "")


def check_defaults(given: dict[str, Any], writer: dict[str, Any], columns: t.Schema, where: str) -> None:
    """ConnectorError where ``given`` has a default, other than null, for a field that ``writer`` lacks: such a
    field is read as NULL.
    """
    wanted = {"type": "record", "fields": [f for f in given["fields"] if f["name"] in columns.names]}
    if path := _lost(Writer(given, t.Schema(()), where), wanted, Writer(writer, t.Schema(()), where), writer):
        raise ConnectorError(
            f"the writer's schema lacks the field '{path}', for which the table's schema has a default",
            expected="the field, or no default but null",
            got="messages without the field, which would be read as NULL",
            where=where,
            remedy="remove the default from the option 'schema', and write COALESCE where the column is read",
        )


def _lost(given: Writer, node: Node, writer: Writer, written: Node) -> str | None:
    """The first field below ``node`` that has a default other than null, and that ``written`` lacks."""
    want, kind = given.resolved(node)
    have, had = writer.resolved(written)
    if kind == had and kind in ("array", "map"):
        inner = "items" if kind == "array" else "values"
        return _lost(given, want[inner], writer, have[inner])
    if kind != "record" or had != "record":
        return None
    there = {f["name"]: f["type"] for f in have["fields"]}
    for field in want["fields"]:
        name = field["name"]
        if name not in there:
            if field.get("default") is not None:
                return str(name)
        elif (below := _lost(given, field["type"], writer, there[name])) is not None:
            return f"{name}.{below}"
    return None


class _Matched:
    def __init__(self, writer: Writer, where: str) -> None:
        self._writer = writer
        self._where = where

    def record(self, type_: t.RowType, node: dict[str, Any], path: str) -> None:
        nodes = {f["name"]: f["type"] for f in node["fields"]}
        columns = {f.name: f.type for f in type_.fields}
        if missing := sorted(set(nodes) ^ set(columns)):
            raise self._unfit(
                f"{path}{missing[0]}",
                "a column for each field, and a field for each column",
                "no such column" if missing[0] in nodes else "no such field",
            )
        for name, column in columns.items():
            self._value(column, nodes[name], f"{path}{name}")

    def _value(self, type_: t.LogicalType, node: Node, path: str) -> None:
        nullable = node == "null" or (isinstance(node, list) and "null" in node)
        if type_.nullable and not nullable:
            raise self._unfit(path, "a union with null, as the column may be NULL", shorten(node, 120))
        found, kind = self._writer.resolved(node)
        logical = found.get("logicalType") if isinstance(found, dict) else None
        if not self._same(type_, found, kind, logical, path):
            raise self._unfit(path, str(type_), shorten(node, 120))

    def _same(self, type_: t.LogicalType, node: Node, kind: str, logical: str | None, path: str) -> bool:
        match type_:
            case t.DecimalType(precision=p, scale=s):
                return logical == "decimal" and node.get("scale", 0) == s and node["precision"] >= p
            case t.DateType():
                return logical == "date"
            case t.TimestampType(precision=p) | t.TimestampLtzType(precision=p) | t.TimeType(precision=p):
                return UNITS.get(logical or "") == (1 if p > 3 else 1000)
            case t.ArrayType(element=element) if kind == "array":
                self._value(element, node["items"], f"{path}[]")
                return True
            case t.MapType(value=value) if kind == "map":
                self._value(value, node["values"], f"{path}[]")
                return True
            case t.MultisetType() if kind == "map":
                self._value(t.IntType(nullable=False), node["values"], f"{path}[]")
                return True
            case t.RowType() if kind == "record":
                self.record(type_, node, f"{path}.")
                return True
        return kind in _KINDS.get(type(type_), ()) and (logical is None or kind == "string")

    def _unfit(self, path: str, expected: str, got: str) -> ConnectorError:
        return ConnectorError(
            f"the Avro schema that the table gives does not fit column '{path}'",
            expected=expected, got=got, where=self._where,
            remedy="correct the column or the option 'schema', or leave the option out",
        )  # fmt: skip
