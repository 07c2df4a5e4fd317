"""Columns → JSON objects, one for each row."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.formats.api import Encoder
from penstock.formats.build import field_attribute, is_plain_name
from penstock.formats.json_text import TextRows
from penstock.formats.row_kernel import DATE, FLAG, NUMBER, TEXT, TIMESTAMP, Part, kernel_of
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.formats.row_kernel import RowKernel
    from penstock.types import Batch
    from penstock.types.logical import Schema


class JsonEncoder(Encoder):
    """Times as text by the chosen standard, decimals as exact numbers, bytes as base64, NaN and infinities
    as the text that Flink writes."""

    def __init__(self, schema: Schema, options: Mapping[str, Any]) -> None:
        self._iso = options["json.timestamp-format.standard"] == "ISO-8601"
        skip_nulls = options["json.encode.ignore-null-fields"]
        self._record = _maker(schema.names, skip_nulls=skip_nulls)
        self._encode = msgspec.json.Encoder(decimal_format="number").encode
        names = [msgspec.json.encode(f.name).decode() for f in schema.fields]
        self._texts = TextRows(schema, names) if TextRows.can(schema) and not skip_nulls else None
        self._types = schema.types
        self._kernel = None if skip_nulls else _kernel_of(schema, names, iso=self._iso)

    def _text(self, column: int, array: pa.Array) -> pa.Array:
        match self._types[column]:
            case t.TimestampType() | t.TimestampLtzType():
                return timestamps_as_text(array, iso=self._iso)
            case t.DateType():
                return array.cast(pa.string())
        return array

    def encode(self, batch: Batch) -> list[bytes]:
        if self._kernel is not None and (made := self._kernel.encode(batch)) is not None:
            return made
        if self._texts is not None:
            made = self._texts.encode([c.to_external_arrow() for c in batch.columns], self._text)
            if made is not None:
                return made
        columns = [wire_values(c.type, c.to_external_arrow(), iso=self._iso) for c in batch.columns]
        record, encode = self._record, self._encode
        if not columns:
            return [b"{}"] * len(batch)
        return [encode(record(*row)) for row in zip(*columns, strict=True)]

    def encode_batch(self, batch: Batch) -> bytes:
        lines = self.encode(batch)
        return b"\n".join(lines) + b"\n" if lines else b""


#: How the kernel writes the types that it knows.
_KINDS: dict[type[t.LogicalType], int] = {
    **dict.fromkeys((t.TinyIntType, t.SmallIntType, t.IntType, t.BigIntType), NUMBER), t.BooleanType: FLAG,
    t.CharType: TEXT, t.VarCharType: TEXT, t.DateType: DATE, t.TimestampType: TIMESTAMP, t.TimestampLtzType: TIMESTAMP,
}  # fmt: skip


def _kernel_of(schema: Schema, names: Sequence[str], *, iso: bool) -> RowKernel | None:
    parts: list[Part | None] = []
    for name, type_ in zip(names, schema.types, strict=True):
        lead = f"{',' if parts else '{'}{name}:".encode()
        zoned = 256 if isinstance(type_, t.TimestampLtzType) else 0
        kind = _KINDS.get(type(type_))
        made = None if kind is None else Part(kind, lead, lead + b"null", zoned + ord("T" if iso else " "))
        parts.append(made)
    return kernel_of(parts, b"}")


def _maker(names: Sequence[str], *, skip_nulls: bool) -> Callable[..., Any]:
    """Makes of a row's values what msgspec writes as an object. ``skip_nulls``: without members that are NULL."""
    if all(map(is_plain_name, names)):
        members: list[Any] = [(field_attribute(i), Any, None) for i in range(len(names))]
        rename = {field_attribute(i): name for i, name in enumerate(names)}
        return msgspec.defstruct("Record", members, rename=rename, gc=False, omit_defaults=skip_nulls)

    def record(*row: Any) -> dict[str, Any]:
        pairs = zip(names, row, strict=True)
        return {name: value for name, value in pairs if not (skip_nulls and value is None)}

    return record


