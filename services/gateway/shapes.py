"""Types and rows as Flink's SQL gateway writes them in JSON.

The shapes are those of Flink 2.3: a type is an object with the name of its type root, a row an object with its
kind and a list of its values.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import UnsupportedError
from penstock.functions.value_text import text_of
from penstock.functions.zones import require_zone
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

ROW_KINDS = ("INSERT", "UPDATE_BEFORE", "UPDATE_AFTER", "DELETE")
#: Formats of rows: values of JSON, or texts as a SQL client prints them.
JSON, PLAIN_TEXT = "JSON", "PLAIN_TEXT"
#: What Flink's clients print for a NULL; within a value it is ``NULL``.
NULL = "<NULL>"
_INTERVAL_PRECISION = 2
_ROOTS: dict[type[t.LogicalType], str] = {
    t.BooleanType: "BOOLEAN",
    t.TinyIntType: "TINYINT",
    t.SmallIntType: "SMALLINT",
    t.IntType: "INTEGER",
    t.BigIntType: "BIGINT",
    t.FloatType: "FLOAT",
    t.DoubleType: "DOUBLE",
    t.DateType: "DATE",
}
_encoder = msgspec.json.Encoder(decimal_format="number")


def encoded(answer: Any) -> bytes:
    """An answer as JSON. Decimals are numbers, as Flink's client expects them."""
    return _encoder.encode(answer)


# -- types -------------------------------------------------------------------------------------


def columns_of(schema: t.Schema) -> list[dict[str, Any]]:
    """The columns of a result."""
    return [{"name": f.name, "logicalType": type_of(f.type), "comment": None} for f in schema.fields]


def type_of(type_: t.LogicalType) -> dict[str, Any]:
    """A type as Flink's client reads it.

    Raises:
        UnsupportedError: Flink's client has no form for values of the type.
    """
    if isinstance(type_, t.NullType):
        return {"type": "NULL"}
    root = _ROOTS.get(type(type_))
    if root is not None:
        return {"type": root, "nullable": type_.nullable}
    root, more = _parametrised(type_)
    return {"type": root, "nullable": type_.nullable, **more}


def _parametrised(type_: t.LogicalType) -> tuple[str, dict[str, Any]]:
    match type_:
        case t.CharType():
            return "CHAR", {"length": type_.length}
        case t.VarCharType():
            return "VARCHAR", {"length": type_.length}
        case t.BinaryType():
            return "BINARY", {"length": type_.length}
        case t.VarBinaryType():
            return "VARBINARY", {"length": type_.length}
        case t.DecimalType():
            return "DECIMAL", {"precision": type_.precision, "scale": type_.scale}
        case t.TimeType():
            return "TIME_WITHOUT_TIME_ZONE", {"precision": type_.precision}
        case t.TimestampType():
            return "TIMESTAMP_WITHOUT_TIME_ZONE", {"precision": type_.precision}
        case t.TimestampLtzType():
            return "TIMESTAMP_WITH_LOCAL_TIME_ZONE", {"precision": type_.precision}
        case t.YearMonthIntervalType():
            return "INTERVAL_YEAR_MONTH", {"precision": _INTERVAL_PRECISION, "resolution": "YEAR_TO_MONTH"}
        case t.DayTimeIntervalType():
            more = {"precision": _INTERVAL_PRECISION, "fractionalPrecision": 3, "resolution": "DAY_TO_SECOND"}
            return "INTERVAL_DAY_TIME", more
        case t.ArrayType():
            return "ARRAY", {"elementType": type_of(type_.element)}
        case t.MultisetType():
            return "MULTISET", {"elementType": type_of(type_.element)}
        case t.MapType():
            return "MAP", {"keyType": type_of(type_.key), "valueType": type_of(type_.value)}
        case t.RowType():
            return "ROW", {"fields": [{"name": f.name, "fieldType": type_of(f.type)} for f in type_.fields]}
    raise UnsupportedError(
        f"a column of type {type_} in a result of the SQL gateway",
        expected="a type of SQL",
        got=str(type_),
        remedy="cast the column, such as to STRING",
    )


