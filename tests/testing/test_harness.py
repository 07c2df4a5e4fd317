"""The in-process harness over real tasks: results, checkpoints, restore, rescaling, ends."""

import collections

import pytest

from penstock.errors import ConnectorError
from penstock.jobgraph import Forward, Hash, Rebalance
from penstock.jobgraph.specs import SinkSpec, UnionSpec, WatermarkSpec
from penstock.messages.states import ExecutionState
from penstock.operators.operator import MAX_WATERMARK
from penstock.testing import GraphBuilder, JobHarness, MemoryTable, run_graph
from penstock.types import Batch, Schema
from penstock.types.logical import BigIntType, VarCharType

SCHEMA = Schema.of(("k", BigIntType(nullable=False)), ("t", BigIntType(nullable=False)), ("s", VarCharType()))


def rows_of(split: int, n: int) -> Batch:
    return Batch.of(SCHEMA, [(i % 7, i * 1000, f"{split}-{i}") for i in range(n)])


def table(name: str, splits: int = 3, n: int = 500, **options: object) -> MemoryTable:
    return MemoryTable(name, SCHEMA, [[rows_of(s, n)] for s in range(splits)], **options)


def exchange_graph(parallelism: int = 2, **source: object) -> GraphBuilder:
    """memory source → hash → union (pass-through) → memory sink (two-phase)."""
    b = GraphBuilder()
    src = b.source("memory", SCHEMA, {"name": "in"}, parallelism=parallelism, **source)
    keyed = b.vertex(UnionSpec(), SCHEMA, inputs=[(src, Hash(keys=(0,)))], parallelism=parallelism)
    b.sink("memory", keyed, SCHEMA, {"name": "out"})
    return b


def test_values_to_collect() -> None:
    b = GraphBuilder()
    b.collect(b.values(rows_of(0, 50)))
    result = run_graph(b.build())
    assert result.rows == rows_of(0, 50).to_pylist()
    assert [kind.short for kind, _ in result.changelog] == ["+I"] * 50


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_every_row_arrives_once_at_any_parallelism(parallelism: int) -> None:
    source, out = table("in"), MemoryTable("out", SCHEMA)
    result = run_graph(exchange_graph(parallelism).build())
    expected = [row for s in range(3) for row in rows_of(s, 500).to_pylist()]
    assert sorted(out.committed_rows()) == sorted(expected)
    assert len(source.splits) == 3
    # The two-phase sink made the job take a last checkpoint although none were periodic.
    assert len(result.checkpoints) >= 1


def test_order_holds_per_producer_and_key() -> None:
    table("in", splits=1, n=5000, batch_rows=13)
    out = MemoryTable("out", SCHEMA)
    run_graph(exchange_graph(2).build())
    seen: dict[int, list[int]] = collections.defaultdict(list)
    for k, t, _ in out.committed_rows():
        seen[k].append(t)
    assert all(times == sorted(times) for times in seen.values())


@pytest.mark.parametrize(("before", "after"), [(2, 2), (2, 1), (1, 3)])
async def test_kill_and_restore_at_another_parallelism(before: int, after: int) -> None:
    source, out = table("in", n=1000, batch_rows=50), MemoryTable("out", SCHEMA)
    source.release(400)
    graph = exchange_graph(1).build()
    async with JobHarness(graph, parallelism=before) as job:
        await job.until(lambda: total_out(job) >= 3 * 400)
        checkpoint = await job.checkpoint()
        source.release(700)
        await job.until(lambda: total_out(job) >= 3 * 700)
    assert len(out.committed_rows()) == 3 * 400
    source.release()
    async with JobHarness(graph, parallelism=after, restore=checkpoint) as job:
        result = await job.wait()
    assert result.counters["numRecordsOut"] >= 3 * 600
    expected = [row for s in range(3) for row in rows_of(s, 1000).to_pylist()]
    assert sorted(out.committed_rows()) == sorted(expected)


