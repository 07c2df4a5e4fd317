"""``DataTypes``: Flink's names for the types of columns. Each gives a ``DataType``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.columnar.rows import make_row
from penstock.errors import SpecError, SpecValueError, UnsupportedError
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["DataType", "DataTypes", "RowField", "RowType", "UserDefinedType", "logical_type", "stored"]


class DataType:
    """The type of a column. ``logical``: the engine's type."""

    __slots__ = ("logical",)

    def __init__(self, logical: t.LogicalType) -> None:
        self.logical = logical

    def not_null(self) -> DataType:
        """The same type without NULL."""
        return DataType(self.logical.with_nullable(False))

    def nullable(self) -> DataType:
        """The same type with NULL."""
        return DataType(self.logical.with_nullable(True))

    def field_names(self) -> list[str]:
        """Names of the fields of a ROW."""
        return [f.name for f in self._fields()]

    def field_types(self) -> list[DataType]:
        """Types of the fields of a ROW."""
        return [DataType(f.type) for f in self._fields()]

    names = property(field_names)

    def _fields(self) -> tuple[t.Field, ...]:
        if not isinstance(self.logical, t.RowType):
            raise SpecError("fields of a type that is no ROW", expected="a ROW", got=str(self.logical))
        return self.logical.fields

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DataType) and self.logical == other.logical

    def __hash__(self) -> int:
        return hash(self.logical)

    def __str__(self) -> str:
        return str(self.logical)

    __repr__ = __str__


class RowType(DataType):
    """A ROW, as ``DataTypes.ROW`` makes it. ``fields``: ``RowField``s."""

    __slots__ = ("_made",)

    def __init__(self, fields: Sequence[RowField] = (), nullable: bool = True) -> None:
        self._made: list[RowField] | None = None
        super().__init__(t.RowType(tuple(t.Field(f.name, f.data_type.logical) for f in fields), nullable))

    @property
    def fields(self) -> list[RowField]:
        """The fields."""
        if self._made is None or len(self._made) != len(self._fields()):
            self._made = [RowField(f.name, DataType(f.type)) for f in self._fields()]
        return list(self._made)

    def __iter__(self) -> Iterator[RowField]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self._fields())

    def __getitem__(self, key: Any) -> Any:
        """A field by its name or position, or a ROW of the fields of a slice. Raises KeyError, IndexError or TypeError."""
        if isinstance(key, str):
            return self.fields[{f.name: i for i, f in enumerate(self._fields())}[key]]
        if isinstance(key, slice):
            return RowType(self.fields[key], self.logical.nullable)
        if not isinstance(key, int):
            raise TypeError(f"a field's name, position or slice, not {key!r}")
        return self.fields[key]

    def add(self, field: str | RowField, data_type: Any = None) -> RowType:
        """Append a field: a ``RowField``, or its name and its type. Gives this type again."""
        if not isinstance(field, RowField) and data_type is None:
            raise SpecValueError(
                "a field without a type",
                expected="add(name, DataTypes.…()), or add(DataTypes.FIELD(…))",
                got=repr(field),
            )
        name = field.name if isinstance(field, RowField) else field
        given = field.data_type if isinstance(field, RowField) else data_type
        added = t.Field(name, logical_type(given, f"of field '{name}'"))
        self.logical = t.RowType((*self._fields(), added), self.logical.nullable)
        return self


class UserDefinedType(DataType):
    """A type of a program's own, whose values are stored as values of a type of SQL.

    A subclass defines ``sql_type``, ``serialize`` and ``deserialize``; the class of its values names it: ``__UDT__ =
    MyType()``. ``from_elements`` takes such values; rows that a program reads hold the values of ``sql_type``.

    ``nullable``: whether NULL is a value.
    """

    __slots__ = ()

    def __init__(self, nullable: bool = True) -> None:
        super().__init__(logical_type(type(self).sql_type()).with_nullable(nullable))

    @classmethod
    def sql_type(cls) -> DataType:
        """The type of SQL in which values are stored."""
        raise NotImplementedError("a user-defined type says its sql_type()")

    def serialize(self, obj: Any) -> Any:
        """The value of ``sql_type`` for ``obj``."""
        raise NotImplementedError("a user-defined type has serialize()")

    def deserialize(self, datum: Any) -> Any:
        """The object for a value of ``sql_type``."""
        raise NotImplementedError("a user-defined type has deserialize()")


