"""Converts decoded Avro values to columns, and columns to values for an Avro writer. Times are numbers in both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.formats.avro.schema import UNITS
from penstock.formats.build import DAY_US, flatten, in_range, struct_of
from penstock.formats.json_encode import grouped
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column
from penstock.types.storage import external_arrow_type

if TYPE_CHECKING:
    from penstock.formats.avro.schema import Node, Writer


def to_batch(schema: t.Schema, writer: Writer, records: list[dict[str, Any]]) -> Batch:
    """Decoded records as columns. ``pa.ArrowException``, ``ValueError``, ``OverflowError`` or ``TypeError`` if
    a value does not fit."""
    columns = []
    for field, node in zip(schema.fields, writer.nodes, strict=True):
        if node is None:
            columns.append(Column.nulls(field.type, len(records)))
            continue
        name = field.name
        column = Column.from_arrow(field.type, _array(field.type, [r[name] for r in records], node, writer))
        if not field.type.nullable and column.null_count:
            raise ValueError(f"NULL in column '{name}', which is NOT NULL")
        columns.append(column)
    return Batch(schema, columns, num_rows=len(records))


def _array(type_: t.LogicalType, values: list[Any], node: Node, writer: Writer) -> pa.Array:
    match type_:
        case t.TimestampType(precision=p) | t.TimestampLtzType(precision=p) | t.TimeType(precision=p):
            return _times(type_, p, values, UNITS[writer.resolved(node)[0]["logicalType"]])
        case t.DateType():
            return in_range(type_, pa.array(values, pa.int32()).cast(pa.date32()))
        case t.ArrayType(element=element):
            offsets, mask, flat = flatten(values)
            items = _array(element, flat, writer.resolved(node)[0]["items"], writer)
            return pa.ListArray.from_arrays(offsets, items, type=external_arrow_type(type_), mask=mask)
        case t.MapType(key=key, value=value):
            return _maps(type_, key, value, values, writer.resolved(node)[0]["values"], writer)
        case t.MultisetType(element=element):
            return _maps(type_, element, t.IntType(), values, writer.resolved(node)[0]["values"], writer)
        case t.RowType():
            return _rows(type_, values, writer.resolved(node)[0], writer)
    return pa.array(values, external_arrow_type(type_))


def _times(type_: t.LogicalType, precision: int, values: list[Any], unit: int) -> pa.Array:
    numbers = pa.array(values, pa.int64())
    if unit != 1:
        numbers = pc.multiply_checked(numbers, pa.scalar(unit, pa.int64()))
    step = 10 ** (6 - precision)
    if step > unit:
        cut = [None if v is None else v - v % step for v in numbers.to_pylist()]
        numbers = pa.array(cut, pa.int64())
    if isinstance(type_, t.TimeType):
        bounds = pc.min_max(numbers)
        if bounds["min"].is_valid and not 0 <= bounds["min"].as_py() <= bounds["max"].as_py() < DAY_US:
            raise ValueError("a time of day outside one day")
    return in_range(type_, numbers.cast(external_arrow_type(type_)))


def _maps(
    type_: t.LogicalType, key: t.LogicalType, value: t.LogicalType, values: list[Any], node: Node, writer: Writer
) -> pa.Array:  # fmt: skip
    offsets, mask, flat = flatten([None if v is None else list(v.items()) for v in values])
    keys = pa.array([k for k, _ in flat], external_arrow_type(key))
    items = _array(value, [v for _, v in flat], node, writer)
    return pa.MapArray.from_arrays(offsets, keys, items, type=external_arrow_type(type_), mask=mask)


def _rows(type_: t.RowType, values: list[Any], node: Node, writer: Writer) -> pa.Array:
    if not type_.fields:
        return pa.array([None if v is None else {} for v in values], pa.struct([]))
    nodes = {f["name"]: f["type"] for f in node["fields"]}
    there = [v for v in values if v is not None]
    children = []
    for field in type_.fields:
        want = external_arrow_type(field.type)
        if field.name not in nodes:
            children.append(pa.nulls(len(there), want))
            continue
        child = _array(field.type, [v[field.name] for v in there], nodes[field.name], writer)
        children.append(child if child.type == want else child.cast(want))
    absent = None if len(there) == len(values) else np.array([v is None for v in values])
    return struct_of(type_, children, absent)


def to_records(batch: Batch) -> list[dict[str, Any]]:
    """The rows in the form that Avro's writer takes."""
    names = batch.schema.names
    columns = [_wire(c.type, c.to_external_arrow()) for c in batch.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _wire(type_: t.LogicalType, array: pa.Array) -> list[Any]:
    match type_:
        case t.TimestampType(precision=p) | t.TimestampLtzType(precision=p) | t.TimeType(precision=p):
            numbers = array.cast(pa.int64()).to_pylist()
            return numbers if p > 3 else [None if v is None else v // 1000 for v in numbers]
        case t.DateType():
            return array.cast(pa.int32()).to_pylist()
        case t.ArrayType(element=element):
            return grouped(array, _wire(element, array.flatten()), list)
        case t.MapType(value=value):
            return _wire_maps(array, value)
        case t.MultisetType():
            return _wire_maps(array, t.IntType())
        case t.RowType(fields=fields):
            names = [f.name for f in fields]
            if not names:
                return array.to_pylist()
            children = [_wire(f.type, c) for f, c in zip(fields, array.flatten(), strict=True)]
            valid = array.is_valid().to_pylist()
            rows = zip(zip(*children, strict=True), valid, strict=True)
            return [dict(zip(names, row, strict=True)) if ok else None for row, ok in rows]
    return array.to_pylist()


def _wire_maps(array: pa.Array, value: t.LogicalType) -> list[Any]:
    kept = array.drop_null()
    start, end = (kept.offsets[0].as_py(), kept.offsets[-1].as_py()) if len(kept) else (0, 0)
    pairs = zip(kept.keys[start:end].to_pylist(), _wire(value, kept.items[start:end]), strict=True)
    return grouped(array, list(pairs), dict)
