"""Logical types: SQL's types with Flink's names, nullability and limits.

Every column, expression and state field has one. They are msgspec structs, so a plan
that holds them is plain JSON. ``str(t)`` is the SQL text Flink prints
(``DECIMAL(10, 2) NOT NULL``).

Storage of a type inside a ``Column`` (see ``column.py``):

==========================  =============================================
BOOLEAN                     NumPy bool
TINYINT … BIGINT            NumPy int8 … int64
FLOAT, DOUBLE               NumPy float32, float64
DECIMAL(p <= 18, s)         NumPy int64, unscaled
DATE                        NumPy int32, days since 1970-01-01
TIME(p)                     NumPy int64, µs since midnight
TIMESTAMP(p), _LTZ(p)       NumPy int64, µs since the epoch (p > 6 is refused)
INTERVAL YEAR TO MONTH      NumPy int32, months
INTERVAL DAY TO SECOND      NumPy int64, µs
CHAR, VARCHAR, STRING       Arrow string
BINARY, VARBINARY, BYTES    Arrow binary
DECIMAL(p > 18, s)          Arrow decimal128
ARRAY, MAP, MULTISET, ROW   Arrow list, map, map<T, int32>, struct
NULL                        NumPy bool, all invalid
RAW                         NumPy object (any Python value; DataStream API only)
==========================  =============================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Union, get_args

import msgspec

from penstock.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_VARCHAR = 2147483647
MAX_DECIMAL_PRECISION = 38
MAX_UNSCALED_INT64_PRECISION = 18


class _Type(msgspec.Struct, frozen=True, tag_field="t"):
    if TYPE_CHECKING:  # each type has the field itself, behind its own fields

        @property
        def nullable(self) -> bool: ...

    def with_nullable(self, nullable: bool) -> LogicalType:
        """The same type, NULL allowed or not."""
        return msgspec.structs.replace(self, nullable=nullable)  # type: ignore[return-value]

    @property
    def not_null(self) -> LogicalType:
        """The same type without NULL."""
        return self.with_nullable(False)

    def __str__(self) -> str:
        return self.sql() + ("" if self.nullable else " NOT NULL")

    def sql(self) -> str:
        """The SQL text without nullability."""
        return type(self).__name__.upper()


class BooleanType(_Type, frozen=True, tag="bool"):
    """SQL BOOLEAN."""

    nullable: bool = True

    def sql(self) -> str:
        return "BOOLEAN"


class TinyIntType(_Type, frozen=True, tag="i8"):
    """SQL TINYINT: 8 bits, signed."""

    nullable: bool = True

    def sql(self) -> str:
        return "TINYINT"


class SmallIntType(_Type, frozen=True, tag="i16"):
    """SQL SMALLINT: 16 bits, signed."""

    nullable: bool = True

    def sql(self) -> str:
        return "SMALLINT"


class IntType(_Type, frozen=True, tag="i32"):
    """SQL INT: 32 bits, signed."""

    nullable: bool = True

    def sql(self) -> str:
        return "INT"


class BigIntType(_Type, frozen=True, tag="i64"):
    """SQL BIGINT: 64 bits, signed."""

    nullable: bool = True

    def sql(self) -> str:
        return "BIGINT"


class FloatType(_Type, frozen=True, tag="f32"):
    """SQL FLOAT: 32 bits."""

    nullable: bool = True

    def sql(self) -> str:
        return "FLOAT"


class DoubleType(_Type, frozen=True, tag="f64"):
    """SQL DOUBLE: 64 bits."""

    nullable: bool = True

    def sql(self) -> str:
        return "DOUBLE"


class DecimalType(_Type, frozen=True, tag="dec"):
    """SQL DECIMAL(precision, scale). Raises UserError unless 1 <= precision <= 38 and 0 <= scale <= precision."""

    precision: int = 10
    scale: int = 0
    nullable: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.precision <= MAX_DECIMAL_PRECISION or not 0 <= self.scale <= self.precision:
            raise UserError(
                "not a decimal type",
                expected="DECIMAL(p, s) with 1 <= p <= 38 and 0 <= s <= p",
                got=f"DECIMAL({self.precision}, {self.scale})",
            )

    def sql(self) -> str:
        return f"DECIMAL({self.precision}, {self.scale})"


class CharType(_Type, frozen=True, tag="char"):
    """SQL CHAR(length), in characters."""

    length: int = 1
    nullable: bool = True

    def sql(self) -> str:
        return f"CHAR({self.length})"


class VarCharType(_Type, frozen=True, tag="str"):
    """SQL VARCHAR(length), in characters; STRING has the greatest length."""

    length: int = MAX_VARCHAR
    nullable: bool = True

    def sql(self) -> str:
        return "STRING" if self.length == MAX_VARCHAR else f"VARCHAR({self.length})"


class BinaryType(_Type, frozen=True, tag="binary"):
    """SQL BINARY(length), in bytes."""

    length: int = 1
    nullable: bool = True

    def sql(self) -> str:
        return f"BINARY({self.length})"


class VarBinaryType(_Type, frozen=True, tag="bytes"):
    """SQL VARBINARY(length), in bytes; BYTES has the greatest length."""

    length: int = MAX_VARCHAR
    nullable: bool = True

    def sql(self) -> str:
        return "BYTES" if self.length == MAX_VARCHAR else f"VARBINARY({self.length})"


class DateType(_Type, frozen=True, tag="date"):
    """SQL DATE."""

    nullable: bool = True

    def sql(self) -> str:
        return "DATE"


class TimeType(_Type, frozen=True, tag="time"):
    """SQL TIME(precision), with 0 to 6 digits of a second."""

    precision: int = 0
    nullable: bool = True

    def sql(self) -> str:
        return f"TIME({self.precision})"


def _check_precision(kind: str, precision: int) -> None:
    if not 0 <= precision <= 6:
        raise UserError(
            f"{kind}({precision}) is not supported",
            expected=f"{kind}(p) with 0 <= p <= 6 (microseconds)",
            got=f"p = {precision}",
        )


class TimestampType(_Type, frozen=True, tag="ts"):
    """SQL TIMESTAMP(precision), without time zone, with 0 to 6 digits of a second."""

    precision: int = 6
    nullable: bool = True

    def __post_init__(self) -> None:
        _check_precision("TIMESTAMP", self.precision)

    def sql(self) -> str:
        return f"TIMESTAMP({self.precision})"


class TimestampLtzType(_Type, frozen=True, tag="tsltz"):
    """SQL TIMESTAMP_LTZ(precision): an instant, shown in the session's time zone, with 0 to 6 digits of a second."""

    precision: int = 6
    nullable: bool = True

    def __post_init__(self) -> None:
        _check_precision("TIMESTAMP_LTZ", self.precision)

    def sql(self) -> str:
        return f"TIMESTAMP_LTZ({self.precision})"


