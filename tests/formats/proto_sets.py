"""Descriptor sets for tests, made without protoc."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2 as d
from google.protobuf import text_format

from penstock.errors import UnsupportedError
from penstock.formats.protobuf.format import ProtobufFormat
from penstock.types import Schema
from penstock.types import logical as t

_F = d.FieldDescriptorProto

#: A message with every kind of field, as proto3.
ALL_KINDS = """
file {
  name: "shop.proto" package: "shop" syntax: "proto3" dependency: "google/protobuf/timestamp.proto"
  enum_type { name: "Kind" value { name: "NONE" number: 0 } value { name: "BIG" number: 5 } }
  message_type {
    name: "Order"
    %s
    field { name: "kind" number: 20 type: TYPE_ENUM type_name: ".shop.Kind" label: LABEL_OPTIONAL }
    field { name: "at" number: 21 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" label: LABEL_OPTIONAL }
    field { name: "place" number: 22 type: TYPE_MESSAGE type_name: ".shop.Place" label: LABEL_OPTIONAL }
    field { name: "tags" number: 23 type: TYPE_STRING label: LABEL_REPEATED }
    field { name: "places" number: 24 type: TYPE_MESSAGE type_name: ".shop.Place" label: LABEL_REPEATED }
    field { name: "stock" number: 25 type: TYPE_MESSAGE type_name: ".shop.Order.StockEntry" label: LABEL_REPEATED }
    field { name: "by_name" number: 26 type: TYPE_MESSAGE type_name: ".shop.Order.ByNameEntry" label: LABEL_REPEATED }
    field { name: "kinds" number: 27 type: TYPE_ENUM type_name: ".shop.Kind" label: LABEL_REPEATED }
    field { name: "cash" number: 28 type: TYPE_INT32 label: LABEL_OPTIONAL oneof_index: 0 }
    field { name: "card" number: 29 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }
    field { name: "maybe" number: 30 type: TYPE_INT32 label: LABEL_OPTIONAL oneof_index: 1 proto3_optional: true }
    oneof_decl { name: "paid" }
    oneof_decl { name: "_maybe" }
    nested_type {
      name: "StockEntry" options { map_entry: true }
      field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
      field { name: "value" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL }
    }
    nested_type {
      name: "ByNameEntry" options { map_entry: true }
      field { name: "key" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
      field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".shop.Place" label: LABEL_OPTIONAL }
    }
  }
  message_type {
    name: "Place"
    field { name: "city" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "inner" number: 2 type: TYPE_MESSAGE type_name: ".shop.Place" label: LABEL_OPTIONAL }
  }
}
"""
SCALARS = (
    "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes", "uint32",
    "sfixed32", "sfixed64", "sint32", "sint64",
)  # fmt: skip


def descriptor_set(text: str, path: Path) -> Path:
    """Writes a set that is given as text."""
    path.write_bytes(text_format.Parse(text, d.FileDescriptorSet()).SerializeToString())
    return path


def shop(path: Path) -> Path:
    """The set of ``shop.Order``, with a field ``f_<kind>`` of each scalar."""
    fields = "".join(
        f'field {{ name: "f_{kind}" number: {i} type: TYPE_{kind.upper()} label: LABEL_OPTIONAL }}\n'
        for i, kind in enumerate(SCALARS, 1)
    )
    return descriptor_set(ALL_KINDS % fields, path)


#: Columns whose NULL and values a message keeps apart, when its field is optional.
_KEPT = {
    t.BooleanType: _F.TYPE_BOOL, t.TinyIntType: _F.TYPE_INT32, t.SmallIntType: _F.TYPE_SINT32,
    t.IntType: _F.TYPE_INT32, t.BigIntType: _F.TYPE_INT64, t.FloatType: _F.TYPE_FLOAT,
    t.DoubleType: _F.TYPE_DOUBLE, t.CharType: _F.TYPE_STRING, t.VarCharType: _F.TYPE_STRING,
    t.BinaryType: _F.TYPE_BYTES, t.VarBinaryType: _F.TYPE_BYTES,
}  # fmt: skip


class DerivedProtobuf(ProtobufFormat):
    """The format, with a message made for whatever columns come: for the conformance kit."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _with_message(self, schema: Schema) -> dict[str, str]:
        file = d.FileDescriptorProto(
            name="made.proto", package="made", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
        )
        _add_message(file, "Row", schema.fields, "")
        path = self._folder / "made.binpb"
        path.write_bytes(d.FileDescriptorSet(file=[file]).SerializeToString())
        return {"protobuf.message-class-name": "made.Row", "protobuf.descriptor-set": str(path)}

    def check(self, schema: Schema, options: Any) -> None:
        super().check(schema, {**options, **self._with_message(schema)})

    def _message(self, schema: Schema, options: Any) -> Any:
        return super()._message(schema, {**options, **self._with_message(schema)})


def _add_message(file: Any, name: str, fields: Any, path: str) -> None:
    made = file.message_type.add(name=name)
    for i, field in enumerate(fields):
        entry = made.field.add(name=field.name, number=i + 1, label=_F.LABEL_OPTIONAL)
        match field.type:
            case t.TimestampType() | t.TimestampLtzType():
                entry.type, entry.type_name = _F.TYPE_MESSAGE, ".google.protobuf.Timestamp"
            case t.RowType(fields=inner):
                entry.type, entry.type_name = _F.TYPE_MESSAGE, f".made.{name}_{field.name}"
                _add_message(file, f"{name}_{field.name}", inner, f"{path}{field.name}.")
            case _ if type(field.type) in _KEPT:
                entry.type, entry.proto3_optional = _KEPT[type(field.type)], True
                entry.oneof_index = len(made.oneof_decl)
                made.oneof_decl.add(name=f"_{field.name}")
            case _:
                raise UnsupportedError(f"no field holds column '{path}{field.name}'")
