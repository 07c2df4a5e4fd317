"""The methods of ``Expression`` for times, intervals and JSON."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.errors import UnsupportedError
from penstock.sql.syntax import JsonCall, TypedLiteral
from penstock.table.expression_base import ExpressionBase, cast_node, node_of
from penstock.table.expression_enums import (
    JsonExistsOnError,
    JsonQueryOnEmptyOrError,
    JsonQueryWrapper,
    JsonType,
    JsonValueOnEmptyOrError,
    TimeIntervalUnit,
)
from penstock.table.syntax import call
from penstock.table.types import logical_type
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.table.expression import Expression

_WRAPPERS = {
    "WITHOUT_ARRAY": "WITHOUT",
    "CONDITIONAL_ARRAY": "CONDITIONAL",
    "UNCONDITIONAL_ARRAY": "UNCONDITIONAL",
}


class Times(ExpressionBase):
    """The methods for times, intervals and JSON."""

    __slots__ = ()

    @property
    def to_date(self) -> Expression:
        """A text as a DATE."""
        return self._made(cast_node(self._node.copy(), t.DateType()))

    @property
    def to_time(self) -> Expression:
        """A text as a TIME."""
        return self._made(cast_node(self._node.copy(), t.TimeType()))

    @property
    def to_timestamp(self) -> Expression:
        """A text as a TIMESTAMP(3)."""
        return self._made(cast_node(self._node.copy(), t.TimestampType(3)))

    def extract(self, time_interval_unit: TimeIntervalUnit) -> Expression:
        """A part of a time: its year, day, hour …"""
        return self._made(call("EXTRACT", [_unit(time_interval_unit), self._node.copy()]))

    def floor(self, time_interval_unit: TimeIntervalUnit | None = None) -> Expression:
        """The number rounded down; for a time, the beginning of its ``time_interval_unit``."""
        return self._rounded("FLOOR", time_interval_unit)

    def ceil(self, time_interval_unit: TimeIntervalUnit | None = None) -> Expression:
        """The number rounded up; for a time, rounded up to the beginning of a ``time_interval_unit``."""
        return self._rounded("CEIL", time_interval_unit)

    def _rounded(self, name: str, unit: TimeIntervalUnit | None) -> Expression:
        units = [] if unit is None else [_unit(unit)]
        return self._made(call(name, [self._node.copy(), *units]))

    def _interval(self, unit: str, factor: Decimal = Decimal(1)) -> Expression:
        """An interval of this number of units. A literal becomes INTERVAL '…' unit. Another expression is
        multiplied by one unit."""
        node, negative = self._node, False
        if isinstance(node, exp.Neg):
            node, negative = node.this, True
        if not (isinstance(node, exp.Literal) and not node.is_string):
            one = TypedLiteral(kind="INTERVAL", text=format(factor, "f"), unit=unit)
            return self._made(exp.Mul(this=self._node.copy(), expression=one))
        amount = Decimal(node.this) * factor
        text = format(amount.normalize() if amount % 1 else amount.to_integral_value(), "f")
        return self._made(TypedLiteral(kind="INTERVAL", text="-" + text if negative else text, unit=unit))

    @property
    def year(self) -> Expression:
        """An interval of this number of years."""
        return self._interval("YEAR")

    @property
    def quarter(self) -> Expression:
        """An interval of this number of quarters of a year."""
        return self._interval("MONTH", Decimal(3))

    @property
    def month(self) -> Expression:
        """An interval of this number of months."""
        return self._interval("MONTH")

    @property
    def week(self) -> Expression:
        """An interval of this number of weeks."""
        return self._interval("DAY", Decimal(7))

    @property
    def day(self) -> Expression:
        """An interval of this number of days."""
        return self._interval("DAY")

    @property
    def hour(self) -> Expression:
        """An interval of this number of hours."""
        return self._interval("HOUR")

    @property
    def minute(self) -> Expression:
        """An interval of this number of minutes."""
        return self._interval("MINUTE")

    @property
    def second(self) -> Expression:
        """An interval of this number of seconds."""
        return self._interval("SECOND")

    @property
    def milli(self) -> Expression:
        """An interval of this number of milliseconds."""
        return self._interval("SECOND", Decimal("0.001"))

    years, quarters, months, weeks, days = year, quarter, month, week, day
    hours, minutes, seconds, millis = hour, minute, second, milli

    # -- JSON ------------------------------------------------------------------------------

    def is_json(self, json_type: JsonType | None = None) -> Expression:
        """Whether a text is JSON, of ``json_type`` if one is given."""
        kind = None if json_type in (None, JsonType.VALUE) else json_type.name
        return self._made(exp.Is(this=self._node.copy(), expression=exp.JSON(this=kind)))

    def json_exists(self, path: Any, on_error: JsonExistsOnError | None = None) -> Expression:
        """Whether there is a value at ``path``. ``on_error``: the answer for a text
        that is not JSON; None: FALSE."""
        options = {} if on_error is None else {"on_error": (on_error.name, None)}
        return self._json("JSON_EXISTS", path, options)

    def json_value(
        self,
        path: Any,
        returning_type: Any = None,
        on_empty: JsonValueOnEmptyOrError = JsonValueOnEmptyOrError.NULL,
        default_on_empty: Any = None,
        on_error: JsonValueOnEmptyOrError = JsonValueOnEmptyOrError.NULL,
        default_on_error: Any = None,
    ) -> Expression:
        """The value at ``path``.

        Args:
            path: A path of JSON, such as ``$.a.b``.
            returning_type: The type of the value. None: STRING.
            on_empty: The result if there is no value at ``path``.
            default_on_empty: The value that DEFAULT of ``on_empty`` gives.
            on_error: The result for a text that is not JSON.
            default_on_error: The value that DEFAULT of ``on_error`` gives.
        """
        options: dict[str, Any] = {}
        if returning_type is not None:
            options["returning"] = logical_type(returning_type, "returning_type")
        for key, behaviour, default in (
            ("on_empty", on_empty, default_on_empty),
            ("on_error", on_error, default_on_error),
        ):
            if behaviour is not JsonValueOnEmptyOrError.NULL:
                given = node_of(default) if behaviour is JsonValueOnEmptyOrError.DEFAULT else None
                options[key] = (behaviour.name, given)
        return self._json("JSON_VALUE", path, options)

    def json_query(
        self,
        path: Any,
        wrapping_behavior: JsonQueryWrapper = JsonQueryWrapper.WITHOUT_ARRAY,
        on_empty: JsonQueryOnEmptyOrError = JsonQueryOnEmptyOrError.NULL,
        on_error: JsonQueryOnEmptyOrError = JsonQueryOnEmptyOrError.NULL,
    ) -> Expression:
        """The object or array at ``path``, as a text of JSON.

        Args:
            path: A path of JSON, such as ``$.a.b``.
            wrapping_behavior: Whether the result is put into an array.
            on_empty: The result if there is nothing at ``path``.
            on_error: The result for a text that is not JSON.
        """
        options: dict[str, Any] = {}
        if wrapping_behavior is not JsonQueryWrapper.WITHOUT_ARRAY:
            options["wrapper"] = _WRAPPERS[wrapping_behavior.name]
        for key, behaviour in (("on_empty", on_empty), ("on_error", on_error)):
            if behaviour is not JsonQueryOnEmptyOrError.NULL:
                options[key] = (behaviour.name.replace("_", " "), None)
        return self._json("JSON_QUERY", path, options)

    def _json(self, name: str, path: Any, options: dict[str, Any]) -> Expression:
        node = JsonCall(name=name, expressions=[self._node.copy(), node_of(path)])
        node.meta["options"] = options
        return self._made(node)


def _unit(unit: TimeIntervalUnit) -> exp.Expression:
    if "_TO_" in unit.name:
        raise UnsupportedError(
            f"the unit {unit.name} here", expected="YEAR, QUARTER, MONTH, WEEK, DAY, HOUR, MINUTE or SECOND",
            got=unit.name, remedy="take one of its two units",
        )  # fmt: skip
    return exp.Literal.string(unit.name)
