"""Encodes Python values by their declared type, for state that is stored row by row (LevelDB).

MessagePack of plain values: decimals as text, times as µs, dates as days, rows as lists, maps as pairs.
Only RAW values are pickled, where the user's code chose that type.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.columnar.record_classes import maker, taken_apart
from penstock.columnar.rows import refuse_kind
from penstock.types import logical as t
from penstock.types import pickling

if TYPE_CHECKING:
    from collections.abc import Callable

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_US = dt.timedelta(microseconds=1)

if TYPE_CHECKING:
    Convert = Callable[[Any], Any]


class Codec(NamedTuple):
    """A pair of functions: value → bytes, and bytes → value."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


@lru_cache(maxsize=1024)
def codec(type_: t.LogicalType) -> Codec:
    """The codec of a type. None is encoded like any other value."""
    to, back = _plain(type_)
    if to is None:
        return Codec(_encode, _decode)
    return Codec(lambda v: _encode(to(v)), lambda data: back(_decode(data)))


def tuple_codec(types: tuple[t.LogicalType, ...]) -> Codec:
    """The codec of a key: the value itself for one type, a tuple for several."""
    if len(types) == 1:
        return codec(types[0])
    pairs = [_plain(x) for x in types]
    if all(to is None for to, _ in pairs):
        return Codec(_encode, lambda data: tuple(_decode(data)))
    to_all = [to or _same for to, _ in pairs]
    back_all = [back or _same for _, back in pairs]
    return Codec(
        lambda v: _encode([f(x) for f, x in zip(to_all, v, strict=True)]),
        lambda data: tuple(f(x) for f, x in zip(back_all, _decode(data), strict=True)),
    )


def _same(value: Any) -> Any:
    return value


def _nullable(to: Convert, back: Convert) -> tuple[Convert, Convert]:
    return lambda v: None if v is None else to(v), lambda v: None if v is None else back(v)


@lru_cache(maxsize=1024)
def _plain(type_: t.LogicalType) -> tuple[Any, Any]:
    """(to plain, from plain), or (None, None) if MessagePack takes the values unchanged."""
    match type_:
        case t.DecimalType():
            return _nullable(str, Decimal)
        case t.DateType():
            return _nullable(dt.date.toordinal, dt.date.fromordinal)
        case t.TimeType():
            return _nullable(dt.time.isoformat, dt.time.fromisoformat)
        case t.TimestampType():
            return _nullable(lambda v: (v - _EPOCH) // _US, lambda v: _EPOCH + v * _US)
        case t.TimestampLtzType():
            return _nullable(lambda v: (_aware(v) - _EPOCH_UTC) // _US, lambda v: _EPOCH_UTC + v * _US)
        case t.DayTimeIntervalType():
            return _nullable(lambda v: v // _US, lambda v: v * _US)
        case t.RawType():
            return _nullable(pickling.dumps, pickling.loads)
        case t.ArrayType(element=element):
            to, back = _plain(element)
            if to is None:
                return None, None
            return _nullable(lambda v: [to(x) for x in v], lambda v: [back(x) for x in v])
        case t.MapType(key=key, value=value):
            return _pairs(_plain(key), _plain(value))
        case t.MultisetType(element=element):
            return _pairs(_plain(element), (None, None))
        case t.RowType(fields=fields):
            return _row(fields)
    return None, None


def _aware(value: dt.datetime) -> dt.datetime:
    return value if value.tzinfo else value.replace(tzinfo=dt.UTC)


def _pairs(key: tuple[Any, Any], value: tuple[Any, Any]) -> tuple[Convert, Convert]:
    k_to, k_back = (f or _same for f in key)
    v_to, v_back = (f or _same for f in value)
    return _nullable(
        lambda d: [(k_to(k), v_to(v)) for k, v in d.items()],
        lambda pairs: {k_back(k): v_back(v) for k, v in pairs},
    )


def _row(fields: tuple[t.Field, ...]) -> tuple[Convert, Convert]:
    names = tuple(f.name for f in fields)
    both = [_plain(f.type) for f in fields]
    to_all = [to or _same for to, _ in both]
    back_all = [back or _same for _, back in both]

    def to(row: Any) -> list[Any]:
        refuse_kind(row)
        values = [row[n] for n in names] if isinstance(row, dict) else taken_apart(row)
        return [f(v) for f, v in zip(to_all, values, strict=True)]

    make = maker(fields)

    def back(values: list[Any]) -> Any:
        return make(f(v) for f, v in zip(back_all, values, strict=True))

    return _nullable(to, back)
