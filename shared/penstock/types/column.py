"""``Column(values, valid | None)``: the one form of a column in memory.

A fixed-width type is a NumPy array (``values``) with a boolean mask (``valid``, True = not NULL, or None if no
value is NULL); the value under a NULL is unspecified but of the right dtype. Any other type is an Arrow array,
whose validity ``valid`` shows too. ``arrow_buffers`` knows Arrow's own layout.

There are two forms in Arrow. ``to_arrow()`` is the *physical* form, without a copy, for channels and snapshots
(a DECIMAL(10, 2) is int64). ``to_external_arrow()`` is the form that people and other tools expect (decimal128,
timestamp[us], date32), for connectors and results.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InternalError, RecordError
from penstock.types import logical as t
from penstock.types import pickling
from penstock.types.arrow_buffers import (
    decimal128_array,
    decimal128_words,
    fixed_values,
    validity,
    validity_bitmap,
)
from penstock.types.storage import arrow_type, external_arrow_type, numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Column:
    """One column of a batch. Immutable by convention: never write into its arrays.

    Args:
        type_: The SQL type.
        values: n values: an ndarray (fixed width, RAW) or a pa.Array (all other types).
        valid: bool ndarray of n, False for NULL; None when no value is NULL.
    """

    __slots__ = ("_valid", "_valid_known", "type", "values")

    def __init__(
        self,
        type_: t.LogicalType,
        values: np.ndarray | pa.Array,
        valid: np.ndarray | None = None,
    ) -> None:
        self.type = type_
        self.values: Any = values
        self._valid = valid
        self._valid_known = isinstance(values, np.ndarray)

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"Column({self.type}, {self.to_pylist()[:8]}{'…' if len(self) > 8 else ''})"

    @property
    def is_numpy(self) -> bool:
        """Whether ``values`` is an ndarray."""
        return isinstance(self.values, np.ndarray)

    @property
    def valid(self) -> np.ndarray | None:
        """Mask of non-NULL slots, or None when there is no NULL."""
        if not self._valid_known:
            self._valid = validity(self.values)
            self._valid_known = True
        return self._valid

    @property
    def null_count(self) -> int:
        """The number of NULLs."""
        if isinstance(self.values, np.ndarray):
            return 0 if self._valid is None else len(self._valid) - int(self._valid.sum())
        return self.values.null_count

    @property
    def nbytes(self) -> int:
        """Approximate bytes held by this slice."""
        values = self.values
        if isinstance(values, np.ndarray):
            if values.dtype.hasobject:
                return 64 * len(values)
            return values.nbytes + (0 if self._valid is None else self._valid.nbytes)
        return values.nbytes

    # -- making -----------------------------------------------------------------

    @classmethod
    def of(cls, type_: t.LogicalType, values: Sequence[Any]) -> Column:
        """Python ``values`` (None = NULL) as a column of ``type_``. ``to_pylist`` shows which Python type belongs to which."""
        return column_from_pylist(type_, values)

    @classmethod
    def nulls(cls, type_: t.LogicalType, n: int) -> Column:
        """``n`` NULLs of ``type_``."""
        dtype = numpy_dtype(type_)
        if dtype is None:
            return cls(type_, pa.nulls(n, arrow_type(type_)))
        if dtype.hasobject:
            return cls(type_, np.full(n, None, dtype=object), np.zeros(n, np.bool_))
        return cls(type_, np.zeros(n, dtype), np.zeros(n, np.bool_))

    @classmethod
    def constant(cls, type_: t.LogicalType, value: Any, n: int) -> Column:
        """``n`` copies of a *storage* ``value`` (unscaled decimal, µs, str …; None = NULL) of ``type_``."""
        if value is None:
            return cls.nulls(type_, n)
        dtype = numpy_dtype(type_)
        if dtype is None:
            return cls(type_, pa.repeat(pa.scalar(value, arrow_type(type_)), n))
        if dtype.hasobject:
            out = np.empty(n, dtype=object)
            out[:] = [value] * n
            return cls(type_, out)
        return cls(type_, np.full(n, value, dtype))

    @classmethod
    def from_arrow(cls, type_: t.LogicalType, array: pa.Array | pa.ChunkedArray) -> Column:
        """An Arrow ``array`` of the physical type, or any external one that maps to ``type_``, as a column."""
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
        dtype = numpy_dtype(type_)
        if dtype is None:
            want = arrow_type(type_)
            return cls(type_, array if array.type == want else array.cast(want))
        if dtype.hasobject:
            return cls(type_, *_raw_from_arrow(array))
        return cls(type_, *_fixed_from_arrow(type_, array, dtype))

    # -- reshaping --------------------------------------------------------------

    def take(self, indices: np.ndarray) -> Column:
        """The rows at ``indices``. If none of them is NULL the result has no mask, because masks make later
        steps slower."""
        if isinstance(self.values, np.ndarray):
            valid = None if self._valid is None else self._valid[indices]
            return Column(self.type, self.values[indices], None if valid is None or valid.all() else valid)
        return Column(self.type, self.values.take(pa.array(indices)))

    def take_or_null(self, indices: np.ndarray) -> Column:
        """Like ``take``; index -1 gives NULL (the padded side of an outer join)."""
        missing = indices < 0
        if not missing.any():
            return self.take(indices)
        if isinstance(self.values, np.ndarray):
            if not len(self.values):
                return Column.nulls(self.type, len(indices))
            safe = np.where(missing, 0, indices)
            valid = ~missing if self._valid is None else self._valid[safe] & ~missing
            return Column(self.type, self.values[safe], valid)
        return Column(self.type, self.values.take(pa.array(indices, mask=missing)))

    def filter(self, mask: np.ndarray) -> Column:
        """The values where ``mask``, a boolean array, is True."""
        return self.take(np.flatnonzero(mask))

    def slice(self, offset: int, length: int) -> Column:
        """``length`` values from ``offset`` on, without a copy."""
        if isinstance(self.values, np.ndarray):
            end = offset + length
            valid = None if self._valid is None else self._valid[offset:end]
            return Column(self.type, self.values[offset:end], valid)
        return Column(self.type, self.values.slice(offset, length))

    def cast_type(self, type_: t.LogicalType) -> Column:
        """The same storage under another logical type of the same storage."""
        return Column(type_, self.values, self.valid)

    @staticmethod
    def concat(columns: Sequence[Column]) -> Column:
        """The values of all ``columns``, which must have one type, in order."""
        first = columns[0]
        if len(columns) == 1:
            return first
        if isinstance(first.values, np.ndarray):
            valid = None
            if any(c._valid is not None for c in columns):
                valid = np.concatenate(
                    [np.ones(len(c), np.bool_) if c._valid is None else c._valid for c in columns]
                )
            return Column(first.type, np.concatenate([c.values for c in columns]), valid)
        return Column(first.type, pa.concat_arrays([c.values for c in columns]))

    def child(self, index: int) -> Column:
        """Field ``index`` of a ROW column; NULL where the row is NULL.

        Raises:
            InternalError: The column is no ROW.
        """
        if not isinstance(self.type, t.RowType):
            raise InternalError(f"child() of a {self.type}")
        field = self.type.fields[index]
        type_ = field.type.with_nullable(True) if self.type.nullable else field.type
        return Column.from_arrow(type_, pc.struct_field(self.values, [index]))

    # -- leaving ----------------------------------------------------------------

    def to_arrow(self) -> pa.Array:
        """Physical Arrow array; zero-copy except for the bitmap and booleans."""
        values = self.values
        if not isinstance(values, np.ndarray):
            return values
        if values.dtype.hasobject:
            valid = self._valid
            encoded = [
                None if valid is not None and not valid[i] else pickling.dumps(v)
                for i, v in enumerate(values)
            ]
            return pa.array(encoded, pa.binary())
        mask = None if self._valid is None else ~self._valid
        return pa.array(values, mask=mask)

    def to_external_arrow(self) -> pa.Array:
        """An Arrow array of the type that other tools expect: decimals, dates and timestamps instead of integers."""
        want = external_arrow_type(self.type)
        if isinstance(self.type, t.NullType):
            return pa.nulls(len(self))
        array = self.to_arrow()
        if array.type == want:
            return array
        if isinstance(self.type, t.DecimalType):
            return _unscaled_to_decimal(array, want)
        return array.view(want)

    def to_pylist(self) -> list[Any]:
        """Python values: int, float, str, Decimal, date, time, datetime, timedelta, list …

        Raises:
            RecordError: A date or time is outside the years 1 to 9999, which SQL and Python do not have.
        """
        if isinstance(self.values, np.ndarray) and self.values.dtype.hasobject:
            if self._valid is None:
                return self.values.tolist()
            return [v if ok else None for v, ok in zip(self.values, self._valid, strict=True)]
        array = self.to_external_arrow()
        try:
            return array.to_pylist()
        except OverflowError as err:
            raise RecordError(
                f"a value of type {self.type} is outside the years 1 to 9999",
                expected="a date from 0001-01-01 to 9999-12-31",
                got=_outside_the_calendar(array),
                remedy="leave such values out with WHERE, or CAST them to STRING",
            ) from err

    def storage_list(self) -> list[Any]:
        """Storage values (unscaled decimals, µs) as Python objects, None for NULL. Faster than ``to_pylist``."""
        values = self.values
        if isinstance(values, np.ndarray):
            out = values.tolist()
            if self._valid is not None:
                for i in np.flatnonzero(~self._valid).tolist():
                    out[i] = None
            return out
        return values.to_pylist()


def _outside_the_calendar(array: pa.Array) -> str:
    """The text of the first value that is outside Python's calendar."""
    for value in array:
        try:
            value.as_py()
        except OverflowError:
            return (
                str(value.cast(pa.string())) if pa.types.is_temporal(value.type) else f"within {array.type}"
            )
    raise InternalError("a column overflowed, but none of its values does")


