"""The steady clock follows the wall clock forward and ignores it when it goes back."""

from __future__ import annotations

from penstock.clocks import SteadyClock


def test_a_wall_clock_set_back_neither_goes_back_nor_stands_still():
    wall, monotonic = [1_000_000], [50.0]
    clock = SteadyClock(lambda: wall[0], lambda: monotonic[0])
    assert clock.now_ms() == 1_000_000
    seen = []
    steps = [(1_000_100, 100), (400_000, 100), (400_100, 100), (2_000_000, 100), (2_000_100, 100)]
    for wall_ms, passed_ms in steps:
        wall[0], monotonic[0] = wall_ms, monotonic[0] + passed_ms
        seen.append(clock.now_ms())
    assert seen == [1_000_100, 1_000_200, 1_000_300, 2_000_000, 2_000_100]
