"""Built-in aggregates over windows, computed on columns::

stream.key_by("origin").window(…).aggregate(agg.count("departures"), agg.avg("delay"))
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class BuiltinAggregate:
    """``function``: SQL's name; ``column``: its argument, None for COUNT(*)."""

    function: str
    column: str | int | None = None
    name: str | None = None
    distinct: bool = False
    constants: tuple[Any, ...] = ()

    def alias(self, name: str) -> BuiltinAggregate:
        """The output column's name."""
        return replace(self, name=name)

    def output_name(self, column: str | None) -> str:
        return self.name or (self.function.lower() if column is None else f"{self.function.lower()}_{column}")


def count(name: str | None = None) -> BuiltinAggregate:
    """Rows."""
    return BuiltinAggregate("COUNT", None, name)


def count_distinct(column: str | int) -> BuiltinAggregate:
    return BuiltinAggregate("COUNT", column, None, distinct=True)


def of(function: str, column: str | int | None = None) -> BuiltinAggregate:
    """Any aggregate by SQL's name: ``agg.of("STDDEV_POP", "delay")``."""
    return BuiltinAggregate(function.upper(), column)


def sum(column: str | int) -> BuiltinAggregate:
    return BuiltinAggregate("SUM", column)


def avg(column: str | int) -> BuiltinAggregate:
    return BuiltinAggregate("AVG", column)


def min(column: str | int) -> BuiltinAggregate:
    return BuiltinAggregate("MIN", column)


def max(column: str | int) -> BuiltinAggregate:
    return BuiltinAggregate("MAX", column)


mean = avg


def by_name(spec: Any) -> BuiltinAggregate | None:
    """``"count"`` or ``("sum", "delay")`` as an aggregate; None when it is something else."""
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