class YearMonthIntervalType(_Type, frozen=True, tag="ym"):
    """SQL INTERVAL YEAR TO MONTH."""

    nullable: bool = True

    def sql(self) -> str:
        return "INTERVAL YEAR TO MONTH"


class DayTimeIntervalType(_Type, frozen=True, tag="ds"):
    """SQL INTERVAL DAY TO SECOND."""

    nullable: bool = True

    def sql(self) -> str:
        return "INTERVAL DAY TO SECOND(3)"


class ArrayType(_Type, frozen=True, tag="array"):
    """SQL ARRAY<element>."""

    element: LogicalType
    nullable: bool = True

    def sql(self) -> str:
        return f"ARRAY<{self.element}>"


class MapType(_Type, frozen=True, tag="map"):
    """SQL MAP<key, value>."""

    key: LogicalType
    value: LogicalType
    nullable: bool = True

    def sql(self) -> str:
        return f"MAP<{self.key}, {self.value}>"


class MultisetType(_Type, frozen=True, tag="multiset"):
    """SQL MULTISET<element>: elements with their counts."""

    element: LogicalType
    nullable: bool = True

    def sql(self) -> str:
        return f"MULTISET<{self.element}>"


class Field(msgspec.Struct, frozen=True, omit_defaults=True):
    """A named column or field of a row: ``name`` and ``type``.

    ``row``: the DataStream API's ``Types.ROW`` has numbered this field, so that records with it are rows in Python; those
    with other fields called f0, f1, … are plain tuples.
    """

    name: str
    type: LogicalType
    row: bool = False


