"""The base of ``Expression``: its syntax tree, Python values as literals, and calls of functions."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from sqlglot import exp

from penstock.errors import SpecError
from penstock.sql.syntax import TypedCast, TypedLiteral
from penstock.sql.table_operators import OF_TABLE
from penstock.table.syntax import call
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.table.expression import Expression


class ExpressionBase:
    """An expression's syntax tree (``node``), and the names of its columns
    that ``alias`` gave (``names``)."""

    __slots__ = ("_names", "_node")

    def __init__(self, node: exp.Expression, names: tuple[str, ...] = ()) -> None:
        self._node = node
        self._names = names

    def _made(self, node: exp.Expression) -> Expression:
        return cast("Expression", type(self)(node))

    def _call(self, name: str, *arguments: Any) -> Expression:
        """The call ``name(self, *arguments)``, without the arguments at the end that are None."""
        return self._made(call(name, [self._node.copy(), *_given(arguments)]))

    def _binary(self, kind: type[exp.Expression], other: Any, *, swapped: bool = False) -> Expression:
        left, right = self._node.copy(), node_of(other)
        if swapped:
            left, right = right, left
        made = kind(this=left, expression=right)
        made.meta[OF_TABLE] = True
        return self._made(made)


def _given(arguments: tuple[Any, ...]) -> list[exp.Expression]:
    values = list(arguments)
    while values and values[-1] is None:
        values.pop()
    return [node_of(value) for value in values]


def node_of(value: Any) -> exp.Expression:
    """The syntax tree of an expression, or of a Python value as a literal.

    Raises:
        SpecError: SQL has no literal of such a value.
    """
    if isinstance(value, ExpressionBase):
        return value._node.copy()
    return literal(value)


def literal(value: Any) -> exp.Expression:
    """A Python value as SQL writes it, with the type that Flink gives it: a float is DOUBLE, a Decimal DECIMAL."""
    match value:
        case None:
            return exp.Null()
        case bool():
            return exp.Boolean(this=value)
        case int():
            return _signed(str(abs(value)), value < 0)
        case float():
            return _double(value)
        case Decimal():
            return _decimal(value)
        case str():
            return exp.Literal.string(value)
        case bytes() | bytearray():
            return exp.HexString(this=bytes(value).hex())
        case dt.datetime():
            return _timestamp(value)
        case dt.date():
            return TypedLiteral(kind="DATE", text=value.isoformat())
        case dt.time():
            return TypedLiteral(kind="TIME", text=value.isoformat())
        case dt.timedelta():
            return seconds_literal(value // dt.timedelta(microseconds=1))
        case list() | tuple():
            return call("ARRAY" if isinstance(value, list) else "ROW", [node_of(v) for v in value])
        case dict():
            return call("MAP", [node_of(x) for pair in value.items() for x in pair])
    raise SpecError(
        "no literal of SQL",
        expected="a number, text, bytes, date, time, datetime, timedelta, list, tuple, dictionary or None",
        got=repr(value),
        remedy="col('name') names a column",
    )


def _signed(digits: str, negative: bool) -> exp.Expression:
    number = exp.Literal.number(digits)
    return exp.Neg(this=number) if negative else number


def _double(value: float) -> exp.Expression:
    if not math.isfinite(value):
        text = "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        return cast_node(exp.Literal.string(text), t.DoubleType())
    digits = repr(abs(value))
    return _signed(digits if "e" in digits else digits + "e0", math.copysign(1.0, value) < 0)


def _decimal(value: Decimal) -> exp.Expression:
    if not value.is_finite():
        raise SpecError("no DECIMAL", expected="a number", got=str(value))
    digits = format(abs(value), "f")
    if "." in digits:
        return _signed(digits, value < 0)
    return cast_node(_signed(digits, value < 0), t.DecimalType(max(1, len(digits)), 0))


def _timestamp(value: dt.datetime) -> exp.Expression:
    if value.tzinfo is None:
        return TypedLiteral(kind="TIMESTAMP", text=value.isoformat(" "))
    micros = (value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    if micros % 1000:
        raise SpecError(
            "no literal of a point in time that is finer than a millisecond",
            expected="a datetime of whole milliseconds, or one without a zone",
            got=value.isoformat(),
        )
    return call("TO_TIMESTAMP_LTZ", [literal(micros // 1000), literal(3)])


def seconds_literal(micros: int) -> exp.Expression:
    """The literal of an interval of ``micros`` µs."""
    sign, micros = ("-" if micros < 0 else ""), abs(micros)
    text = f"{sign}{micros // 1_000_000}"
    if micros % 1_000_000:
        text += f".{micros % 1_000_000:06d}"
    return TypedLiteral(kind="INTERVAL", text=text, unit="SECOND")


def cast_node(node: exp.Expression, type_: t.LogicalType, *, safe: bool = False) -> exp.Expression:
    """The node that the parser makes of CAST, or of TRY_CAST if ``safe`` is True."""
    made = TypedCast(this=node, safe=safe)
    made.meta["type"] = type_
    return made
