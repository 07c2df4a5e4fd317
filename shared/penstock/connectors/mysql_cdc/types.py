"""The types of MySQL's columns, and the types of a table that hold all of their values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from penstock.connectors.mysql_cdc.settings import OWNER
from penstock.errors import ConnectorError
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Mapping

_TYPE = re.compile(r"(\w+)(?:\((.*)\))?(?: (?:unsigned|zerofill|/\*.*?\*/))*", re.DOTALL)
_MEMBER = re.compile(r"'((?:[^']|'')*)'")
#: Bytes and decimal digits of integers.
INTEGERS = {"tinyint": (1, 3), "smallint": (2, 5), "mediumint": (3, 8), "int": (4, 10), "bigint": (8, 20)}
_TEXTS = frozenset(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"))
_BYTES = frozenset(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"))
#: Character sets whose texts can be read.
CHARSETS = frozenset(("utf8mb4", "utf8mb3", "utf8", "ascii", "latin1"))


class MySqlType(msgspec.Struct, frozen=True):
    """A column's type in the database.

    Args:
        base: Its name without arguments: ``decimal``.
        shown: Its SQL: ``decimal(10,2) unsigned``.
        numbers: The numbers in its parentheses.
        members: Those of an ``enum`` or ``set``.
        unsigned: Whether it has no negative numbers.
        charset: Its character set; empty where it has none.
    """

    base: str
    shown: str
    numbers: tuple[int, ...] = ()
    members: tuple[str, ...] = ()
    unsigned: bool = False
    charset: str = ""

    @classmethod
    def parse(cls, shown: str, charset: str | None) -> MySqlType:
        """The type of ``information_schema``'s COLUMN_TYPE and CHARACTER_SET_NAME."""
        found = _TYPE.match(shown)
        if found is None:
            return cls(shown, shown)
        base, inside = found.group(1).lower(), found.group(2) or ""
        if base in ("enum", "set"):
            members = tuple(member.replace("''", "'") for member in _MEMBER.findall(inside))
            return cls(base, shown, (), members, False, charset or "")
        numbers = tuple(int(x) for x in inside.split(",")) if inside else ()
        unsigned = "unsigned" in shown[found.end(1) :] or "zerofill" in shown[found.end(1) :]
        return cls(base, shown, numbers, (), unsigned, charset or "")

    @property
    def flag(self) -> bool:
        """Whether the values are taken for true and false: ``bit(1)``."""
        return self.base == "bit" and self.numbers in ((), (1,))

    @property
    def natural(self) -> t.LogicalType | None:
        """The narrowest type that holds all values; None: the type cannot be read."""
        digits = self.numbers[0] if self.numbers else 0
        match self.base:
            case "tinyint":
                return t.SmallIntType() if self.unsigned else t.TinyIntType()
            case "smallint":
                return t.IntType() if self.unsigned else t.SmallIntType()
            case "mediumint" | "year":
                return t.IntType()
            case "int":
                return t.BigIntType() if self.unsigned else t.IntType()
            case "bigint":
                return t.DecimalType(20, 0) if self.unsigned else t.BigIntType()
            case "float":
                return t.FloatType()
            case "double":
                return t.DoubleType()
            case "decimal" if digits <= t.MAX_DECIMAL_PRECISION:
                return t.DecimalType(digits, self.numbers[1])
            case "decimal" | "enum" | "set":
                return t.VarCharType()
            case "date":
                return t.DateType()
            case "time":
                return t.TimeType(digits)
            case "datetime":
                return t.TimestampType(digits)
            case "timestamp":
                return t.TimestampLtzType(digits)
            case "bit":
                return t.BooleanType() if self.flag else t.VarBinaryType()
        if self.base in _TEXTS:
            return t.VarCharType()
        return t.VarBinaryType() if self.base in _BYTES else None


def check_type(column: str, type_: t.LogicalType, there: MySqlType) -> None:
    """ConnectorError unless ``type_`` may hold every value of the database's type. Digits of a second, and TIME's hours, are
    compared value by value."""
    if there.charset and there.charset not in CHARSETS:
        raise ConnectorError(
            f"column '{column}' has a character set that is not read",
            expected=", ".join(sorted(CHARSETS)),
            got=there.charset,
            where=OWNER,
            remedy=f"ALTER TABLE … MODIFY `{column}` {there.shown} CHARACTER SET utf8mb4, or leave the column out",
        )
    if there.natural is None or not _fits(type_, there):
        raise ConnectorError(
            f"column '{column}' cannot hold what the database has",
            expected=_fitting(there),
            got=f"{type_}, for the server's {there.shown}",
            where=OWNER,
            remedy="leave the column out" if there.natural is None else "declare the column with a type that holds every value",
        )  # fmt: skip


#: Integer types from the narrowest, each with its digits.
_WIDER: Mapping[type, int] = {t.TinyIntType: 3, t.SmallIntType: 5, t.IntType: 10, t.BigIntType: 19}


def _fits(type_: t.LogicalType, there: MySqlType) -> bool:
    natural = there.natural
    if isinstance(type_, t.BooleanType):
        return there.flag or (there.base == "tinyint" and there.numbers == (1,))
    if isinstance(natural, tuple(_WIDER)):
        if isinstance(type_, t.DecimalType):
            return type_.precision - type_.scale >= _WIDER[type(natural)]
        return type(type_) in _WIDER and _WIDER[type(type_)] >= _WIDER[type(natural)]
    match natural:
        case t.FloatType():
            return isinstance(type_, (t.FloatType, t.DoubleType))
        case t.DecimalType(precision=precision, scale=scale):
            if isinstance(type_, t.DecimalType):
                return type_.scale >= scale and type_.precision - type_.scale >= precision - scale
            return isinstance(type_, t.VarCharType) and type_.length == t.MAX_VARCHAR
        case t.VarCharType():
            most = there.numbers[0] if there.base in ("char", "varchar") else t.MAX_VARCHAR
            return isinstance(type_, t.VarCharType) and (
                type_.length == t.MAX_VARCHAR or type_.length >= most
            )
        case t.VarBinaryType():
            return isinstance(type_, t.VarBinaryType) and type_.length == t.MAX_VARCHAR
        case t.TimestampLtzType():
            return isinstance(type_, (t.TimestampLtzType, t.TimestampType))
    return natural is not None and type(type_) is type(natural)


def _fitting(there: MySqlType) -> str:
    natural = there.natural
    match natural:
        case None:
            return "a column of a number, text, bytes, date or time, BIT, ENUM or SET"
        case t.VarCharType():
            return (
                "STRING"
                if there.base not in ("char", "varchar")
                else f"STRING or VARCHAR({there.numbers[0]})"
            )
        case t.VarBinaryType():
            return "BYTES"
        case t.DecimalType():
            return f"{natural} or STRING"
    return f"{natural} or a wider type of the kind"
