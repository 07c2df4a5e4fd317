"""Casts between numbers: integers wrap, floating point saturates (Java), what is beyond a DECIMAL is NULL."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import RecordError
from penstock.functions import decimals as d
from penstock.functions.parsing import fit_decimal
from penstock.functions.vector import column_from_storage
from penstock.types import logical as t
from penstock.types.column import Column
from penstock.types.storage import numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Callable

    Convert = Callable[[Column], Column]


FLOATS = (t.FloatType, t.DoubleType)


def nonzero(column: Column) -> np.ndarray:
    values = d.unscaled(column) if isinstance(column.type, t.DecimalType) else column.values
    return np.asarray(values != 0, np.bool_)


def saturate(values: np.ndarray, dtype: Any) -> np.ndarray:
    """Java's conversion from floating point to integer: NaN is 0, a number beyond the range is its end.
    TINYINT and SMALLINT go through INT and wrap."""
    dtype = np.dtype(dtype)
    via = np.dtype(np.int32) if dtype.itemsize < 4 else dtype
    info = np.iinfo(via)
    values = np.nan_to_num(np.asarray(values, np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
    # float(max of int64) rounds up to 2**63, which itself is out of range.
    high, low = values >= float(info.max), values <= float(info.min)
    out = np.where(high | low, 0, values).astype(via)
    return np.where(high, info.max, np.where(low, info.min, out)).astype(via).astype(dtype)


def to_number(source: t.LogicalType, target: t.LogicalType) -> Convert:
    dtype = numpy_dtype(target)
    assert dtype is not None
    integral = dtype.kind == "i"

    def convert(column: Column) -> Column:
        values: Any
        if isinstance(source, t.DecimalType):
            if integral:
                whole = d.truncate_quotient(d.unscaled(column), 10**source.scale)
                values = _wrap(whole).astype(dtype)
            else:
                values = d.to_double(column).astype(dtype)
        elif integral and isinstance(source, FLOATS):
            values = saturate(column.values, dtype)
        else:
            values = column.values.astype(dtype)
        return Column(target, values, column.valid)

    return convert


def _wrap(values: np.ndarray) -> np.ndarray:
    """Low 64 bits of integers of any size."""
    if values.dtype != object:
        return values.astype(np.int64)
    return (values & ((1 << 64) - 1)).astype(np.uint64).view(np.int64)


def to_decimal(source: t.LogicalType, target: t.DecimalType, lenient: bool) -> Convert:
    if isinstance(source, FLOATS):
        return _float_to_decimal(target, lenient)
    scale = d.scale_of(source)

    def convert(column: Column) -> Column:
        values = d.unscaled(column)
        return d.from_unscaled(target, d.rescale(values, scale, target.scale), column.valid)

    return convert


def _float_to_decimal(target: t.DecimalType, lenient: bool) -> Convert:
    """By the shortest digits of the number (BigDecimal.valueOf), half up."""

    def convert(column: Column) -> Column:
        out: list[Any] = []
        finite = np.isfinite(column.values)
        single = column.values.dtype == np.float32
        for i, value in enumerate(column.values if single else column.storage_list()):
            if value is None or (column.valid is not None and not column.valid[i]):
                out.append(None)
            elif finite[i]:
                text = str(value) if single else repr(value)
                out.append(fit_decimal(Decimal(text), target.precision, target.scale))
            elif lenient:
                out.append(None)
            else:
                raise RecordError(
                    f"cannot cast {value} to {target.sql()}",
                    expected="a finite number",
                    got=str(value),
                    remedy="use TRY_CAST to get NULL",
                )
        return column_from_storage(target, out)

    return convert
