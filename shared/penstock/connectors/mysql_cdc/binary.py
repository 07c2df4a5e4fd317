"""Turns the bytes of values in the binary log into columns of their natural types, a column at a time."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.connectors.mysql_cdc import events as ev
from penstock.connectors.mysql_cdc.images import DIGIT_BYTES, RawColumn, real_type
from penstock.connectors.mysql_cdc.values import UNFIT, fitted, unfit
from penstock.errors import InternalError
from penstock.types import logical as t
from penstock.types.arrow_buffers import binary_array
from penstock.types.column import Column

if TYPE_CHECKING:
    from penstock.connectors.mysql_cdc.types import MySqlType

_INTEGERS = {ev.TINY: 1, ev.SHORT: 2, ev.INT24: 3, ev.LONG: 4, ev.LONGLONG: 8}
_DAY_US = 86_400_000_000
#: What the server calls latin1 is cp1252, whose five unused bytes stand for themselves.
_LATIN1 = {byte: bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(256)}


def column_of_bytes(
    field: t.Field, there: MySqlType, type_: int, meta: int, raw: RawColumn, zone: str
) -> Column:
    """The values of a column as its declared type; ``type_`` and ``meta``: those of the table map. RecordError names
    the column."""
    try:
        found = natural_column(there, type_, meta, raw)
    except UNFIT as err:
        raise unfit(field, there, str(err)) from err
    return fitted(field, there, found, zone)


def natural_column(there: MySqlType, type_: int, meta: int, raw: RawColumn) -> Column:
    """The values as the natural type of ``there``. Raises one of ``UNFIT`` for a value without meaning (a zero
    date, a TIME outside the day); InternalError when the bytes are of another type."""
    natural = there.natural
    type_, meta = real_type(type_, meta)
    valid = None if raw.there.all() else raw.there
    if natural is None:
        raise InternalError("a column of a type that is not read", got=there.shown)
    match type_:
        case ev.TINY | ev.SHORT | ev.INT24 | ev.LONG | ev.LONGLONG:
            return _integers(natural, there, raw, _INTEGERS[type_], valid)
        case ev.YEAR:
            years = _little(raw, 1)
            return Column(natural, np.where(years == 0, 0, years + 1900).astype(np.int32), valid)
        case ev.FLOAT:
            return Column(natural, _little(raw, 4).astype(np.uint32).view(np.float32), valid)
        case ev.DOUBLE:
            return Column(natural, _little(raw, 8).view(np.float64), valid)
        case ev.DECIMAL:
            return _decimals(natural, meta >> 8, meta & 0xFF, raw, valid)
        case ev.DATE:
            packed = _little(raw, 3)
            days = _days(packed >> 9, (packed >> 5) & 15, packed & 31, raw.there)
            return Column(natural, days.astype(np.int32), valid)
        case ev.TIME2:
            return Column(natural, _times(raw, meta), valid)
        case ev.DATETIME2:
            return Column(natural, _datetimes(raw, meta), valid)
        case ev.TIMESTAMP2:
            return Column(natural, _timestamps(raw, meta), valid)
        case ev.BIT:
            return _bits(natural, raw)
        case ev.ENUM:
            return _enums(natural, there, _little(raw, meta), raw.there)
        case ev.SET:
            masks = _little(raw, meta).tolist()
            texts = [",".join(m for i, m in enumerate(there.members) if mask >> i & 1) for mask in masks]
            return Column.from_arrow(natural, pa.array(texts, pa.string(), mask=~raw.there))
        case ev.VARCHAR | ev.VAR_STRING | ev.STRING | ev.BLOB:
            return _texts(natural, there, raw)
    raise InternalError(
        "the binary log: a value of a type that is not read", got=f"type {type_}, {there.shown}"
    )


def _little(raw: RawColumn, size: int) -> np.ndarray:
    """int64: the first ``size`` bytes as a number, the low byte first; 0 for NULL."""
    out = np.zeros(len(raw.begin), np.int64)
    for byte in range(size):
        out |= raw.data[raw.begin + byte].astype(np.int64) << (8 * byte)
    return np.where(raw.there, out, 0)


def _big(raw: RawColumn, size: int, first: int = 0) -> np.ndarray:
    """int64: ``size`` bytes from the byte ``first`` on, the high byte first; 0 for NULL."""
    out = np.zeros(len(raw.begin), np.int64)
    for byte in range(first, first + size):
        out = (out << 8) | raw.data[raw.begin + byte]
    return np.where(raw.there, out, 0)


def _integers(
    natural: t.LogicalType, there: MySqlType, raw: RawColumn, size: int, valid: np.ndarray | None
) -> Column:
    values = _little(raw, size)
    if isinstance(natural, t.DecimalType):
        wide = pa.array(values.view(np.uint64), mask=None if valid is None else ~valid)
        return Column.from_arrow(natural, wide.cast(pa.decimal128(20, 0)))
    if not there.unsigned and size < 8:
        values = (values ^ (1 << (8 * size - 1))) - (1 << (8 * size - 1))
    dtype = {t.TinyIntType: np.int8, t.SmallIntType: np.int16, t.IntType: np.int32}.get(
        type(natural), np.int64
    )
    return Column(natural, values.astype(dtype), valid)


def _decimals(
    natural: t.LogicalType, precision: int, scale: int, raw: RawColumn, valid: np.ndarray | None
) -> Column:
    whole = precision - scale
    digits = [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]
    small = precision <= t.MAX_UNSCALED_INT64_PRECISION
    negative = raw.there & (raw.data[raw.begin] & 0x80 == 0)
    total = np.zeros(len(raw.begin), np.int64 if small else object)
    at = 0
    for count in digits:
        size = DIGIT_BYTES[count]
        if not size:
            continue
        part = _big(raw, size, at)
        # The sign is the first bit, turned over; a negative number has all its bits turned over.
        part = np.where(negative, part ^ ((1 << 8 * size) - 1), part)
        if at == 0:
            part &= (1 << (8 * size - 1)) - 1
        part = np.where(raw.there, part, 0)
        total = total * 10**count + (part if small else part.astype(object))
        at += size
    total = np.where(negative, -total, total)
    if small:
        return Column(natural, total.astype(np.int64), valid)
    made = [
        Decimal((int(n), tuple(map(int, str(abs(value)))), -scale)) if there else None
        for n, value, there in zip(negative.tolist(), total.tolist(), raw.there.tolist(), strict=True)
    ]
    if isinstance(natural, t.DecimalType):
        return Column.from_arrow(natural, pa.array(made, pa.decimal128(precision, scale)))
    return Column.from_arrow(
        natural, pa.array([None if d is None else format(d, "f") for d in made], pa.string())
    )


def _days(years: np.ndarray, months: np.ndarray, days: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Days since 1970-01-01; ValueError for a date that is in no calendar."""
    since = (years - 1970) * 12 + np.maximum(months, 1) - 1
    first = since.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    last = (since + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    out = first + days - 1
    wrong = there & ((years == 0) | (months == 0) | (months > 12) | (days == 0) | (out >= last))
    if wrong.any():
        i = int(np.flatnonzero(wrong)[0])
        raise ValueError(f"the date {years[i]:04}-{months[i]:02}-{days[i]:02}")
    return np.where(there, out, 0)


def _fraction_us(raw: RawColumn, digits: int, first: int) -> np.ndarray:
    size = (digits + 1) // 2
    return _big(raw, size, first) * 10 ** (6 - 2 * size) if size else np.zeros(len(raw.begin), np.int64)


def _clock_us(packed: np.ndarray) -> np.ndarray:
    """µs of hours, minutes and seconds, packed in 17 bits or more."""
    return (((packed >> 12) * 60 + ((packed >> 6) & 63)) * 60 + (packed & 63)) * 1_000_000


def _datetimes(raw: RawColumn, digits: int) -> np.ndarray:
    packed = np.where(raw.there, _big(raw, 5) - 0x8000000000, 0)
    date = packed >> 17
    months = date >> 5
    days = _days(months // 13, months % 13, date & 31, raw.there)
    return days * _DAY_US + _clock_us(packed & 0x1FFFF) + _fraction_us(raw, digits, 5)


def _timestamps(raw: RawColumn, digits: int) -> np.ndarray:
    seconds = _big(raw, 4)
    if (raw.there & (seconds == 0)).any():
        raise ValueError("the timestamp 0000-00-00 00:00:00")
    return seconds * 1_000_000 + _fraction_us(raw, digits, 4)


def _times(raw: RawColumn, digits: int) -> np.ndarray:
    size = (digits + 1) // 2
    packed = np.where(raw.there, _big(raw, 3 + size) - (0x800000 << 8 * size), 0)
    # A time of 24 hours or more has its 5th bit of the hour and the 4th, or a higher one.
    out = _clock_us((packed >> 8 * size) & 0x7FFFFF) + _fraction_us(raw, digits, 3)
    if (packed < 0).any() or (out >= _DAY_US).any():
        raise ValueError("a TIME before 00:00:00, or of 24 hours and more")
    return out


def _bits(natural: t.LogicalType, raw: RawColumn) -> Column:
    if isinstance(natural, t.BooleanType):
        return Column(natural, _big(raw, 1) != 0, None if raw.there.all() else raw.there)
    return Column.from_arrow(natural, _slices(raw))


def _enums(natural: t.LogicalType, there: MySqlType, numbers: np.ndarray, valid: np.ndarray) -> Column:
    # Number 0 is the empty text that stands for a value that is no member.
    members = pa.array(["", *there.members], pa.string())
    return Column.from_arrow(natural, members.take(pa.array(numbers, mask=~valid)))


def _slices(raw: RawColumn) -> pa.Array:
    """The bytes of each value (binary)."""
    n = len(raw.begin)
    offsets = np.empty(2 * n + 1, np.int32)
    offsets[0:-1:2], offsets[1::2] = raw.begin, raw.end
    offsets[-1] = raw.end[-1] if n else 0
    # Every second entry of this array is a value; the others are the bytes in between.
    places = pa.array(np.arange(n, dtype=np.int64) * 2, mask=~raw.there)
    return binary_array(pa.binary(), offsets, raw.data).take(places)


def _texts(natural: t.LogicalType, there: MySqlType, raw: RawColumn) -> Column:
    found = _slices(raw)
    if isinstance(natural, t.VarBinaryType):
        if there.base == "binary":
            # The log leaves out the zeros at the end that the type demands.
            size = there.numbers[0] if there.numbers else 1
            found = pa.array(
                [None if x is None else x.ljust(size, b"\0") for x in found.to_pylist()], pa.binary()
            )
        return Column.from_arrow(natural, found)
    if there.charset == "latin1":
        return Column.from_arrow(
            natural,
            pa.array(
                [None if x is None else "".join(_LATIN1[b] for b in x) for x in found.to_pylist()],
                pa.string(),
            ),
        )
    return Column.from_arrow(natural, found.cast(pa.string()))
