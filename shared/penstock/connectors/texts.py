"""Values of columns as text, for systems that store only text: key templates, fields of a hash."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from penstock.errors import ConnectorError, RecordError, nearest
from penstock.types import Column, Field
from penstock.types import logical as t
from penstock.types.iso import datetime_of, time_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.types import Batch, Schema

_SCALARS = (
    t.BooleanType, *t.INTEGERS, t.FloatType, t.DoubleType, t.DecimalType, *t.STRINGS, *t.BINARIES,
    t.DateType, t.TimeType, *t.TIMESTAMPS,
)  # fmt: skip
_COLUMN = re.compile(r"\{([^{}]*)\}")


def check_scalars(fields: Sequence[Field], owner: str) -> None:
    """ConnectorError for a column that text cannot hold."""
    for field in fields:
        if not isinstance(field.type, _SCALARS):
            raise ConnectorError(
                f"column '{field.name}' cannot be stored as text",
                expected="a number, string, boolean, bytes, date, time or time stamp",
                got=str(field.type),
                where=owner,
                remedy="take its fields apart, or store rows in a 'format'",
            )


def writer_of(type_: t.LogicalType) -> Callable[[Any], str | bytes]:
    """The function that writes a value (not NULL) of ``type_``."""
    match type_:
        case t.BooleanType():
            return lambda value: "true" if value else "false"
        case t.DecimalType():
            return lambda value: format(value, "f")
        case t.DateType() | t.TimeType():
            return lambda value: str(value.isoformat())
        case t.TimestampType() | t.TimestampLtzType():
            digits = (
                "seconds"
                if not type_.precision
                else "milliseconds"
                if type_.precision <= 3
                else "microseconds"
            )
            zone = "Z" if isinstance(type_, t.TimestampLtzType) else ""
            return lambda value: value.replace(tzinfo=None).isoformat(" ", digits) + zone
    if isinstance(type_, t.BINARIES):
        return bytes
    return repr if isinstance(type_, t.FloatType | t.DoubleType) else str


def reader_of(type_: t.LogicalType) -> Callable[[bytes], Any]:
    """The function that reads a value of ``type_`` from bytes. It raises ValueError or ArithmeticError."""
    match type_:
        case t.BooleanType():
            return _boolean
        case t.FloatType() | t.DoubleType():
            return lambda data: float(data.decode())
        case t.DecimalType():
            return lambda data: Decimal(data.decode())
        case t.DateType():
            return lambda data: dt.date.fromisoformat(data.decode())
        case t.TimeType():
            return lambda data: time_of(data.decode())
        case t.TimestampLtzType():
            return lambda data: _moment(data).replace(tzinfo=dt.UTC)
        case t.TimestampType():
            return _moment
    if isinstance(type_, t.BINARIES):
        return bytes
    return (
        (lambda data: int(data.decode())) if isinstance(type_, t.INTEGERS) else (lambda data: data.decode())
    )


def _boolean(data: bytes) -> bool:
    found = {b"true": True, b"1": True, b"false": False, b"0": False}.get(data.lower())
    if found is None:
        raise ValueError(data)
    return found


def _moment(data: bytes) -> dt.datetime:
    moment = datetime_of(data.decode())
    return moment.astimezone(dt.UTC).replace(tzinfo=None) if moment.tzinfo else moment


def written(columns: Sequence[Column]) -> list[tuple[str | bytes | None, ...]]:
    """Rows of columns as text, None for NULL."""
    parts = []
    for column in columns:
        write = writer_of(column.type)
        parts.append([None if v is None else write(v) for v in column.to_pylist()])
    return list(zip(*parts, strict=True))


def read_value(field: Field, data: bytes | None, where: str) -> Any:
    """The value of a column. Raises a RecordError that names the column if the text does not fit its type."""
    try:
        if data is None:
            if not field.type.nullable:
                raise ValueError("no value")
            return None
        return reader_of(field.type)(data)
    except (ValueError, ArithmeticError, InvalidOperation) as err:
        raise RecordError(
            f"a value of column '{field.name}' is no {field.type}",
            expected=str(field.type),
            got="no value" if data is None else repr(data[:200]),
            where=where,
            remedy="declare the column with the type that the text has, e.g. STRING",
        ) from err


class KeyTemplate:
    """``customer:{id}``: text with columns in it. ``columns``: their indices, in the order of the text. ``in_url``: values
    are quoted as parts of a URL."""

    def __init__(
        self, text: str, schema: Schema, owner: str, option: str = "key", *, in_url: bool = False
    ) -> None:
        self.text, self._in_url = text, in_url
        self._literals = _COLUMN.split(text)[0::2]
        names = _COLUMN.findall(text)
        for name in names:
            if name not in schema.names:
                raise ConnectorError(
                    f"option '{option}' names no column of the table: '{name}'",
                    expected="one of " + ", ".join(schema.names),
                    got=repr(text),
                    where=owner,
                    remedy=nearest(name, schema.names),
                )
        self.columns = tuple(schema.index(name) for name in names)
        check_scalars([schema.fields[i] for i in self.columns], owner)
        self._names, self._owner, self._option = names, owner, option

    def keys(self, batch: Batch) -> list[bytes | None]:
        """The key of each row; None where one of its columns is NULL. The columns are found by name."""
        if not self.columns:
            return [self.text.encode()] * len(batch)
        rows = written([batch.column(name) for name in self._names])
        return [None if None in row else self._filled(row) for row in rows]

    def _filled(self, row: Sequence[str | bytes | None]) -> bytes:
        out = self._literals[0].encode()
        for value, literal in zip(row, self._literals[1:], strict=True):
            data = value.encode() if isinstance(value, str) else value or b""
            out += (quote(data, safe="").encode() if self._in_url else data) + literal.encode()
        return out

    def pattern(self) -> str:
        """A glob that every key matches."""
        return "*".join(re.sub(r"([*?\[\]\\])", r"\\\1", part) for part in self._literals)

    def values(self, key: bytes) -> tuple[bytes, ...] | None:
        """The texts of the columns in a key; None if it is no key of the template."""
        expression = b"(.*)".join(re.escape(part.encode()) for part in self._literals)
        found = re.fullmatch(expression, key, re.DOTALL)
        return None if found is None else found.groups()