def stored(value: Any) -> Any:
    """``value`` with the stored form of each object in it that has a user-defined type."""
    own = getattr(type(value), "__UDT__", None)
    if isinstance(own, UserDefinedType):
        return own.serialize(value)
    if isinstance(value, list):
        return [stored(x) for x in value]
    if isinstance(value, dict):
        return {stored(k): stored(x) for k, x in value.items()}
    if isinstance(value, tuple) and any(map(_holds_own, value)):
        fields = [stored(x) for x in value]
        names = getattr(value, "_names", None)
        return make_row(names, fields) if names else tuple(fields)
    return value


def _holds_own(value: Any) -> bool:
    return isinstance(value, (list, dict, tuple)) or hasattr(type(value), "__UDT__")


class RowField:
    """A field of a ROW: its name, its type and its description."""

    __slots__ = ("data_type", "description", "name")

    def __init__(self, name: str, data_type: DataType, description: str | None = None) -> None:
        self.name = name
        self.data_type = data_type
        self.description = description

    def __repr__(self) -> str:
        return f"RowField({self.name}, {self.data_type})"


def logical_type(declared: Any, what: str = "a type") -> t.LogicalType:
    """The engine's type that a program declares: ``DataTypes.…()``, ``Types.…()``, or SQL text.

    Raises:
        SpecError: ``declared`` is something else. ``what`` names it in the error.
        SqlError: The text is not a type.
    """
    if isinstance(declared, DataType):
        return declared.logical
    if isinstance(declared, t.LOGICAL_TYPES):
        return declared
    if isinstance(declared, str):
        from penstock.sql.parsing import parse_type

        return parse_type(declared)
    raise SpecError(
        f"{what} is no type",
        expected="DataTypes.BIGINT(), SQL's 'BIGINT', or Types.LONG()",
        got=repr(declared),
    )


def _interval(unit: str, second: str | None) -> t.LogicalType:
    months = unit in ("YEAR", "MONTH")
    if second is not None and (second in ("YEAR", "MONTH")) != months:
        raise SpecError(
            "an interval of months and days",
            expected="YEAR and MONTH, or DAY to SECOND",
            got=f"{unit} TO {second}",
        )
    return t.YearMonthIntervalType() if months else t.DayTimeIntervalType()


