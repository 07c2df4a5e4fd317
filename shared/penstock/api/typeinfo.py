"""``Types``: Flink's names for the types of records and state. Each gives a ``LogicalType``.

A stream of ``Types.ROW_NAMED(names, types)`` has columns of those names, and its records have attributes of
those names. A stream of ``Types.TUPLE(types)`` has columns ``f0, f1, …``, and its records are plain tuples. A
stream of any other type has one column ``value``, and its records are bare values.
"""

from __future__ import annotations

import datetime as dt
import typing
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from penstock.columnar.annotations import PYTHON, as_type, of_annotation
from penstock.columnar.rows import Row
from penstock.errors import SpecError
from penstock.operators.output_tag import schema_of, type_of
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Types", "annotated_type", "checked_type", "schema_of", "type_of", "type_of_values"]


class Types:
    """Types of records and fields.

    ``PICKLED_BYTE_ARRAY`` is any Python value, pickled: slow, and readable by Python alone. A function's output has
    this type if none is declared.
    """

    @staticmethod
    def BOOLEAN() -> t.LogicalType:
        """``bool``; SQL BOOLEAN."""
        return t.BooleanType()

    @staticmethod
    def BYTE() -> t.LogicalType:
        """``int`` of 8 bits; SQL TINYINT."""
        return t.TinyIntType()

    @staticmethod
    def SHORT() -> t.LogicalType:
        """``int`` of 16 bits; SQL SMALLINT."""
        return t.SmallIntType()

    @staticmethod
    def INT() -> t.LogicalType:
        """``int`` of 32 bits; SQL INT."""
        return t.IntType()

    @staticmethod
    def LONG() -> t.LogicalType:
        """``int`` of 64 bits; SQL BIGINT."""
        return t.BigIntType()

    @staticmethod
    def FLOAT() -> t.LogicalType:
        """``float`` of 32 bits; SQL FLOAT."""
        return t.FloatType()

    @staticmethod
    def DOUBLE() -> t.LogicalType:
        """``float`` of 64 bits; SQL DOUBLE."""
        return t.DoubleType()

    @staticmethod
    def STRING() -> t.LogicalType:
        """``str``; SQL STRING."""
        return t.VarCharType()

    @staticmethod
    def CHAR() -> t.LogicalType:
        """``str`` of one character; SQL CHAR(1)."""
        return t.CharType(1)

    @staticmethod
    def BIG_INT() -> t.LogicalType:
        """``Decimal`` without digits after the point, up to 38 before it; SQL DECIMAL(38, 0)."""
        return t.DecimalType(38, 0)

    @staticmethod
    def BIG_DEC(precision: int = 38, scale: int = 18) -> t.LogicalType:
        """``Decimal`` of up to ``precision`` digits, ``scale`` of them after the point; SQL DECIMAL.

        A value with more digits before or after the point is refused; ``PICKLED_BYTE_ARRAY`` keeps any.
        """
        return t.DecimalType(precision, scale)

    @staticmethod
    def BYTES() -> t.LogicalType:
        """``bytes``; SQL BYTES."""
        return t.VarBinaryType()

    @staticmethod
    def SQL_DATE() -> t.LogicalType:
        """``datetime.date``; SQL DATE."""
        return t.DateType()

    @staticmethod
    def SQL_TIME() -> t.LogicalType:
        """``datetime.time``, to the microsecond; SQL TIME(6)."""
        return t.TimeType(6)

    @staticmethod
    def SQL_TIMESTAMP(precision: int = 6) -> t.LogicalType:
        """A naive ``datetime``, without time zone; SQL TIMESTAMP. ``precision``: digits of the second, 0 to 6."""
        return t.TimestampType(precision)

    @staticmethod
    def INSTANT(precision: int = 6) -> t.LogicalType:
        """An aware ``datetime``, a point in time; SQL TIMESTAMP_LTZ. ``precision``: digits of the second, 0 to 6."""
        return t.TimestampLtzType(precision)

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> t.LogicalType:
        """Any Python value, pickled."""
        return t.RawType()

    @staticmethod
    def RECORD(cls: type) -> t.LogicalType:
        """Instances of ``cls``, a dataclass, msgspec struct, named tuple or pydantic model: its fields are columns.

        Their types are those of the annotations; ``Annotated[int, Types.INT()]`` gives another.

        Raises:
            SpecError: ``cls`` is another class, or an annotation cannot be resolved.
        """
        found = as_type(cls)
        if not isinstance(found, t.RowType):
            raise SpecError(
                "not a class with fields",
                expected="a dataclass, msgspec struct, named tuple with annotations, or pydantic model",
                got=repr(cls),
            )
        return found

    @staticmethod
    def TUPLE(field_types: Sequence[t.LogicalType]) -> t.LogicalType:
        """A plain tuple with fields of ``field_types``; its columns are called ``f0``, ``f1`` …"""
        return t.RowType(tuple(t.Field(f"f{i}", checked_type(x)) for i, x in enumerate(field_types)))

    @staticmethod
    def ROW(field_types: Sequence[t.LogicalType]) -> t.LogicalType:
        """A row with fields of ``field_types``, which are called ``f0``, ``f1`` …: ``row[0]``, ``row.f0``."""
        return t.RowType(
            tuple(t.Field(f"f{i}", checked_type(x), row=True) for i, x in enumerate(field_types))
        )

    @staticmethod
    def ROW_NAMED(field_names: Sequence[str], field_types: Sequence[t.LogicalType]) -> t.LogicalType:
        """A row with fields of ``field_names`` and ``field_types``: ``row.name``, ``row[0]``.

        Raises:
            SpecError: There are not as many different names as types.
        """
        if len(field_names) != len(field_types) or len(set(field_names)) != len(field_names):
            raise SpecError(
                "names and types of a row do not fit",
                expected="as many different names as types",
                got=f"names {list(field_names)}, {len(field_types)} types",
            )
        return t.RowType(
            tuple(t.Field(n, checked_type(x)) for n, x in zip(field_names, field_types, strict=True))
        )

    @staticmethod
    def LIST(element_type_info: t.LogicalType) -> t.LogicalType:
        """A ``list`` of elements of ``element_type_info``; SQL ARRAY."""
        return t.ArrayType(checked_type(element_type_info))

    @staticmethod
    def OBJECT_ARRAY(element_type: t.LogicalType) -> t.LogicalType:
        """``LIST(element_type)``, under Flink's other names."""
        return Types.LIST(element_type)

    BASIC_ARRAY = OBJECT_ARRAY

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: t.LogicalType) -> t.LogicalType:
        """``LIST(element_type)``; of ``Types.BYTE()``: ``bytes``, as in PyFlink."""
        return Types.BYTES() if isinstance(element_type, t.TinyIntType) else Types.LIST(element_type)

    @staticmethod
    def MAP(key_type_info: t.LogicalType, value_type_info: t.LogicalType) -> t.LogicalType:
        """A ``dict`` with keys of ``key_type_info`` and values of ``value_type_info``; SQL MAP."""
        return t.MapType(checked_type(key_type_info), checked_type(value_type_info))


