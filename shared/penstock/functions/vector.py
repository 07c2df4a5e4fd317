"""Operands of kernels: a ``Column`` of n rows, or a ``Scalar`` that stands for n equal rows.

Both have ``type``, ``values`` (ndarray or NumPy scalar; Arrow array or Arrow scalar) and
``valid``, so that one NumPy expression or one Arrow call serves every mixture of them.
"""

from __future__ import annotations

import base64
from decimal import Decimal
from itertools import repeat
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import pyarrow as pa

from penstock.types import logical as t
from penstock.types.column import Column
from penstock.types.storage import arrow_type, numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.functions.expr import Literal


class Scalar:
    """A constant. ``value``: storage form (int, float, str, bytes, Decimal …), None = NULL.

    ``values``: the same as a NumPy or Arrow scalar; unspecified when NULL.
    """

    __slots__ = ("type", "value", "values")
    valid = None

    def __init__(self, type_: t.LogicalType, value: Any) -> None:
        self.type = type_
        self.value = value
        dtype = numpy_dtype(type_)
        if dtype is None:
            self.values = pa.scalar(value, arrow_type(type_))
        elif dtype.hasobject:
            self.values = value
        else:
            self.values = dtype.type(0 if value is None else value)

    def __repr__(self) -> str:
        return f"Scalar({self.type}, {self.value!r})"

    @classmethod
    def of_literal(cls, literal: Literal) -> Scalar:
        """The scalar of a literal: its storage form decoded (wide decimals, binaries)."""
        value, type_ = literal.value, literal.type
        if value is not None:
            if isinstance(type_, t.DecimalType) and type_.precision > t.MAX_UNSCALED_INT64_PRECISION:
                value = Decimal(value)
            elif isinstance(type_, t.BINARIES) and isinstance(value, str):
                value = base64.b64decode(value)
        return cls(type_, value)


Vector = Union[Column, Scalar]


def as_column(vector: Vector, n: int) -> Column:
    """The operand as n rows."""
    if isinstance(vector, Column):
        return vector
    return Column.constant(vector.type, vector.value, n)


def retyped(column: Column, type_: t.LogicalType) -> Column:
    """The same storage as ``type_``. It costs nothing: an Arrow array's mask is not computed."""
    if column.type == type_:
        return column
    return Column(type_, column.values) if not column.is_numpy else column.cast_type(type_)


def is_null(vector: Vector) -> bool:
    """Whether the operand is the NULL constant."""
    return vector.__class__ is Scalar and vector.value is None


def merge_valid(vectors: Iterable[Vector]) -> np.ndarray | None:
    """A boolean mask of the rows where every operand is not NULL; None if all are. Constants count as not NULL."""
    valid = None
    for vector in vectors:
        mask = vector.valid
        if mask is not None:
            valid = mask if valid is None else valid & mask
    return valid


def storage_values(vector: Vector, n: int) -> Iterable[Any]:
    """n Python storage values (None = NULL)."""
    if isinstance(vector, Column):
        return vector.storage_list()
    return repeat(vector.value, n)


def column_from_storage(type_: t.LogicalType, values: list[Any]) -> Column:
    """The inverse of ``Column.storage_list``."""
    dtype = numpy_dtype(type_)
    if dtype is None:
        return Column(type_, pa.array(values, arrow_type(type_)))
    if dtype.hasobject:
        return Column.of(type_, values)
    if None not in values:
        return Column(type_, np.array(values, dtype))
    valid = np.array([v is not None for v in values], np.bool_)
    return Column(type_, np.array([0 if v is None else v for v in values], dtype), valid)


def concat_take(type_: t.LogicalType, parts: Sequence[Vector], choice: np.ndarray, rows: Any) -> Column:
    """Row i of the result is row ``rows[i]`` of ``parts[choice[i]]`` (row 0 of a Scalar), for every kind of
    storage."""
    if all(isinstance(p, Scalar) for p in parts):
        constants = [retyped(as_column(p, 1), type_) for p in parts]
        return Column.concat(constants).take(choice)
    columns = [as_column(p, 1) if isinstance(p, Scalar) else p for p in parts]
    starts = np.cumsum([0, *(len(c) for c in columns[:-1])])
    scalar = np.array([isinstance(p, Scalar) for p in parts], np.bool_)
    index = starts[choice] + np.where(scalar[choice], 0, rows)
    return Column.concat([retyped(c, type_) for c in columns]).take(index)