class DataTypes:
    """Types of columns. ``nullable=False`` refuses NULL."""

    @staticmethod
    def NULL() -> DataType:
        """The type of NULL alone."""
        return DataType(t.NullType())

    @staticmethod
    def CHAR(length: int, nullable: bool = True) -> DataType:
        """Text of exactly ``length`` characters."""
        return DataType(t.CharType(length, nullable))

    @staticmethod
    def VARCHAR(length: int, nullable: bool = True) -> DataType:
        """Text of at most ``length`` characters."""
        return DataType(t.VarCharType(length, nullable))

    @staticmethod
    def STRING(nullable: bool = True) -> DataType:
        """Text of any length."""
        return DataType(t.VarCharType(nullable=nullable))

    @staticmethod
    def BOOLEAN(nullable: bool = True) -> DataType:
        """TRUE or FALSE."""
        return DataType(t.BooleanType(nullable))

    @staticmethod
    def BINARY(length: int, nullable: bool = True) -> DataType:
        """Exactly ``length`` bytes."""
        return DataType(t.BinaryType(length, nullable))

    @staticmethod
    def VARBINARY(length: int, nullable: bool = True) -> DataType:
        """At most ``length`` bytes."""
        return DataType(t.VarBinaryType(length, nullable))

    @staticmethod
    def BYTES(nullable: bool = True) -> DataType:
        """Bytes of any number."""
        return DataType(t.VarBinaryType(nullable=nullable))

    @staticmethod
    def DECIMAL(precision: int, scale: int, nullable: bool = True) -> DataType:
        """Numbers of up to ``precision`` digits (1 to 38), ``scale`` of them after the point."""
        return DataType(t.DecimalType(precision, scale, nullable))

    @staticmethod
    def TINYINT(nullable: bool = True) -> DataType:
        """Whole numbers of 8 bits."""
        return DataType(t.TinyIntType(nullable))

    @staticmethod
    def SMALLINT(nullable: bool = True) -> DataType:
        """Whole numbers of 16 bits."""
        return DataType(t.SmallIntType(nullable))

    @staticmethod
    def INT(nullable: bool = True) -> DataType:
        """Whole numbers of 32 bits."""
        return DataType(t.IntType(nullable))

    @staticmethod
    def BIGINT(nullable: bool = True) -> DataType:
        """Whole numbers of 64 bits."""
        return DataType(t.BigIntType(nullable))

    @staticmethod
    def FLOAT(nullable: bool = True) -> DataType:
        """Floating-point numbers of 32 bits."""
        return DataType(t.FloatType(nullable))

    @staticmethod
    def DOUBLE(nullable: bool = True) -> DataType:
        """Floating-point numbers of 64 bits."""
        return DataType(t.DoubleType(nullable))

    @staticmethod
    def DATE(nullable: bool = True) -> DataType:
        """Days."""
        return DataType(t.DateType(nullable))

    @staticmethod
    def TIME(precision: int = 0, nullable: bool = True) -> DataType:
        """Times of day. ``precision``: digits of the second, 0 to 6."""
        return DataType(t.TimeType(precision, nullable))

    @staticmethod
    def TIMESTAMP(precision: int = 6, nullable: bool = True) -> DataType:
        """Day and time without a zone. ``precision``: digits of the second, 0 to 6."""
        return DataType(t.TimestampType(precision, nullable))

    @staticmethod
    def TIMESTAMP_WITH_LOCAL_TIME_ZONE(precision: int = 6, nullable: bool = True) -> DataType:
        """Points in time, shown in the session's zone. ``precision``: digits of the second, 0 to 6."""
        return DataType(t.TimestampLtzType(precision, nullable))

    @staticmethod
    def TIMESTAMP_LTZ(precision: int = 6, nullable: bool = True) -> DataType:
        """``TIMESTAMP_WITH_LOCAL_TIME_ZONE`` by its short name."""
        return DataType(t.TimestampLtzType(precision, nullable))

    @staticmethod
    def ARRAY(element_type: Any, nullable: bool = True) -> DataType:
        """Lists of elements of ``element_type``."""
        return DataType(t.ArrayType(logical_type(element_type), nullable))

    LIST_VIEW = ARRAY

    @staticmethod
    def MAP(key_type: Any, value_type: Any, nullable: bool = True) -> DataType:
        """Dictionaries with keys of ``key_type`` and values of ``value_type``."""
        return DataType(t.MapType(logical_type(key_type), logical_type(value_type), nullable))

    MAP_VIEW = MAP

    @staticmethod
    def MULTISET(element_type: Any, nullable: bool = True) -> DataType:
        """Elements of ``element_type``, each with the number of its occurrences."""
        return DataType(t.MultisetType(logical_type(element_type), nullable))

    @staticmethod
    def FIELD(name: str, data_type: Any, description: str | None = None) -> RowField:
        """A field of a ROW."""
        return RowField(name, DataType(logical_type(data_type, f"of field '{name}'")), description)

    @staticmethod
    def ROW(row_fields: Sequence[Any] = (), nullable: bool = True) -> RowType:
        """Rows of fields: ``FIELD(…)``, (name, type), or types alone, whose
        fields are called ``f0``, ``f1`` …"""
        made = RowType((), nullable)
        for i, given in enumerate(row_fields):
            if isinstance(given, RowField):
                made.add(given)
            elif isinstance(given, tuple) and len(given) == 2:
                made.add(*given)
            else:
                made.add(f"f{i}", given)
        return made

    @staticmethod
    def INTERVAL(upper_resolution: str, lower_resolution: str | None = None) -> DataType:
        """Spans of time: ``INTERVAL(DataTypes.DAY(), DataTypes.SECOND(3))``."""
        return DataType(_interval(upper_resolution, lower_resolution))

    @staticmethod
    def YEAR(precision: int = 2) -> str:
        """A resolution of INTERVAL."""
        return "YEAR"

    @staticmethod
    def MONTH() -> str:
        """A resolution of INTERVAL."""
        return "MONTH"

    @staticmethod
    def DAY(precision: int = 2) -> str:
        """A resolution of INTERVAL."""
        return "DAY"

    @staticmethod
    def HOUR() -> str:
        """A resolution of INTERVAL."""
        return "HOUR"

    @staticmethod
    def MINUTE() -> str:
        """A resolution of INTERVAL."""
        return "MINUTE"

    @staticmethod
    def SECOND(precision: int = 6) -> str:
        """A resolution of INTERVAL."""
        return "SECOND"

    @staticmethod
    def RAW(*_: Any) -> DataType:
        """Not supported, because there is no Java in which a class and its serializer could run.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            "DataTypes.RAW: a Java class with its serializer",
            expected="a type of SQL",
            remedy="use DataTypes.BYTES() and pickle the value yourself, or Types.PICKLED_BYTE_ARRAY() in a DataStream",
        )