def checked_type(type_: Any) -> t.LogicalType:
    """The type that a program gives: a type, or a class with fields. SpecError for anything else."""
    found = as_type(type_)
    if found is None:
        raise SpecError(
            "not a type", expected="Types.STRING(), Types.LONG(), …, or a class with fields", got=repr(type_)
        )
    return found


def annotated_type(function: Callable[..., Any], method: str) -> t.LogicalType | None:
    """The type that a function's return annotation declares (``-> int``, ``-> tuple[str,
    int]``, ``Iterator[str]`` of a flat_map …), None when it declares no type that Penstock knows."""
    target = getattr(function, method, function)
    try:
        declared = typing.get_type_hints(target).get("return")
    except (NameError, TypeError, AttributeError):
        # An annotation that cannot be resolved declares nothing.
        return None
    if method == "flat_map":
        arguments = typing.get_args(declared)
        if typing.get_origin(declared) is tuple or not arguments:
            return None
        declared = arguments[0]
    try:
        return of_annotation(declared)
    except SpecError:
        # A class whose fields cannot be resolved declares nothing: its instances are pickled.
        return None


def type_of_values(values: Sequence[Any]) -> t.LogicalType:
    """The common type of Python values, RAW when they have none."""
    present = [v for v in values if v is not None]
    if not present:
        return t.RawType()
    kinds = set(map(type, present))
    if kinds == {int, float}:
        return t.DoubleType()
    if kinds == {dt.datetime}:
        aware = {v.tzinfo is not None for v in present}
        if len(aware) == 1:
            return t.TimestampLtzType() if aware.pop() else t.TimestampType()
        return t.RawType()
    if kinds == {Decimal}:
        return _decimal_type(present)
    if len(kinds) == 1 and (kind := kinds.pop()) in PYTHON:
        if kind is int and not all(-(2**63) <= v < 2**63 for v in present):
            return t.DecimalType(38, 0) if all(abs(v) < 10**38 for v in present) else t.RawType()
        return PYTHON[kind]
    if all(isinstance(v, tuple) for v in present) and len({len(v) for v in present}) == 1:
        columns = [type_of_values(column) for column in zip(*present, strict=True)]
        cls = type(present[0])
        names = (
            getattr(cls, "_names", None)
            or getattr(cls, "_fields", None)
            or [f"f{i}" for i in range(len(columns))]
        )
        if not columns:
            return t.RawType()
        if issubclass(cls, Row) and list(names) == [f"f{i}" for i in range(len(columns))]:
            return Types.ROW(columns)
        return Types.ROW_NAMED(list(names), columns)
    if all(isinstance(v, list) for v in present):
        return _nested(t.ArrayType, [x for v in present for x in v])
    return t.RawType()


def _decimal_type(values: Sequence[Decimal]) -> t.LogicalType:
    """A decimal type that holds all ``values`` exactly: DECIMAL(38, 18) if they fit, else one with a larger
    scale; RAW if no decimal type holds them."""
    if not all(v.is_finite() for v in values):
        return t.RawType()
    scale = max(max(0, -int(v.as_tuple().exponent)) for v in values)
    whole = max(v.adjusted() + 1 if v else 0 for v in values)
    if scale <= 18 and whole <= 20:
        return t.DecimalType(38, 18)
    return t.DecimalType(38, scale) if scale + max(whole, 0) <= 38 else t.RawType()


def _nested(make: Callable[[t.LogicalType], t.LogicalType], values: list[Any]) -> t.LogicalType:
    element = type_of_values(values)
    return t.RawType() if isinstance(element, t.RawType) else make(element)
