"""Turns the values of a column, as its natural type has them, into the declared type; and the texts of the snapshot
into the natural type. Both exactly, or not at all, with an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.cdc.rows import check_digits
from penstock.connectors.mysql_cdc.settings import OWNER
from penstock.errors import RecordError
from penstock.types import logical as t
from penstock.types.column import Column
from penstock.types.storage import external_arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.connectors.mysql_cdc.types import MySqlType

#: What the conversions raise for a value that does not fit.
UNFIT = (pa.ArrowException, ValueError, TypeError, OverflowError)


def unfit(field: t.Field, there: MySqlType, got: str) -> RecordError:
    """The error for a value that the declared type does not hold."""
    return RecordError(
        f"a value of column '{field.name}' is no {field.type}",
        expected=str(field.type),
        got=f"{got[:200]}, of the server's {there.shown}",
        where=OWNER,
        remedy="mend the row in the database, or set 'on-error'",
    )


def fitted(field: t.Field, there: MySqlType, column: Column, zone: str) -> Column:
    """A column of the natural type as the declared one. ``zone``: that of TIMESTAMP columns declared without a
    zone. RecordError names the column."""
    type_ = field.type.with_nullable(True)
    try:
        found = column if type(type_) is type(column.type) else _as(type_, column, zone)
        if isinstance(type_, (t.TimeType, t.TimestampType, t.TimestampLtzType)):
            check_digits(found, type_.precision)
            return Column(field.type, found.values, found.valid)
        if isinstance(type_, t.DecimalType) and type_ != column.type:
            found = _as(type_, column, zone)
        return found.cast_type(field.type)
    except UNFIT as err:
        raise unfit(field, there, str(err)) from err


def _as(type_: t.LogicalType, column: Column, zone: str) -> Column:
    values = column.to_external_arrow()
    if isinstance(type_, t.BooleanType) and not pa.types.is_boolean(values.type):
        outside = pc.any(pc.invert(pc.is_in(values, pa.array([0, 1, None], values.type)))).as_py()
        if outside:
            raise ValueError("a number that is neither 0 nor 1")
        return Column.from_arrow(type_, pc.equal(values, pa.scalar(1, values.type)))
    if isinstance(type_, t.TimestampType):
        return Column.from_arrow(type_, pc.local_timestamp(values.cast(pa.timestamp("us", zone))))
    if isinstance(type_, t.DecimalType) and pa.types.is_integer(values.type):
        values = values.cast(pa.decimal128(19, 0))
    return Column.from_arrow(type_, values.cast(external_arrow_type(type_)))


def column_of_texts(field: t.Field, there: MySqlType, texts: Sequence[Any], zone: str) -> Column:
    """The values of the snapshot: texts of the server, bytes for binary types. RecordError names the column and the first value
    that does not fit."""
    try:
        natural = _of_texts(there, texts)
    except UNFIT as err:
        raise unfit(field, there, _first(texts, lambda value: _of_texts(there, [value])) or str(err)) from err
    return fitted(field, there, natural, zone)


def _first(values: Sequence[Any], convert: Callable[[Any], object]) -> str:
    for value in values:
        try:
            convert(value)
        except UNFIT:
            return repr(value)
    return ""


def _of_texts(there: MySqlType, texts: Sequence[Any]) -> Column:
    natural = there.natural
    match natural:
        case t.BooleanType():
            return Column.of(natural, [None if x is None else x not in (b"\0", b"") for x in texts])
        case t.VarBinaryType() if there.base == "bit":
            size = (there.numbers[0] + 7) // 8
            return Column.of(natural, [None if x is None else x.rjust(size, b"\0") for x in texts])
        case t.VarBinaryType():
            return Column.from_arrow(natural, pa.array(texts, pa.binary()))
        case t.TimestampLtzType() | t.TimestampType():
            moments = pa.array(texts, pa.string()).cast(pa.timestamp("us"))
            return Column.from_arrow(natural, moments.cast(external_arrow_type(natural)))
        case t.TimeType():
            whole = pc.binary_join_element_wise("1970-01-01 ", pa.array(texts, pa.string()), "")
            return Column.from_arrow(natural, whole.cast(pa.timestamp("us")).cast(pa.int64()))
        case t.FloatType():
            doubles = pa.array(texts, pa.string()).cast(pa.float64())
            return Column.from_arrow(
                natural,
                pa.array(doubles.to_numpy(zero_copy_only=False).astype(np.float32), mask=_nulls(doubles)),
            )
        case None:
            raise ValueError("a type that is not read")
    found = pa.array(texts, pa.string())
    return Column.from_arrow(
        natural, found if isinstance(natural, t.VarCharType) else found.cast(external_arrow_type(natural))
    )


def _nulls(values: pa.Array) -> np.ndarray:
    mask: np.ndarray = pc.is_null(values).to_numpy(zero_copy_only=False)
    return mask
