"""Converts the texts of PostgreSQL's values to columns: exactly, or not at all, with an error."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.cdc.rows import check_digits
from penstock.connectors.postgres_cdc.settings import OWNER
from penstock.errors import ConnectorError, RecordError
from penstock.formats.build import in_range
from penstock.types import logical as t
from penstock.types.column import Column
from penstock.types.storage import external_arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class DatabaseType:
    """A column's type in the database.

    Args:
        base: PostgreSQL's short name, ``int4``; for an array, that of its elements.
        shown: Its SQL: ``integer[]``.
        modifier: PostgreSQL's type modifier; −1 for none.
        array: Whether it is an array.
    """

    base: str
    shown: str
    modifier: int = -1
    array: bool = False

    @property
    def length(self) -> int | None:
        """Characters of a ``varchar(n)`` or ``char(n)``."""
        return self.modifier - 4 if self.base in ("varchar", "bpchar") and self.modifier >= 4 else None

    @property
    def digits(self) -> tuple[int, int] | None:
        """Precision and scale of a ``numeric(p, s)``."""
        if self.base != "numeric" or self.modifier < 4:
            return None
        packed = self.modifier - 4
        scale = packed & 0x7FF
        return packed >> 16, scale - 0x800 if scale & 0x400 else scale


#: PostgreSQL's type → the types that hold all of its values, the natural one first. Any type may be a STRING.
_FITTING: dict[str, tuple[type[t.LogicalType], ...]] = {
    "bool": (t.BooleanType,),
    "int2": (t.SmallIntType, t.IntType, t.BigIntType),
    "int4": (t.IntType, t.BigIntType),
    "int8": (t.BigIntType,),
    "oid": (t.BigIntType,),
    "float4": (t.FloatType, t.DoubleType),
    "float8": (t.DoubleType,),
    "numeric": (t.DecimalType,),
    "date": (t.DateType,),
    "time": (t.TimeType,),
    "timestamp": (t.TimestampType,),
    "timestamptz": (t.TimestampLtzType,),
    "bytea": (t.VarBinaryType,),
}
#: The settings of a session, which make its texts those that this module reads, whatever the server's or the
#: role's settings are.
SESSION = {
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}


_NATURAL = {
    "INT8": "BIGINT",
    "VARBINARY": "BYTES",
    "TIMESTAMPLTZ": "TIMESTAMP_LTZ(6)",
    "TIMESTAMP": "TIMESTAMP(6)",
    "TIME": "TIME(6)",
}


def check_type(column: str, type_: t.LogicalType, there: DatabaseType) -> None:
    """ConnectorError unless ``type_`` may hold every value of the database's type. Decimals without a precision, and
    digits of a second, are compared value by value."""
    if isinstance(type_, t.ArrayType) and there.array:
        if _fits(type_.element, there):
            return
    elif (not there.array or isinstance(type_, t.STRINGS)) and _fits(type_, there):
        return
    names = [kind.__name__.removesuffix("Type").upper() for kind in _FITTING.get(there.base, ())]
    natural = ", ".join(_NATURAL.get(name, name) for name in names)
    if there.base == "numeric":
        natural = "DECIMAL({}, {})".format(*(there.digits or (38, 9)))
    natural = f"ARRAY<{natural or 'STRING'}>" if there.array else natural
    raise ConnectorError(
        f"column '{column}' cannot hold what the database has",
        expected=f"{natural} or STRING" if natural else "STRING",
        got=f"{type_}, for PostgreSQL's {there.shown}",
        where=OWNER,
        remedy="declare the column with a type that holds every value",
    )


def _fits(type_: t.LogicalType, there: DatabaseType) -> bool:
    if isinstance(type_, t.STRINGS):
        return type_.length == t.MAX_VARCHAR or (
            there.length is not None
            and not there.array
            and (
                there.length == type_.length
                if isinstance(type_, t.CharType)
                else there.length <= type_.length
            )
        )
    if isinstance(type_, t.DecimalType) and there.base == "numeric" and there.digits is not None:
        precision, scale = there.digits
        return type_.scale >= scale and type_.precision - type_.scale >= precision - scale
    if isinstance(type_, t.VarBinaryType) and type_.length != t.MAX_VARCHAR:
        return False
    return isinstance(type_, _FITTING.get(there.base, ()))


def column_of(field: t.Field, texts: pa.Array) -> Column:
    """The values whose ``texts`` (binary, UTF-8) the server sent. RecordError that names the column and the first value
    that does not fit exactly."""
    try:
        return _converted(field.type, texts.cast(pa.string()) if texts.type == pa.binary() else texts)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as err:
        raise RecordError(
            f"a value of column '{field.name}' is no {field.type}",
            expected=str(field.type),
            got=_reason(field.type, texts, err),
            where=OWNER,
            remedy="declare the column with a type that holds every value, e.g. STRING",
        ) from err


def _reason(type_: t.LogicalType, texts: pa.Array, err: Exception) -> str:
    """The first value that fails alone; the text of ``err`` if each value alone succeeds."""
    for value in texts:
        try:
            _converted(type_, pa.array([value.as_py()], texts.type).cast(pa.string()))
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            return repr(value.as_py())[:200]
    return str(err)[:200]


def _converted(type_: t.LogicalType, texts: pa.Array) -> Column:
    match type_:
        case t.BooleanType():
            known = pc.all(pc.is_in(texts, pa.array(["t", "f", None]))).as_py()
            if known is False:
                raise ValueError("neither t nor f")
            return Column.from_arrow(type_, pc.equal(texts, "t"))
        case t.TimestampType(precision=p) | t.TimestampLtzType(precision=p):
            moments = in_range(type_, texts.cast(external_arrow_type(type_)))
            column = Column.from_arrow(type_, moments)
            check_digits(column, p)
            return column
        case t.TimeType(precision=p):
            moments = pc.binary_join_element_wise("1970-01-01 ", texts, "").cast(pa.timestamp("us"))
            column = Column.from_arrow(type_, moments.cast(pa.int64()))
            check_digits(column, p)
            return column
        case t.VarBinaryType():
            return Column.from_arrow(type_, pa.array(_each(texts, _bytes), pa.binary()))
        case t.ArrayType():
            return _array(type_, texts)
    if isinstance(type_, t.STRINGS):
        return Column.from_arrow(type_, texts)
    return Column.from_arrow(type_, in_range(type_, texts.cast(external_arrow_type(type_))))


def _each(texts: pa.Array, convert: Callable[[str], Any]) -> list[Any]:
    return [None if text is None else convert(text) for text in texts.to_pylist()]


def _bytes(text: str) -> bytes:
    if not text.startswith("\\x"):
        raise ValueError("bytea not in hex")
    return bytes.fromhex(text[2:])


def _array(type_: t.ArrayType, texts: pa.Array) -> Column:
    lists = _each(texts, parse_array)
    flat = [item for found in lists if found is not None for item in found]
    items = _converted(type_.element, pa.array(flat, pa.string()))
    if not type_.element.nullable and items.null_count:
        raise ValueError("NULL in an array whose elements are NOT NULL")
    values = iter(items.to_pylist())
    return Column.of(type_, [None if found is None else [next(values) for _ in found] for found in lists])


_ITEM = re.compile(r'"((?:[^"\\]|\\.)*)"|([^,{}"\\]+)')


def parse_array(text: str) -> list[str | None]:
    """The items of a one-dimensional array ``{a,"b c",NULL}``. ValueError for an array of more dimensions or
    with other bounds."""
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError("an array with its own bounds")
    items: list[str | None] = []
    at, end = 1, len(text) - 1
    while at < end:
        found = _ITEM.match(text, at, end)
        if found is None:
            raise ValueError("an array of more than one dimension")
        quoted, plain = found.groups()
        if quoted is not None:
            items.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        else:
            items.append(None if plain == "NULL" else plain)
        at = found.end()
        if at < end:
            if text[at] != ",":
                raise ValueError("an array that cannot be read")
            at += 1
    return items
