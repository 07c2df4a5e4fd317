"""Unaligned checkpoints: barriers overtake, rows in flight are saved and replayed."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.connectors.filesystem.sink import FileSink
from penstock.errors import SnapshotError
from penstock.jobgraph import Broadcast, Forward, Global, Hash, Rebalance
from penstock.jobgraph.specs import UnionSpec
from penstock.operators import factory
from penstock.operators.operator import Operator, Output
from penstock.runtime.elements import IDLE, Watermark
from penstock.runtime.in_flight import (
    GateEdge,
    decode_in_flight,
    encode_in_flight,
    gate_edges,
)
from penstock.runtime.recording import ChannelContent
from penstock.snapshots.contract import OperatorSnapshot
from penstock.testing import GraphBuilder, JobHarness, MemoryTable
from penstock.testing.results import Checkpoint
from penstock.types import Batch, Schema
from penstock.types.logical import BigIntType

SCHEMA = Schema.of(("k", BigIntType(nullable=False)), ("n", BigIntType(nullable=False)))
SPLITS, ROWS = 2, 30_000
UNALIGNED = {"execution.checkpointing.unaligned.enabled": "true"}

# A killed task leaves the second half of a snapshot unawaited, as it should.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine '.*' was never awaited:RuntimeWarning")


class Slow(Operator):
    """Stands for ``UnionSpec``: counts its rows, and takes its time over each."""

    sleep_s = 0.0
    seen = 0
    #: What had been seen when the last of them took its snapshot.
    seen_at_snapshot = 0

    def __init__(self, spec: Any) -> None:
        self.rows = 0

    def open(self, ctx: Any, restored: Any) -> None:
        super().open(ctx, restored)
        if restored is not None:
            self.rows = sum(int(x) for x in restored.lists.get("rows", []))

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        time.sleep(type(self).sleep_s * batch.num_rows)
        self.rows += batch.num_rows
        type(self).seen += batch.num_rows
        yield batch

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        type(self).seen_at_snapshot = type(self).seen
        return OperatorSnapshot(lists={"rows": [str(self.rows).encode()]})


@pytest.fixture(autouse=True)
def slow(monkeypatch: pytest.MonkeyPatch) -> type[Slow]:
    class ThisSlow(Slow): ...

    real = factory.operator_factory
    monkeypatch.setattr(factory, "operator_factory", lambda t: ThisSlow if t is UnionSpec else real(t))
    monkeypatch.setattr(FileSink, "_discard", lambda self: None)
    return ThisSlow


@pytest.fixture
def source() -> MemoryTable:
    splits = [[Batch.of(SCHEMA, [(i % 97, s * ROWS + i) for i in range(ROWS)])] for s in range(SPLITS)]
    table = MemoryTable("in", SCHEMA, splits, batch_rows=500)
    table.release()
    return table


def graph_to(folder: Path):
    """Two exchanges, the second behind the slow operator and before the sink."""
    b = GraphBuilder()
    rows = b.source("memory", SCHEMA, {"name": "in"}, parallelism=2)
    first = b.vertex(UnionSpec(), SCHEMA, inputs=[(rows, Rebalance())], parallelism=2)
    second = b.vertex(UnionSpec(), SCHEMA, inputs=[(first, Hash(keys=(0,)))], parallelism=2)
    b.sink("filesystem", second, SCHEMA, {"path": str(folder), "format": "json"})
    return b.build()


def lost_and_doubled(folder: Path) -> tuple[list[int], list[int]]:
    got = Counter(
        json.loads(line)["n"] for path in folder.glob("part-*") for line in path.read_text().splitlines()
    )
    want = Counter(range(SPLITS * ROWS))
    return sorted((want - got).elements())[:5], sorted((got - want).elements())[:5]


def queued(job: JobHarness) -> int:
    return sum(t.gates.queued_bytes() for t in job.deployment.tasks.values())


async def checkpointed_under_pressure(slow: type[Slow], graph: Any, config: dict[str, str]):
    """(rows handled between the trigger and the last barrier, the checkpoint, the store); killed after."""
    slow.sleep_s = 20e-6
    async with JobHarness(graph, attempt=1, config=config) as job:
        await job.until(lambda: queued(job) > 600_000)
        before = slow.seen
        checkpoint = await job.checkpoint()
        took = slow.seen_at_snapshot - before
    slow.sleep_s = 0.0
    return took, checkpoint, job.store


async def test_an_unaligned_checkpoint_waits_for_no_queue(slow, source, tmp_path) -> None:
    graph = graph_to(tmp_path)
    aligned, first, _ = await checkpointed_under_pressure(slow, graph, {})
    assert {m.unaligned for m in first.metrics.values()} == {False}
    unaligned, second, _ = await checkpointed_under_pressure(slow, graph, UNALIGNED)
    in_flight = sum(m.in_flight_bytes for m in second.metrics.values())
    assert in_flight > 400_000
    assert in_flight == sum(h.in_flight_bytes for hs in second.handles.values() for h in hs)
    assert any(m.unaligned for m in second.metrics.values())
    assert unaligned * 5 < aligned, (unaligned, aligned)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
async def test_rows_in_flight_come_once_after_a_restore(slow, source, tmp_path, parallelism) -> None:
    graph = graph_to(tmp_path)
    _, checkpoint, store = await checkpointed_under_pressure(slow, graph, UNALIGNED)
    assert sum(m.in_flight_bytes for m in checkpoint.metrics.values()) > 400_000
    async with JobHarness(
        graph, parallelism=parallelism, attempt=2, restore=checkpoint, store=store, config=UNALIGNED
    ) as job:
        await job.wait()
    assert lost_and_doubled(tmp_path) == ([], [])


async def test_a_timeout_makes_an_aligned_checkpoint_unaligned(slow, source, tmp_path) -> None:
    config = {**UNALIGNED, "execution.checkpointing.aligned-checkpoint-timeout": "50 ms"}
    graph = graph_to(tmp_path)
    _, checkpoint, store = await checkpointed_under_pressure(slow, graph, config)
    assert any(m.unaligned for m in checkpoint.metrics.values())
    async with JobHarness(graph, attempt=2, restore=checkpoint, store=store, config=config) as job:
        await job.wait()
        # Nothing keeps anybody now: all are aligned in time.
    assert lost_and_doubled(tmp_path) == ([], [])


async def test_savepoints_are_aligned(slow, source, tmp_path) -> None:
    slow.sleep_s = 5e-6
    async with JobHarness(graph_to(tmp_path), attempt=1, config=UNALIGNED) as job:
        await job.until(lambda: queued(job) > 100_000)
        savepoint = await job.checkpoint("savepoint")
    assert not any(h.in_flight_bytes for hs in savepoint.handles.values() for h in hs)
    assert not any(m.unaligned for m in savepoint.metrics.values())


async def test_at_least_once_blocks_no_channel(slow, source, tmp_path) -> None:
    slow.sleep_s = 5e-6
    config = {"execution.checkpointing.mode": "AT_LEAST_ONCE", **UNALIGNED}
    async with JobHarness(graph_to(tmp_path), attempt=1, config=config) as job:
        await job.until(lambda: queued(job) > 100_000)
        checkpointing = asyncio.ensure_future(job.checkpoint())
        channels = [c for t in job.deployment.tasks.values() for gate in t.gates.channels for c in gate]
        blocked = []
        while not checkpointing.done():
            blocked.append(any(channel.aligned for channel in channels))
            await asyncio.sleep(0)
        checkpoint = checkpointing.result()
    assert blocked
    assert not any(blocked)
    assert not any(m.unaligned for m in checkpoint.metrics.values())


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(i, marks=pytest.mark.soak) for i in range(3, 6))])
async def test_killed_again_and_again(slow, source, tmp_path, seed) -> None:
    random_ = random.Random(seed)
    slow.sleep_s = 20e-6
    graph = graph_to(tmp_path)
    patience = random_.choice(["0 ms", "0 ms", "3 ms"])
    config = {**UNALIGNED, "execution.checkpointing.aligned-checkpoint-timeout": patience}
    restore: Checkpoint | None = None
    store, overtaken = None, 0
    for attempt in range(1, 9):
        last = attempt == 8
        async with JobHarness(
            graph,
            parallelism=random_.choice([1, 2, 3]),
            attempt=attempt,
            restore=restore,
            store=store,
            config=config,
            checkpoint_interval_s=random_.choice([0.001, 0.02]),
        ) as job:
            store = job.store
            if last:
                slow.sleep_s = 0.0
                await job.wait()
                break
            enough = random_.randint(1_000, 8_000)
            before = slow.seen
            wanted = len(job.checkpoints) + random_.choice([0, 1, 1])
            while not job._ended.done() and (slow.seen - before < enough or len(job.checkpoints) < wanted):  # noqa: ASYNC110
                await asyncio.sleep(0)
            if job._ended.done():
                job._ended.result()
                break
            overtaken += sum(m.in_flight_bytes for c in job.checkpoints for m in c.metrics.values())
            restore = job.checkpoints[-1] if job.checkpoints else restore
    assert lost_and_doubled(tmp_path) == ([], [])
    assert overtaken or patience != "0 ms"


# -- items -----------------------------------------------------------------------------------


def keyed_vertex(parallelism: int, partitioning: Any):
    b = GraphBuilder()
    v = b.vertex(UnionSpec(), SCHEMA)
    b.vertex(UnionSpec(), SCHEMA, inputs=[(v, partitioning)], parallelism=parallelism, uid="target")
    graph = b.build()
    return gate_edges(graph, graph.vertices[1]), graph.vertices[1]


def rows_of(contents: list[ChannelContent]) -> list[tuple[int, int]]:
    return [row for c in contents for e in c.elements if isinstance(e, Batch) for row in e.to_pylist()]


CONTENT = ChannelContent(
    0,
    watermark=5,
    idle=True,
    elements=[
        Batch.of(SCHEMA, [(1, 1)]),
        Batch.of(SCHEMA, [(2, 2)]),
        Watermark(7),
        IDLE,
        Batch.of(SCHEMA, [(3, 3), (1, 4)]),
    ],
)


def test_items_keep_order_watermarks_and_idleness() -> None:
    edges, vertex = keyed_vertex(1, Hash(keys=(0,)))
    [back] = decode_in_flight(encode_in_flight([CONTENT], edges, 0), edges, vertex, 0)
    assert (back.gate, back.watermark, back.idle) == (0, 5, True)
    shown = [e.to_pylist() if isinstance(e, Batch) else e for e in back.elements]
    assert shown == [[(1, 1), (2, 2)], Watermark(7), IDLE, [(3, 3), (1, 4)]]


def test_nothing_in_flight_makes_no_items() -> None:
    edges, _ = keyed_vertex(1, Hash(keys=(0,)))
    assert encode_in_flight([ChannelContent(0, watermark=3)], edges, 0) == []


@pytest.mark.parametrize("partitioning", [Hash(keys=(0,)), Rebalance()])
@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_every_row_belongs_to_one_subtask(partitioning, parallelism) -> None:
    edges, vertex = keyed_vertex(parallelism, partitioning)
    contents = [
        ChannelContent(0, elements=[Batch.of(SCHEMA, [(k, 100 * s + k) for k in range(50)])])
        for s in range(3)
    ]
    items = [item for s, c in enumerate(contents) for item in encode_in_flight([c], edges, s)]
    got = [rows_of(decode_in_flight(items, edges, vertex, j)) for j in range(parallelism)]
    assert sorted(row for rows in got for row in rows) == sorted(rows_of(contents))


def test_edges_that_are_overtaken() -> None:
    overtakable = {
        type(p).__name__: GateEdge("", "", p, SCHEMA).overtakable
        for p in (Hash(keys=(0,)), Rebalance(), Global(), Forward(), Broadcast())
    }
    assert overtakable == {
        "Hash": True,
        "Rebalance": True,
        "Global": True,
        "Forward": False,
        "Broadcast": False,
    }


def test_rows_that_fit_nowhere_are_refused() -> None:
    edges, vertex = keyed_vertex(1, Hash(keys=(0,)))
    items = encode_in_flight([CONTENT], edges, 0)
    other = Schema.of(("k", BigIntType(nullable=False)))
    changed = [GateEdge(edges[0].key, "target", edges[0].partitioning, other)]
    with pytest.raises(SnapshotError, match="do not fit") as err:
        decode_in_flight(items, changed, vertex, 0)
    assert "savepoint" in str(err.value)
    with pytest.raises(SnapshotError, match="do not fit"):
        decode_in_flight(items, [GateEdge("x", "target", edges[0].partitioning, SCHEMA)], vertex, 0)