def column_from_pylist(type_: t.LogicalType, values: Iterable[Any]) -> Column:
    """A column of Python values; None is NULL. Arrow's or Python's error if a value does not fit."""
    values = list(values)
    dtype = numpy_dtype(type_)
    if dtype is not None and dtype.hasobject:
        out = np.empty(len(values), dtype=object)
        out[:] = values
        valid = np.array([v is not None for v in values], np.bool_)
        return Column(type_, out, None if valid.all() else valid)
    external = external_arrow_type(type_)
    if isinstance(type_, t.DecimalType):
        quantum, exact = Decimal(1).scaleb(-type_.scale), Context(prec=76, rounding=ROUND_HALF_UP)
        values = [None if v is None else Decimal(str(v)).quantize(quantum, context=exact) for v in values]
    return Column.from_arrow(type_, pa.array(values, external))


def _raw_from_arrow(array: pa.Array) -> tuple[np.ndarray, np.ndarray | None]:
    items = array.to_pylist()
    out = np.empty(len(items), dtype=object)
    # This must be a loop: the assignment of a list of equally long tuples would be two-dimensional.
    for i, item in enumerate(items):
        out[i] = None if item is None else pickling.loads(item)
    valid = None
    if array.null_count:
        valid = np.array([item is not None for item in items], np.bool_)
    return out, valid


