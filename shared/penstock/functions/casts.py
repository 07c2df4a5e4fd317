"""CAST and TRY_CAST.

CAST raises ``RecordError`` for text that it cannot read; TRY_CAST gives NULL. In both, a number above a
DECIMAL's precision is NULL, integers wrap around, and floating-point numbers saturate (as in Java).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InternalError, RecordError
from penstock.functions import decimals as d
from penstock.functions.calendar import DAY_US, remainder, truncated
from penstock.functions.formatting import to_text
from penstock.functions.inference import castable, same_type, string_literal, uses_zone
from penstock.functions.number_casts import FLOATS, _wrap, nonzero, to_decimal, to_number
from penstock.functions.parsing import parse_iso_timestamps, parser
from penstock.functions.signature import FunctionDef, Resolution, literal_value, register
from penstock.functions.variant import to_type
from penstock.functions.vector import Scalar, column_from_storage, is_null, retyped
from penstock.functions.zones import instant_us, local_us
from penstock.types import logical as t
from penstock.types.column import Column
from penstock.types.storage import arrow_type, numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.functions.expr import Call
    from penstock.functions.vector import Vector

    Convert = Callable[[Column], Column]

#: Texts that Arrow's own parsers read exactly as we do.
_PLAIN_INTEGER, _PLAIN_DOUBLE = r"^-?[0-9]{1,18}$", r"^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$"


def _resolve(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    call.count(1, 2)
    source, target = call.types[0], call.type
    if target is None:
        raise InternalError(f"{call.name} without a target type")
    if not castable(source, target):
        call.fail(f"a type that casts to {target}", f"cannot cast {source} to {target}")
    try_ = call.name == "TRY_CAST"
    if try_ and call.zone != "UTC" and uses_zone(source, target):
        call.extra.append(string_literal(call.zone))
    # A VARIANT may be JSON's null.
    return call.types, target.with_nullable(try_ or source.nullable or isinstance(source, t.VariantType))


def _bind(lenient: bool) -> Callable[[Call], Any]:
    def bind(call: Call) -> Any:
        zone = literal_value(call, 1) or "UTC"
        convert = converter(call.args[0].type, call.type, zone, lenient)

        def run(args: Sequence[Vector], n: int) -> Vector:
            if is_null(args[0]):
                return Scalar(call.type, None)
            return convert(args[0])  # type: ignore[arg-type]

        return run

    return bind


def _fails(call: Call) -> bool:
    return not _total(call.args[0].type, call.type)


def _total(source: t.LogicalType, target: t.LogicalType) -> bool:
    """Whether the cast succeeds for every value."""
    if t.holds_variant(source):
        return same_type(source, target)
    if isinstance(source, t.STRINGS):
        return isinstance(target, (*t.STRINGS, *t.BINARIES))
    nested = (t.ArrayType, t.MapType, t.MultisetType, t.RowType)
    if isinstance(source, nested) and not isinstance(target, t.STRINGS):
        return same_type(source, target)
    return not (isinstance(source, FLOATS) and isinstance(target, t.DecimalType))


def _widens_fraction(source: t.LogicalType, target: t.LogicalType) -> bool:
    match source, target:
        case (
            (t.TimeType(), t.TimeType())
            | (t.TimestampType(), t.TimestampType())
            | (t.TimestampLtzType(), t.TimestampLtzType())
        ):
            return source.precision <= target.precision  # type: ignore[union-attr]
    return False


def converter(
    source: t.LogicalType, target: t.LogicalType, zone: str = "UTC", lenient: bool = False
) -> Convert:
    """A function from a column of ``source`` to a column of ``target``. ``lenient``: text that cannot be read
    is NULL."""
    if same_type(source, target):
        return lambda column: retyped(column, target)
    if _widens_fraction(source, target):
        return lambda column: retyped(column, target)
    if isinstance(source, t.NullType):
        return lambda column: Column.nulls(target, len(column))
    if isinstance(source, t.VariantType):
        return to_type(target, lambda column: Column(target, fit_text(column.values, target)), lenient)
    if isinstance(target, t.STRINGS):
        return _to_string(source, target, zone)
    if isinstance(source, t.STRINGS):
        return _from_string(target, zone, lenient)
    if isinstance(target, t.BINARIES):
        return lambda column: Column(target, fit_binary(column.values, target))
    if isinstance(target, t.BooleanType):
        return lambda column: Column(target, nonzero(column), column.valid)
    if isinstance(target, t.DecimalType):
        return to_decimal(source, target, lenient)
    if isinstance(target, (*t.INTEGERS, *FLOATS)):
        return to_number(source, target)
    if isinstance(target, t.INTERVALS):
        return _to_interval(source, target)
    if isinstance(target, (t.ArrayType, t.MapType, t.MultisetType, t.RowType)):
        return _nested(source, target, zone, lenient)
    return _temporal(source, target, zone)


# -- text --------------------------------------------------------------------------


def fit_text(array: pa.StringArray, target: t.LogicalType) -> pa.StringArray:
    """Cut to a VARCHAR's or CHAR's length; CHAR pads with spaces."""
    length = target.length  # type: ignore[union-attr]
    if length == t.MAX_VARCHAR:
        return array
    array = pc.utf8_slice_codeunits(array, 0, length)
    return pc.utf8_rpad(array, length) if isinstance(target, t.CharType) else array


def _to_string(source: t.LogicalType, target: t.LogicalType, zone: str) -> Convert:
    shorter = not (
        isinstance(source, t.STRINGS) and isinstance(target, t.VarCharType) and source.length <= target.length
    )

    def convert(column: Column) -> Column:
        text = to_text(column, zone)
        return Column(target, fit_text(text, target) if shorter else text)

    return convert


def fit_binary(array: pa.Array, target: t.LogicalType) -> pa.Array:
    """Cut to a VARBINARY's or BINARY's length; BINARY pads with zeros."""
    length = target.length  # type: ignore[union-attr]
    array = array.cast(pa.binary())
    if length == t.MAX_VARCHAR:
        return array
    pad = isinstance(target, t.BinaryType)
    values = [
        None if v is None else (v[:length].ljust(length, b"\0") if pad else v[:length])
        for v in array.to_pylist()
    ]
    return pa.array(values, pa.binary())


def _from_string(target: t.LogicalType, zone: str, lenient: bool) -> Convert:
    if isinstance(target, t.BINARIES):
        return lambda column: Column(target, fit_binary(column.values, target))
    parse = parser(target)
    ltz = isinstance(target, t.TimestampLtzType)

    def convert(column: Column) -> Column:
        out = _fast_parse(column, target)
        if out is None:
            out = parse_distinct(column, target, parse, lenient)
        return Column(target, instant_us(out.values, zone), out.valid) if ltz else out

    return convert


def _fast_parse(column: Column, target: t.LogicalType) -> Column | None:
    array: Any = column.values
    if isinstance(target, t.TIMESTAMPS):
        values = parse_iso_timestamps(array, target.precision)
        return None if values is None else Column(target, values)
    if isinstance(target, (t.IntType, t.BigIntType, t.DoubleType)) and len(array) > 16:
        plain = _PLAIN_DOUBLE if isinstance(target, t.DoubleType) else _PLAIN_INTEGER
        if pc.all(pc.match_substring_regex(array, plain)).as_py():
            try:
                return Column.from_arrow(target, array.cast(arrow_type(target)))
            except pa.ArrowInvalid:
                return None  # out of range: the slow way names the value
    return None


def parse_distinct(column: Column, target: t.LogicalType, parse: Any, lenient: bool) -> Column:
    """Parses each distinct text once; a text that cannot be parsed raises, or is NULL if ``lenient``."""
    encoded = column.values.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    values = [parse(text) for text in texts]
    if not lenient and None in values:
        text = texts[values.index(None)]
        raise RecordError(
            f"cannot cast {text!r} to {target.sql()}",
            expected=f"text that is a {target.sql()}",
            got=repr(text),
            remedy="use TRY_CAST to get NULL for such text",
        )
    distinct = column_from_storage(target, [*values, None])
    indices = encoded.indices.fill_null(len(values)).to_numpy()
    out = distinct.take(indices)
    return Column(target, out.values, None if out.valid is None or out.valid.all() else out.valid)


# -- numbers -----------------------------------------------------------------------


def _to_interval(source: t.LogicalType, target: t.LogicalType) -> Convert:
    # The type does not keep the unit of INTERVAL DAY …: it is days, or months.
    unit = DAY_US if isinstance(target, t.DayTimeIntervalType) else 1
    dtype = numpy_dtype(target)

    def convert(column: Column) -> Column:
        whole = d.truncate_quotient(d.unscaled(column), 10 ** d.scale_of(source))
        return Column(target, (_wrap(whole) * unit).astype(dtype), column.valid)

    return convert


# -- times -------------------------------------------------------------------------


def _cut(us: Any, precision: int) -> Any:
    """Cut to a precision, towards the past."""
    if precision >= 6:
        return us
    unit = 10 ** (6 - precision)
    return np.floor_divide(us, unit) * unit


def _time_of_day(us: Any, precision: int) -> Any:
    """The time of day of a TIMESTAMP; before 1970 as in Flink (see ``_temporal``)."""
    unit = 10 ** (6 - precision)
    return np.mod(truncated(remainder(us, DAY_US), unit) * unit, DAY_US)


def _temporal(source: t.LogicalType, target: t.LogicalType, zone: str) -> Convert:
    plain = isinstance(source, t.TimestampType)

    def wall(column: Column) -> Any:
        """Wall-clock µs since the epoch."""
        if isinstance(source, t.DateType):
            return column.values.astype(np.int64) * DAY_US
        if isinstance(source, t.TimestampLtzType):
            return local_us(column.values, zone)
        return column.values

    def convert(column: Column) -> Column:
        us: Any
        if isinstance(source, t.TimestampLtzType) and isinstance(target, t.TimestampLtzType):
            return Column(target, _cut(column.values, target.precision), column.valid)
        us = wall(column)
        if isinstance(target, t.DateType):
            # Flink rounds milliseconds of a TIMESTAMP before 1970 towards 1970.
            days = truncated(_cut(us, 3), DAY_US) if plain else np.floor_divide(us, DAY_US)
            us = days.astype(np.int32)
        elif isinstance(target, t.TimeType):
            us = _time_of_day(us, target.precision) if plain else _cut(np.mod(us, DAY_US), target.precision)
        else:
            us = _cut(us, target.precision)  # type: ignore[union-attr]
            if isinstance(target, t.TimestampLtzType):
                us = instant_us(us, zone)
        return Column(target, us, column.valid)

    return convert


# -- nested ------------------------------------------------------------------------


def _nested(source: Any, target: Any, zone: str, lenient: bool) -> Convert:
    if lenient:
        strict = _nested(source, target, zone, False)

        def convert(column: Column) -> Column:
            # An element that fails makes its whole value NULL: convert row by row if need be.
            try:
                return strict(column)
            except RecordError:
                return Column.concat([_one(strict, column.slice(i, 1), target) for i in range(len(column))])

        return convert
    if isinstance(target, t.RowType):
        return _row(source, target, zone)
    want = arrow_type(target)

    def inner(from_: t.LogicalType, to: t.LogicalType, array: pa.Array) -> pa.Array:
        return converter(from_, to, zone)(Column.from_arrow(from_, array)).to_external_arrow()

    def convert_list(column: Column) -> Column:
        array: Any = column.values
        valid = column.valid
        mask = None if valid is None else pa.array(~valid)
        # A copy: Arrow takes no sliced offsets together with a mask.
        offsets = pa.array(array.offsets.to_numpy().copy())
        if isinstance(target, t.ArrayType):
            items = inner(source.element, target.element, array.values)
            return Column(target, pa.ListArray.from_arrays(offsets, items, type=want, mask=mask))
        pair = (source.key, target.key) if isinstance(target, t.MapType) else (source.element, target.element)
        keys = inner(pair[0], pair[1], array.keys)
        items = (
            inner(source.value, target.value, array.items) if isinstance(target, t.MapType) else array.items
        )
        return Column(target, pa.MapArray.from_arrays(offsets, keys, items, type=want, mask=mask))

    return convert_list


def _one(strict: Convert, column: Column, target: t.LogicalType) -> Column:
    try:
        return strict(column)
    except RecordError:
        return Column.nulls(target, 1)


def _row(source: t.RowType, target: t.RowType, zone: str) -> Convert:
    parts = [converter(a.type, b.type, zone) for a, b in zip(source.fields, target.fields, strict=True)]

    def convert(column: Column) -> Column:
        arrays = [
            part(retyped(column.child(i), source.fields[i].type)).to_external_arrow()
            for i, part in enumerate(parts)
        ]
        valid = column.valid
        mask = None if valid is None else pa.array(~valid)
        fields = list(arrow_type(target))
        return Column(target, pa.StructArray.from_arrays(arrays, fields=fields, mask=mask))

    return convert


register(FunctionDef("CAST", _resolve, _bind(False), fails=_fails))
register(FunctionDef("TRY_CAST", _resolve, _bind(True)))
