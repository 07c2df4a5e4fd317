"""Joins and co-groups over windows, evictors and own assigners: records of every form, errors, restored state."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.api import (
    CoGroupFunction,
    CountEvictor,
    Evictor,
    MergingWindowAssigner,
    Row,
    Sink,
    Source,
    StreamExecutionEnvironment,
    Time,
    TimeWindow,
    TumblingEventTimeWindows,
    Types,
    WatermarkStrategy,
    WindowAssigner,
    agg,
)
from penstock.errors import FunctionError, SpecError, UnsupportedError
from penstock.testing.harness import JobHarness

LONG, STRING = Types.LONG(), Types.STRING()
HOUR = TumblingEventTimeWindows.of(Time.hours(1))


@dataclass
class Order:
    user: str
    amount: int


class Seen(CoGroupFunction):
    def co_group(self, first: Any, second: Any) -> Any:
        yield repr((first, second))


def timed(stream: Any) -> Any:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda r, _: 0)
    return stream.assign_timestamps_and_watermarks(strategy)


def test_records_of_every_form_come_back_as_they_were(collect: Any) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    forms = {
        "class": ([Order("a", 1)], Order, lambda o: o.user, "[Order(user='a', amount=1)]"),
        "rows": (
            [Row(user="a", tags=["x"])],
            Types.ROW_NAMED(["user", "tags"], [STRING, Types.LIST(STRING)]),
            "user",
            "[Row(user='a', tags=['x'])]",
        ),
        "tuples": ([("a", None)], Types.TUPLE([STRING, LONG]), 0, "[('a', None)]"),
        "values": (["a"], STRING, lambda v: v, "['a']"),
        "pickled": ([{"k": "a"}], None, lambda d: d["k"], "[{'k': 'a'}]"),
    }
    streams = []
    for rows, type_, key, _ in forms.values():
        stream = timed(env.from_collection(rows, type_))
        joined = timed(env.from_collection(["a", "b"], STRING)).co_group(stream)
        made = joined.where(lambda v: v, STRING).equal_to(key, STRING).window(HOUR)
        streams.append(made.apply(Seen(), STRING))
    got = collect(streams[0].union(*streams[1:]), 2)
    wanted = [f"(['a'], {shown})" for *_, shown in forms.values()] + ["(['b'], [])"] * len(forms)
    assert sorted(got) == sorted(wanted)


class Keep(Evictor):
    """Keeps everything; counts, so that it is seen to be asked."""

    def evict_before(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
        assert window.end - window.start == 3_600_000
        assert evictor_context.get_current_processing_time() > 0


class Hours(MergingWindowAssigner):
    def assign_windows(self, element: Any, timestamp: int, context: Any) -> Any:
        return [TimeWindow(0, 3_600_000)]

    def merge_windows(self, windows: Any, callback: Any) -> None:
        TimeWindow.merge_windows(windows, callback)


class Count(CoGroupFunction):
    def co_group(self, first: Any, second: Any) -> Any:
        yield "co", len(first), len(second)


ROWS = 300
TRIPLE = Types.TUPLE([STRING, LONG, LONG])


def counting(parallelism: int) -> Any:
    """Counts by key of two sources, in windows that end with the input; 300 rows in about 0.3 s."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(parallelism)
    schema = Types.ROW_NAMED(["n"], [LONG])
    options = {
        "fields.n.kind": "sequence",
        "fields.n.start": 0,
        "fields.n.end": ROWS - 1,
        "rows-per-second": 1000,
    }
    left, right = (
        timed(env.from_source(Source.connector("datagen", schema, options), None, name)) for name in "lr"
    )
    both = (
        left.co_group(right).where(lambda r: r[0] % 7, LONG).equal_to(lambda r: r[0] % 7, LONG).window(HOUR)
    )
    grouped = both.evictor(Keep()).apply(Count(), TRIPLE).uid("grouped")
    merged = (
        left.key_by(lambda r: r[0] % 5, LONG)
        .window(Hours())
        .evictor(CountEvictor.of(50))
        .apply(lambda key, window, elements: [("last", key, len(elements))], TRIPLE)
        .uid("merged")
    )
    grouped.union(merged).sink_to(Sink.connector("collect")).set_parallelism(1)
    return env.job_graph()


def counted() -> list[Any]:
    sizes = collections.Counter(n % 7 for n in range(ROWS))
    return sorted([("co", n, n) for n in sizes.values()] + [("last", key, 50) for key in range(5)])


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2)])
async def test_windows_of_two_streams_go_through_a_checkpoint_and_change_their_parallelism(
    before: int, after: int
) -> None:
    async with JobHarness(counting(before)) as job:
        await job.until(lambda: any(m.records_out > 30 for m in job.metrics().values()))
        checkpoint = await job.checkpoint()
        assert not job.ended
    async with JobHarness(counting(after), restore=checkpoint, store=job.store) as again:
        result = await again.wait()
    assert sorted(map(tuple, result.rows)) == counted()


class Nothing(WindowAssigner):
    def assign_windows(self, element: Any, timestamp: int, context: Any) -> Any:
        return [(0, 10)]


def test_what_is_no_window_is_refused(collect: Any) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    keyed = timed(env.from_collection([1], LONG)).key_by(lambda v: v)
    with pytest.raises(FunctionError, match="a window assigner gave no window"):
        collect(keyed.window(Nothing()).apply(lambda key, window, elements: [1], LONG))
    for windows, words in (
        (keyed.window(Nothing()), "an assigner of your own"),
        (keyed.window(HOUR).evictor(Keep()), "an evictor"),
    ):
        with pytest.raises(UnsupportedError, match=words):
            windows.aggregate(agg.count())
    with pytest.raises(SpecError, match="not an evictor"):
        keyed.window(HOUR).evictor(3)
    with pytest.raises(SpecError, match="keys of different types"):
        keyed.join(keyed).where(lambda v: v, LONG).equal_to(lambda v: str(v), STRING)
    with pytest.raises(SpecError, match="is negative"):
        CountEvictor.of(-1)


def test_built_in_assigners_answer_flinks_questions() -> None:
    class Context:
        def get_current_processing_time(self) -> int:
            return 5_000

    windows = TumblingEventTimeWindows.of(Time.seconds(10))
    assert windows.assign_windows("x", 12_000, Context()) == [TimeWindow(10_000, 20_000)]
    assert windows.is_event_time()
    merged: list[Any] = []

    class Callback:
        def merge(self, parts: Any, whole: Any) -> None:
            merged.append((list(parts), whole))

    TimeWindow.merge_windows(
        [TimeWindow(9, 12), TimeWindow(0, 3), TimeWindow(2, 5), TimeWindow(20, 21)], Callback()
    )
    assert merged == [([TimeWindow(0, 3), TimeWindow(2, 5)], TimeWindow(0, 5))]
