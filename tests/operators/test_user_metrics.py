"""Metrics that a user's function defines."""

from __future__ import annotations

from penstock.metrics import MetricGroup
from penstock.operators.user_metrics import UserMetrics


def test_metrics_of_a_function() -> None:
    group, now = MetricGroup(), [10_000]
    metrics = UserMetrics(group, lambda: now[0])
    counter = metrics.add_group("orders").add_group("country", "de").counter("seen")
    counter.inc(3)
    counter.dec()
    assert counter.get_count() == 2
    assert group.counters["orders.country.de.seen"] == 2

    metrics.gauge("level", lambda: 7)
    assert group.gauges["level"]() == 7

    values = metrics.distribution("size")
    assert group.gauges["size.mean"]() is None
    for value in (4, 1, 7):
        values.update(value)
    found = {name: read() for name, read in group.gauges.items() if name.startswith("size.")}
    assert found == {"size.count": 3, "size.sum": 12, "size.min": 1, "size.max": 7, "size.mean": 4}


def test_a_meter_has_the_rate_of_its_last_seconds() -> None:
    group, now = MetricGroup(), [10_000]
    meter = UserMetrics(group, lambda: now[0]).meter("events", 2)
    meter.mark_event(6)
    meter.mark_event()
    now[0] = 11_000
    meter.mark_event()
    assert (meter.get_count(), group.gauges["events"]()) == (8, 4.0)
    now[0] = 12_000
    assert group.gauges["events"]() == 0.5
    now[0] = 20_000
    assert (meter.get_count(), group.gauges["events"]()) == (8, 0.0)
