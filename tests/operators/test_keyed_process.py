"""Process functions: state, timers, side outputs, undo, co-process, restore."""

from __future__ import annotations

import asyncio
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

from penstock.errors import FunctionError, SpecError, UnsupportedError
from penstock.jobgraph import FunctionArtifact, Hash
from penstock.jobgraph.specs import KeyedProcessSpec, WatermarkSpec
from penstock.operators.keyed_process import KeyedProcessOperator
from penstock.operators.output_tag import OutputTag
from penstock.snapshots.restoring import SnapshotChain, Source, restore
from penstock.state.descriptors import MapStateDescriptor, ValueStateDescriptor
from penstock.testing.graphs import GraphBuilder
from penstock.testing.harness import JobHarness, run_graph
from penstock.testing.memory import MemoryTable
from penstock.testing.operator_harness import Subtask
from penstock.types import Batch, Schema
from penstock.types import logical as t

BIGINT, STRING = t.BigIntType(), t.VarCharType()
EVENT = Schema.of(("user", STRING), ("n", BIGINT))
NUMBERED = Schema.of(("key", BIGINT), ("n", BIGINT))
COUNT = Schema.of(("f0", STRING), ("f1", BIGINT))


def subtask(
    function: Any, source: Schema = EVENT, output: Schema = COUNT, keys: tuple = ((0,),), **spec: Any
) -> Subtask:
    operator = KeyedProcessOperator(KeyedProcessSpec(function="f", keys=keys, **spec))
    return Subtask(operator, [source] * len(keys), output, function=lambda name: function)


class Counting:
    """Counts per key; a timer 1 s after each record emits and clears."""

    def open(self, context: Any) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", BIGINT))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 1_000)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield f"{ctx.get_current_key()}@{timestamp}", self.count.value()
        self.count.clear()


def test_state_and_event_time_timers() -> None:
    task = subtask(Counting())
    task.process(Batch.of(EVENT, [("a", 1), ("b", 1), ("a", 2)], times=[1_000_000, 1_000_000, 3_000_000]))
    task.watermark(1_999_999)
    assert task.rows() == []
    task.watermark(2_000_000)
    assert task.rows() == [("a@2000", 2), ("b@2000", 1)]
    assert task.out[0].times.tolist() == [2_000_000, 2_000_000]
    task.finish()
    assert task.rows()[2:] == [("a@4000", None)]


def test_processing_time_timers_and_deletion() -> None:
    class Clock:
        def process_element(self, value: Any, ctx: Any) -> None:
            service = ctx.timer_service()
            service.register_processing_time_timer(service.current_processing_time() + value.n)
            if value.n == 7:
                service.delete_processing_time_timer(service.current_processing_time() + 7)

        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            return [(f"{ctx.get_current_key()} {ctx.time_domain().value}", timestamp)]

    task = subtask(Clock())
    task.process(Batch.of(EVENT, [("a", 5), ("b", 3), ("c", 7)]))
    assert 3 in task.wakes
    task.processing_time(4)
    assert task.rows() == [("b processing-time", 3)]
    assert task.wakes[-1] == 5
    task.processing_time(100)
    assert task.rows()[1:] == [("a processing-time", 5)]


def test_a_large_batch_keeps_order_per_key() -> None:
    class Last:
        def open(self, context: Any) -> None:
            self.last = context.get_state(ValueStateDescriptor("last", BIGINT))

        def process_element(self, value: Any, ctx: Any) -> Any:
            yield value.key, value.n - (self.last.value() or 0)
            self.last.update(value.n)

    task = subtask(Last(), NUMBERED, Schema.of(("f0", BIGINT), ("f1", BIGINT)))
    n = 5_000
    task.process(Batch.of(NUMBERED, [(i % 7, i) for i in range(n)], times=range(n)))
    assert sorted(k for k, _ in task.rows()) == sorted(i % 7 for i in range(n))
    assert all(delta == 7 for k, delta in task.rows() if delta > 7 - 1 and delta != k)
    for batch in task.out:
        assert [x % 7 for x in batch.times.tolist()] == [k for k, _ in batch.to_pylist()]


def test_generous_outputs_come_in_pieces() -> None:
    class Many:
        def process_element(self, value: Any, ctx: Any) -> Any:
            return [(value.user, i) for i in range(9_000)]

    task = subtask(Many())
    task.process(Batch.of(EVENT, [("a", 1)] * 6, times=[1] * 6))
    assert [b.num_rows for b in task.out] == [18_000] * 3