def _fixed_from_arrow(
    type_: t.LogicalType, array: pa.Array, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray | None]:
    """The values and the mask of a fixed-width array. (``to_numpy`` would turn integers with NULLs into floats.)"""
    n = len(array)
    if isinstance(type_, t.NullType):
        return np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    array = _to_physical(type_, array)
    valid = validity(array)
    if dtype == np.bool_:
        filled = array if valid is None else pc.fill_null(array, False)
        return filled.to_numpy(zero_copy_only=False).astype(np.bool_, copy=False), valid
    return fixed_values(array, dtype), valid


def _to_physical(type_: t.LogicalType, array: pa.Array) -> pa.Array:
    want = arrow_type(type_)
    have = array.type
    if have == want:
        return array
    if isinstance(type_, t.DecimalType) and pa.types.is_decimal(have):
        return _decimal_to_unscaled(array, type_)
    external = external_arrow_type(type_)
    if have != external:
        array = array.cast(external)
    return array if external == want else array.view(want)


def _decimal_to_unscaled(array: pa.Array, type_: t.DecimalType) -> pa.Array:
    """decimal128 as int64 of unscaled values: the low words, since p <= 18 fits."""
    array = array.cast(pa.decimal128(type_.precision, type_.scale))
    valid = validity(array)
    return pa.array(decimal128_words(array)[0].copy(), mask=None if valid is None else ~valid)


def _unscaled_to_decimal(array: pa.Array, want: pa.DataType) -> pa.Array:
    low = fixed_values(array, np.dtype(np.int64))
    return decimal128_array(want, low, low >> 63, validity_bitmap(array))
