"""Programs of ``tests/api/semantics.py`` with windows: joins, co-groups, evictors, assigners of one's own."""

from __future__ import annotations

from typing import Any

from penstock.api import (
    CoGroupFunction,
    CountEvictor,
    CountTrigger,
    CountWindow,
    DeltaEvictor,
    Evictor,
    FlatJoinFunction,
    GlobalWindow,
    GlobalWindows,
    JoinFunction,
    MergingWindowAssigner,
    PurgingTrigger,
    SlidingEventTimeWindows,
    Time,
    TimeEvictor,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WindowAssigner,
)
from tests.api.semantics import LEFT, RIGHT, Case, Contents, Elements, events

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
TEXT = Types.STRING()


class Numbers(JoinFunction):
    def join(self, first: Any, second: Any) -> Any:
        return first[2], second[2]


class Twice(FlatJoinFunction):
    def flat_join(self, first: Any, second: Any) -> Any:
        if first[2] < 3:
            yield first[2], second[2]
            yield second[2], first[2]


class Both(CoGroupFunction):
    def open(self, context: Any) -> None:
        self.index = context.get_index_of_this_subtask()

    def co_group(self, first: list[Any], second: list[Any]) -> Any:
        yield f"{[e[2] for e in first]} {[e[2] for e in second]}"


class Odd(Evictor):
    """Drops odd numbers before the function, and everything after it."""

    def evict_before(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
        assert size == len(elements)
        elements[:] = [e for e in elements if e.get_value()[2] % 2 == 0]

    def evict_after(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
        elements.clear()


class EvenAndOdd(WindowAssigner):
    """Two windows, by the number, beside the one of all."""

    def assign_windows(self, element: Any, timestamp: int, context: Any) -> Any:
        start = 10_000 * (element[2] % 2)
        return [TimeWindow(start, start + 10_000), TimeWindow(0, 100_000)]


class ByCount(WindowAssigner):
    """Windows of two records, counted in the key's state."""

    def assign_windows(self, element: Any, timestamp: int, context: Any) -> Any:
        assert context.get_current_processing_time() > 0
        count = context.get_runtime_context().get_state(ValueStateDescriptor("n", Types.LONG()))
        n = count.value() or 0
        count.update(n + 1)
        return [CountWindow(n // 2)]

    def get_default_trigger(self, env: Any = None) -> Any:
        return PurgingTrigger.of(CountTrigger.of(2))

    def is_event_time(self) -> bool:
        return False


class Chained(MergingWindowAssigner):
    """Sessions of 700 ms, through Flink's callback."""

    def assign_windows(self, element: Any, timestamp: int, context: Any) -> Any:
        return [TimeWindow(timestamp, timestamp + 700)]

    def merge_windows(self, windows: Any, callback: Any) -> None:
        TimeWindow.merge_windows(windows, callback)


class OfAll(WindowAssigner):
    def assign_windows(self, element: Any, timestamp: int, context: Any) -> Any:
        return [GlobalWindow.get()]

    def get_default_trigger(self, env: Any = None) -> Any:
        return CountTrigger.of(3)


class Pairs(Trigger):
    """Fires for each second element of a session; the count goes with sessions that merge."""

    def __init__(self) -> None:
        from penstock.api import ReducingStateDescriptor

        self.count = ReducingStateDescriptor("pairs", lambda a, b: a + b, Types.LONG())

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        count = ctx.get_partitioned_state(self.count)
        count.add(1)
        return TriggerResult.FIRE if count.get() % 2 == 0 else TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: Any) -> None:
        ctx.merge_partitioned_state(self.count)

    def clear(self, window: Any, ctx: Any) -> None:
        ctx.get_partitioned_state(self.count).clear()


def two(env: Any, kind: str, function: Any, output_type: Any, windows: Any = None) -> Any:
    left, right = events(env, LEFT), events(env, RIGHT)
    joined = getattr(left, kind)(right).where(lambda e: e[0]).equal_to(0)
    return joined.window(windows or TumblingEventTimeWindows.of(Time.seconds(1))).apply(function, output_type)


def by_key(env: Any) -> Any:
    return events(env).key_by(0)


SECOND = TumblingEventTimeWindows.of(Time.seconds(1))
CASES = [
    Case("join over windows", lambda env: two(env, "join", Numbers(), PAIR), [(1, 3), (1, 4)]),
    Case("co-group over windows", lambda env: two(env, "co_group", Both(), TEXT), ["[1] [3, 4]", "[2] []"]),
    Case("flat join over windows", lambda env: two(env, "join", Twice(), PAIR), [(1, 3), (1, 4), (3, 1), (4, 1)]),
    Case("join over overlapping windows", lambda env: two(env, "join", lambda a, b: (a[2], b[2]), PAIR,
        SlidingEventTimeWindows.of(Time.seconds(2), Time.seconds(1))), [(1, 3), (1, 3), (1, 4), (1, 4)]),
    Case("the last two of a window", lambda env: by_key(env).window(SECOND).evictor(CountEvictor.of(2)).process(Contents()), [("a", 0, [2, 3]), ("a", 1000, [4]), ("a", 2000, [5]), ("a", 5000, [7]), ("b", 0, [6])]),
    Case("the last 700 ms of a window", lambda env: by_key(env).window(SECOND).evictor(TimeEvictor.of(Time.milliseconds(700))).process(Contents()), [("a", 0, [2, 3]), ("a", 1000, [4]), ("a", 2000, [5]), ("a", 5000, [7]), ("b", 0, [6])]),
    Case("near the last of a window", lambda env: by_key(env).window(SECOND).evictor(DeltaEvictor.of(2, lambda a, b: abs(a[2] - b[2]))).process(Contents()), [("a", 0, [2, 3]), ("a", 1000, [4]), ("a", 2000, [5]), ("a", 5000, [7]), ("b", 0, [6])]),
    Case("an evictor of one's own", lambda env: by_key(env).window(GlobalWindows.create()).trigger(CountTrigger.of(2)).evictor(Odd()).process(Elements()), [("a", [2]), ("a", [4]), ("a", [])]),
    Case("evicted after a sum", lambda env: by_key(env).window(GlobalWindows.create()).trigger(CountTrigger.of(2))
        .evictor(CountEvictor.of(1, True)).reduce(lambda a, b: (a[0], a[1], a[2] + b[2])).map(lambda e: (e[0], e[2])), [("a", 16), ("a", 3), ("a", 9)]),
    Case("windows of an assigner of one's own", lambda env: by_key(env).window(EvenAndOdd()).process(Contents()), [("a", 0, [1, 2, 3, 4, 5, 7]), ("a", 0, [2, 4]), ("a", 10000, [1, 3, 5, 7]), ("b", 0, [6]), ("b", 0, [6])]),
    Case("counted windows of an assigner of one's own", lambda env: by_key(env).window(ByCount()).process(Elements()), [("a", [1, 2]), ("a", [3, 4]), ("a", [5, 7])]),
    Case("merging windows of an assigner of one's own", lambda env: by_key(env).window(Chained()).process(Contents()), [("a", 0, [1, 2, 3, 4, 5]), ("a", 5000, [7]), ("b", 10, [6])]),
    Case("an assigner's own trigger", lambda env: by_key(env).window(OfAll()).process(Elements()), [("a", [1, 2, 3, 4, 5, 7]), ("a", [1, 2, 3])]),
    Case("merging windows, a trigger of one's own", lambda env: by_key(env).window(Chained()).trigger(Pairs()).process(Contents()), [("a", 0, [1, 2, 3, 4]), ("a", 0, [1, 2])]),
]  # fmt: skip
