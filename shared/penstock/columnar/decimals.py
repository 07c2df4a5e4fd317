"""Exact decimal sums in NumPy: decimals as 32-bit limbs in int64 cells, and limbs as decimal columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.types import logical as t
from penstock.types.arrow_buffers import decimal128_array, decimal128_words, packed_bitmap
from penstock.types.column import Column
from penstock.types.storage import numpy_dtype

_LOW = np.int64(0xFFFFFFFF)
_WORD = (1 << 64) - 1


def limbs(column: Column) -> list[np.ndarray]:
    """The unscaled values as int64 limb arrays, lowest limb first.

    Every limb but the last holds 32 unsigned bits; the last is signed. DECIMAL(p <= 18) has two limbs,
    a wider decimal four. A sum of up to 2^31 values cannot overflow a limb.
    """
    values = column.values
    if isinstance(values, np.ndarray):
        return [values & _LOW, values >> 32]
    low, high = decimal128_words(values)
    return [low & _LOW, (low >> 32) & _LOW, high & _LOW, high >> 32]


def split(values: np.ndarray, count: int) -> list[np.ndarray]:
    """Python ints (an object array) as ``count`` int64 limb arrays, lowest limb first."""
    low = [((values >> (32 * i)) & int(_LOW)).astype(np.int64) for i in range(count - 1)]
    return [*low, (values >> (32 * (count - 1))).astype(np.int64)]


def carry(cells: list[np.ndarray]) -> None:
    """Normalise limbs in place: carry the overflow of each limb into the next, up to the last."""
    for i in range(len(cells) - 1):
        cells[i + 1] += cells[i] >> 32
        cells[i] &= _LOW


def to_ints(cells: list[np.ndarray]) -> np.ndarray:
    """The values of normalised limbs: an int64 array if all values fit, else an object array of ints."""
    if len(cells) == 2 and not len(cells[1]):
        return cells[0]
    if len(cells) == 2:
        top = cells[1]
        if int(top.max(initial=0)) < 2**31 and int(top.min(initial=0)) >= -(2**31):
            return (top << 32) | cells[0]
    out = cells[-1].astype(object)
    for cell in reversed(cells[:-1]):
        out = (out << 32) + cell.astype(object)
    return out


def divide_half_up(values: np.ndarray, divisor: np.ndarray, shift: int) -> np.ndarray:
    """values · 10^shift / divisor, rounded half away from zero. Every divisor must be above 0."""
    factor = 10**shift
    if values.dtype != object:
        largest = max(abs(int(values.max(initial=0))), abs(int(values.min(initial=0))))
        if 2 * (largest * factor + int(divisor.max(initial=1))) < 2**63:
            top = np.abs(values) * factor
            return np.sign(values) * ((2 * top + divisor) // (2 * divisor))
        values = values.astype(object)
    out = np.empty(len(values), object)
    for i, (v, d) in enumerate(zip(values.tolist(), divisor.tolist(), strict=True)):
        q = (2 * abs(v) * factor + d) // (2 * d)
        out[i] = q if v >= 0 else -q
    return out


def decimal_column(type_: t.DecimalType, unscaled: np.ndarray, valid: np.ndarray | None) -> Column:
    """A decimal column of unscaled values (int64 or Python ints); a value above the precision becomes NULL."""
    limit = 10**type_.precision
    if unscaled.dtype == object or type_.precision < 19:
        fits = np.asarray((unscaled < limit) & (unscaled > -limit), np.bool_)
        if not fits.all():
            unscaled = np.where(fits, unscaled, 0)
            valid = fits if valid is None else valid & fits
    if valid is not None and valid.all():
        valid = None
    if numpy_dtype(type_) is not None:
        return Column(type_, unscaled.astype(np.int64), valid)
    if unscaled.dtype == object:
        low = (unscaled & _WORD).astype(np.uint64).view(np.int64)
        high = (unscaled >> 64).astype(np.int64)
    else:
        low, high = unscaled, unscaled >> 63
    arrow = pa.decimal128(type_.precision, type_.scale)
    return Column(type_, decimal128_array(arrow, low, high, packed_bitmap(valid)))
