"""Converts values between SQLite's five storage classes and SQL types.

Booleans are 0 and 1; dates and times are ISO texts (whole numbers count as ms since the
epoch, as Java's driver writes them); decimals are texts.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal, InvalidOperation
from itertools import product
from typing import TYPE_CHECKING, Any

from penstock.errors import RecordError
from penstock.types import logical as t
from penstock.types.column import Column
from penstock.types.iso import datetime_of, time_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_EPOCH = dt.datetime(1970, 1, 1)
_NUMBERS = (*t.INTEGERS, t.FloatType, t.DoubleType, t.DecimalType)
_STORABLE = (*_NUMBERS, t.BooleanType, *t.STRINGS, *t.BINARIES, t.DateType, t.TimeType, *t.TIMESTAMPS)


def is_storable(type_: t.LogicalType) -> bool:
    """Whether a database can store values of this type."""
    return isinstance(type_, _STORABLE)


def _whole(value: Any) -> int:
    if isinstance(value, str) or int(value) != value:
        raise ValueError(value)
    return int(value)


def _boolean(value: Any) -> bool:
    if value not in (0, 1):
        raise ValueError(value)
    return bool(value)


def _number(value: Any) -> float:
    if isinstance(value, (str, bytes)):
        raise ValueError(value)
    return float(value)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        raise ValueError(value)
    return str(value)


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(memoryview(value))


def _timestamp(value: Any) -> dt.datetime:
    if isinstance(value, int):
        return _EPOCH + dt.timedelta(milliseconds=value)
    moment = datetime_of(value)
    return moment.astimezone(dt.UTC).replace(tzinfo=None) if moment.tzinfo else moment


def _instant(value: Any) -> dt.datetime:
    return _timestamp(value).replace(tzinfo=dt.UTC)


def _date(value: Any) -> dt.date:
    return _timestamp(value).date() if isinstance(value, int) else dt.date.fromisoformat(value[:10])


def _from_database(type_: t.LogicalType) -> Callable[[Any], Any]:
    match type_:
        case t.BooleanType():
            return _boolean
        case t.FloatType() | t.DoubleType():
            return _number
        case t.DecimalType():
            return lambda value: Decimal(str(value))
        case t.DateType():
            return _date
        case t.TimeType():
            return time_of
        case t.TimestampLtzType():
            return _instant
        case t.TimestampType():
            return _timestamp
    if isinstance(type_, t.STRINGS):
        return _text
    return _bytes if isinstance(type_, t.BINARIES) else _whole


def column_from_database(field: t.Field, values: Sequence[Any]) -> Column:
    """The values as a column. Raises a RecordError that names the column and the first value that does not
    fit its type."""
    convert = _from_database(field.type)
    at = 0
    try:
        out = []
        for at, value in enumerate(values):  # noqa: B007 (tells which value failed)
            out.append(None if value is None else convert(value))
        if not field.type.nullable and None in out:
            at = out.index(None)
            raise ValueError("NULL")
        at = -1
        return Column.of(field.type, out)
    except (TypeError, ValueError, ArithmeticError, InvalidOperation) as err:
        raise RecordError(
            f"a value of column '{field.name}' is no {field.type}",
            expected=str(field.type),
            got=repr(values[at])[:200] if at >= 0 else str(err),
            where="connector 'jdbc'",
            remedy="declare the column with the type that the database holds, e.g. STRING",
        ) from err


def to_database(type_: t.LogicalType) -> Callable[[Any], Any] | None:
    """The function that converts a value for writing; None: values are written unchanged."""
    match type_:
        case t.BooleanType():
            return int
        case t.DecimalType():
            return lambda value: format(value, "f")
        case t.DateType() | t.TimeType():
            return lambda value: value.isoformat()
        case t.TimestampType() | t.TimestampLtzType():
            return lambda value: value.replace(tzinfo=None).isoformat(" ", _digits(type_.precision))
    return None


def _digits(precision: int) -> str:
    return "seconds" if not precision else "milliseconds" if precision <= 3 else "microseconds"


def spellings(type_: t.LogicalType, value: Any) -> list[Any]:
    """Every stored value that ``column_from_database`` would read as ``value``. SQLite compares texts letter
    by letter, so a search must name all of them."""
    match type_:
        case t.DecimalType():
            plain = format(value.normalize(), "f")
            exact = int(value) if value == int(value) and abs(value) < 2**63 else float(value)
            return [format(value, "f"), plain, exact]
        case t.DateType():
            midnight = dt.datetime.combine(value, dt.time())
            return [value.isoformat(), *_moment_spellings(midnight)]
        case t.TimeType():
            return list(dict.fromkeys(value.isoformat(unit) for unit in _UNITS if _exact(value, unit)))
        case t.TimestampType() | t.TimestampLtzType():
            return _moment_spellings(value.replace(tzinfo=None))
    write = to_database(type_)
    return [value if write is None else write(value)]


_UNITS = ("seconds", "milliseconds", "microseconds")


def _exact(value: dt.time | dt.datetime, unit: str) -> bool:
    return value.microsecond % {"seconds": 1_000_000, "milliseconds": 1000, "microseconds": 1}[unit] == 0


def _moment_spellings(value: dt.datetime) -> list[Any]:
    texts = [value.isoformat(sep, unit) for sep in " T" for unit in _UNITS if _exact(value, unit)]
    since = value - _EPOCH
    ms = since // dt.timedelta(milliseconds=1)
    return [*texts, ms] if since == dt.timedelta(milliseconds=ms) else texts


def search_parameters(keys: Sequence[Column]) -> list[tuple[Any, ...]]:
    """The parameters of a search for keys (without NULL): for each key the tuples of all its spellings."""
    written = [[spellings(column.type, value) for value in column.to_pylist()] for column in keys]
    return [row for ways in zip(*written, strict=True) for row in product(*ways)]


def parameters(columns: Sequence[Column]) -> list[tuple[Any, ...]]:
    """Rows of columns as a statement's parameters."""
    parts = []
    for column in columns:
        values, write = column.to_pylist(), to_database(column.type)
        parts.append(values if write is None else [None if v is None else write(v) for v in values])
    return list(zip(*parts, strict=True))
