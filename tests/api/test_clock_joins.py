"""Interval joins by the clock, and exclusive bounds of those by event time."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.api import StreamExecutionEnvironment, Types, WatermarkStrategy
from penstock.api.clock_joins import ByClock
from penstock.errors import UnsupportedError

LONG, STRING = Types.LONG(), Types.STRING()
PAIR = Types.TUPLE([STRING, LONG])


class Clock:
    """A context of one key whose clock a test moves: its state, its timers and its time."""

    def __init__(self) -> None:
        self.now = 1_000
        self.timers: set[int] = set()
        self.states: dict[str, dict[int, Any]] = {}

    def get_map_state(self, descriptor: Any) -> Any:
        entries = self.states.setdefault(descriptor.name, {})

        class State:
            get, items = entries.get, entries.items
            put = entries.__setitem__

            def remove(self, key: int) -> None:
                entries.pop(key, None)

        return State()

    def timer_service(self) -> Clock:
        return self

    def current_processing_time(self) -> int:
        return self.now

    def register_processing_time_timer(self, time: int) -> None:
        self.timers.add(time)

    def to(self, now: int, function: Any) -> None:
        for time in sorted(t for t in self.timers if t <= now):
            self.timers.remove(time)
            function.on_timer(time, self)
        self.now = now


@pytest.mark.parametrize(
    ("low", "high", "pairs"),
    [
        (-5, 5, ["a1", "a2", "b1", "b2", "c3"]),  # a 1000, b 1003, c 1020; 1 at 1002, 2 at 1005, 3 at 1025
        (0, 5, ["a1", "a2", "b2", "c3"]),
        (1, 2, ["a1", "b2"]),
        (-2, 0, ["b1"]),
        (-3, -1, ["b1"]),
    ],
)
def test_records_that_arrive_near_each_other_meet_and_are_forgotten(
    low: int, high: int, pairs: list[str]
) -> None:
    clock = Clock()
    join = ByClock(lambda left, right: left + right, (low, high), STRING, STRING)
    join.open(clock)
    arrivals = [(1_000, "a"), (1_002, "1"), (1_003, "b"), (1_005, "2"), (1_020, "c"), (1_025, "3")]
    found = []
    for time, value in arrivals:
        clock.to(time, join)
        side = join.process_element1 if value.isalpha() else join.process_element2
        found += list(side(value, clock))
    assert sorted(found) == pairs
    clock.to(2_000, join)
    assert not any(clock.states.values())


def keyed(rows: Any) -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    return env, env.from_collection(rows, PAIR).key_by(lambda r: r[0])


def test_a_join_by_the_clock_runs(collect: Any, parallelism: int) -> None:
    env, left = keyed([("a", 1), ("b", 2)])
    right = env.from_collection([("a", 3), ("c", 4)], PAIR).key_by(lambda r: r[0])
    joined = left.interval_join(right).in_processing_time().between(-60_000, 60_000)
    assert [tuple(r) for r in collect(joined.inner(), parallelism)] == [("a", 1, "a", 3)]
    assert collect(joined.process(lambda a, b: a[1] + b[1], LONG), parallelism) == [4]
    with pytest.raises(UnsupportedError, match="outer join by the clock"):
        joined.left()


def test_bounds_may_be_exclusive(collect: Any) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda r, _: r[1])
    env = StreamExecutionEnvironment.get_execution_environment()
    left, right = (
        env.from_collection(rows, PAIR).assign_timestamps_and_watermarks(strategy).key_by(lambda r: r[0])
        for rows in ([("a", 10)], [("a", 5), ("a", 10), ("a", 15)])
    )
    join = left.interval_join(right).in_event_time().between(-5, 5)
    assert sorted(r[3] for r in collect(join.inner())) == [5, 10, 15]
    join = left.interval_join(right).between(-5, 5).lower_bound_exclusive().upper_bound_exclusive()
    assert [r[3] for r in collect(join.inner())] == [10]
