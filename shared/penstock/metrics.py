"""The counters and gauges of one operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class MetricGroup:
    """Counters and gauges of one operator; read by the task's reporter.

    Names are Flink's (``numRecordsIn``, ``numLateRecordsDropped`` …).
    """

    __slots__ = ("counters", "gauges", "reported")

    def __init__(self, *, reported: bool = True) -> None:
        #: False where nobody reads them, as on Spark.
        self.reported = reported
        self.counters: dict[str, int] = {}
        self.gauges: dict[str, Callable[[], float | int | None]] = {}

    def inc(self, name: str, by: int = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + by

    def gauge(self, name: str, read: Callable[[], float | int | None]) -> None:
        self.gauges[name] = read
