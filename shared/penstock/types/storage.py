"""The storage of each SQL type: its NumPy dtype or its Arrow type."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.errors import InternalError
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable

_NUMPY: dict[type, np.dtype] = {
    t.BooleanType: np.dtype(np.bool_),
    t.TinyIntType: np.dtype(np.int8),
    t.SmallIntType: np.dtype(np.int16),
    t.IntType: np.dtype(np.int32),
    t.BigIntType: np.dtype(np.int64),
    t.FloatType: np.dtype(np.float32),
    t.DoubleType: np.dtype(np.float64),
    t.DateType: np.dtype(np.int32),
    t.TimeType: np.dtype(np.int64),
    t.TimestampType: np.dtype(np.int64),
    t.TimestampLtzType: np.dtype(np.int64),
    t.YearMonthIntervalType: np.dtype(np.int32),
    t.DayTimeIntervalType: np.dtype(np.int64),
    t.NullType: np.dtype(np.bool_),
    t.RawType: np.dtype(np.object_),
}


def numpy_dtype(type_: t.LogicalType) -> np.dtype | None:
    """The dtype of a NumPy-backed type; None for an Arrow-backed type."""
    if isinstance(type_, t.DecimalType):
        small = type_.precision <= t.MAX_UNSCALED_INT64_PRECISION
        return np.dtype(np.int64) if small else None
    return _NUMPY.get(type(type_))


def arrow_type(type_: t.LogicalType) -> pa.DataType:
    """The physical Arrow type, which channels and snapshots use."""
    dtype = numpy_dtype(type_)
    if dtype is not None:
        return pa.binary() if dtype.hasobject else pa.from_numpy_dtype(dtype)
    match type_:
        case t.DecimalType(precision=p, scale=s):
            return pa.decimal128(p, s)
        case t.CharType() | t.VarCharType() | t.VariantType():
            return pa.string()
        case t.BinaryType() | t.VarBinaryType():
            return pa.binary()
        case t.ArrayType() | t.MapType() | t.MultisetType() | t.RowType():
            return external_arrow_type(type_)
    raise InternalError(f"no Arrow type for {type_}")


def external_arrow_type(type_: t.LogicalType) -> pa.DataType:
    """The Arrow type that other tools expect."""
    match type_:
        case t.DecimalType(precision=p, scale=s):
            return pa.decimal128(p, s)
        case t.DateType():
            return pa.date32()
        case t.TimeType():
            return pa.time64("us")
        case t.TimestampType():
            return pa.timestamp("us")
        case t.TimestampLtzType():
            return pa.timestamp("us", tz="UTC")
        case t.YearMonthIntervalType():
            return pa.int32()
        case t.DayTimeIntervalType():
            return pa.duration("us")
        case t.NullType():
            return pa.null()
    return nested_arrow_type(type_, external_arrow_type) or arrow_type(type_)


def nested_arrow_type(
    type_: t.LogicalType, inner: Callable[[t.LogicalType], pa.DataType]
) -> pa.DataType | None:
    """The Arrow type of an ARRAY, MAP, MULTISET or ROW whose parts have the types that ``inner`` returns; else
    None."""
    match type_:
        case t.ArrayType(element=e):
            return pa.list_(inner(e))
        case t.MapType(key=k, value=v):
            return pa.map_(inner(k), inner(v))
        case t.MultisetType(element=e):
            return pa.map_(inner(e), pa.int32())
        case t.RowType(fields=fields):
            return pa.struct([pa.field(f.name, inner(f.type)) for f in fields])
    return None
