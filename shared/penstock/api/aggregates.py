"""Built-in aggregates over windows, computed on columns::

stream.key_by("origin").window(…).aggregate(agg.count("departures"), agg.avg("delay"))
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class BuiltinAggregate:
    """An aggregate that is computed on columns.

    Args:
        function: Name of the SQL function.
        column: Name or number of its argument; None for COUNT(*).
        name: Name of the output column; None for ``output_name``.
        distinct: Equal values count once.
        constants: Further arguments of the function, after the column.
    """

    function: str
    column: str | int | None = None
    name: str | None = None
    distinct: bool = False
    constants: tuple[Any, ...] = ()

    def alias(self, name: str) -> BuiltinAggregate:
        """The same aggregate with the output column called ``name``."""
        return replace(self, name=name)

    def output_name(self, column: str | None) -> str:
        """The name of the output column: ``alias``, else ``sum_delay`` for SUM of ``column`` ``delay``."""
        return self.name or (self.function.lower() if column is None else f"{self.function.lower()}_{column}")


def count(name: str | None = None) -> BuiltinAggregate:
    """The number of records. ``name``: of the output column (``count``)."""
    return BuiltinAggregate("COUNT", None, name)


def count_distinct(column: str | int) -> BuiltinAggregate:
    """The number of different values of ``column``; NULL does not count."""
    return BuiltinAggregate("COUNT", column, None, distinct=True)


def of(function: str, column: str | int | None = None) -> BuiltinAggregate:
    """Any aggregate by the name of its SQL function: ``agg.of("STDDEV_POP", "delay")``.

    Args:
        function: The name, in any case.
        column: Name or number of its argument; None for none.
    """
    return BuiltinAggregate(function.upper(), column)


def sum(column: str | int) -> BuiltinAggregate:
    """The sum of ``column``."""
    return BuiltinAggregate("SUM", column)


def avg(column: str | int) -> BuiltinAggregate:
    """The mean of ``column``, of the type that SQL's AVG has."""
    return BuiltinAggregate("AVG", column)


def min(column: str | int) -> BuiltinAggregate:
    """The smallest value of ``column``."""
    return BuiltinAggregate("MIN", column)


def max(column: str | int) -> BuiltinAggregate:
    """The greatest value of ``column``."""
    return BuiltinAggregate("MAX", column)


mean = avg


def by_name(spec: Any) -> BuiltinAggregate | None:
    """``"count"`` or ``("sum", "delay")`` or ``("sum", "delay", "total")`` as an aggregate; None for any other ``spec``."""
    match spec:
        case BuiltinAggregate():
            return spec
        case str():
            return of(spec)
        case (str() as function, (str() | int()) as column):
            return of(function, column)
        case (str() as function, (str() | int()) as column, str() as name):
            return of(function, column).alias(name)
    return None
