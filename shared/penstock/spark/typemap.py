"""Maps types and columns between Penstock and Spark.

A Spark column holds values as ``external_arrow_type`` defines them, so that frames read naturally and filters
reach the Parquet reader. Types that Spark does not have keep the integers of our own storage: TIME and
INTERVAL DAY TO SECOND are BIGINT µs, INTERVAL YEAR TO MONTH is INT months. MULTISET is a map to counts, VARIANT its JSON text, RAW
is pickled bytes, NULL is a BOOLEAN that is never set. TIMESTAMP is Spark's TIMESTAMP_NTZ, TIMESTAMP_LTZ its
TIMESTAMP; the session's zone is always UTC, so that a cast between them shifts nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import types as st

from penstock.errors import UnsupportedError
from penstock.types import logical as t
from penstock.types.column import Column
from penstock.types.storage import external_arrow_type, nested_arrow_type

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.types.logical import LogicalType, Schema

_PLAIN: dict[type, st.DataType] = {
    t.BooleanType: st.BooleanType(),
    t.TinyIntType: st.ByteType(),
    t.SmallIntType: st.ShortType(),
    t.IntType: st.IntegerType(),
    t.BigIntType: st.LongType(),
    t.FloatType: st.FloatType(),
    t.DoubleType: st.DoubleType(),
    t.CharType: st.StringType(),
    t.VarCharType: st.StringType(),
    t.VariantType: st.StringType(),
    t.BinaryType: st.BinaryType(),
    t.VarBinaryType: st.BinaryType(),
    t.DateType: st.DateType(),
    t.TimeType: st.LongType(),
    t.TimestampType: st.TimestampNTZType(),
    t.TimestampLtzType: st.TimestampType(),
    t.YearMonthIntervalType: st.IntegerType(),
    t.DayTimeIntervalType: st.LongType(),
    t.NullType: st.BooleanType(),
    t.RawType: st.BinaryType(),
}
_ARROW: dict[type, pa.DataType] = {
    t.TimeType: pa.int64(),
    t.DayTimeIntervalType: pa.int64(),
    t.NullType: pa.bool_(),
}


def spark_type(type_: LogicalType) -> st.DataType:
    """The Spark type of a column. Raises UnsupportedError for a type without an equivalent."""
    match type_:
        case t.DecimalType(precision=p, scale=s):
            return st.DecimalType(p, s)
        case t.ArrayType(element=e):
            return st.ArrayType(spark_type(e))
        case t.MapType(key=k, value=v):
            return st.MapType(spark_type(k), spark_type(v))
        case t.MultisetType(element=e):
            return st.MapType(spark_type(e), st.IntegerType())
        case t.RowType(fields=fields):
            return st.StructType([st.StructField(f.name, spark_type(f.type)) for f in fields])
    found = _PLAIN.get(type(type_))
    if found is None:
        raise UnsupportedError(
            f"a column of type {type_} on Spark",
            expected="one of " + ", ".join(sorted(c.__name__.removesuffix("Type") for c in _PLAIN)),
            got=str(type_),
            remedy="cast it to another type, or run the job with execution.engine = streaming",
        )
    return found


def spark_arrow_type(type_: LogicalType) -> pa.DataType:
    """The Arrow type in which Spark exchanges such a column with Python."""
    found = _ARROW.get(type(type_)) or nested_arrow_type(type_, spark_arrow_type)
    return external_arrow_type(type_) if found is None else found


def column_names(schema: Schema) -> list[str]:
    """Spark's names of the columns: the columns' own names; a repeated name gets a number."""
    taken: set[str] = set()
    out = []
    for field in schema.fields:
        name, i = field.name, 1
        while name in taken or name.startswith("__"):
            name, i = f"{field.name.lstrip('_') or 'c'}_{i}", i + 1
        taken.add(name)
        out.append(name)
    return out


def struct_type(types: Iterable[LogicalType], names: Iterable[str]) -> st.StructType:
    """A Spark row type of these columns."""
    return st.StructType([st.StructField(n, spark_type(x)) for n, x in zip(names, types, strict=True)])


def to_spark_array(column: Column) -> pa.Array:
    """A column as the Arrow array that Spark expects from Python."""
    want = spark_arrow_type(column.type)
    if isinstance(column.type, t.NullType):
        return pa.nulls(len(column), pa.bool_())
    if isinstance(column.type, (t.TimeType, t.DayTimeIntervalType)):
        return column.to_arrow()
    array = column.to_external_arrow()
    return array if array.type == want else array.cast(want)


def from_spark_array(type_: LogicalType, array: pa.Array) -> Column:
    """A column of ``type_`` from an Arrow array that Spark gave to Python."""
    if isinstance(type_, t.NullType):
        return Column.nulls(type_, len(array))
    return Column.from_arrow(type_, array)
