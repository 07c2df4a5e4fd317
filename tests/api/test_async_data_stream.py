"""``AsyncDataStream`` on the streaming engine: order, capacity, time-outs, repetitions, errors, state."""

from __future__ import annotations

import asyncio
import sys
import types
from collections import Counter
from typing import Any, ClassVar

import pytest

from penstock.api import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    MapFunction,
    ProcessFunction,
    ProcessWindowFunction,
    Sink,
    Source,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    Types,
    WatermarkStrategy,
)
from penstock.api.async_functions import (
    AsyncCall,
    ExponentialBackoffDelayRetryStrategy,
    empty_result_predicate,
    exception_type_predicate,
    has_exception_predicate,
)
from penstock.errors import FunctionError, SpecError
from penstock.store.memory import MemoryStore
from penstock.testing.harness import JobHarness

LONG = Types.LONG()


class Gate:
    """Answers come when a test lets them: what the functions below share with it, in this process."""

    asked: ClassVar[list[int]] = []
    most: ClassVar[int] = 0
    now: ClassVar[int] = 0
    closed: ClassVar[bool] = False

    @classmethod
    def reset(cls) -> None:
        cls.asked, cls.most, cls.now, cls.closed = [], 0, 0, False


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The functions travel by value; the gate must not, so it has a module that they import."""
    Gate.reset()
    module = types.ModuleType("penstock_async_gate")
    module.Gate = Gate  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "penstock_async_gate", module)
    return Gate


class Later(AsyncFunction):
    """Ten times the value, the later the smaller it is; waits while the gate is closed."""

    async def async_invoke(self, value: int) -> list[int]:
        from penstock_async_gate import Gate

        Gate.asked.append(value)
        Gate.now += 1
        Gate.most = max(Gate.most, Gate.now)
        for _ in range(20 - 2 * value):
            await asyncio.sleep(0)
        while Gate.closed:  # noqa: ASYNC110 (the gate opens from outside this event loop)
            await asyncio.sleep(0.001)
        Gate.now -= 1
        return [value * 10]


class Never(AsyncFunction):
    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.Event().wait()
        return []

    def timeout(self, value: int) -> list[int]:
        return [-value, value]


class Poor(AsyncFunction):
    """Raises, then answers with an odd number, then with an even one."""

    def __init__(self) -> None:
        self.calls: dict[int, int] = {}

    async def async_invoke(self, value: int) -> list[int]:
        self.calls[value] = self.calls.get(value, 0) + 1
        if self.calls[value] == 1:
            raise OSError("not at the first time")
        return [2 * value + (self.calls[value] == 2)]


class Wrong(AsyncFunction):
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def async_invoke(self, value: int) -> Any:
        if isinstance(self.answer, Exception) and value == 2:
            raise self.answer
        return [value] if isinstance(self.answer, Exception) else self.answer


class Timed(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value, ctx.timestamp()


def numbers(n: int = 8) -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.from_collection(list(range(1, n + 1)), LONG)


def test_ordered_results_come_in_the_order_of_their_records(collect: Any) -> None:
    got = collect(AsyncDataStream.ordered_wait(numbers(), Later(), Time.seconds(60), 4, LONG))
    assert got == [10, 20, 30, 40, 50, 60, 70, 80]
    assert Gate.most == 4


def test_unordered_results_come_as_their_answers_do(collect: Any) -> None:
    got = collect(AsyncDataStream.unordered_wait(numbers(), Later(), Time.seconds(60), 8, LONG))
    assert sorted(got) == [10, 20, 30, 40, 50, 60, 70, 80]
    assert got[0] != 10
    assert Gate.most == 8


def test_results_have_the_event_time_of_their_record(collect: Any) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: v * 7)
    stream = numbers(4).assign_timestamps_and_watermarks(strategy)
    got = collect(AsyncDataStream.unordered_wait(stream, Later(), 0, 2, LONG).process(Timed()))
    assert sorted(got) == [(10, 7), (20, 14), (30, 21), (40, 28)]


def test_without_an_answer_in_time_timeout_gives_the_results(collect: Any) -> None:
    assert collect(AsyncDataStream.ordered_wait(numbers(2), Never(), 5, 2, LONG)) == [-1, 1, -2, 2]


def test_without_a_timeout_method_a_late_answer_is_an_error(collect: Any) -> None:
    class Silent(Never):
        timeout = AsyncFunction.timeout

    with pytest.raises(FunctionError, match="timed out for input: 1"):
        collect(AsyncDataStream.ordered_wait(numbers(1), Silent(), 5, 2, LONG))


def test_calls_are_repeated_for_errors_and_poor_results(collect: Any) -> None:
    retry = AsyncRetryStrategy.fixed_delay(5, 1, lambda r: r[0] % 2 == 1, lambda e: isinstance(e, OSError))
    stream = AsyncDataStream.unordered_wait_with_retry(numbers(3), Poor(), 60_000, retry, 2, LONG)
    assert sorted(collect(stream)) == [2, 4, 6]


def test_repetitions_come_to_an_end() -> None:
    retry = AsyncRetryStrategy.fixed_delay(1, 1, lambda r: True, None)
    call = AsyncCall(Wrong([7]), 0, retry)
    assert asyncio.run(call.ask(1)) == [7]
    none = AsyncCall(Poor(), 0, AsyncRetryStrategy.fixed_delay(3, 1, None, lambda e: "other" in str(e)))
    with pytest.raises(OSError, match="first"):
        asyncio.run(none.ask(1))


def test_pauses_grow_to_their_limit() -> None:
    strategy = ExponentialBackoffDelayRetryStrategy(9, 10, 35, 2.0, None, None)
    assert [strategy.get_backoff_time_millis(n) for n in (1, 2, 3, 4, 1)] == [10, 20, 35, 35, 10]


@pytest.mark.parametrize(
    ("answer", "words"),
    [(None, "cannot be none"), (7, "should be of list type"), (["x"], "LONG|BIGINT"), (ValueError("my error"), "my error")],
)  # fmt: skip
def test_a_wrong_answer_fails_the_job_by_name(collect: Any, answer: Any, words: str) -> None:
    with pytest.raises(FunctionError, match=words):
        collect(AsyncDataStream.ordered_wait(numbers(3), Wrong(answer), 0, 2, LONG))


def test_a_record_that_fails_may_be_skipped(collect: Any) -> None:
    stream = AsyncDataStream.ordered_wait(numbers(3), Wrong(ValueError("no")), 0, 2, LONG, on_error="skip")
    assert collect(stream) == [1, 3]


def test_records_without_an_answer_are_state() -> None:
    """A checkpoint while calls are under way: the restored job asks again, and gives each result once."""
    env = StreamExecutionEnvironment.get_execution_environment()
    schema = Types.ROW_NAMED(["n"], [LONG])
    endless = env.from_source(Source.connector("datagen", schema, {"rows-per-second": 1}))
    rest = endless.filter(lambda _: False).map(lambda row: row.n, LONG)
    both = env.from_collection(list(range(1, 7)), LONG).union(rest)
    stream = AsyncDataStream.unordered_wait(both, Later(), 0, 100, LONG).uid("ask")
    stream.sink_to(Sink.connector("collect")).set_parallelism(1)
    graph = env.job_graph()

    async def first() -> Any:
        Gate.closed = True
        async with JobHarness(graph) as job:
            await job.until(lambda: len(Gate.asked) == 6)
            return await job.checkpoint()

    async def second(checkpoint: Any) -> Any:
        async with JobHarness(graph, restore=checkpoint) as job:
            await job.until(lambda: len(Gate.asked) == 6)
            await job.stop(drain=True)
            return await job.result()

    checkpoint = asyncio.run(first())
    Gate.reset()
    assert sorted(row[0] for row in asyncio.run(second(checkpoint)).rows) == [10, 20, 30, 40, 50, 60]
    assert sorted(Gate.asked) == [1, 2, 3, 4, 5, 6]


def collecting(stream: Any) -> Any:
    """The job that collects the stream."""
    stream.sink_to(Sink.connector("collect")).set_parallelism(1)
    return stream.get_execution_environment().job_graph()


def test_at_the_end_of_the_input_a_checkpoint_waits_for_the_answers() -> None:
    graph = collecting(AsyncDataStream.unordered_wait(numbers(3), Later(), 0, 10, LONG))

    async def run() -> Any:
        Gate.closed = True
        async with JobHarness(graph) as job:
            await job.until(lambda: len(Gate.asked) == 3)
            checkpoint = asyncio.create_task(job.checkpoint())
            for _ in range(300):
                await asyncio.sleep(0)
            assert not checkpoint.done()
            Gate.closed = False
            await checkpoint
            return await job.wait()

    assert sorted(row[0] for row in asyncio.run(run()).rows) == [10, 20, 30]


def test_at_the_end_of_the_input_the_timeout_bounds_a_checkpoint() -> None:
    graph = collecting(AsyncDataStream.ordered_wait(numbers(2), Never(), 500, 10, LONG))

    async def run() -> Any:
        async with JobHarness(graph) as job:
            await job.checkpoint()
            return await job.wait()

    assert [row[0] for row in asyncio.run(run()).rows] == [-1, 1, -2, 2]


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        (lambda v: [v], (1_000,), "no coroutine function"),
        (Never(), (1_000, 0), "not a capacity"),
        (Never(), ("soon",), "no duration"),
    ],
)
def test_what_cannot_run_is_refused(function: Any, arguments: Any, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        AsyncDataStream.ordered_wait(numbers(1), function, *arguments)


def test_repetitions_want_a_timeout() -> None:
    retry = AsyncRetryStrategy.exponential_backoff(3, 1, 10, 2.0, None, lambda e: True)
    with pytest.raises(SpecError, match="without a timeout"):
        AsyncDataStream.ordered_wait_with_retry(numbers(1), Never(), 0, retry)
    with pytest.raises(SpecError, match="max_attempts should be greater than zero"):
        AsyncRetryStrategy.fixed_delay(0, 1, None, None)


def test_pickled_results_need_no_type(collect: Any) -> None:
    got = collect(AsyncDataStream.ordered_wait(numbers(2), Wrong([{"a": 1}]), 0))
    assert got == [{"a": 1}, {"a": 1}]


def test_predicates_of_repetitions() -> None:
    assert empty_result_predicate([])
    assert not empty_result_predicate([1])
    assert has_exception_predicate(OSError())
    assert not has_exception_predicate(None)
    assert exception_type_predicate(ConnectionError(), OSError)
    assert not exception_type_predicate(ValueError(), OSError)


# -- event time behind calls that wait -------------------------------------------------------

#: (value, event time in ms), for windows of 10 ms.
TIMED = [(n, n * 3) for n in range(1, 25)]
COUNTS = sorted(Counter((n % 4, time // 10) for n, time in TIMED).items())


class Slow(AsyncFunction):
    """The record itself; a record above 10 waits while the gate is closed."""

    async def async_invoke(self, value: Any) -> list[Any]:
        from penstock_async_gate import Gate

        Gate.asked.append(value[0])
        while Gate.closed and value[0] > 10:  # noqa: ASYNC110 (the gate opens from outside this event loop)
            await asyncio.sleep(0.001)
        return [value]


class Ignored(MapFunction):
    def map(self, value: Any) -> Any:
        return -1, 1


def counted(wait: Any, parallelism: int, *, endless: bool) -> Any:
    """Counts by window behind the calls. ``endless``: another source, whose rows do not count, does not end."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(parallelism)
    env.set("pipeline.auto-watermark-interval", "1 ms")
    pair = Types.TUPLE([LONG, LONG])
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: v[1])
    stream = env.from_collection(TIMED, pair).rebalance()
    if endless:
        schema = Types.ROW_NAMED(["n"], [LONG])
        source = env.from_source(Source.connector("datagen", schema, {"rows-per-second": 9}))
        stream = stream.union(source.map(Ignored(), pair))
    stream = stream.assign_timestamps_and_watermarks(strategy).filter(lambda v: v[0] > 0)
    windows = (
        wait(stream, Slow(), 0, 100, pair)
        .uid("ask")
        .key_by(lambda v: v[0] % 4, LONG)
        .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
        .process(Counted(), Types.TUPLE([LONG, LONG, LONG]))
    )
    windows.sink_to(Sink.connector("collect")).set_parallelism(1)
    return env.job_graph()