def test_what_goes_to_a_side_output_is_taken_at_once() -> None:
    tag = OutputTag("grown", t.ArrayType(t.BigIntType()))

    class Growing:
        def process_element(self, value: Any, ctx: Any) -> Any:
            found: list[int] = []
            for n in range(2):
                found.append(n)
                yield tag, found

    task = subtask(Growing(), tags=("grown",))
    task.process(Batch.of(EVENT, [("a", 1)], times=[1]))
    assert [list(row[0]) for row in task.side_rows("grown")] == [[0], [0, 1]]


def test_side_outputs_in_both_spellings() -> None:
    odd, big = OutputTag("odd", BIGINT), OutputTag("big", t.RowType((t.Field("user", STRING),)))
    unread = OutputTag("unread", BIGINT)

    class Split:
        def process_element(self, value: Any, ctx: Any) -> Any:
            if value.n % 2:
                yield odd, value.n
            if value.n > 2:
                ctx.output(big, (value.user,))
            ctx.output(unread, 1)
            yield value.user, value.n

    task = subtask(Split(), tags=("odd", "big"))
    task.process(Batch.of(EVENT, [("a", 1), ("b", 2), ("c", 3)], times=[10, 20, 30]))
    assert task.rows() == [("a", 1), ("b", 2), ("c", 3)]
    assert task.side_rows("odd") == [(1,), (3,)]
    assert task.side_rows("big") == [("c",)]
    assert task.side["odd"][0].times.tolist() == [10, 30]
    assert "unread" not in task.side


class Fragile(Counting):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value.user, value.n
        super().process_element(value, ctx)
        if value.n < 0:
            raise ValueError("negative")


class TestErrors:
    def test_a_skipped_record_leaves_no_trace(self) -> None:
        task = subtask(Fragile(), on_error="skip")
        rows = [("a", 1), ("a", -1), ("b", -1), ("a", 2)]
        task.process(Batch.of(EVENT, rows, times=[1_000_000, 5_000_000, 6_000_000, 1_000_000]))
        assert task.rows() == [("a", 1), ("a", 2)]
        assert task.metrics.counters["numRecordsInErrors"] == 2
        task.finish()
        assert task.rows()[2:] == [("a@2000", 2)]

    def test_fail_names_operator_method_and_record(self) -> None:
        task = subtask(Fragile())
        with pytest.raises(FunctionError) as err:
            task.process(Batch.of(EVENT, [("a", 1), ("someone", -1)], times=[1, 2]))
        assert str(err.value).startswith("Traceback")
        assert "process_element() of operator 'KeyedProcessOperator'" in str(err.value)
        assert "user='so'…(7), n=-1" in str(err.value)

    def test_errors_in_a_timer_follow_the_policy(self) -> None:
        class Bomb(Counting):
            def on_timer(self, timestamp: int, ctx: Any) -> Any:
                self.count.clear()
                yield "never", 1
                raise ValueError("timer")

        task = subtask(Bomb(), on_error="skip")
        task.process(Batch.of(EVENT, [("a", 1)], times=[1_000_000]))
        task.watermark(9_000_000)
        assert task.rows() == []
        task.operator._backend.scope.key = "a"
        assert task.operator._function.object.count.value() == 1

    def test_state_and_timers_need_a_key(self) -> None:
        with pytest.raises(UnsupportedError, match="not keyed"):
            subtask(Counting(), keys=((),))

        class Timer:
            def process_element(self, value: Any, ctx: Any) -> None:
                ctx.timer_service().register_event_time_timer(1)

        with pytest.raises(UnsupportedError, match="not keyed"):
            subtask(Timer(), keys=((),)).process(Batch.of(EVENT, [("a", 1)], times=[1]))

    def test_updates_are_refused(self) -> None:
        with pytest.raises(UnsupportedError, match="updating"):
            subtask(Counting()).process(Batch.of(EVENT, [("a", 1)], kinds=[3]))


def test_reduce_emits_each_new_value() -> None:
    task = subtask(lambda a, b: (a[0], a[1] + b[1]), output=EVENT, kind="reduce")
    task.process(Batch.of(EVENT, [("a", 1), ("b", 5), ("a", 2)], times=[1, 2, 3]))
    assert task.rows() == [("a", 1), ("b", 5), ("a", 3)]


def test_hidden_key_columns_are_no_part_of_the_record() -> None:
    keyed = Schema((*EVENT.fields, t.Field("__key", BIGINT)))

    class Show:
        def process_element(self, value: Any, ctx: Any) -> Any:
            assert value._fields == ("user", "n")
            yield value.user, ctx.get_current_key()

    task = subtask(Show(), keyed, keys=((2,),), record_columns=(2,))
    task.process(Batch.of(keyed, [("a", 1, 77)]))
    assert task.rows() == [("a", 77)]