class RowType(_Type, frozen=True, tag="row"):
    """SQL ROW with ``fields``; ``nullable``: whether the row itself may be NULL."""

    fields: tuple[Field, ...]
    nullable: bool = True

    def sql(self) -> str:
        return "ROW<" + ", ".join(f"`{f.name}` {f.type}" for f in self.fields) + ">"


class NullType(_Type, frozen=True, tag="null"):
    """The type of a NULL literal."""

    nullable: bool = True

    def sql(self) -> str:
        return "NULL"


class RawType(_Type, frozen=True, tag="raw"):
    """Any Python value. ``serializer`` turns it into bytes for other processes and snapshots.

    ``pickle`` is the DataStream API's choice for a type that was not declared; a registered serializer is named
    ``name:version``.
    """

    serializer: str = "pickle"
    nullable: bool = True

    def sql(self) -> str:
        return f"RAW('{self.serializer}')"


LogicalType = Union[
    BooleanType, TinyIntType, SmallIntType, IntType, BigIntType, FloatType, DoubleType,
    DecimalType, CharType, VarCharType, BinaryType, VarBinaryType, DateType, TimeType,
    TimestampType, TimestampLtzType, YearMonthIntervalType, DayTimeIntervalType,
    ArrayType, MapType, MultisetType, RowType, NullType, RawType,
]  # fmt: skip

#: The classes of ``LogicalType``.
LOGICAL_TYPES: tuple[type[LogicalType], ...] = get_args(LogicalType)
INTEGERS = (TinyIntType, SmallIntType, IntType, BigIntType)
STRINGS = (CharType, VarCharType)
BINARIES = (BinaryType, VarBinaryType)
TIMESTAMPS = (TimestampType, TimestampLtzType)
INTERVALS = (YearMonthIntervalType, DayTimeIntervalType)


class Schema(msgspec.Struct, frozen=True):
    """Ordered columns: ``fields``. ``rowtime`` names the event-time attribute, if there is one."""

    fields: tuple[Field, ...]
    rowtime: str | None = None

    @classmethod
    def of(cls, *pairs: tuple[str, LogicalType], rowtime: str | None = None) -> Schema:
        """A schema of (name, type) ``pairs``; ``rowtime``: name of the event-time attribute."""
        return cls(tuple(Field(n, t) for n, t in pairs), rowtime)

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [f.name for f in self.fields]

    @property
    def types(self) -> list[LogicalType]:
        """The types of the columns."""
        return [f.type for f in self.fields]

    def __len__(self) -> int:
        return len(self.fields)

    def index(self, name: str) -> int:
        """Position of ``name``; KeyError if absent."""
        for i, field in enumerate(self.fields):
            if field.name == name:
                return i
        raise KeyError(name)

    def select(self, indices: Iterable[int]) -> Schema:
        """The columns at ``indices``; the event-time attribute stays if it is among them."""
        fields = tuple(self.fields[i] for i in indices)
        keeps = self.rowtime if any(f.name == self.rowtime for f in fields) else None
        return Schema(fields, keeps)

    def __str__(self) -> str:
        return "(" + ", ".join(f"`{f.name}` {f.type}" for f in self.fields) + ")"


def type_to_json(t: LogicalType) -> Any:
    """A type as plain JSON, for manifests and snapshots."""
    return msgspec.to_builtins(t)


def type_from_json(data: Any) -> LogicalType:
    """The inverse of ``type_to_json``. Raises msgspec's ValidationError for data that is no type."""
    return msgspec.convert(data, LogicalType)
