"""The logical types that hold no other type. ``logical`` has those that do, and the union of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.errors import UserError

if TYPE_CHECKING:
    from penstock.types.logical import LogicalType

MAX_VARCHAR = 2147483647
MAX_DECIMAL_PRECISION = 38
MAX_UNSCALED_INT64_PRECISION = 18


class TypeBase(msgspec.Struct, frozen=True, tag_field="t"):
    """What all types share: NULL or not, and the SQL text."""

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


class BooleanType(TypeBase, frozen=True, tag="bool"):
    """SQL BOOLEAN."""

    nullable: bool = True

    def sql(self) -> str:
        return "BOOLEAN"


class TinyIntType(TypeBase, frozen=True, tag="i8"):
    """SQL TINYINT: 8 bits, signed."""

    nullable: bool = True

    def sql(self) -> str:
        return "TINYINT"


class SmallIntType(TypeBase, frozen=True, tag="i16"):
    """SQL SMALLINT: 16 bits, signed."""

    nullable: bool = True

    def sql(self) -> str:
        return "SMALLINT"


class IntType(TypeBase, frozen=True, tag="i32"):
    """SQL INT: 32 bits, signed."""

    nullable: bool = True

    def sql(self) -> str:
        return "INT"


class BigIntType(TypeBase, frozen=True, tag="i64"):
    """SQL BIGINT: 64 bits, signed."""

    nullable: bool = True

    def sql(self) -> str:
        return "BIGINT"


class FloatType(TypeBase, frozen=True, tag="f32"):
    """SQL FLOAT: 32 bits."""

    nullable: bool = True

    def sql(self) -> str:
        return "FLOAT"


class DoubleType(TypeBase, frozen=True, tag="f64"):
    """SQL DOUBLE: 64 bits."""

    nullable: bool = True

    def sql(self) -> str:
        return "DOUBLE"


class DecimalType(TypeBase, frozen=True, tag="dec"):
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


class CharType(TypeBase, frozen=True, tag="char"):
    """SQL CHAR(length), in characters."""

    length: int = 1
    nullable: bool = True

    def sql(self) -> str:
        return f"CHAR({self.length})"


class VarCharType(TypeBase, frozen=True, tag="str"):
    """SQL VARCHAR(length), in characters; STRING has the greatest length."""

    length: int = MAX_VARCHAR
    nullable: bool = True

    def sql(self) -> str:
        return "STRING" if self.length == MAX_VARCHAR else f"VARCHAR({self.length})"


class BinaryType(TypeBase, frozen=True, tag="binary"):
    """SQL BINARY(length), in bytes."""

    length: int = 1
    nullable: bool = True

    def sql(self) -> str:
        return f"BINARY({self.length})"


class VarBinaryType(TypeBase, frozen=True, tag="bytes"):
    """SQL VARBINARY(length), in bytes; BYTES has the greatest length."""

    length: int = MAX_VARCHAR
    nullable: bool = True

    def sql(self) -> str:
        return "BYTES" if self.length == MAX_VARCHAR else f"VARBINARY({self.length})"


class DateType(TypeBase, frozen=True, tag="date"):
    """SQL DATE."""

    nullable: bool = True

    def sql(self) -> str:
        return "DATE"


class TimeType(TypeBase, frozen=True, tag="time"):
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


class TimestampType(TypeBase, frozen=True, tag="ts"):
    """SQL TIMESTAMP(precision), without time zone, with 0 to 6 digits of a second."""

    precision: int = 6
    nullable: bool = True

    def __post_init__(self) -> None:
        _check_precision("TIMESTAMP", self.precision)

    def sql(self) -> str:
        return f"TIMESTAMP({self.precision})"


class TimestampLtzType(TypeBase, frozen=True, tag="tsltz"):
    """SQL TIMESTAMP_LTZ(precision): an instant, shown in the session's time zone, with 0 to 6 digits of a second."""

    precision: int = 6
    nullable: bool = True

    def __post_init__(self) -> None:
        _check_precision("TIMESTAMP_LTZ", self.precision)

    def sql(self) -> str:
        return f"TIMESTAMP_LTZ({self.precision})"


class YearMonthIntervalType(TypeBase, frozen=True, tag="ym"):
    """SQL INTERVAL YEAR TO MONTH."""

    nullable: bool = True

    def sql(self) -> str:
        return "INTERVAL YEAR TO MONTH"


class DayTimeIntervalType(TypeBase, frozen=True, tag="ds"):
    """SQL INTERVAL DAY TO SECOND."""

    nullable: bool = True

    def sql(self) -> str:
        return "INTERVAL DAY TO SECOND(3)"


class NullType(TypeBase, frozen=True, tag="null"):
    """The type of a NULL literal."""

    nullable: bool = True

    def sql(self) -> str:
        return "NULL"


class VariantType(TypeBase, frozen=True, tag="variant"):
    """SQL VARIANT: a JSON value whose type is known only at run time."""

    nullable: bool = True

    def sql(self) -> str:
        return "VARIANT"


class RawType(TypeBase, frozen=True, tag="raw"):
    """Any Python value. ``serializer`` turns it into bytes for other processes and snapshots.

    ``pickle`` is the DataStream API's choice for a type that was not declared; a registered serializer is named
    ``name:version``.
    """

    serializer: str = "pickle"
    nullable: bool = True

    def sql(self) -> str:
        return f"RAW('{self.serializer}')"
