"""Windows with Python functions: assigners, sessions, lateness, triggers, restore."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from penstock.errors import FunctionError, UnsupportedError
from penstock.jobgraph import FunctionArtifact, Hash
from penstock.jobgraph.specs import KeyedWindowSpec, WatermarkSpec, WindowSpec
from penstock.operators import keyed_window
from penstock.operators.keyed_window import KeyedWindowOperator
from penstock.operators.output_tag import OutputTag
from penstock.operators.window_functions import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    PurgingTrigger,
    TriggerResult,
    WindowCall,
)
from penstock.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.memory import StateMemory
from penstock.testing.graphs import GraphBuilder
from penstock.testing.harness import JobHarness
from penstock.testing.operator_harness import Subtask
from penstock.types import Batch, Schema
from penstock.types import logical as t

BIGINT, STRING = t.BigIntType(), t.VarCharType()
EVENT = Schema.of(("user", STRING), ("n", BIGINT))
ROW = t.RowType(EVENT.fields)
OUT = Schema.of(("f0", STRING), ("f1", BIGINT))
SPAN = Schema.of(("f0", STRING), ("f1", BIGINT), ("f2", BIGINT), ("f3", BIGINT))
S = 1_000_000


class Sum:
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + value.n

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, a: int, b: int) -> int:
        return a + b


class Spans:
    """Emits key, window and the sum or the given result."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        window = context.window()
        total = sum(e if isinstance(e, int) else e.n for e in elements)
        yield key, window.start, window.end, total


def call(kind: str, trigger: Any = None) -> WindowCall:
    match kind:
        case "aggregate":
            return WindowCall(Sum(), Spans(), BIGINT, trigger)
        case "reduce":
            return WindowCall(lambda a, b: (a[0], a[1] + b[1]), _ReducedSpans(), ROW, trigger)
    return WindowCall(None, Spans(), ROW, trigger)


class _ReducedSpans(Spans):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        return super().process(key, context, [e[1] for e in elements])


def subtask(kind: str, window: WindowSpec, trigger: Any = None, **spec: Any) -> Subtask:
    made = KeyedWindowSpec(window=window, keys=(0,), function="f", kind=kind, **spec)
    function = call(kind, trigger)
    return Subtask(KeyedWindowOperator(made), [EVENT], SPAN, function=lambda name: function)


def events(*rows: tuple[str, int, float]) -> Batch:
    """(user, n, seconds) rows."""
    return Batch.of(EVENT, [(u, n) for u, n, _ in rows], times=[round(s * S) for _, _, s in rows])


TUMBLE = WindowSpec(kind="tumble", size_us=10 * S)
SESSION = WindowSpec(kind="session", gap_us=5 * S)
KINDS = pytest.mark.parametrize("kind", ["aggregate", "reduce", "process"])


@KINDS
def test_tumbling(kind: str) -> None:
    task = subtask(kind, TUMBLE)
    task.process(events(("a", 1, 0), ("b", 5, 3), ("a", 2, 9.999999), ("a", 4, 10), ("a", 7, -1)))
    task.watermark(9 * S)
    assert task.rows() == [("a", -10_000, 0, 7)]
    task.watermark(10 * S - 1)
    assert task.rows()[1:] == [("a", 0, 10_000, 3), ("b", 0, 10_000, 5)]
    assert task.out[1].times.tolist() == [10 * S - 1_000] * 2
    task.finish()
    assert task.rows()[3:] == [("a", 10_000, 20_000, 4)]
    snapshot = task.operator.snapshot(1)
    assert not any(snapshot.block(name).batch.num_rows for name in snapshot.keyed)