# -- rows --------------------------------------------------------------------------------------


def rows_of(schema: t.Schema, rows: Iterable[Any], row_format: str, zone: str) -> list[dict[str, Any]]:
    """Rows of a result.

    Args:
        schema: Their columns.
        rows: Result rows, which know their kind.
        row_format: ``JSON`` or ``PLAIN_TEXT``.
        zone: Time zone in which timestamps with local time zone are shown.
    """
    if row_format == PLAIN_TEXT:
        types = schema.types
        return [
            {
                "kind": ROW_KINDS[row.get_row_kind()],
                "fields": [
                    NULL if v is None else text_of(v, x, zone) for v, x in zip(row, types, strict=True)
                ],
            }
            for row in rows
        ]
    convert = [value_of(x, zone) for x in schema.types]
    return [{"kind": ROW_KINDS[row.get_row_kind()], "fields": _fields(row, convert)} for row in rows]


def _fields(values: Sequence[Any], convert: Sequence[Callable[[Any], Any] | None]) -> list[Any]:
    return [v if v is None or c is None else c(v) for v, c in zip(values, convert, strict=True)]


@lru_cache(maxsize=1024)
def value_of(type_: t.LogicalType, zone: str) -> Callable[[Any], Any] | None:
    """A function from values of ``type_`` in their Python form to values of JSON; None if they are the same.

    Raises:
        UnsupportedError: JSON has no form for the type's values: a MAP whose keys are no text.
    """
    match type_:
        case t.FloatType() | t.DoubleType():
            return _float
        case t.DateType():
            return dt.date.isoformat
        case t.TimeType():
            return lambda value: _fraction(value.replace(microsecond=0).isoformat(), value.microsecond)
        case t.TimestampType():
            return _timestamp
        case t.TimestampLtzType():
            info = require_zone(zone)
            # Flink's gateway writes the time of the session's zone, and its clients show it as it is.
            return lambda value: _timestamp(value.astimezone(info).replace(tzinfo=None)) + "Z"
        case t.DayTimeIntervalType():
            return lambda value: value // dt.timedelta(milliseconds=1)
        case t.BinaryType() | t.VarBinaryType():
            return lambda value: base64.b64encode(value).decode("ascii")
        case t.ArrayType(element=element):
            inner = value_of(element, zone)
            return None if inner is None else lambda value: [None if v is None else inner(v) for v in value]
        case t.MapType() | t.MultisetType():
            return _map(type_, zone)
        case t.RowType(fields=fields):
            names, inners = [f.name for f in fields], [value_of(f.type, zone) for f in fields]
            return lambda value: dict(zip(names, _fields(value, inners), strict=True))
    return None


def _map(type_: t.MapType | t.MultisetType, zone: str) -> Callable[[Any], Any]:
    key, item = (type_.key, type_.value) if isinstance(type_, t.MapType) else (type_.element, t.IntType())
    if not isinstance(key, t.STRINGS):
        raise UnsupportedError(
            f"a column of type {type_} as JSON",
            expected="keys of type STRING",
            got=str(key),
            remedy="cast the keys to STRING, or the column, or ask for rowFormat=PLAIN_TEXT",
        )
    inner = value_of(item, zone)
    # A NULL key is written as Flink writes it.
    return lambda value: {
        "null" if k is None else k: v if v is None or inner is None else inner(v) for k, v in value.items()
    }


def _float(value: float) -> Any:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def _timestamp(value: dt.datetime) -> str:
    return _fraction(value.replace(microsecond=0).isoformat(), value.microsecond)


def _fraction(text: str, microsecond: int) -> str:
    return f"{text}.{microsecond:06d}".rstrip("0") if microsecond else text