class Counted(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, context.window().start // 10, len(list(elements))


def beyond_records_that_wait(job: Any) -> bool:
    """Whether a watermark has passed records that wait. All of them may be with one subtask: they are spread by batch."""
    nodes = [n for t in job.deployment.tasks.values() for n in t.chain.nodes if n.node.uid == "ask"]
    return any(n.valve.watermark > 60_000 for n in nodes)


@pytest.mark.parametrize("wait", [AsyncDataStream.ordered_wait, AsyncDataStream.unordered_wait])
@pytest.mark.parametrize(("before", "after", "asked"), [(1, 1, 24), (1, 3, 0), (3, 2, 16), (2, 1, 24)])
@pytest.mark.parametrize("endless", [False, True])
def test_records_that_wait_are_not_late_behind_a_restored_watermark(
    wait: Any, before: int, after: int, asked: int, endless: bool
) -> None:
    """The checkpoint is triggered while calls wait, before the input ends and behind its end."""
    store = MemoryStore()

    async def first() -> Any:
        Gate.closed = True
        async with JobHarness(counted(wait, before, endless=endless), store=store) as job:
            await job.until(lambda: len(Gate.asked) >= asked)
            if endless and asked == 24:
                await job.until(lambda: beyond_records_that_wait(job))
            checkpoint = asyncio.create_task(job.checkpoint())
            if endless:
                return await checkpoint
            for _ in range(50):
                await asyncio.sleep(0)
            Gate.closed = False
            return await checkpoint

    async def second(checkpoint: Any) -> Any:
        graph = counted(wait, after, endless=endless)
        async with JobHarness(graph, store=store, restore=checkpoint) as job:
            if not endless:
                return await job.wait()
            await job.stop(drain=True)
            return await job.result()

    checkpoint = asyncio.run(first())
    Gate.reset()
    rows = asyncio.run(second(checkpoint)).rows
    assert sorted(((key, window), count) for key, window, count in rows) == COUNTS