@KINDS
@pytest.mark.parametrize(("size", "slide"), [(10, 5), (10, 4), (3, 3), (10, 10)])
def test_sliding_against_a_plain_loop(kind: str, size: int, slide: int) -> None:
    window = WindowSpec(kind="hop", size_us=size * S, slide_us=slide * S, offset_us=S)
    rows = [("ab"[i % 2], i, i * 0.7) for i in range(60)]
    expected: dict[tuple, int] = defaultdict(int)
    for user, n, second in rows:
        for k in range(-20, 60):
            start = 1 + k * slide
            if start <= second < start + size:
                expected[user, start * 1000, (start + size) * 1000] += n
    task = subtask(kind, window)
    for i in range(0, 60, 9):
        task.process(events(*rows[i : i + 9]))
        task.watermark(round(rows[i][2] * S) - 1)
    task.finish()
    got = {row[:3]: row[3] for row in task.rows()}
    assert len(got) == len(task.rows())
    assert got == expected


@KINDS
def test_sessions_merge(kind: str) -> None:
    task = subtask(kind, SESSION)
    task.process(events(("a", 1, 0), ("a", 2, 8), ("b", 9, 1), ("a", 4, 30)))
    task.process(events(("a", 8, 4)))  # joins 0…5 and 8…13
    task.watermark(13 * S - 2)
    assert task.rows() == [("b", 1_000, 6_000, 9)]
    task.watermark(13 * S - 1)
    assert task.rows()[1:] == [("a", 0, 13_000, 11)]
    task.finish()
    assert task.rows()[2:] == [("a", 30_000, 35_000, 4)]
    snapshot = task.operator.snapshot(1)
    assert not any(snapshot.block(name).batch.num_rows for name in snapshot.keyed)


@KINDS
def test_late_rows_go_to_the_side_output(kind: str) -> None:
    task = subtask(kind, TUMBLE, late_tag="late")
    task.process(events(("a", 1, 1)))
    task.watermark(15 * S)
    task.process(events(("a", 2, 2), ("a", 3, 16), ("b", 4, 9)))
    assert task.side_rows("late") == [("a", 2), ("b", 4)]
    assert task.side["late"][0].times.tolist() == [2 * S, 9 * S]
    task.finish()
    assert task.rows() == [("a", 0, 10_000, 1), ("a", 10_000, 20_000, 3)]
    dropped = subtask(kind, TUMBLE)
    dropped.watermark(15 * S)
    dropped.process(events(("a", 2, 2)))
    assert dropped.metrics.counters["numLateRecordsDropped"] == 1


@KINDS
def test_allowed_lateness_fires_again(kind: str) -> None:
    task = subtask(kind, TUMBLE, allowed_lateness_us=5 * S, late_tag="late")
    task.process(events(("a", 1, 1)))
    task.watermark(12 * S)
    task.process(events(("a", 2, 2), ("b", 7, 3)))
    assert task.rows() == [("a", 0, 10_000, 1), ("a", 0, 10_000, 3), ("b", 0, 10_000, 7)]
    task.watermark(15 * S - 1)
    task.process(events(("a", 4, 2)))
    task.finish()
    assert task.rows()[3:] == []
    assert task.side_rows("late") == [("a", 4)]


def test_count_trigger_purging() -> None:
    window = WindowSpec(kind="global")
    task = subtask("aggregate", window, PurgingTrigger.of(CountTrigger.of(2)))
    task.process(events(("a", 1, 0), ("b", 1, 0), ("a", 2, 0), ("a", 3, 0), ("a", 4, 0)))
    assert [(r[0], r[3]) for r in task.rows()] == [("a", 3), ("a", 7)]
    task.finish()
    assert len(task.rows()) == 2


def test_continuous_trigger() -> None:
    task = subtask("aggregate", TUMBLE, ContinuousEventTimeTrigger.of(4_000))
    task.process(events(("a", 1, 1), ("a", 2, 5)))
    task.watermark(4 * S)
    assert [r[3] for r in task.rows()] == [3]
    task.finish()
    assert [r[3] for r in task.rows()] == [3, 3, 3]


