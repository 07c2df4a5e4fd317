"""Statistics of several numbers, for checkpoints and for subtasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_services.dispatcher.views.common import Shape

if TYPE_CHECKING:
    from collections.abc import Sequence


class Summary(Shape, frozen=True, kw_only=True):
    """Statistics for checkpoints. All are 0 without numbers."""

    min: int = 0
    max: int = 0
    avg: int = 0
    p50: float = 0.0
    p90: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    p999: float = 0.0


class Spread(Shape, frozen=True, kw_only=True):
    """Statistics for subtasks. All are 0 without numbers."""

    min: int = 0
    max: int = 0
    avg: int = 0
    sum: int = 0
    median: int = 0
    p25: int = 0
    p75: int = 0
    p95: int = 0


def percentile(ordered: Sequence[float], share: float) -> float:
    """The percentile ``share`` (0 to 1) of at least one number in ascending order. It is interpolated at the
    position ``share * (n + 1)``, as in Flink."""
    position = share * (len(ordered) + 1)
    below = int(position)
    if below < 1:
        return float(ordered[0])
    if below >= len(ordered):
        return float(ordered[-1])
    return ordered[below - 1] + (position - below) * (ordered[below] - ordered[below - 1])


def summary(values: Sequence[float]) -> Summary:
    """The ``Summary`` of some numbers."""
    if not values:
        return Summary()
    ordered = sorted(values)
    return Summary(
        min=round(ordered[0]),
        max=round(ordered[-1]),
        avg=int(sum(ordered) / len(ordered)),
        p50=percentile(ordered, 0.5),
        p90=percentile(ordered, 0.9),
        p95=percentile(ordered, 0.95),
        p99=percentile(ordered, 0.99),
        p999=percentile(ordered, 0.999),
    )


def spread(values: Sequence[float]) -> Spread:
    """The ``Spread`` of some numbers."""
    if not values:
        return Spread()
    ordered = sorted(values)
    return Spread(
        min=round(ordered[0]),
        max=round(ordered[-1]),
        avg=int(sum(ordered) / len(ordered)),
        sum=round(sum(ordered)),
        median=round(percentile(ordered, 0.5)),
        p25=round(percentile(ordered, 0.25)),
        p75=round(percentile(ordered, 0.75)),
        p95=round(percentile(ordered, 0.95)),
    )
