"""How a task accounts for its time, and the rates of its totals."""

from __future__ import annotations

import pytest

from penstock.runtime.credit import CreditPool
from penstock.runtime.taskmetrics import TaskClock


def test_times_add_up_and_rates_cover_the_last_interval() -> None:
    now = [100.0]
    clock = TaskClock(lambda: now[0])
    now[0] = 101.0  # idle for one second
    clock.enter("busy")
    now[0] = 104.0  # busy for three
    ms, rates = clock.rates((400, 40, 8_000, 800))
    assert ms == pytest.approx({"busy": 750.0, "idle": 250.0, "back-pressured": 0.0})
    assert rates == pytest.approx([100.0, 10.0, 2_000.0, 200.0])
    clock.enter("back-pressured")
    now[0] = 106.0
    ms, rates = clock.rates((500, 40, 8_000, 1_000))
    assert ms == pytest.approx({"busy": 0.0, "idle": 0.0, "back-pressured": 1_000.0})
    assert rates == pytest.approx([50.0, 0.0, 0.0, 100.0])
    assert clock.seconds == pytest.approx({"busy": 3.0, "idle": 1.0, "back-pressured": 2.0})


def test_the_share_of_a_pool_that_is_lent() -> None:
    pool = CreditPool(1_000)
    assert pool.usage == 0.0
    assert pool.take(250)
    assert pool.usage == 0.25
    assert CreditPool(0).usage == 0.0
