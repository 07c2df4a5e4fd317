"""Converts values between the drivers of database servers and SQL types: exactly, or not at all, with an
error."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from penstock.errors import RecordError
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_DAY = dt.timedelta(days=1)


def _exactly(kind: type, *also: type) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if not isinstance(value, (kind, *also)) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(value)
        return value

    return convert


def _boolean(value: Any) -> bool:
    if value not in (0, 1, b"\x00", b"\x01"):
        raise ValueError(value)
    return value in (1, b"\x01")


def _float(value: Any) -> float:
    if not isinstance(value, float):
        raise ValueError(value)
    return value


def _text(value: Any) -> str:
    if isinstance(value, (str, uuid.UUID)):
        return str(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    raise ValueError(value)


def _decimal(scale: int) -> Callable[[Any], Any]:
    def convert(value: Any) -> Decimal:
        if isinstance(value, int) and not isinstance(value, bool):
            value = Decimal(value)
        if not isinstance(value, Decimal) or not value.is_finite():
            raise ValueError(value)
        exponent = value.normalize().as_tuple().exponent
        if isinstance(exponent, int) and -exponent > scale:
            raise ValueError(value)
        return value

    return convert


def _time(precision: int) -> Callable[[Any], Any]:
    def convert(value: Any) -> dt.time:
        if isinstance(value, dt.timedelta):  # MySQL's driver returns a TIME as a timedelta
            if not dt.timedelta(0) <= value < _DAY:
                raise ValueError(value)
            value = (dt.datetime.min + value).time()
        if (
            not isinstance(value, dt.time)
            or value.tzinfo is not None
            or value.microsecond % 10 ** (6 - precision)
        ):
            raise ValueError(value)
        return value

    return convert


def _moment(precision: int, *, instant: bool) -> Callable[[Any], Any]:
    def convert(value: Any) -> dt.datetime:
        if not isinstance(value, dt.datetime) or value.microsecond % 10 ** (6 - precision):
            raise ValueError(value)
        if instant:
            return value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)
        if value.tzinfo is not None:
            raise ValueError(value)
        return value

    return convert


def _date(value: Any) -> dt.date:
    if not isinstance(value, dt.date) or isinstance(value, dt.datetime):
        raise ValueError(value)
    return value


def _reader(type_: t.LogicalType) -> Callable[[Any], Any]:
    match type_:
        case t.BooleanType():
            return _boolean
        case t.FloatType() | t.DoubleType():
            return _float
        case t.DecimalType(scale=scale):
            return _decimal(scale)
        case t.DateType():
            return _date
        case t.TimeType(precision=p):
            return _time(p)
        case t.TimestampType(precision=p):
            return _moment(p, instant=False)
        case t.TimestampLtzType(precision=p):
            return _moment(p, instant=True)
    if isinstance(type_, t.STRINGS):
        return _text
    return _exactly(bytes) if isinstance(type_, t.BINARIES) else _exactly(int)


def column_from_server(field: t.Field, values: Sequence[Any]) -> Column:
    """The values as a column. Raises a RecordError that names the column and the first value that does not
    fit its type exactly."""
    convert, out = _reader(field.type), []
    for value in values:
        try:
            if value is None and not field.type.nullable:
                raise ValueError("NULL")
            out.append(None if value is None else convert(value))
        except (ValueError, TypeError) as err:
            raise _unfit(field, repr(value)) from err
    try:
        return Column.of(field.type, out)
    except (ValueError, TypeError, ArithmeticError) as err:
        raise _unfit(field, str(err)) from err


def _unfit(field: t.Field, got: str) -> RecordError:
    return RecordError(
        f"a value of column '{field.name}' is no {field.type}",
        expected=str(field.type),
        got=got[:200],
        where="connector 'jdbc'",
        remedy="declare the column with the type that the database holds",
    )


def server_parameters(columns: Sequence[Column]) -> list[tuple[Any, ...]]:
    """The rows of the columns as a statement's parameters. Instants are in UTC, the session's time zone."""
    parts = []
    for column in columns:
        values = column.to_pylist()
        if isinstance(column.type, t.TimestampLtzType):
            values = [None if v is None else v.astimezone(dt.UTC) for v in values]
        parts.append(values)
    return list(zip(*parts, strict=True))
