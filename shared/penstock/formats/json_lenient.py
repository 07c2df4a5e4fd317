"""Record-by-record JSON conversion by Flink's rules; the error names the value that does not fit.

Numbers in quotes become numbers, numbers and booleans become text in STRING columns, objects and arrays in
STRING columns keep their JSON text, decimals are rounded half up.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import RecordError
from penstock.formats.build import EXACT
from penstock.formats.reporting import shorten
from penstock.functions.variant import canonical
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column
from penstock.types.iso import datetime_of, time_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.types.logical import Schema

#: What a record that is no object is, without its text.
_KINDS = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
_INT_BITS = {t.TinyIntType: 8, t.SmallIntType: 16, t.IntType: 32, t.BigIntType: 64}
#: The least number that is nearer to FLOAT's infinity than to its greatest value.
_BEYOND_FLOAT = (2 - 2.0**-24) * 2.0**127
_encode = msgspec.json.Encoder(decimal_format="number", enc_hook=Decimal).encode


def _has_decimal(type_: t.LogicalType) -> bool:
    match type_:
        case t.ArrayType(element=inner) | t.MapType(value=inner):
            return _has_decimal(inner)
        case t.RowType(fields=fields):
            return any(_has_decimal(f.type) for f in fields)
    return isinstance(type_, t.DecimalType)


class LenientConverter:
    """Converts JSON objects to rows of Python values that ``Column.of`` takes."""

    def __init__(self, schema: Schema, *, fail_on_missing: bool, null_on_error: bool) -> None:
        self._schema = schema
        self._fail_on_missing = fail_on_missing
        self._null_on_error = null_on_error
        # Beside a DECIMAL, numbers with a fraction keep all their digits, as in Flink.
        exact = any(_has_decimal(f.type) for f in schema.fields)
        self._parse: Callable[[bytes], Any] = msgspec.json.Decoder(
            float_hook=Decimal if exact else None
        ).decode
        if any(t.holds_variant(f.type) for f in schema.fields):
            self._parse = _parse_exactly

    def convert(self, message: bytes) -> tuple[Any, ...]:
        """The row of one record. Raises RecordError, which names the column that does not fit, and MsgspecError or
        UnicodeDecodeError for what is not JSON."""
        record = self._parse(message)
        if not isinstance(record, dict):
            got = _KINDS.get(type(record), "a number")
            raise RecordError("the record is not an object", expected="one JSON object", got=got)
        return tuple(self._field(record, f.name, f.type, f.name) for f in self._schema.fields)

    def to_batch(self, rows: Sequence[tuple[Any, ...]]) -> Batch:
        """The rows as a batch."""
        columns = [Column.of(f.type, [r[i] for r in rows]) for i, f in enumerate(self._schema.fields)]
        return Batch(self._schema, columns, num_rows=len(rows))

    def _field(self, record: dict[str, Any], name: str, type_: t.LogicalType, path: str) -> Any:
        value = record.get(name)
        if value is None:
            if self._fail_on_missing and name not in record:
                raise RecordError(f"field '{path}' is missing", expected=str(type_), where=f"column '{path}'")
            if not type_.nullable:
                raise RecordError(
                    f"column '{path}' is NOT NULL",
                    expected=str(type_),
                    got="null" if name in record else "no such field",
                    where=f"column '{path}'",
                )
            return None
        return self._value(type_, value, path)

    def _value(self, type_: t.LogicalType, value: Any, path: str) -> Any:
        try:
            return self._convert(type_, value, path)
        except (ValueError, TypeError, OverflowError, InvalidOperation, KeyError) as err:
            if self._null_on_error and type_.nullable:
                return None
            raise RecordError(
                f"column '{path}' does not fit its type",
                expected=str(type_),
                got=shorten(value),
                where=f"column '{path}'",
            ) from err

    def _convert(self, type_: t.LogicalType, value: Any, path: str) -> Any:
        match type_:
            case t.BooleanType():
                if isinstance(value, bool):
                    return value
                return {"true": True, "false": False}[str(value).strip().lower()]
            case t.TinyIntType() | t.SmallIntType() | t.IntType() | t.BigIntType():
                return _integer(value, _INT_BITS[type(type_)])
            case t.YearMonthIntervalType():
                return _integer(value, 32)
            case t.DayTimeIntervalType():
                return dt.timedelta(milliseconds=_integer(value, 64))
            case t.FloatType() | t.DoubleType():
                if isinstance(value, bool):
                    raise TypeError("a boolean is no number")
                return _float(value, single=isinstance(type_, t.FloatType))
            case t.DecimalType():
                return _decimal(value, type_)
            case t.CharType() | t.VarCharType():
                return value if isinstance(value, str) else _text(value)
            case t.BinaryType() | t.VarBinaryType():
                return base64.b64decode(value, validate=True)
            case t.DateType():
                return dt.date.fromisoformat(value)
            case t.TimeType():
                return time_of(value)
            case t.TimestampType(precision=p):
                return _naive(datetime_of(value), p)
            case t.TimestampLtzType(precision=p):
                return _aware(datetime_of(value), p)
            case t.ArrayType(element=element):
                if not isinstance(value, list):
                    raise TypeError("not a list")
                return [
                    None if v is None else self._value(element, v, f"{path}[{i}]")
                    for i, v in enumerate(value)
                ]
            case t.MapType(key=key, value=item):
                return [
                    (
                        self._value(key, k, f"{path} key"),
                        None if v is None else self._value(item, v, f"{path}['{k}']"),
                    )
                    for k, v in _object(value).items()
                ]
            case t.MultisetType(element=element):
                return [(self._value(element, k, path), _integer(v, 32)) for k, v in _object(value).items()]
            case t.RowType(fields=fields):
                record = _object(value)
                return {f.name: self._field(record, f.name, f.type, f"{path}.{f.name}") for f in fields}
            case t.VariantType():
                return canonical(_written(value))
            case t.NullType():
                return None
        raise TypeError(f"{type_} has no JSON form")


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("not an object")
    return value


def _float(value: Any, *, single: bool) -> float:
    out = float(value)
    beyond = single and math.isfinite(out) and abs(out) >= _BEYOND_FLOAT
    named = isinstance(value, float) or (isinstance(value, str) and "inf" in value.lower())
    if beyond or (math.isinf(out) and not named):
        raise OverflowError("outside the type's range")
    return out


def _integer(value: Any, bits: int) -> int:
    if isinstance(value, bool):
        raise TypeError("a boolean is no number")
    out = int(value.strip()) if isinstance(value, str) else int(value)
    if isinstance(value, (float, Decimal)) and out != value:
        raise ValueError("not a whole number")
    if not -(1 << (bits - 1)) <= out < 1 << (bits - 1):
        raise OverflowError(f"outside {bits} bits")
    return out


def _decimal(value: Any, type_: t.DecimalType) -> Decimal:
    if isinstance(value, bool):
        raise TypeError("a boolean is no number")
    out = Decimal(str(value))
    if not out.is_finite():
        raise ValueError("not a finite number")
    out = out.quantize(Decimal(1).scaleb(-type_.scale), context=EXACT)
    if len(out.as_tuple().digits) > type_.precision:
        raise OverflowError("too many digits")
    return out


def _text(value: Any) -> str:
    return _encode(value).decode()


class _Written(Decimal):
    """A number with a fraction or an exponent, with the text that stands in the record."""

    text: str


class _Repeating(dict[str, Any]):
    """An object that has a key twice. A VARIANT refuses it; other columns take the last value."""


def _parse_exactly(message: bytes) -> Any:
    """The record with all digits of its numbers, which a VARIANT keeps."""

    def number(text: str) -> _Written:
        made = _Written(text)
        made.text = text
        return made

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(items)
        return made if len(made) == len(items) else _Repeating(made)

    def constant(name: str) -> Any:
        raise ValueError(f"{name} is no JSON")

    try:
        text = bytes(message).decode()
        return json.loads(text, parse_float=number, parse_constant=constant, object_pairs_hook=pairs)
    except (ValueError, RecursionError) as err:
        raise RecordError("the record is not JSON", expected="one JSON object", got=str(err)) from None


def _written(value: Any) -> str:
    """A parsed value as JSON text again."""
    if isinstance(value, _Repeating):
        raise ValueError("an object has a key twice")
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{_written(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return value.text if isinstance(value, _Written) else json.dumps(value)


def _cut(value: dt.datetime, precision: int) -> dt.datetime:
    step = 10 ** (6 - precision)
    return value.replace(microsecond=value.microsecond // step * step)


def _naive(value: dt.datetime, precision: int) -> dt.datetime:
    if value.tzinfo is not None:
        raise ValueError("TIMESTAMP has no time zone; declare the column TIMESTAMP_LTZ")
    return _cut(value, precision)


def _aware(value: dt.datetime, precision: int) -> dt.datetime:
    if value.tzinfo is None:
        raise ValueError("TIMESTAMP_LTZ needs a zone: 'Z' or '+hh:mm'")
    return _cut(value.astimezone(dt.UTC), precision)