def test_processing_time_windows_follow_the_clock() -> None:
    task = subtask("aggregate", TUMBLE, event_time=False)
    task.now_ms = 12_000
    task.process(Batch.of(EVENT, [("a", 1), ("a", 2)]))
    assert task.wakes == [20_000] * len(task.wakes)
    task.processing_time(19_999)
    assert task.rows() == []
    task.processing_time(20_000)
    assert task.rows() == [("a", 10_000, 20_000, 3)]
    task.process(Batch.of(EVENT, [("a", 5)]))
    task.finish()
    assert task.rows()[1:] == [("a", 20_000, 30_000, 5)]


def test_window_and_global_state_and_side_output() -> None:
    early = OutputTag("early", BIGINT)

    class Stateful:
        def process(self, key: Any, context: Any, elements: Any) -> Any:
            total = context.global_state().get_state(ValueStateDescriptor("total", BIGINT))
            fired = context.window_state().get_state(ValueStateDescriptor("fired", BIGINT))
            fired.update((fired.value() or 0) + 1)
            total.update((total.value() or 0) + sum(e.n for e in elements))
            yield early, fired.value()
            yield key, total.value()

        def clear(self, context: Any) -> None:
            context.window_state().get_state(ValueStateDescriptor("fired", BIGINT)).clear()

    made = KeyedWindowSpec(
        window=TUMBLE, keys=(0,), function="f", kind="process", tags=("early",), allowed_lateness_us=S
    )
    function = WindowCall(Stateful(), None, ROW)
    task = Subtask(KeyedWindowOperator(made), [EVENT], OUT, function=lambda name: function)
    task.process(events(("a", 1, 1), ("a", 2, 11)))
    task.watermark(10 * S)
    task.process(events(("a", 4, 2)))
    task.finish()
    assert task.rows() == [("a", 1), ("a", 6), ("a", 8)]
    assert task.side_rows("early") == [(1,), (2,), (1,)]


def test_a_skipped_element_leaves_no_trace() -> None:
    class Picky(Sum):
        def add(self, value: Any, accumulator: int) -> int:
            if value.n < 0:
                raise ValueError("negative")
            return super().add(value, accumulator)

    made = KeyedWindowSpec(window=SESSION, keys=(0,), function="f", kind="aggregate", on_error="skip")
    function = WindowCall(Picky(), Spans(), BIGINT)
    task = Subtask(KeyedWindowOperator(made), [EVENT], SPAN, function=lambda name: function)
    task.process(events(("a", 1, 0), ("a", -1, 4), ("a", 2, 8)))
    task.finish()
    assert task.rows() == [("a", 0, 5_000, 1), ("a", 8_000, 13_000, 2)]
    strict = Subtask(
        KeyedWindowOperator(KeyedWindowSpec(window=SESSION, keys=(0,), function="f", kind="aggregate")),
        [EVENT], SPAN, function=lambda name: function,
    )  # fmt: skip
    with pytest.raises(FunctionError, match="negative"):
        strict.process(events(("a", -1, 0)))


def test_records_without_event_time_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="assign_timestamps"):
        subtask("aggregate", TUMBLE).process(Batch.of(EVENT, [("a", 1)]))


