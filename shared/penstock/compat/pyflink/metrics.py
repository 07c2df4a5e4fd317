"""The names of ``pyflink.metrics``."""

from __future__ import annotations

from penstock.compat.pyflink.names import finder

_WHERE = {
    "penstock.operators.user_metrics": ("Counter", "Distribution", "Meter", "MetricGroup=UserMetrics"),
}
__getattr__, __all__ = finder(__name__, _WHERE, ())


def __dir__() -> list[str]:
    return __all__
