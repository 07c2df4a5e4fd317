"""Tasks through the harness: errors, side outputs, slices, time, watermarks, bad records."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest

from penstock.errors import FunctionError, PenstockError
from penstock.jobgraph import Forward, FunctionArtifact, Hash
from penstock.jobgraph.specs import (
    AssignWatermarksSpec,
    PythonSpec,
    SinkSpec,
    UnionSpec,
    WatermarkSpec,
)
from penstock.operators import factory
from penstock.operators.operator import MAX_WATERMARK, Operator, OperatorContext, Output, SideBatch
from penstock.snapshots.contract import OperatorSnapshot, RestoredState
from penstock.testing import GraphBuilder, JobHarness, ManualClock, MemoryTable, run_graph
from penstock.types import Batch, Schema
from penstock.types.logical import BigIntType, VarCharType

SCHEMA = Schema.of(("k", BigIntType(nullable=False)), ("t", BigIntType(nullable=False)))


def rows(n: int, start: int = 0) -> Batch:
    return Batch.of(SCHEMA, [(i % 5, i) for i in range(start, start + n)])


class Probe(Operator):
    """Stands for ``UnionSpec`` in a test: records what the task tells it."""

    calls: list[tuple[str, Any]]
    side = False
    sleep_s = 0.0
    late: int

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        self.watermark = -(2**63)
        self.rows = 0
        if restored is not None:
            self.rows = sum(int(x) for x in restored.lists.get("rows", []))
        type(self).calls.append(("open", restored is not None))

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        type(self).calls.append(("rows", batch.num_rows))
        time.sleep(self.sleep_s * batch.num_rows)
        times = batch.columns[1].values
        type(self).late += int((times <= self.watermark).sum())
        self.rows += batch.num_rows
        if self.side:
            odd = times % 2 == 1
            yield batch.filter(~odd)
            yield SideBatch("odd", batch.filter(odd))
        else:
            yield batch

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        self.watermark = watermark
        type(self).calls.append(("watermark", watermark))
        return iter(())

    def finish(self) -> Iterator[Output]:
        type(self).calls.append(("finish", self.rows))
        yield rows(1, 1000)

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return OperatorSnapshot(lists={"rows": [str(self.rows).encode()]})

    def close(self) -> None:
        type(self).calls.append(("close", None))


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> type[Probe]:
    class ThisProbe(Probe):
        calls: list[tuple[str, Any]] = []
        late = 0

        def __init__(self, spec: Any) -> None: ...

    real = factory.operator_factory
    monkeypatch.setattr(
        factory, "operator_factory", lambda t: ThisProbe if t in (UnionSpec, PythonSpec) else real(t)
    )
    return ThisProbe


def names(probe: type[Probe]) -> list[str]:
    return [name for name, _ in probe.calls]


def test_order_of_calls_and_output_of_finish(probe: type[Probe]) -> None:
    b = GraphBuilder()
    v = b.values(rows(10), watermark=WatermarkSpec(rowtime=1))
    b.chain(v, UnionSpec(), SCHEMA)
    b.collect(v)
    result = run_graph(b.build())
    assert names(probe) == ["open", "rows", "watermark", "watermark", "finish", "close"]
    assert [v for n, v in probe.calls if n == "watermark"] == [8, MAX_WATERMARK]
    assert result.rows[-1] == (0, 1000)
    assert len(result.rows) == 11


def test_side_outputs_go_their_own_way(probe: type[Probe]) -> None:
    probe.side = True
    odd = MemoryTable("odd", SCHEMA)
    b = GraphBuilder()
    v = b.values(rows(10))
    p = b.vertex(UnionSpec(), SCHEMA, inputs=[(v, Forward())], side_outputs={"odd": SCHEMA})
    b.collect(p)
    b.vertex(
        SinkSpec(connector="memory", options={"name": "odd"}, schema=SCHEMA),
        SCHEMA,
        inputs=[(p, Forward())],
        tags=["odd"],
    )
    result = run_graph(b.build())
    assert [t for _, t in result.rows] == [0, 2, 4, 6, 8, 1000]
    assert [t for _, t in odd.committed_rows()] == [1, 3, 5, 7, 9]


def test_slow_operators_get_small_slices(probe: type[Probe]) -> None:
    probe.sleep_s = 0.0005  # 10 rows a step
    b = GraphBuilder()
    v = b.values(rows(3000))
    b.collect(b.vertex(PythonSpec(kind="map", function="f"), SCHEMA, inputs=[(v, Forward())]))
    result = run_graph(b.build())
    sizes = [n for name, n in probe.calls if name == "rows"]
    assert sum(sizes) == 3000
    assert sizes[-1] < 200 < sizes[0]
    assert len(result.rows) == 3001
    busy = [t for t in result.metrics.values() if t.vertex_id == "v1"]
    assert busy[0].busy_ms_per_second > 500


async def test_what_was_late_is_late_after_a_restore(probe: type[Probe]) -> None:
    """Rows behind the restored watermark must not become on time again."""
    late_rows = Batch.of(SCHEMA, [(0, 5)] * 3)
    table = MemoryTable("in", SCHEMA, [[rows(1000), late_rows]], batch_rows=100)
    table.release(1000)
    b = GraphBuilder()
    source = b.source("memory", SCHEMA, {"name": "in"}, watermark=WatermarkSpec(rowtime=1, interval_ms=1))
    b.collect(b.vertex(UnionSpec(), SCHEMA, inputs=[(source, Hash(keys=(0,)))], parallelism=2))
    graph = b.build()
    async with JobHarness(graph) as job:
        await job.until(lambda: probe.calls.count(("watermark", 998)) == 2)
        checkpoint = await job.checkpoint()
    assert probe.late == 0
    table.release()
    async with JobHarness(graph, restore=checkpoint) as job:
        await job.wait()
    assert probe.late == 3


def test_the_users_traceback_comes_first() -> None:
    def explode(row: Any) -> Any:
        raise ValueError("the user's own words")

    b = GraphBuilder()
    v = b.values(rows(3))
    b.functions["f"] = FunctionArtifact(data=cloudpickle.dumps(explode))
    b.chain(v, PythonSpec(kind="map", function="f"), SCHEMA)
    b.collect(v)
    with pytest.raises(FunctionError) as caught:
        run_graph(b.build())
    text = str(caught.value)
    assert text.startswith("Traceback")
    assert "explode" in text
    assert text.index("the user's own words") < text.index("PS-FUNCTION")


def test_a_function_that_cannot_be_loaded_is_named() -> None:
    b = GraphBuilder()
    v = b.values(rows(3))
    b.functions["f"] = FunctionArtifact(module="no_such_module_here", qualname="f")
    b.chain(v, PythonSpec(kind="map", function="f"), SCHEMA)
    b.collect(v)
    with pytest.raises(PenstockError, match="function 'f' cannot be loaded"):
        run_graph(b.build())


async def test_dead_letters_are_kept_in_the_store() -> None:
    def even(row: Any) -> Any:
        if row[1] % 2:
            raise ValueError(f"odd: {row[1]}")
        return row

    b = GraphBuilder()
    v = b.values(rows(10))
    b.functions["f"] = FunctionArtifact(data=cloudpickle.dumps(even))
    b.chain(v, PythonSpec(kind="map", function="f", on_error="dead-letter"), SCHEMA)
    b.collect(v)
    async with JobHarness(b.build()) as job:
        result = await job.wait()
        found = await job.store.list("jobs/test-job/dead-letters/")
        letters = [json.loads(line) for key, _ in found for line in (await job.store.get(key)).splitlines()]
    assert len(result.rows) == 5
    assert result.counters["numRecordsInErrors"] == 5
    assert len(letters) == 5
    assert "odd: 1" in letters[0]["error"]


async def test_watermarks_in_mid_plan() -> None:
    table = MemoryTable("in", SCHEMA, [[rows(100)]], bounded=False)
    b = GraphBuilder()
    source = b.source("memory", SCHEMA, {"name": "in"})
    spec = AssignWatermarksSpec(watermark=WatermarkSpec(rowtime=1, delay_us=10, interval_ms=2))
    b.chain(source, spec, SCHEMA)
    b.collect(b.vertex(UnionSpec(), SCHEMA, inputs=[(source, Forward())]))
    async with JobHarness(b.build(bounded=False)) as job:
        await job.until(lambda: job.metrics()["v2:0"].input_watermark == 99 - 10 - 1)
    assert table.splits


async def test_an_idle_split_does_not_hold_the_watermark() -> None:
    """Split 1 has nothing: once its reader has caught up for the timeout, time goes on."""
    table = MemoryTable("in", SCHEMA, [[rows(100)], []], bounded=False)
    b = GraphBuilder()
    watermark = WatermarkSpec(rowtime=1, interval_ms=1, idle_timeout_ms=30)
    source = b.source("memory", SCHEMA, {"name": "in"}, parallelism=2, watermark=watermark)
    b.collect(b.vertex(UnionSpec(), SCHEMA, inputs=[(source, Hash(keys=(0,)))]))
    async with JobHarness(b.build(bounded=False)) as job:
        await job.until(lambda: job.metrics()["v2:0"].input_watermark == 98)
    assert table.splits


async def test_back_pressure_is_seen_and_bounded(probe: type[Probe]) -> None:
    probe.sleep_s = 0.00002
    wide = Schema.of(
        ("k", BigIntType(nullable=False)), ("t", BigIntType(nullable=False)), ("s", VarCharType())
    )
    batch = Batch.of(wide, [(i, i, "x" * 500) for i in range(20_000)])
    MemoryTable("in", wide, [[batch]], batch_rows=1000)
    b = GraphBuilder()
    source = b.source("memory", wide, {"name": "in"})
    b.collect(b.vertex(UnionSpec(), wide, inputs=[(source, Forward())]))
    most = 0
    async with JobHarness(b.build(), credit_pool_bytes=0) as job:

        def look() -> bool:
            nonlocal most
            most = max([most, *(t.gates.queued_bytes() for t in job.deployment.tasks.values())])
            return job._ended.done()

        await job.until(look)
        result = await job.result()
        source_task = job.deployment.tasks["v1:0"]
    assert most < 4 * 1024 * 1024  # of 10 MB
    # The slow one sleeps for 0.24 s while it takes what has no room.
    assert source_task.clock.seconds["back-pressured"] > 0.2
    assert result.metrics["v1:0"].back_pressured_ms_per_second > 0


async def test_processing_time_timers_on_a_manual_clock(probe: type[Probe]) -> None:
    class Ticking(probe):  # type: ignore[misc, valid-type]
        def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
            super().open(ctx, restored)
            ctx.wake_at(ctx.now_ms() + 60_000)

        def on_processing_time(self, now_ms: int) -> Iterator[Output]:
            probe.calls.append(("tick", now_ms))
            self.ctx.wake_at(now_ms + 60_000)
            yield rows(1, 77)

    real = factory.operator_factory
    factory.operator_factory = lambda t: Ticking if t is UnionSpec else real(t)
    MemoryTable("in", SCHEMA, [[]], bounded=False)
    b = GraphBuilder()
    source = b.source("memory", SCHEMA, {"name": "in"})
    b.chain(source, UnionSpec(), SCHEMA)
    b.collect(source)
    try:
        async with JobHarness(b.build(bounded=False), clock=ManualClock(1_000_000)) as job:
            await job.until(lambda: ("open", False) in probe.calls)
            job.advance(59_999)
            await job.checkpoint()
            assert "tick" not in names(probe)
            job.advance(1)
            await job.until(lambda: ("tick", 1_060_000) in probe.calls)
            job.advance(60_000)
            await job.until(lambda: ("tick", 1_120_000) in probe.calls)
            await job.until(lambda: job.metrics()["v2:0"].records_in == 2)
    finally:
        factory.operator_factory = real


def test_partials_leave_before_their_input_is_called_idle() -> None:
    """An idle input is not waited for behind the exchange: what a local phase still held
    would come too late there."""
    from penstock.operators.operator import Operator

    log: list[str] = []

    class Holding(Operator):
        held = 0

        def __init__(self, spec: object) -> None: ...

        def process(self, input_index: int, batch: Batch):
            self.held += batch.num_rows
            log.append("rows")
            return iter(())

        def on_idle(self):
            log.append(f"idle with {self.held}")
            yield Batch.of(SCHEMA, [(1, 1)])

    chain = _chain_of(Holding)
    node = chain.nodes[0]
    list(chain.process(0, rows(3)))
    list(chain.status(0, True))
    assert log == ["rows", "idle with 3"]
    assert node.metrics.counters["numRecordsOut"] == 1


def _chain_of(operator: type):
    from penstock.jobgraph import ChainInput, JobVertex, OperatorNode
    from penstock.runtime.chain import Chain

    node = OperatorNode(uid="u", name="n", spec=UnionSpec(), inputs=((ChainInput(gate=0),),), output=SCHEMA)
    vertex = JobVertex(id="v", name="v", operators=(node,), parallelism=1, max_parallelism=128)
    return Chain(vertex, [], make=operator)
