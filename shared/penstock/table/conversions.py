"""Converts rows from and to Arrow; pandas and Polars convert by way of Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.connectors.collect import materialize
from penstock.errors import SpecError, SpecTypeError
from penstock.plan import nodes as n
from penstock.sql.values import encode_batch
from penstock.table.pandas_values import changes, series_of
from penstock.types import Batch
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Iterable

_SIMPLE: tuple[tuple[Any, t.LogicalType], ...] = (
    (pa.types.is_boolean, t.BooleanType()),
    (pa.types.is_int8, t.TinyIntType()),
    (pa.types.is_int16, t.SmallIntType()),
    (pa.types.is_uint8, t.SmallIntType()),
    (pa.types.is_int32, t.IntType()),
    (pa.types.is_uint16, t.IntType()),
    (pa.types.is_int64, t.BigIntType()),
    (pa.types.is_uint32, t.BigIntType()),
    (pa.types.is_uint64, t.DecimalType(20, 0)),
    (pa.types.is_float32, t.FloatType()),
    (pa.types.is_float64, t.DoubleType()),
    (pa.types.is_date, t.DateType()),
    (pa.types.is_time, t.TimeType(6)),
    (pa.types.is_duration, t.DayTimeIntervalType()),
    (pa.types.is_string, t.VarCharType()),
    (pa.types.is_large_string, t.VarCharType()),
    (pa.types.is_string_view, t.VarCharType()),
    (pa.types.is_binary, t.VarBinaryType()),
    (pa.types.is_large_binary, t.VarBinaryType()),
    (pa.types.is_binary_view, t.VarBinaryType()),
)
_PRECISION = {"s": 0, "ms": 3, "us": 6, "ns": 6}


def logical_of(arrow: pa.DataType, column: str) -> t.LogicalType:
    """The SQL type of an Arrow type. Raises SpecError, with the column's name, if SQL has no such type."""
    for matches, logical in _SIMPLE:
        if matches(arrow):
            return logical
    if pa.types.is_timestamp(arrow):
        kind = t.TimestampType if arrow.tz is None else t.TimestampLtzType
        return kind(_PRECISION[arrow.unit])
    if pa.types.is_decimal(arrow) and arrow.precision <= t.MAX_DECIMAL_PRECISION and arrow.scale >= 0:
        return t.DecimalType(arrow.precision, arrow.scale)
    if pa.types.is_dictionary(arrow):
        return logical_of(arrow.value_type, column)
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow):
        return t.ArrayType(logical_of(arrow.value_type, column))
    if pa.types.is_map(arrow):
        return t.MapType(logical_of(arrow.key_type, column), logical_of(arrow.item_type, column))
    if pa.types.is_struct(arrow):
        fields = (t.Field(f.name, logical_of(f.type, column)) for f in arrow)
        return t.RowType(tuple(fields))
    raise SpecError(
        f"column '{column}' has a type that SQL has not",
        expected="numbers, text, bytes, times, lists, maps or structs",
        got=str(arrow),
        remedy="cast the column first",
    )


def arrow_node(data: pa.Table | pa.RecordBatch, schema: t.Schema | None, names: list[str] | None) -> n.Values:
    """The plan node that gives rows of Arrow.

    Args:
        data: The rows.
        schema: Types of the columns, in order. None: those of the data.
        names: Names of the columns, in order. None: those of the data or of ``schema``.

    Raises:
        SpecError: SQL has no such type, or the data does not fit the schema.
    """
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    data = _without_views(data)
    if schema is None:
        found = [t.Field(f.name, logical_of(f.type, f.name)) for f in data.schema]
        schema = t.Schema(tuple(found))
    if len(schema) != data.num_columns or (names is not None and len(names) != data.num_columns):
        raise SpecError(
            "the columns do not fit the schema",
            expected=f"{data.num_columns} columns",
            got=f"{len(schema) if names is None else len(names)} columns",
        )
    if names is not None:
        schema = t.Schema(tuple(t.Field(name, f.type) for name, f in zip(names, schema.fields, strict=True)))
    for field, column in zip(schema.fields, data.columns, strict=True):
        _check_kind(field, column.type)
        if not field.type.nullable and column.null_count:
            raise SpecError(
                f"column '{field.name}' has NULL", expected=str(field.type), got=f"{column.null_count} NULLs"
            )
    batch = Batch.from_external_arrow(schema, data.combine_chunks())
    return n.Values(schema=schema, data=encode_batch(batch))


def _check_kind(field: t.Field, given: pa.DataType) -> None:
    """Raise SpecTypeError for texts in a column of numbers, and for other values in a column of texts: they would be converted
    silently, or fail at some row."""
    text, wanted = pa.types.is_string(given), isinstance(field.type, t.STRINGS)
    number = isinstance(field.type, (*t.INTEGERS, t.FloatType, t.DoubleType, t.DecimalType, t.BooleanType))
    if pa.types.is_null(given) or text == wanted or not (wanted or (text and number)):
        return
    kind = "a string" if wanted else f"a value of {field.type}"
    raise SpecTypeError(
        f"Expected {kind} in column '{field.name}', got {given}",
        expected=str(field.type),
        got=str(given),
        remedy="declare the type that the data has, and cast it: col(…).cast(…)",
    )


def _without_views(data: pa.Table) -> pa.Table:
    """The rows with plain types for views, large types and dictionaries, and with timestamps in µs for ns."""
    fields = []
    for field in data.schema:
        type_ = field.type
        if pa.types.is_string_view(type_) or pa.types.is_large_string(type_):
            type_ = pa.string()
        elif pa.types.is_binary_view(type_) or pa.types.is_large_binary(type_):
            type_ = pa.binary()
        elif pa.types.is_dictionary(type_):
            type_ = type_.value_type
        elif pa.types.is_timestamp(type_) and type_.unit == "ns":
            type_ = pa.timestamp("us", type_.tz)
        fields.append(field.with_type(type_))
    return data.cast(pa.schema(fields))


def frame_of(rows: pa.Table, schema: t.Schema) -> Any:
    """The rows as a pandas DataFrame. A point in time is in the unit of its type, as in Flink: seconds for a precision of 0, ms up to
    3, µs up to 6."""
    fields = []
    for field, declared in zip(rows.schema, schema.types, strict=True):
        if isinstance(declared, t.TIMESTAMPS):
            unit = "s" if declared.precision == 0 else "ms" if declared.precision <= 3 else "us"
            field = field.with_type(pa.timestamp(unit, field.type.tz))
        fields.append(field)
    typed = rows.cast(pa.schema(fields)).combine_chunks()
    frame = typed.to_pandas()
    for i, column in enumerate(typed.columns):
        array = pa.concat_arrays(column.chunks) if column.num_chunks else None
        if array is not None and changes(array):
            frame.isetitem(i, series_of(array))
    return frame


def arrow_of(schema: t.Schema, batches: Iterable[Batch]) -> pa.Table:
    """The rows that remain after all changes of a changelog, as an Arrow table."""
    found = [batch for batch in batches if len(batch)]
    if any(batch.kinds is not None and (batch.kinds != 0).any() for batch in found):
        log = []
        for batch in found:
            kinds = [0] * len(batch) if batch.kinds is None else batch.kinds.tolist()
            columns = [column.to_pylist() for column in batch.columns]
            log += list(zip(kinds, zip(*columns, strict=True), strict=True))
        found = [Batch.of(schema, materialize(log))]
    if not found:
        found = [Batch.empty(schema)]
    return pa.Table.from_batches([batch.to_external_arrow() for batch in found])