@pytest.mark.parametrize("backend", ["hashmap", "leveldb"])
@pytest.mark.parametrize("window", [TUMBLE, SESSION], ids=["tumble", "session"])
async def test_windows_survive_a_restore_at_another_parallelism(backend: str, window: WindowSpec) -> None:
    rows = 30_000
    batch = Batch.of(EVENT, [(f"u{i % 40}", i) for i in range(rows)], times=[i * 400 for i in range(rows)])
    builder = GraphBuilder()
    builder.functions["f"] = FunctionArtifact(data=cloudpickle.dumps(WindowCall(Sum(), Spans(), BIGINT)))
    source = builder.values(batch, watermark=WatermarkSpec())
    spec = KeyedWindowSpec(window=window, keys=(0,), function="f", kind="aggregate")
    out = builder.vertex(spec, SPAN, inputs=[(source, Hash((0,)))], parallelism=2, uid="window")
    builder.collect(out)
    graph = builder.build()
    config = {"state.backend.type": backend}
    async with JobHarness(graph, parallelism=1) as plain:
        expected = (await plain.wait()).rows
    async with JobHarness(graph, parallelism=2, config=config) as job:
        await job.until(lambda: any(m.records_out > 2_000 for m in job.metrics().values()))
        checkpoint = await job.checkpoint()
    async with JobHarness(graph, parallelism=3, config=config, restore=checkpoint, store=job.store) as again:
        result = await again.wait()
    assert sorted(result.rows) == sorted(expected)
    assert sum(r[3] for r in result.rows) == sum(range(rows))


@KINDS
def test_windows_that_fire_together_are_not_live_all_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(keyed_window, "TIMERS", 50)
    spec = KeyedWindowSpec(window=TUMBLE, keys=(0,), function="f", kind=kind)
    task = Subtask(
        KeyedWindowOperator(spec), [EVENT], SPAN, function=lambda name: call(kind), local_dir=tmp_path,
        config={"state.backend.type": "leveldb"}, memory=StateMemory(100_000),
    )  # fmt: skip
    for at in range(0, 2_000, 100):
        task.process(events(*((f"key-{i}", i, 1) for i in range(at, at + 100))))
    live = fired = 0
    states = task.operator._backend._registered.values()
    for batch in task.operator.on_watermark(10 * S):
        fired += batch.num_rows
        live = max(live, sum(len(state.table) + len(state.table.old) for state in states))
    assert fired == 2_000
    assert live < 500
    task.operator.close()


# -- triggers of windows that merge ------------------------------------------------------------


def bridged(kind: str, trigger: Any, **spec: Any) -> Subtask:
    """Elements 1 and 2 are sessions of their own until 4 joins them; 8 comes last."""
    task = subtask(kind, SESSION, trigger, **spec)
    task.process(events(("a", 1, 0), ("a", 2, 8)))
    task.process(events(("a", 4, 4), ("a", 8, 9)))
    return task


@KINDS
@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_the_count_of_merged_sessions_is_the_sum_of_theirs(kind: str, on_error: str) -> None:
    task = bridged(kind, CountTrigger.of(3), on_error=on_error)
    assert task.rows() == [("a", 0, 13_000, 7)]
    task.process(events(("a", 16, 10), ("a", 32, 11)))  # 8 counts already
    assert task.rows()[1:] == [("a", 0, 16_000, 63)]
    task.finish()
    assert len(task.rows()) == 2
    snapshot = task.operator.snapshot(1)
    assert not any(snapshot.block(name).batch.num_rows for name in snapshot.keyed)


@KINDS
def test_a_purged_session_keeps_only_what_comes_later(kind: str) -> None:
    task = bridged(kind, PurgingTrigger.of(CountTrigger.of(3)))
    assert [r[3] for r in task.rows()] == [7]
    task.process(events(("a", 16, 10), ("a", 32, 11)))
    assert [r[3] for r in task.rows()[1:]] == [8 + 16 + 32]


def test_a_purged_session_lives_on() -> None:
    """It was emptied, not closed: what comes after it merges into it."""
    task = subtask("aggregate", SESSION, PurgingTrigger.of(CountTrigger.of(2)))
    task.process(events(("a", 1, 0), ("a", 2, 1), ("a", 4, 5), ("a", 8, 9)))
    assert task.rows() == [("a", 0, 6_000, 3), ("a", 0, 14_000, 12)]


