"""Accumulators: numbers that functions add to and that the job's result has, under Flink's names.

Each is a counter of the operator, so REST, the dashboard and Prometheus show it while the job runs. The result is the sum over
all subtasks of their last attempts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.errors import SpecError, UnsupportedError

if TYPE_CHECKING:
    from penstock.metrics import MetricGroup

#: Names of the engine's own counters, with which a sum over operators would mix.
_OWN = re.compile(r"num[A-Z]\w*")


class LongCounter:
    """A sum of whole numbers. ``value``: where it begins."""

    def __init__(self, value: int = 0) -> None:
        self._value = value
        self._group: MetricGroup | None = None
        self._name = ""

    def add(self, value: int) -> None:
        """Add ``value``."""
        if self._group is None:
            self._value += value
        else:
            self._group.inc(self._name, value)

    def get_local_value(self) -> int:
        """The sum in this subtask."""
        return self._value if self._group is None else self._group.counters[self._name]

    def reset_local(self) -> None:
        """Begin at 0 in this subtask."""
        self.add(-self.get_local_value())

    def _attach(self, group: MetricGroup, name: str) -> None:
        group.inc(name, self._value)
        self._group, self._name = group, name


class IntCounter(LongCounter):
    """``LongCounter``, under Flink's other name: numbers of Python have no limit."""


class Accumulators:
    """The accumulators of a function. ``group``: the operator's metrics; ``where``: the operator, for errors."""

    def __init__(self, group: MetricGroup, where: str) -> None:
        self._group, self._where = group, where
        self._known: dict[str, LongCounter] = {}

    def add(self, name: str, accumulator: LongCounter) -> None:
        """Let ``accumulator`` be part of the job's result as ``name``.

        Raises:
            SpecError: The operator has that name already, or it is of the engine's own counters.
            UnsupportedError: It is no counter, or the engine keeps none (Spark).
        """
        if not isinstance(accumulator, LongCounter):
            raise UnsupportedError(
                f"the accumulator '{name}'",
                expected="IntCounter() or LongCounter()",
                got=repr(accumulator),
                where=self._where,
                remedy="for other values, get_metrics_group() has gauges and distributions",
            )
        if not self._group.reported:
            raise UnsupportedError(
                f"the accumulator '{name}' on Spark",
                expected="a job with execution.engine = streaming",
                where=self._where,
            )
        if name in self._known or name in self._group.counters or _OWN.fullmatch(name):
            raise SpecError(
                f"the accumulator '{name}' has a name that is taken",
                expected="a name of its own, not like num…, which the engine's counters have",
                got=name,
                where=self._where,
            )
        accumulator._attach(self._group, name)
        self._known[name] = accumulator

    def has(self, name: str) -> bool:
        """Whether the function has added ``name``."""
        return name in self._known

    def get(self, name: str) -> LongCounter:
        """The accumulator ``name``.

        Raises:
            SpecError: There is none.
        """
        if name not in self._known:
            raise SpecError(
                f"no accumulator '{name}'",
                expected=", ".join(self._known) or "add_accumulator before",
                got=name,
                where=self._where,
            )
        return self._known[name]
