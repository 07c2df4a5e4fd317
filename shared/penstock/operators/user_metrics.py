"""Metrics that a user's function defines among its operator's: counters, gauges, meters, distributions."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.metrics import MetricGroup


class UserMetrics:
    """A group of metrics of a user's function. ``RuntimeContext.get_metrics_group`` gives the outermost one.

    Args:
        group: The operator's metrics.
        now_ms: The clock, for meters.
        prefix: Names of the groups around this one, each with a dot behind it.
    """

    def __init__(self, group: MetricGroup, now_ms: Callable[[], int], prefix: str = "") -> None:
        self._group = group
        self._now_ms = now_ms
        self._prefix = prefix

    def add_group(self, name: str, extra: str | None = None) -> UserMetrics:
        """The group ``name`` in this one; with ``extra`` the group ``name.extra``, Flink's key and value."""
        inner = f"{self._prefix}{name}." if extra is None else f"{self._prefix}{name}.{extra}."
        return UserMetrics(self._group, self._now_ms, inner)

    def counter(self, name: str) -> Counter:
        """The counter ``name``, which starts at 0."""
        return Counter(self._group, self._prefix + name)

    def gauge(self, name: str, obj: Callable[[], float | int | None]) -> None:
        """Define the gauge ``name``; ``obj()`` gives its value (None: no value now)."""
        self._group.gauge(self._prefix + name, obj)

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        """The meter ``name``: events a second, over the last ``time_span_in_seconds``."""
        return Meter(self._group, self._prefix + name, self._now_ms, time_span_in_seconds)

    def distribution(self, name: str) -> Distribution:
        """The distribution ``name``: count, sum, least, greatest and mean of whole numbers."""
        return Distribution(self._group, self._prefix + name)


class Counter:
    """A metric that a user's function counts up and down. ``group``: the operator's metrics; ``name``: its name."""

    def __init__(self, group: MetricGroup, name: str) -> None:
        self._group, self._name = group, name

    def inc(self, n: int = 1) -> None:
        """Add ``n``."""
        self._group.inc(self._name, n)

    def dec(self, n: int = 1) -> None:
        """Subtract ``n``."""
        self._group.inc(self._name, -n)

    def get_count(self) -> int:
        """The current value."""
        return self._group.counters.get(self._name, 0)


class Meter:
    """Events a second, as the gauge ``name``; their number is the counter ``name.count``.

    Args:
        group: The operator's metrics.
        name: Its name.
        now_ms: The clock.
        span_s: The rate is that of so many last seconds.
    """

    def __init__(self, group: MetricGroup, name: str, now_ms: Callable[[], int], span_s: int) -> None:
        self._count = Counter(group, f"{name}.count")
        self._now_ms = now_ms
        self._span_s = max(1, span_s)
        #: (second, events in it), oldest first; no older than the span.
        self._seconds: deque[list[int]] = deque()
        group.gauge(name, self._rate)

    def mark_event(self, value: int = 1) -> None:
        """Count ``value`` events now."""
        self._count.inc(value)
        second = self._now_ms() // 1000
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1][1] += value
        else:
            self._seconds.append([second, value])
            self._forget(second)

    def get_count(self) -> int:
        """The number of events so far."""
        return self._count.get_count()

    def _forget(self, second: int) -> None:
        while self._seconds and self._seconds[0][0] <= second - self._span_s:
            self._seconds.popleft()

    def _rate(self) -> float:
        self._forget(self._now_ms() // 1000)
        return sum(events for _, events in self._seconds) / self._span_s


class Distribution:
    """Count, sum, least, greatest and mean of the numbers given to ``update``, as gauges ``name.count``, ``name.sum`` ….

    ``group``: the operator's metrics; ``name``: its name.
    """

    def __init__(self, group: MetricGroup, name: str) -> None:
        self._number = self._sum = 0
        self._least: int | None = None
        self._greatest: int | None = None
        group.gauge(f"{name}.count", lambda: self._number)
        group.gauge(f"{name}.sum", lambda: self._sum)
        group.gauge(f"{name}.min", lambda: self._least)
        group.gauge(f"{name}.max", lambda: self._greatest)
        group.gauge(f"{name}.mean", lambda: self._sum / self._number if self._number else None)

    def update(self, value: int) -> None:
        """Add the number ``value``."""
        self._number += 1
        self._sum += value
        self._least = value if self._least is None else min(self._least, value)
        self._greatest = value if self._greatest is None else max(self._greatest, value)