@KINDS
def test_of_merged_sessions_the_first_firing_counts(kind: str) -> None:
    task = bridged(kind, ContinuousEventTimeTrigger.of(6_000))
    task.watermark(6 * S)
    assert task.rows() == [("a", 0, 14_000, 15)]
    # What the second one would have fired by itself, at its 12 s, is the merged one's now.
    task.watermark(12 * S)
    assert len(task.rows()) == 2
    task.watermark(14 * S)
    assert task.rows() == [("a", 0, 14_000, 15)] * 3
    task.finish()
    assert len(task.rows()) == 3


def test_a_timer_of_a_session_that_is_part_of_another_does_nothing() -> None:
    fired = []

    class Every(EventTimeTrigger):
        """Leaves its timers behind."""

        def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
            ctx.register_event_time_timer(window.start + 2_000)
            return TriggerResult.CONTINUE

        def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
            fired.append((time, window))
            return TriggerResult.FIRE

        def clear(self, window: Any, ctx: Any) -> None:
            """Nothing"""

    task = bridged("aggregate", Every())
    task.watermark(11 * S)
    assert fired == [(2_000, (0, 14_000))]


def test_the_clocks_timers_of_merged_sessions() -> None:
    task = subtask("aggregate", SESSION, ContinuousProcessingTimeTrigger.of(4_000), event_time=False)
    for now_ms, number in ((12_000, 1), (15_000, 2), (17_000, 4)):
        task.processing_time(now_ms)
        task.process(Batch.of(EVENT, [("a", number)]))
    assert task.rows() == [("a", 12_000, 20_000, 3)]
    task.processing_time(20_000)
    assert task.rows()[1:] == [("a", 12_000, 22_000, 7)]
    task.processing_time(22_000)
    assert task.rows()[2:] == [("a", 12_000, 22_000, 7)]
    snapshot = task.operator.snapshot(1)
    assert not any(snapshot.block(name).batch.num_rows for name in snapshot.keyed)


@pytest.mark.parametrize("kind", ["reducing", "aggregating", "list"])
def test_a_trigger_of_ones_own_merges_its_state(kind: str) -> None:
    class Length:
        def create_accumulator(self) -> int:
            return 0

        def add(self, value: int, accumulator: int) -> int:
            return accumulator + 1

        def get_result(self, accumulator: int) -> int:
            return accumulator

        def merge(self, a: int, b: int) -> int:
            return a + b

    desc: Any = {
        "reducing": ReducingStateDescriptor("seen", lambda a, b: a + b, BIGINT),
        "aggregating": AggregatingStateDescriptor("seen", Length(), BIGINT),
        "list": ListStateDescriptor("seen", BIGINT),
    }[kind]

    class AtThree(CountTrigger):
        def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
            seen = ctx.get_partitioned_state(desc)
            seen.add(1)
            found = seen.get()
            n = len(found) if isinstance(found, list) else found
            return TriggerResult.FIRE if n == 3 else TriggerResult.CONTINUE

        def on_merge(self, window: Any, ctx: Any) -> None:
            ctx.merge_partitioned_state(desc)

        def clear(self, window: Any, ctx: Any) -> None:
            ctx.get_partitioned_state(desc).clear()

    assert [r[3] for r in bridged("aggregate", AtThree.of(3)).rows()] == [7]


def test_state_that_cannot_merge_is_refused() -> None:
    class Wrong(CountTrigger):
        def on_merge(self, window: Any, ctx: Any) -> None:
            ctx.merge_partitioned_state(ValueStateDescriptor("last", BIGINT))

    with pytest.raises(UnsupportedError, match="does not refer to a mergeable state"):
        bridged("aggregate", Wrong.of(2))


def test_the_end_of_a_global_window_is_the_end_of_time() -> None:
    task = subtask("aggregate", WindowSpec(kind="global"), ContinuousEventTimeTrigger.of(4_000))
    task.process(events(("a", 1, 1)))
    task.watermark(4 * S)
    task.finish()  # it does not repeat itself for ever
    assert [r[3] for r in task.rows()] == [1, 1, 1]