def test_a_batch_function_gets_a_keys_rows_at_once() -> None:
    class Sums:
        def open(self, context: Any) -> None:
            self.sum = context.get_state(ValueStateDescriptor("sum", BIGINT))

        def process_element(self, batch: pa.RecordBatch, ctx: Any) -> Any:
            self.sum.update((self.sum.value() or 0) + sum(batch.column("n").to_pylist()))
            yield ctx.get_current_key(), self.sum.value()

    task = subtask(Sums(), per="batch")
    task.process(Batch.of(EVENT, [("a", 1), ("b", 2), ("a", 3)], times=[1, 2, 3]))
    task.process(Batch.of(EVENT, [("a", 10)], times=[4]))
    assert task.rows() == [("a", 4), ("b", 2), ("a", 14)]


def test_two_inputs_share_the_keys_state() -> None:
    class Enrich:
        def open(self, context: Any) -> None:
            self.seen = context.get_map_state(MapStateDescriptor("seen", BIGINT, STRING))

        def process_element1(self, value: Any, ctx: Any) -> Any:
            self.seen.put(value.n, "left")

        def process_element2(self, value: Any, ctx: Any) -> Any:
            yield value.user, len(self.seen.keys())

    task = subtask(Enrich(), kind="co-process", keys=((0,), (0,)))
    task.process(Batch.of(EVENT, [("a", 1), ("a", 2), ("b", 1)]), 0)
    task.process(Batch.of(EVENT, [("a", 0), ("b", 0), ("c", 0)]), 1)
    assert task.rows() == [("a", 2), ("b", 1), ("c", 0)]


def test_broadcast_state() -> None:
    rules = MapStateDescriptor("rules", STRING, BIGINT)

    class Rules:
        def process_element(self, value: Any, ctx: Any) -> Any:
            limit = ctx.get_broadcast_state(rules).get(value.user)
            if limit is not None and value.n > limit:
                yield value.user, value.n

        def process_broadcast_element(self, value: Any, ctx: Any) -> None:
            ctx.get_broadcast_state(rules).put(value.user, value.n)

    task = subtask(Rules(), kind="broadcast-process", keys=((0,), ()))
    task.process(Batch.of(EVENT, [("a", 10)]), 1)
    task.process(Batch.of(EVENT, [("a", 11), ("a", 9), ("b", 99)]), 0)
    assert task.rows() == [("a", 11)]
    (item,) = task.operator.snapshot(1).unions["broadcast/rules"]
    assert isinstance(item, bytes)


def counting_graph(rows: int, keys: int) -> Any:
    class Numbering:
        def open(self, context: Any) -> None:
            self.count = context.get_state(ValueStateDescriptor("count", BIGINT))

        def process_element(self, value: Any, ctx: Any) -> Any:
            n = (self.count.value() or 0) + 1
            self.count.update(n)
            if n == 1:
                ctx.timer_service().register_event_time_timer(10**9)
            yield value.key, n

        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            yield ctx.get_current_key(), -self.count.value()

    builder = GraphBuilder()
    builder.functions["f"] = FunctionArtifact(data=cloudpickle.dumps(Numbering()))
    out = Schema.of(("f0", BIGINT), ("f1", BIGINT))
    batch = Batch.of(NUMBERED, [(i % keys, i) for i in range(rows)], times=range(rows))
    source = builder.values(batch, watermark=WatermarkSpec())
    spec = KeyedProcessSpec(function="f", keys=((0,),))
    process = builder.vertex(spec, out, inputs=[(source, Hash((0,)))], parallelism=2, uid="numbering")
    builder.collect(process)
    return builder.build()