def total_out(job: JobHarness) -> int:
    """Rows that reached the sinks."""
    ends = [t for t in job.deployment.tasks.values() if t.chain.sinks]
    return sum(t.records_in for t in ends)


async def test_checkpoints_while_running_lose_nothing() -> None:
    source, out = table("in", n=20_000, batch_rows=64), MemoryTable("out", SCHEMA)
    source.release(0)
    async with JobHarness(exchange_graph(2).build(), checkpoint_interval_s=0.005) as job:
        for number in (1, 2, 3):
            source.release(number * 5_000)
            await job.until(lambda n=number: len(job.checkpoints) >= n)
        source.release()
        result = await job.wait()
    assert len(result.checkpoints) >= 3
    assert len(out.committed_rows()) == 60_000
    assert len(set(out.committed_rows())) == 60_000


async def test_restoring_a_finished_job_adds_nothing() -> None:
    table("in")
    out = MemoryTable("out", SCHEMA)
    graph = exchange_graph(2).build()
    async with JobHarness(graph) as job:
        result = await job.wait()
    last = result.checkpoints[-1]
    async with JobHarness(graph, restore=last) as job:
        await job.wait()
    assert len(out.committed_rows()) == 1500


@pytest.mark.parametrize("drain", [False, True])
async def test_stop_with_savepoint(drain: bool) -> None:
    source, out = table("in", bounded=False), MemoryTable("out", SCHEMA)
    source.release(300)
    graph = exchange_graph(2, watermark=WatermarkSpec(rowtime=1)).build(bounded=False)
    async with JobHarness(graph) as job:
        await job.until(lambda: total_out(job) >= 900)
        savepoint = await job.stop(drain=drain)
        watermarks = [t.output_watermark for t in job.metrics().values() if t.vertex_id == "v2"]
    assert len(out.committed_rows()) == 900
    assert all((w == MAX_WATERMARK) == drain for w in watermarks)
    source.release()
    async with JobHarness(graph, restore=savepoint) as job:
        await job.until(lambda: total_out(job) >= 600)
        await job.checkpoint()
    assert len(out.committed_rows()) == 1500


async def test_life_cycle_of_every_task() -> None:
    table("in")
    MemoryTable("out", SCHEMA)
    async with JobHarness(exchange_graph(2).build()) as job:
        await job.wait()
    E = ExecutionState
    assert all(s == [E.INITIALIZING, E.RUNNING, E.FINISHED] for s in job.states.values())


async def test_cancel_stops_an_unbounded_job() -> None:
    table("in", bounded=False)
    MemoryTable("out", SCHEMA)
    async with JobHarness(exchange_graph(2).build(bounded=False)) as job:
        await job.until(lambda: total_out(job) >= 1500)
    ends = {name: states[-1] for name, states in job.states.items()}
    assert ends.pop("v0:0") is ExecutionState.FINISHED  # the enumerator had nothing more to find
    assert set(ends.values()) == {ExecutionState.CANCELED}


def test_a_failing_sink_fails_the_job_by_name() -> None:
    b = GraphBuilder()
    v = b.values(rows_of(0, 5))
    b.vertex(
        SinkSpec(connector="memory", options={"name": "nowhere"}, schema=SCHEMA),
        SCHEMA,
        inputs=[(v, Forward())],
    )
    with pytest.raises(ConnectorError, match="no memory table 'nowhere'") as caught:
        run_graph(b.build())
    assert "Sink" in (caught.value.where or "")


def test_two_inputs_and_rebalance() -> None:
    b = GraphBuilder()
    left, right = b.values(rows_of(0, 100)), b.values(rows_of(1, 50))
    both = b.vertex(UnionSpec(), SCHEMA, inputs=[(left, Rebalance()), (right, Rebalance())], parallelism=3)
    b.collect(both)
    result = run_graph(b.build())
    assert len(result.rows) == 150
