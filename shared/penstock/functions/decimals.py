"""Exact decimal arithmetic on unscaled integers.

An unscaled vector is an int64 array if every value fits, else an object array of Python ints; both take the
same NumPy expressions. Each operation first computes an upper bound of its result from the extremes of its
operands, and uses int64 if nothing can overflow. Rounding is HALF_UP (away from zero). A value above the
precision becomes NULL, as in Flink.
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import pyarrow as pa

from penstock.functions.vector import Scalar
from penstock.types import logical as t
from penstock.types.arrow_buffers import decimal128_array, decimal128_words, packed_bitmap
from penstock.types.column import Column
from penstock.types.storage import arrow_type, numpy_dtype

if TYPE_CHECKING:
    from penstock.functions.vector import Vector

Unscaled = Union[np.ndarray, int]
_INT64_LIMIT = 1 << 63
_WORD = (1 << 64) - 1
_CONTEXT = Context(prec=100)


def is_wide(type_: t.LogicalType) -> bool:
    """True for a DECIMAL that Arrow stores (p > 18)."""
    return isinstance(type_, t.DecimalType) and type_.precision > t.MAX_UNSCALED_INT64_PRECISION


def scale_of(type_: t.LogicalType) -> int:
    """The scale of a DECIMAL; 0 for an integer type."""
    return type_.scale if isinstance(type_, t.DecimalType) else 0


def unscaled(vector: Vector) -> Unscaled:
    """Unscaled values of an exact number (integers have scale 0); a Python int for a Scalar."""
    if isinstance(vector, Scalar):
        if vector.value is None:
            return 0
        if is_wide(vector.type):
            return int(Decimal(vector.value).scaleb(scale_of(vector.type), _CONTEXT))
        return int(vector.value)
    values = vector.values
    if isinstance(values, np.ndarray):
        return values if values.dtype == np.int64 else values.astype(np.int64)
    return _words_to_ints(values)


def _words_to_ints(array: pa.Array) -> np.ndarray:
    """decimal128 → int64 where all fit, else Python ints."""
    low, high = decimal128_words(array)
    if (high == low >> 63).all():
        return np.ascontiguousarray(low)
    return (high.astype(object) << 64) | low.view(np.uint64).astype(object)


def from_unscaled(type_: t.DecimalType, values: np.ndarray, valid: np.ndarray | None) -> Column:
    """A column of ``type_``; values beyond its precision become NULL."""
    limit = 10**type_.precision
    if bound(values) >= limit:
        fits = np.asarray((values < limit) & (values > -limit), np.bool_)
        if not fits.all():
            valid = fits if valid is None else valid & fits
            values = np.where(fits, values, 0)
    if numpy_dtype(type_) is not None:
        return Column(type_, np.asarray(values, np.int64), valid)
    if values.dtype == np.int64:
        low, high = values, values >> 63
    else:
        low = (values & _WORD).astype(np.uint64).view(np.int64)
        high = (values >> 64).astype(np.int64)
    return Column(type_, decimal128_array(arrow_type(type_), low, high, packed_bitmap(valid)))


def bound(values: Unscaled) -> int:
    """The largest magnitude among the values."""
    if isinstance(values, int):
        return abs(values)
    if not len(values):
        return 0
    return max(abs(int(values.max())), abs(int(values.min())))


def widen(values: Unscaled, limit: int) -> Unscaled:
    """The values as Python ints when a result of magnitude ``limit`` would overflow int64."""
    if limit < _INT64_LIMIT or isinstance(values, int) or values.dtype == object:
        return values
    return values.astype(object)


def multiply(a: Unscaled, b: Unscaled) -> Unscaled:
    """The exact products; Python ints if int64 could overflow."""
    # A factor beyond int64 needs Python ints even where the other is 0.
    limit = max(bound(a) * bound(b), bound(a), bound(b))
    return widen(a, limit) * widen(b, limit)


def scale_up(values: Unscaled, digits: int) -> Unscaled:
    """The values times 10^digits; unchanged if ``digits`` is not positive."""
    return values if digits <= 0 else multiply(values, 10**digits)


def align(a: Unscaled, scale_a: int, b: Unscaled, scale_b: int) -> tuple[Unscaled, Unscaled, int]:
    """(a, b, scale) with both at the larger of the two scales."""
    scale = max(scale_a, scale_b)
    return scale_up(a, scale - scale_a), scale_up(b, scale - scale_b), scale


def add(a: Unscaled, b: Unscaled, sign: int = 1) -> Unscaled:
    """The exact sums, or differences if ``sign`` is negative."""
    limit = bound(a) + bound(b)
    a, b = widen(a, limit), widen(b, limit)
    return a + b if sign > 0 else a - b


def divide_half_up(a: Any, b: Any) -> Any:
    """a / b rounded half up; b has no zeros."""
    limit = 2 * (bound(a) + bound(b))
    a, b = widen(a, limit), widen(b, limit)
    magnitude_a, magnitude_b = abs(a), abs(b)
    out = (2 * magnitude_a + magnitude_b) // (2 * magnitude_b)
    return np.where((a < 0) != (b < 0), -out, out)


def truncate_quotient(a: Any, b: Any) -> Any:
    """a / b towards zero; b has no zeros."""
    limit = bound(a) + bound(b)
    a, b = widen(a, limit), widen(b, limit)
    out = abs(a) // abs(b)
    return np.where((a < 0) != (b < 0), -out, out)


def rescale(values: Any, scale: int, target: int) -> Any:
    """The values at the scale ``target``, rounded half up."""
    if target >= scale:
        return scale_up(values, target - scale)
    return divide_half_up(values, 10 ** (scale - target))


def to_double(vector: Vector) -> Any:
    """The doubles nearest to the values of an exact number."""
    values, scale = unscaled(vector), scale_of(vector.type)
    if isinstance(values, int):
        return float(Decimal(values).scaleb(-scale, _CONTEXT))
    if not scale:
        return values.astype(np.float64)
    if values.dtype != object and bound(values) < 1 << 53 and scale <= 22:
        # Both operands are exact doubles, so one division rounds once.
        return values / 10.0**scale
    power = 10**scale
    return np.array([int(v) / power for v in values], np.float64)