def timestamps_as_text(array: pa.Array, *, iso: bool) -> pa.Array:
    """``2020-01-02 03:04:05.678``: as many fraction digits as needed; LTZ in UTC with Z."""
    zoned = array.type.tz is not None
    text = array.cast(pa.timestamp("us")).cast(pa.string())
    text = pc.utf8_rtrim(pc.utf8_rtrim(text, "0"), ".")
    if iso:
        text = pc.replace_substring(text, " ", "T")
    if zoned:
        text = pc.binary_join_element_wise(text, pa.scalar("Z"), pa.scalar(""))
    return text


def _number(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def wire_values(type_: t.LogicalType, array: pa.Array, *, iso: bool) -> list[Any]:
    """The value of each row of an external Arrow array in the form that msgspec writes."""
    match type_:
        case t.TimestampType() | t.TimestampLtzType():
            return timestamps_as_text(array, iso=iso).to_pylist()
        case t.TimeType():
            return pc.utf8_rtrim(pc.utf8_rtrim(array.cast(pa.string()), "0"), ".").to_pylist()
        case t.DateType():
            return array.cast(pa.string()).to_pylist()
        case t.FloatType() | t.DoubleType():
            if array.null_count == len(array) or pc.all(pc.is_finite(array)).as_py():
                return _floats(type_, array)
            return [_number(v) for v in _floats(type_, array)]
        case t.DecimalType(scale=scale) if scale > 6:
            # Only such decimals have an exponent in their text (0E-9).
            return [None if v is None else msgspec.Raw(format(v, "f").encode()) for v in array.to_pylist()]
        case t.VariantType():
            return [None if v is None else msgspec.Raw(v.encode()) for v in array.to_pylist()]
        case t.DayTimeIntervalType():
            return [None if v is None else v // 1000 for v in array.cast(pa.int64()).to_pylist()]
        case t.ArrayType(element=element):
            return grouped(array, wire_values(element, array.flatten(), iso=iso), list)
        case t.MapType(key=key, value=value):
            return _map_values(array, key, value, iso=iso)
        case t.MultisetType(element=element):
            return _map_values(array, element, t.IntType(), iso=iso)
        case t.RowType(fields=fields):
            names = [f.name for f in fields]
            children = [
                wire_values(f.type, child, iso=iso) for f, child in zip(fields, array.flatten(), strict=True)
            ]
            rows = [dict(zip(names, row, strict=True)) for row in zip(*children, strict=True)]
            if array.null_count:
                rows = [r if ok else None for r, ok in zip(rows, array.is_valid().to_pylist(), strict=True)]  # type: ignore[misc]
            return rows
    return array.to_pylist()


def _map_values(array: pa.Array, key: t.LogicalType, value: t.LogicalType, *, iso: bool) -> list[Any]:
    kept = array.drop_null()
    start, end = (kept.offsets[0].as_py(), kept.offsets[-1].as_py()) if len(kept) else (0, 0)
    keys = [_key_text(k) for k in wire_values(key, kept.keys[start:end], iso=iso)]
    items = wire_values(value, kept.items[start:end], iso=iso)
    return grouped(array, list(zip(keys, items, strict=True)), dict)


def _floats(type_: t.LogicalType, array: pa.Array) -> list[float | None]:
    if isinstance(type_, t.FloatType):
        # The shortest text of the float32, not of its double.
        return [None if v is None else float(v) for v in array.cast(pa.string()).to_pylist()]
    return array.to_pylist()


def _key_text(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key)


def grouped(array: pa.Array, flat: list[Any], make: Callable[[list[Any]], Any]) -> list[Any]:
    """The flat items of a list or map array, regrouped by row."""
    out: list[Any] = []
    at = 0
    lengths = pc.list_value_length(array) if pa.types.is_list(array.type) else _map_lengths(array)
    for length in lengths.to_pylist():
        if length is None:
            out.append(None)
        else:
            out.append(make(flat[at : at + length]))
            at += length
    return out


def _map_lengths(array: pa.Array) -> pa.Array:
    offsets = array.offsets
    lengths = pc.subtract(offsets[1:], offsets[:-1])
    return pc.if_else(array.is_valid(), lengths, None)
