"""Which column fits which field: Flink's mapping, and times as google.protobuf.Timestamp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor as Fd

from penstock.errors import ConnectorError, UnsupportedError, nearest
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.types.logical import LogicalType, Schema

_KINDS = {
    Fd.TYPE_DOUBLE: "double", Fd.TYPE_FLOAT: "float", Fd.TYPE_INT64: "int64", Fd.TYPE_UINT64: "uint64",
    Fd.TYPE_INT32: "int32", Fd.TYPE_FIXED64: "fixed64", Fd.TYPE_FIXED32: "fixed32", Fd.TYPE_BOOL: "bool",
    Fd.TYPE_STRING: "string", Fd.TYPE_GROUP: "group", Fd.TYPE_MESSAGE: "message", Fd.TYPE_BYTES: "bytes",
    Fd.TYPE_UINT32: "uint32", Fd.TYPE_ENUM: "enum", Fd.TYPE_SFIXED32: "sfixed32", Fd.TYPE_SFIXED64: "sfixed64",
    Fd.TYPE_SINT32: "sint32", Fd.TYPE_SINT64: "sint64",
}  # fmt: skip
_WHOLE = {
    Fd.TYPE_INT64, Fd.TYPE_UINT64, Fd.TYPE_INT32, Fd.TYPE_FIXED64, Fd.TYPE_FIXED32, Fd.TYPE_UINT32,
    Fd.TYPE_SFIXED32, Fd.TYPE_SFIXED64, Fd.TYPE_SINT32, Fd.TYPE_SINT64,
}  # fmt: skip
_UNSIGNED_64 = {Fd.TYPE_UINT64, Fd.TYPE_FIXED64}
TIMESTAMP = "google.protobuf.Timestamp"
_TIMES = (t.TimestampType, t.TimestampLtzType)


def is_map(field: Any) -> bool:
    """Whether a field is a map, which a descriptor shows as a repeated message."""
    return bool(
        field.type == Fd.TYPE_MESSAGE and field.is_repeated and field.message_type.GetOptions().map_entry
    )


def described(field: Any) -> str:
    """A field's type as a .proto file writes it."""
    if is_map(field):
        key, value = (field.message_type.fields_by_name[n] for n in ("key", "value"))
        return f"map<{described(key)}, {described(value)}>"
    kind = _KINDS[field.type]
    if field.type == Fd.TYPE_MESSAGE:
        kind = field.message_type.full_name
    elif field.type == Fd.TYPE_ENUM:
        kind = f"enum {field.enum_type.full_name}"
    return f"repeated {kind}" if field.is_repeated else kind


def check_columns(schema: Schema, descriptor: Any) -> None:
    """ConnectorError or UnsupportedError, which names the column, unless a message holds all columns."""
    _check_row(t.RowType(schema.fields), descriptor, "")


def _check_row(type_: t.RowType, descriptor: Any, path: str) -> None:
    known = descriptor.fields_by_name
    for column in type_.fields:
        place = f"{path}{column.name}"
        if column.name not in known:
            raise ConnectorError(
                f"message '{descriptor.full_name}' has no field for column '{place}'",
                expected="one of " + ", ".join(known) if known else "a message with fields",
                got=f"'{column.name}'",
                where=f"format 'protobuf', column '{place}'",
                remedy=nearest(column.name, list(known)) or "name the column as the field, or leave it out",
            )
        _check(column.type, known[column.name], place)


def _check(type_: LogicalType, field: Any, path: str) -> None:
    if field.type == Fd.TYPE_GROUP:
        raise UnsupportedError(
            f"column '{path}' is a group, which Protocol Buffers have abandoned",
            expected="a nested message", got=f"group '{field.name}'", where=f"format 'protobuf', column '{path}'",
            remedy="leave the column out",
        )  # fmt: skip
    if is_map(field):
        if isinstance(type_, t.MapType):
            entry = field.message_type.fields_by_name
            _check(type_.key, entry["key"], f"{path}.key")
            _check(type_.value, entry["value"], f"{path}.value")
            return
    elif field.is_repeated:
        if isinstance(type_, t.ArrayType):
            _check_one(type_.element, field, f"{path}[]")
            return
    else:
        _check_one(type_, field, path)
        return
    raise _unfit(type_, field, path)


def _check_one(type_: LogicalType, field: Any, path: str) -> None:
    """One value: not the list that a repeated field is."""
    kind = field.type
    match type_:
        case t.BooleanType():
            fits = kind == Fd.TYPE_BOOL
        case t.TinyIntType() | t.SmallIntType() | t.IntType() | t.BigIntType():
            fits = kind in _WHOLE or kind == Fd.TYPE_ENUM
        case t.DecimalType(scale=0, precision=p):
            fits = kind in _UNSIGNED_64 and p >= 20
        case t.FloatType():
            fits = kind == Fd.TYPE_FLOAT
        case t.DoubleType():
            fits = kind == Fd.TYPE_DOUBLE
        case t.CharType() | t.VarCharType():
            fits = kind in (Fd.TYPE_STRING, Fd.TYPE_ENUM)
        case t.BinaryType() | t.VarBinaryType():
            fits = kind == Fd.TYPE_BYTES
        case t.TimestampType(precision=p) | t.TimestampLtzType(precision=p):
            fits = kind == Fd.TYPE_MESSAGE and field.message_type.full_name == TIMESTAMP
        case t.RowType() if kind == Fd.TYPE_MESSAGE:
            _check_row(type_, field.message_type, f"{path}.")
            return
        case _:
            fits = False
    if not fits:
        raise _unfit(type_, field, path)


def _unfit(type_: LogicalType, field: Any, path: str) -> ConnectorError:
    return ConnectorError(
        f"column '{path}' does not fit the field '{field.full_name}'",
        expected=f"a column for {described(field)}: {_wanted(field)}",
        got=str(type_),
        where=f"format 'protobuf', column '{path}'",
        remedy="declare the column with that type, and CAST in the query",
    )


def _wanted(field: Any) -> str:
    """The type of column for a field, for errors."""
    if is_map(field):
        entry = field.message_type.fields_by_name
        return f"MAP<{_wanted(entry['key'])}, {_wanted(entry['value'])}>"
    kind = field.type
    if kind == Fd.TYPE_MESSAGE:
        words = "ROW<…>"
        if field.message_type.full_name == TIMESTAMP:
            words = "TIMESTAMP, TIMESTAMP_LTZ or ROW<seconds BIGINT, nanos INT>"
    elif kind == Fd.TYPE_ENUM:
        words = "STRING or INT"
    elif kind in _UNSIGNED_64:
        words = "DECIMAL(20, 0) or BIGINT"
    elif kind in _WHOLE:
        words = "INT" if kind in (Fd.TYPE_INT32, Fd.TYPE_SINT32, Fd.TYPE_SFIXED32) else "BIGINT"
    else:
        words = {Fd.TYPE_BOOL: "BOOLEAN", Fd.TYPE_STRING: "STRING", Fd.TYPE_BYTES: "BYTES"}.get(
            kind, _KINDS[kind].upper()
        )
    return f"ARRAY<{words}>" if field.is_repeated else words
