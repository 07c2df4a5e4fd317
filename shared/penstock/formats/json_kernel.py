"""The compiled way from JSON records to columns (``penstock.native``), for the types that it knows.

It says of each record whether it is sure of it. A record with escapes, a number that does not fit, a key that comes twice
and whatever else it is not made for is left to the slower ways, which give the same rows or report it.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.formats.build import column_of, singles
from penstock.formats.by_kernel import MAX_BYTES, MIN_RECORDS, Decoded, Texts, forget
from penstock.native import library
from penstock.native.columns import Field, Outs, address, gather
from penstock.types import logical as t
from penstock.types.arrow_buffers import binary_array
from penstock.types.batch import Batch
from penstock.types.column import Column
from penstock.types.storage import external_arrow_type, numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.types.logical import LogicalType, Schema

_INT, _BOOL, _FLOAT, _DECIMAL, _TEXT, _TIMESTAMP, _TIMESTAMP_LTZ, _DATE, _OBJECT = range(9)
_NULLABLE, _OPTIONAL = 1, 2
_KINDS: dict[type[LogicalType], int] = {
    t.TinyIntType: _INT, t.SmallIntType: _INT, t.IntType: _INT, t.BigIntType: _INT, t.BooleanType: _BOOL,
    t.FloatType: _FLOAT, t.DoubleType: _FLOAT, t.DecimalType: _DECIMAL, t.CharType: _TEXT, t.VarCharType: _TEXT,
    t.TimeType: _TEXT, t.TimestampType: _TIMESTAMP, t.TimestampLtzType: _TIMESTAMP_LTZ, t.DateType: _DATE,
    t.RowType: _OBJECT,
}  # fmt: skip
_BITS = {t.TinyIntType: 8, t.SmallIntType: 16, t.IntType: 32, t.BigIntType: 64}
_PLACES = (_FLOAT, _DECIMAL, _TEXT)
#: Fields of an object that the kernel keeps apart by bits of a word.
_MAX_FIELDS = 64


def kernel_of(schema: Schema, *, required: bool) -> JsonKernel | None:
    """A decoder of these columns; None where the library is missing or a type is not its own. ``required``: a
    missing field is not NULL."""
    found = library()
    if found is None or not 0 < len(schema) <= _MAX_FIELDS or not all(map(_known, schema.types)):
        return None
    return JsonKernel(found, schema, required=required)


def _known(type_: LogicalType) -> bool:
    if isinstance(type_, t.RowType):
        return 0 < len(type_.fields) <= _MAX_FIELDS and all(_known(f.type) for f in type_.fields)
    return type(type_) in _KINDS


class JsonKernel:
    """Use ``kernel_of``."""

    def __init__(self, found: ctypes.CDLL, schema: Schema, *, required: bool) -> None:
        self._library, self._schema = found, schema
        self._decode = found.penstock_json_decode
        self._decode.restype = ctypes.c_int64
        self._flags = 0 if required else _OPTIONAL
        self._names = b""
        self._made: list[Field] = []
        self._fill([(f.name, f.type) for f in schema.fields])
        self._fields = (Field * len(self._made))(*self._made)
        self._texts = [f.kind in _PLACES for f in self._made]

    def _fill(self, fields: Sequence[tuple[str, LogicalType]]) -> int:
        """Lays out the fields of one object behind one another, then those of its objects; gives the first's number."""
        first = len(self._made)
        for name, type_ in fields:
            encoded = name.encode()
            flags = self._flags | (_NULLABLE if type_.nullable else 0)
            kind = _KINDS[type(type_)]
            field = Field(
                len(self._names), len(encoded), kind, len(self._made), 0, 0, flags, _BITS.get(type(type_), 0)
            )
            self._names += encoded
            self._made.append(field)
        for i, (_, type_) in enumerate(fields):
            if isinstance(type_, t.RowType):
                inner = self._fill([(f.name, f.type) for f in type_.fields])
                self._made[first + i].first, self._made[first + i].count = inner, len(type_.fields)
        return first

    def decode(self, texts: Texts) -> Decoded | None:
        """The records of which it is sure; None if there are none."""
        count = len(texts.start)
        if count < MIN_RECORDS or len(texts.data) > MAX_BYTES or not _is_utf8(texts.data):
            return None
        outs = Outs(count, self._texts)
        sure = np.zeros(count, np.bool_)
        taken = self._decode(
            texts.data, address(texts.start), address(texts.end), ctypes.c_int64(count), self._names, self._fields,
            ctypes.c_int32(len(self._schema)), outs.pointers, address(sure),
        )  # fmt: skip
        if not taken:
            return None
        if taken < count:
            forget(outs, ~sure)
        try:
            columns = [self._column(i, f.type, outs, texts.data) for i, f in enumerate(self._schema.fields)]
        except (pa.ArrowException, ValueError):
            return None
        batch = Batch(self._schema, columns, num_rows=count)
        return Decoded(batch if taken == count else batch.filter(sure), np.flatnonzero(sure))

    def _column(self, at: int, type_: LogicalType, outs: Outs, data: bytes) -> Column:
        number, valid = outs.number[at], outs.mask(at)
        if isinstance(type_, t.RowType):
            return Column.from_arrow(type_, self._row(at, type_, outs, data))
        if number is None:
            places = outs.places[at]
            assert places is not None
            array = binary_array(pa.string(), *gather(self._library, data, places), valid)
            return column_of(type_, self._converted(type_, array))
        dtype = numpy_dtype(type_)
        assert dtype is not None
        if isinstance(type_, t.TIMESTAMPS) and type_.precision < 6:
            number = number - number % 10 ** (6 - type_.precision)
        return Column(type_, number.astype(dtype, copy=False), valid)

    @staticmethod
    def _converted(type_: LogicalType, array: pa.Array) -> pa.Array:
        want = external_arrow_type(type_)
        if isinstance(type_, t.FloatType | t.DoubleType):
            doubles = array.cast(pa.float64())
            if pc.any(pc.is_inf(doubles)).as_py():
                raise ValueError("a number is outside the range of DOUBLE")
            # By way of the double, as the other ways do; parsed at once it may be rounded otherwise.
            return doubles if isinstance(type_, t.DoubleType) else singles(doubles)
        return array if array.type == want else array.cast(want)

    def _row(self, at: int, type_: t.RowType, outs: Outs, data: bytes) -> pa.Array:
        first = self._made[at].first
        parts = [
            self._column(first + i, f.type, outs, data).to_external_arrow()
            for i, f in enumerate(type_.fields)
        ]
        fields = [pa.field(f.name, p.type) for f, p in zip(type_.fields, parts, strict=True)]
        valid = outs.mask(at)
        return pa.StructArray.from_arrays(
            parts, fields=fields, mask=None if valid is None else pa.array(~valid)
        )


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