@pytest.mark.parametrize("backend", ["hashmap", "leveldb"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_in_a_job(backend: str, parallelism: int) -> None:
    result = run_graph(
        counting_graph(2_000, 50), parallelism=parallelism, config={"state.backend.type": backend}
    )
    expected = [(k, n) for k in range(50) for n in range(1, 41)] + [(k, -40) for k in range(50)]
    assert sorted(result.rows) == sorted(expected)


async def keyed_rows(checkpoint: Any, store: Any) -> int:
    """Rows of keyed state in a checkpoint: the restore is one from the middle."""
    handles = [h for vertex in checkpoint.handles.values() for h in vertex]
    readers = [(await SnapshotChain.open(h, Source(store))).newest for h in handles]
    states = [s for r in readers for op in r.footer.operators for s in op.states if s.kind == "keyed"]
    return sum(block.rows for state in states for block in state.blocks)


@pytest.mark.parametrize("backend", ["hashmap", "leveldb"])
async def test_state_and_timers_survive_a_restore_at_another_parallelism(backend: str) -> None:
    config = {"state.backend.type": backend}
    graph = counting_graph(40_000, 100)
    async with JobHarness(graph, parallelism=2, config=config) as job:
        await job.until(lambda: any(m.records_out > 2_000 for m in job.metrics().values()))
        checkpoint = await job.checkpoint()
    assert await keyed_rows(checkpoint, job.store) > 0
    async with JobHarness(graph, parallelism=3, config=config, restore=checkpoint, store=job.store) as second:
        result = await second.wait()
    expected = [(k, n) for k in range(100) for n in range(1, 401)] + [(k, -400) for k in range(100)]
    assert sorted(result.rows) == sorted(expected)


class InOrder:
    """Numbers a key's rows as they come; at the end, a timer tells how many there were."""

    def open(self, context: Any) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", BIGINT))

    def process_element(self, value: Any, ctx: Any) -> Any:
        n = (self.count.value() or 0) + 1
        self.count.update(n)
        ctx.timer_service().register_event_time_timer(10**12)
        yield value.key, n, value.at

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), -self.count.value(), -1


@pytest.mark.parametrize("backend", ["hashmap", "leveldb"])
async def test_rows_that_wait_in_a_batch_job_survive_a_restore(backend: str) -> None:
    """None has been processed by the checkpoint; after it they come in the order of their times, each once."""
    rows, keys = 600, 10
    at = [i * 379 % rows for i in range(rows)]
    schema = Schema.of(("key", BIGINT), ("at", BIGINT))
    source = MemoryTable(
        "waiting",
        schema,
        [[Batch.of(schema, [(i % keys, at[i]) for i in range(rows)], times=at)]],
        batch_rows=50,
    )
    source.release(rows // 2)
    builder = GraphBuilder()
    builder.functions["f"] = FunctionArtifact(data=cloudpickle.dumps(InOrder()))
    out = Schema.of(("f0", BIGINT), ("f1", BIGINT), ("f2", BIGINT))
    # Watermarks as the planner makes them in BATCH: none before the end.
    read = builder.source(
        "memory", schema, {"name": "waiting"}, watermark=WatermarkSpec(rowtime=1, delay_us=2**61)
    )
    process = builder.vertex(
        KeyedProcessSpec(function="f", keys=((0,),)), out, inputs=[(read, Hash((0,)))], parallelism=2
    )
    builder.collect(process)
    graph = builder.build()
    config = {"state.backend.type": backend, "execution.runtime-mode": "BATCH"}
    async with JobHarness(graph, parallelism=2, config=config) as job:
        await job.until(
            lambda: any(m.records_in >= rows // 4 for m in job.metrics().values() if m.vertex_id == process)
        )
        checkpoint = await job.checkpoint()
        assert not any(m.records_out for m in job.metrics().values() if m.vertex_id == process)
    source.release()
    with pytest.raises(SpecError, match="of a job in mode BATCH"):
        async with JobHarness(
            graph,
            config=config | {"execution.runtime-mode": "STREAMING"},
            restore=checkpoint,
            store=job.store,
        ) as wrong:
            await wrong.wait()
    async with JobHarness(graph, parallelism=3, config=config, restore=checkpoint, store=job.store) as second:
        result = await second.wait()
    times = {k: sorted(at[i] for i in range(k, rows, keys)) for k in range(keys)}
    expected = [(k, n, time) for k, of in times.items() for n, time in enumerate(of, 1)]
    expected += [(k, -len(of), -1) for k, of in times.items()]
    assert sorted(result.rows) == sorted(expected)


def test_a_clock_timer_that_came_due_while_the_job_was_down_fires_at_once() -> None:
    class Late:
        def process_element(self, value: Any, ctx: Any) -> Any:
            ctx.timer_service().register_processing_time_timer(value.n)

        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            yield ctx.get_current_key(), timestamp

    first = subtask(Late())
    first.process(Batch.of(EVENT, [("a", 100), ("b", 900)]))
    handle = first.checkpoint()
    state = asyncio.run(restore([handle], "u", (0, 127), 0, 1))
    operator = KeyedProcessOperator(KeyedProcessSpec(function="f", keys=((0,),)))
    second = Subtask(operator, [EVENT], COUNT, function=lambda name: Late(), restored=state)
    assert second.wakes == [100]  # in the past by now: the task calls at its first step
    second.processing_time(500)
    assert second.rows() == [("a", 100)]
    assert second.wakes[-1] == 900
