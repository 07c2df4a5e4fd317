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
VARIANT                     Arrow string: canonical JSON (``functions/variant.py``)
NULL                        NumPy bool, all invalid
RAW                         NumPy object (any Python value; DataStream API only)
==========================  =============================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Union, get_args

import msgspec

from penstock.types.atomic import (
    MAX_DECIMAL_PRECISION,
    MAX_UNSCALED_INT64_PRECISION,
    MAX_VARCHAR,
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    NullType,
    RawType,
    SmallIntType,
    TimestampLtzType,
    TimestampType,
    TimeType,
    TinyIntType,
    TypeBase,
    VarBinaryType,
    VarCharType,
    VariantType,
    YearMonthIntervalType,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "BINARIES",
    "INTEGERS",
    "INTERVALS",
    "LOGICAL_TYPES",
    "MAX_DECIMAL_PRECISION",
    "MAX_UNSCALED_INT64_PRECISION",
    "MAX_VARCHAR",
    "STRINGS",
    "TIMESTAMPS",
    "ArrayType",
    "BigIntType",
    "BinaryType",
    "BooleanType",
    "CharType",
    "DateType",
    "DayTimeIntervalType",
    "DecimalType",
    "DoubleType",
    "Field",
    "FloatType",
    "IntType",
    "LogicalType",
    "MapType",
    "MultisetType",
    "NullType",
    "RawType",
    "RowType",
    "Schema",
    "SmallIntType",
    "TimeType",
    "TimestampLtzType",
    "TimestampType",
    "TinyIntType",
    "VarBinaryType",
    "VarCharType",
    "VariantType",
    "YearMonthIntervalType",
    "holds_variant",
    "type_from_json",
    "type_to_json",
]


class ArrayType(TypeBase, frozen=True, tag="array"):
    """SQL ARRAY<element>."""

    element: LogicalType
    nullable: bool = True

    def sql(self) -> str:
        return f"ARRAY<{self.element}>"


class MapType(TypeBase, frozen=True, tag="map"):
    """SQL MAP<key, value>."""

    key: LogicalType
    value: LogicalType
    nullable: bool = True

    def sql(self) -> str:
        return f"MAP<{self.key}, {self.value}>"


class MultisetType(TypeBase, frozen=True, tag="multiset"):
    """SQL MULTISET<element>: elements with their counts."""

    element: LogicalType
    nullable: bool = True

    def sql(self) -> str:
        return f"MULTISET<{self.element}>"


class Field(msgspec.Struct, frozen=True, omit_defaults=True):
    """A named column or field of a row: ``name`` and ``type``.

    ``row``: the DataStream API's ``Types.ROW`` has numbered this field, so that records with it are rows in Python; those
    with other fields called f0, f1, … are plain tuples. ``record``: ``module:name`` of the class whose instances the
    records are in Python, where all fields of a row name it.
    """

    name: str
    type: LogicalType
    row: bool = False
    record: str = ""


class RowType(TypeBase, frozen=True, tag="row"):
    """SQL ROW with ``fields``; ``nullable``: whether the row itself may be NULL."""

    fields: tuple[Field, ...]
    nullable: bool = True

    def sql(self) -> str:
        return "ROW<" + ", ".join(f"`{f.name}` {f.type}" for f in self.fields) + ">"


LogicalType = Union[
    BooleanType, TinyIntType, SmallIntType, IntType, BigIntType, FloatType, DoubleType,
    DecimalType, CharType, VarCharType, BinaryType, VarBinaryType, DateType, TimeType,
    TimestampType, TimestampLtzType, YearMonthIntervalType, DayTimeIntervalType,
    ArrayType, MapType, MultisetType, RowType, NullType, RawType, VariantType,
]  # fmt: skip

#: The classes of ``LogicalType``.
LOGICAL_TYPES: tuple[type[LogicalType], ...] = get_args(LogicalType)
INTEGERS = (TinyIntType, SmallIntType, IntType, BigIntType)
STRINGS = (CharType, VarCharType)
BINARIES = (BinaryType, VarBinaryType)
TIMESTAMPS = (TimestampType, TimestampLtzType)
INTERVALS = (YearMonthIntervalType, DayTimeIntervalType)


def holds_variant(type_: LogicalType) -> bool:
    """Whether the type is VARIANT, or a part of it is."""
    match type_:
        case VariantType():
            return True
        case ArrayType(element=element) | MultisetType(element=element):
            return holds_variant(element)
        case MapType(key=key, value=value):
            return holds_variant(key) or holds_variant(value)
        case RowType(fields=fields):
            return any(holds_variant(f.type) for f in fields)
    return False


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
