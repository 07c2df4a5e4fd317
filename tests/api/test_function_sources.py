"""Sources that are functions, and watermark generators of a program's own."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.api import (
    ProcessFunction,
    ProcessWindowFunction,
    Sink,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    Types,
    Watermark,
    WatermarkGenerator,
    WatermarkStrategy,
)
from penstock.errors import FunctionError, SpecError, UnsupportedError
from penstock.spark.coverage import check
from penstock.testing.harness import JobHarness

LONG = Types.LONG()
N = 5_000


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Functions travel by value; what they share with a test has a module that they import."""
    module = types.ModuleType("penstock_source_gate")
    module.gate = threading.Event()  # type: ignore[attr-defined]
    module.asked = []  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "penstock_source_gate", module)
    return module.gate  # type: ignore[attr-defined]


def environment(parallelism: int = 1) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)


def squares() -> Iterator[int]:
    for i in range(20):
        yield i * i


class Opened:
    """A source object with a life."""

    def open(self, runtime_context: Any) -> None:
        self.subtasks = runtime_context.get_number_of_parallel_subtasks()

    def run(self) -> Any:
        return [{"n": 1}, {"n": self.subtasks}]


def test_records_come_from_functions_and_objects(collect: Any, parallelism: int) -> None:
    env = environment()
    assert sorted(collect(env.add_source(squares), parallelism)) == [i * i for i in range(20)]
    assert collect(env.from_source(Opened(), None, "opened").map(lambda d: d["n"], LONG), parallelism) == [
        1,
        1,
    ]
    assert collect(env.add_source(lambda: range(3), "r", LONG).filter(lambda v: v > 0), parallelism) == [1, 2]


def held() -> Iterator[int]:
    """Waits in the middle until the test lets it go on; a blocked source stops neither checkpoints nor the slot."""
    from penstock_source_gate import gate

    for i in range(N):
        if i == N // 2:
            assert gate.wait(60)
        yield i


def from_position(position: int | None) -> Iterator[Any]:
    from penstock_source_gate import asked, gate

    asked.append(position)
    for i in range(position or 0, N):
        if i == N // 2:
            assert gate.wait(60)
        yield i, i + 1


@pytest.mark.parametrize("function", [held, from_position])
async def test_a_source_goes_on_where_the_checkpoint_was(function: Any, gate: threading.Event) -> None:
    def job(parallelism: int) -> Any:
        env = environment(parallelism)
        env.add_source(function, "numbers", LONG).uid("numbers").sink_to(
            Sink.connector("collect")
        ).set_parallelism(1)
        return env.job_graph()

    async with JobHarness(job(1)) as first:
        await first.until(lambda: any(m.records_out == N // 2 for m in first.metrics().values()))
        checkpoint = await first.checkpoint()
        assert not first.ended
        before = [row[0] for row in (await first.result()).rows]
    gate.set()
    async with JobHarness(job(2), restore=checkpoint, store=first.store) as again:
        after = [row[0] for row in (await again.wait()).rows]
    assert sorted(set(before) | set(after)) == list(range(N))
    assert len(after) - len(set(after)) == 0
    assert min(set(after) - set(before)) == N // 2
    if function is from_position:
        assert sys.modules["penstock_source_gate"].asked == [None, N // 2]


async def test_a_source_that_fails_fails_the_job(gate: threading.Event) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("the well is dry")

    env = environment()
    env.add_source(broken).sink_to(Sink.connector("collect"))
    with pytest.raises(FunctionError, match="the well is dry"):
        async with JobHarness(env.job_graph()) as job:
            await job.wait()


@pytest.mark.parametrize(
    ("source", "words"),
    [(squares(), "no source"), (3, "no source"), (lambda a, b: [], "several arguments")],
)
def test_what_is_no_source_is_refused(source: Any, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        environment().add_source(source)


def test_an_async_source_is_refused_and_one_on_spark() -> None:
    async def later() -> Any:
        yield 1

    env = environment()
    with pytest.raises(SpecError, match="an async function as a source"):
        env.add_source(later)
    env.add_source(squares, bounded=True).print()
    with pytest.raises(UnsupportedError, match="a function of the program, on Spark"):
        check(env.job_graph())


# -- watermark generators ------------------------------------------------------------------------


class Marked(WatermarkGenerator):
    """A record below 0 says that all before it have come."""

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        if event < 0:
            output.emit_watermark(Watermark(-event))


class Latest(WatermarkGenerator):
    """From time to time, 5 ms behind the highest."""

    def __init__(self) -> None:
        self.highest = 0

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        self.highest = max(self.highest, event_timestamp)

    def on_periodic_emit(self, output: Any) -> None:
        output.emit_watermark(Watermark(self.highest - 5))


class Late(ProcessFunction):
    """(value, the watermark before it)"""

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value, ctx.timer_service().current_watermark()


def assigned(generator: Any, values: Any) -> Any:
    strategy = WatermarkStrategy.for_generator(generator).with_timestamp_assigner(lambda v, _: abs(v))
    return environment().from_collection(values, LONG).assign_timestamps_and_watermarks(strategy)


def test_a_watermark_follows_the_record_that_brought_it(collect: Any) -> None:
    values = [1, 5, -10, 12, 3, -20, 21]
    for generator in (Marked(), Marked, lambda context: Marked()):
        got = collect(assigned(generator, values).process(Late(), Types.TUPLE([LONG, LONG])))
        assert [v for v, _ in got] == values
        assert [w for _, w in got[3:]] == [10, 10, 10, 20]
        assert all(w < 0 for _, w in got[:3])


class Values(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield context.window().start, list(elements)


def test_windows_fire_and_records_are_late_by_a_generator(collect: Any) -> None:
    values = [1, 5, -10, 12, 3, -20, 21]
    windows = (
        assigned(Marked(), values)
        .key_by(lambda v: 0, LONG)
        .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    )
    got = collect(windows.process(Values(), Types.TUPLE([LONG, Types.LIST(LONG)])))
    assert got == [(0, [1, 5]), (10, [-10, 12]), (20, [-20, 21])]  # 3 is late


async def test_a_generator_is_asked_from_time_to_time(gate: threading.Event) -> None:
    def endless() -> Iterator[int]:
        from penstock_source_gate import gate

        yield from (100, 200)
        assert gate.wait(60)

    strategy = WatermarkStrategy.for_generator(Latest).with_timestamp_assigner(lambda v, _: v)
    env = environment()
    env.set("pipeline.auto-watermark-interval", "1 ms")
    env.from_source(endless, strategy, "numbers", LONG).uid("here").sink_to(Sink.connector("collect"))
    async with JobHarness(env.job_graph()) as job:
        await job.until(
            lambda: any(
                n.output_watermark == 195_999 for t in job.deployment.tasks.values() for n in t.chain.nodes
            )
        )
        gate.set()
        await job.wait()


def test_errors_of_a_generator_are_the_programs(collect: Any) -> None:
    class Broken(WatermarkGenerator):
        def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
            raise ValueError("no time")

    with pytest.raises(FunctionError, match="no time"):
        collect(assigned(Broken(), [1]))
    with pytest.raises(FunctionError, match="no watermark generator"):
        collect(assigned(lambda context: 3, [1]))
