"""The columns of ``faker``: turns an expression and its settings into values of the column's type."""

from __future__ import annotations

import datetime as dt
import random
import zlib
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from penstock.connectors.faker.expressions import Expression, faker_of
from penstock.connectors.faker.settings import OPTIONS, OWNER
from penstock.errors import ConnectorError, RecordError, nearest
from penstock.options import Option, OptionSet, integer, number, text
from penstock.types import Column
from penstock.types import logical as t
from penstock.types.iso import datetime_of, time_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.connectors.base import TableInfo

_SETTINGS = {
    "expression": Option("expression", text, None, "What to make: text with #{…} in it."),
    "null-rate": Option("null-rate", number, 0.0, "The share of NULLs."),
    "length": Option("length", integer, 1, "Elements of an ARRAY, MAP or MULTISET."),
}


@dataclass(slots=True)
class FieldMaker:
    """Makes the values of one column, or of one part of it. ``parts``: the makers of a ROW's fields, or of a
    MAP's key and value."""

    name: str
    type: t.LogicalType
    expression: Expression | None
    null_rate: float = 0.0
    length: int = 1
    parts: list[FieldMaker] = field(default_factory=list)

    def value(self, seed: int, row: int) -> Any:
        """The value of a row: a function of the seed, the column and the row's number."""
        # The seed combines all three numbers, so that neighbouring rows and columns get unrelated values.
        source = random.Random((zlib.crc32(self.name.encode()) << 64) ^ (seed << 40) ^ row)
        return self._value(source)

    def column(self, seed: int, rows: Sequence[int]) -> Column:
        """The values of ``rows``."""
        return self.made([self.value(seed, row) for row in rows])

    def made(self, values: Sequence[Any]) -> Column:
        """Values as a column. RecordError for one that does not fit the type."""
        try:
            return Column.of(self.type, list(values))
        except (TypeError, ValueError, ArithmeticError, OverflowError) as err:
            raise RecordError(
                f"a value of column '{self.name}' is no {self.type}",
                expected=str(self.type),
                got=f"{values[0]!r} and the like: {err}",
                where=OWNER,
                remedy="correct the expression, or declare the column as STRING",
            ) from err

    def _value(self, source: random.Random) -> Any:
        if self.null_rate and source.random() < self.null_rate:
            return None
        match self.type:
            case t.RowType():
                return tuple(part._value(source) for part in self.parts)
            case t.MapType():
                key, value = self.parts
                return [(key._value(source), value._value(source)) for _ in range(self.length)]
            case t.ArrayType():
                return [self.parts[0]._value(source) for _ in range(self.length)]
        assert self.expression is not None, "makers_of gives every scalar an expression"
        made = self.expression.make(source)
        try:
            return fitting(self.type, made)
        except (ValueError, TypeError, ArithmeticError, InvalidOperation) as err:
            raise ConnectorError(
                f"the expression of column '{self.name}' makes no {self.type}",
                expected=f"text that is a {self.type}",
                got=repr(made),
                where=f"{OWNER}, option 'fields.{self.name}.expression'",
                remedy="correct the expression, or declare the column as STRING",
            ) from err


def fitting(type_: t.LogicalType, made: Any) -> Any:
    """Converts the result of an expression to a value of
    ``type_``. Raises ValueError, TypeError or ArithmeticError."""
    match type_:
        case t.BooleanType():
            if str(made).lower() not in ("true", "false"):
                raise ValueError(made)
            return str(made).lower() == "true"
        case t.FloatType() | t.DoubleType():
            return float(made)
        case t.DecimalType(scale=scale):
            return Decimal(str(made)).quantize(Decimal(1).scaleb(-scale))
        case t.DateType():
            return made if type(made) is dt.date else _moment(made).date()
        case t.TimeType():
            return made if isinstance(made, dt.time) else time_of(str(made))
        case t.TimestampLtzType():
            return _moment(made).replace(tzinfo=dt.UTC)
        case t.TimestampType():
            return _moment(made)
    if isinstance(type_, t.INTEGERS):
        return int(made)
    if isinstance(type_, t.BINARIES):
        return made if isinstance(made, bytes) else str(made).encode()
    if isinstance(type_, t.CharType | t.VarCharType):
        return str(made)[: type_.length]
    raise TypeError(type_)


def _moment(made: Any) -> dt.datetime:
    if isinstance(made, dt.datetime):
        return made.replace(tzinfo=None)
    if isinstance(made, dt.date):
        return dt.datetime.combine(made, dt.time())
    return datetime_of(str(made))


_SCALARS = (
    t.BooleanType, *t.INTEGERS, t.FloatType, t.DoubleType, t.DecimalType, *t.STRINGS, *t.BINARIES,
    *t.TIMESTAMPS, t.DateType, t.TimeType,
)  # fmt: skip


def makers_of(table: TableInfo) -> list[FieldMaker]:
    """The maker of each column. ConnectorError for an option or expression that is not in order."""
    given = {k: v for k, v in table.options.items() if k.startswith("fields.")}
    locale = OPTIONS.read_one(table.options, "locale")
    used: set[str] = set()
    makers = [_maker(f.name, f.type, given, locale, used) for f in table.schema.fields]
    for key in given:
        if key not in used:
            near = sorted(used | {f"fields.{name}.expression" for name in table.schema.names})
            raise ConnectorError(
                f"unknown option '{key}'",
                expected="'fields.<column>.expression', 'fields.<column>.null-rate' or 'fields.<column>.length'",
                got=f"'{key}' = '{given[key]}'",
                where=OWNER,
                remedy=nearest(key, near) or "remove it",
            )
    return makers


def _maker(
    name: str, type_: t.LogicalType, given: Mapping[str, str], locale: str, used: set[str]
) -> FieldMaker:
    prefix = f"fields.{name}."
    settings = {k: given[prefix + k] for k in _SETTINGS if prefix + k in given}
    used.update(prefix + k for k in settings)
    read = OptionSet(f"{OWNER}, field '{name}'", _SETTINGS.values()).read(settings)
    made = FieldMaker(name, type_, None, read["null-rate"], read["length"])
    match type_:
        case t.RowType():
            made.parts = [_maker(f"{name}.{f.name}", f.type, given, locale, used) for f in type_.fields]
        case t.MapType():
            made.parts = [
                _maker(f"{name}.key", type_.key, given, locale, used),
                _maker(f"{name}.value", type_.value, given, locale, used),
            ]
        case t.ArrayType():
            made.parts = [FieldMaker(name, type_.element, _expression(name, read["expression"], locale))]
        case _ if isinstance(type_, _SCALARS):
            made.expression = _expression(name, read["expression"], locale)
        case _:
            raise ConnectorError(
                f"faker makes no values of type {type_}",
                expected="a number, string, boolean, date, time, time stamp, ARRAY, MAP or ROW",
                got=f"'{name}' {type_}",
                where=OWNER,
                remedy="declare the column as a computed one over simple columns",
            )
    return made


def _expression(name: str, source: str | None, locale: str) -> Expression:
    if source is None:
        raise ConnectorError(
            f"option 'fields.{name}.expression' is missing",
            expected="an expression for each column, such as '#{name.fullName}'",
            got="no such option",
            where=OWNER,
            remedy=f"add 'fields.{name}.expression' to the table's WITH clause",
        )
    return Expression(source, faker_of(locale, OWNER), f"{OWNER}, option 'fields.{name}.expression'")
