"""Chains of snapshots in a running job: what is a delta to what, and what a restore makes
of it at another parallelism, after aborted checkpoints, and of a damaged link."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import SnapshotError
from penstock.functions.expr import AggregateCall
from penstock.jobgraph import Hash, JobGraph
from penstock.jobgraph.specs import GroupAggregateSpec
from penstock.messages.slot import StateHandle
from penstock.runtime import checkpoints
from penstock.runtime.elements import Barrier
from penstock.testing import GraphBuilder, JobHarness, MemoryTable
from penstock.testing.memory import MemoryWriter
from penstock.testing.results import Checkpoint
from penstock.types import Batch, Schema
from penstock.types.logical import BigIntType

LONG = BigIntType(nullable=False)
SCHEMA = Schema.of(("k", LONG), ("n", LONG))
SUMS = Schema.of(("k", LONG), ("count", LONG), ("sum", BigIntType()), ("kinds", LONG))
KEYS, ROWS, SPLITS = 997, 6_000, 2
AGGREGATES = (
    AggregateCall("COUNT", (), LONG),
    AggregateCall("SUM", (1,), BigIntType()),
    AggregateCall("COUNT", (1,), LONG, distinct=True),
)


@pytest.fixture(autouse=True)
def small_states_have_deltas_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "WHOLE_BYTES", 0)
    monkeypatch.setattr(checkpoints, "INLINE_BYTES", 1_500)


@pytest.fixture
def source() -> MemoryTable:
    splits = [
        [Batch.of(SCHEMA, [((i * i) % KEYS, i % 10) for i in range(s, ROWS + s)])] for s in range(SPLITS)
    ]
    return MemoryTable("in", SCHEMA, splits, batch_rows=50)


@pytest.fixture
def graph(source: MemoryTable) -> JobGraph:
    b = GraphBuilder()
    rows = b.source("memory", SCHEMA, {"name": "in"}, parallelism=2)
    spec = GroupAggregateSpec(keys=(0,), aggregates=AGGREGATES)
    sums = b.vertex(spec, SUMS, inputs=[(rows, Hash(keys=(0,)))], parallelism=2, uid="sums")
    b.collect(sums, mode="upsert", keys=(0,))
    return b.build()


def expected() -> list[tuple[int, ...]]:
    found: dict[int, list[int]] = {}
    for s in range(SPLITS):
        for i in range(s, ROWS + s):
            found.setdefault((i * i) % KEYS, []).append(i % 10)
    return sorted((k, len(v), sum(v), len(set(v))) for k, v in found.items())


async def read_to(job: JobHarness, source: MemoryTable, rows: int) -> None:
    """Everything up to row ``rows`` of each split is read and aggregated."""
    source.release(rows)
    sums = [t for t in job.deployment.tasks.values() if t.vertex.operators[0].uid == "sums"]
    await job.until(lambda: sum(t.records_in for t in sums) == SPLITS * rows)


def of_sums(job: JobHarness, checkpoint: Checkpoint) -> tuple[StateHandle, ...]:
    (vertex,) = [v for v in job.graph.vertices if v.operators[0].uid == "sums"]
    return checkpoint.handles[vertex.id]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
async def test_a_chain_restores_at_any_parallelism(
    source: MemoryTable, graph: JobGraph, parallelism: int
) -> None:
    source.release(0)
    async with JobHarness(graph) as job:
        sizes = []
        for rows in (3_000, 3_050, 3_100, 3_150):
            await read_to(job, source, rows)
            last = await job.checkpoint()
            sizes.append(max(h.size_bytes for h in of_sums(job, last)))
        assert [len(h.chain) for h in of_sums(job, last)] == [3, 3]
        assert sizes[1] < sizes[0] / 2  # 100 rows changed a tenth of the keys
        stored = {key for key, _ in await job.store.list("jobs/")}
        assert {key for h in of_sums(job, last) for key in h.keys} <= stored
    source.release()
    async with JobHarness(graph, parallelism=parallelism, restore=last, store=job.store) as again:
        assert sorted((await again.wait()).rows) == expected()
        assert again.metrics()


async def test_what_aborted_checkpoints_held_is_in_the_next(source: MemoryTable, graph: JobGraph) -> None:
    source.release(0)
    async with JobHarness(graph) as job:
        await read_to(job, source, 2_000)
        first = await job.checkpoint()
        for rows in (2_040, 2_080):
            await read_to(job, source, rows)
            await job.abort_checkpoint()
        await read_to(job, source, 2_120)
        last = await job.checkpoint()
        for handle in of_sums(job, last):
            assert [link.checkpoint_id for link in handle.chain] == [first.checkpoint_id]
    source.release()
    async with JobHarness(graph, restore=last, store=job.store) as again:
        assert sorted((await again.wait()).rows) == expected()


@pytest.mark.parametrize("mode", ["EXACTLY_ONCE", "AT_LEAST_ONCE"])
async def test_several_in_flight_build_on_the_last_one_that_is_confirmed(
    source: MemoryTable, graph: JobGraph, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    source.release(0)
    async with JobHarness(graph, config={"execution.checkpointing.mode": mode}) as job:
        tasks = job.deployment.tasks
        await read_to(job, source, 2_000)
        first = await job.checkpoint()
        acknowledged: defaultdict[int, dict[str, StateHandle]] = defaultdict(dict)
        monkeypatch.setattr(
            job,
            "acknowledged",
            lambda task, n, handle, _: acknowledged[n].update({task.descriptor.execution_id: handle}),
        )

        def made(n: int) -> Checkpoint:
            known = {**job.coordinator.final, **acknowledged[n]}
            handles = {
                v.id: tuple(known[f"{v.id}:{i}"] for i in range(v.parallelism)) for v in graph.vertices
            }
            return Checkpoint(n, graph, handles)

        async def whole(n: int) -> None:
            await job.until(lambda: len({**job.coordinator.final, **acknowledged[n]}) == len(tasks))

        def chains(n: int) -> list[list[int]]:
            return [[link.checkpoint_id for link in h.chain] for h in of_sums(job, made(n))]

        for n in (2, 3, 4):
            source.release(2_000 + 40 * n)
            for name in job.coordinator.starters():
                tasks[name].trigger_checkpoint(Barrier(n, job.environment.now_ms()))
        for n in (2, 3, 4):
            await whole(n)
            assert chains(n) == [[first.checkpoint_id]] * 2
        for task in tasks.values():
            task.checkpoint_complete(2)
            task.checkpoint_aborted(3)
            task.checkpoint_complete(4)
        for name in job.coordinator.starters():
            tasks[name].trigger_checkpoint(Barrier(5, job.environment.now_ms()))
        await whole(5)
        assert chains(5) == [[4, 1]] * 2
        restorable = [made(2), made(4), made(5)] if mode == "EXACTLY_ONCE" else []
    source.release()
    for attempt, checkpoint in enumerate(restorable, 2):
        async with JobHarness(graph, restore=checkpoint, store=job.store, attempt=attempt) as again:
            assert sorted((await again.wait()).rows) == expected()


async def test_chains_end_savepoints_are_whole_and_nothing_builds_on_them(
    source: MemoryTable, graph: JobGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "MAX_DELTAS", 3)
    source.release(0)
    async with JobHarness(graph) as job:
        await read_to(job, source, 3_000)
        lengths = []
        for step in range(1, 7):
            await read_to(job, source, 3_000 + step)
            made = await job.checkpoint("savepoint" if step == 3 else "checkpoint")
            lengths.append(max(len(h.chain) for h in of_sums(job, made)))
        # The third is the savepoint; after so many deltas the state is written whole.
        assert lengths == [0, 1, 0, 2, 3, 0]
        savepoint = job.checkpoints[2]
        last = await job.checkpoint()
        assert all(
            link.checkpoint_id != savepoint.checkpoint_id for h in of_sums(job, last) for link in h.chain
        )
    source.release()
    async with JobHarness(graph, restore=savepoint, store=job.store) as again:
        assert sorted((await again.wait()).rows) == expected()


async def test_incremental_can_be_turned_off(source: MemoryTable, graph: JobGraph) -> None:
    source.release(0)
    config = {"execution.checkpointing.incremental": "false"}
    async with JobHarness(graph, config=config) as job:
        for rows in (1_000, 1_001):
            await read_to(job, source, rows)
            last = await job.checkpoint()
        assert [h.chain for h in of_sums(job, last)] == [(), ()]


async def test_rewriting_ends_a_chain_whose_deltas_outweigh_the_whole(
    source: MemoryTable, graph: JobGraph
) -> None:
    source.release(0)
    async with JobHarness(graph) as job:
        lengths = []
        for rows in range(1_000, 5_000, 500):  # each changes nearly every key
            await read_to(job, source, rows)
            made = await job.checkpoint()
            lengths.append(len(of_sums(job, made)[0].chain))
        assert max(lengths) < 4
        assert lengths.count(0) > 1


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
@pytest.mark.parametrize("link", [0, 1, 2])
async def test_damage_of_any_link_is_found_and_named(
    source: MemoryTable, graph: JobGraph, damage: str, link: int
) -> None:
    source.release(0)
    async with JobHarness(graph) as job:
        for rows in (3_000, 3_100, 3_200):
            await read_to(job, source, rows)
            last = await job.checkpoint()
        handle = of_sums(job, last)[1]
        key = [handle.key, *(older.key for older in handle.chain)][link]
        assert key is not None
        await hurt(job.store, key, damage)
    source.release()
    async with JobHarness(graph, restore=last, store=job.store) as again:
        with pytest.raises(SnapshotError) as err:
            await again.wait()
    assert key in str(err.value)


async def hurt(store: Any, key: str, damage: str) -> None:
    data = bytearray(await store.get(key))
    await store.delete([key])
    if damage == "gone":
        return
    if damage == "flipped":
        data[30] ^= 1
    else:
        del data[len(data) // 2 :]
    await store.put(key, bytes(data))


async def test_a_cut_under_load_is_the_state_at_the_barrier(
    source: MemoryTable, graph: JobGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slices of no length: the job runs on between any two pieces, through all its rows."""
    monkeypatch.setattr(checkpoints, "SLICE_S", 0.0)
    monkeypatch.setattr("penstock.state.tables._FIRST_ROWS", 16)
    monkeypatch.setattr("penstock.state.tables._LEAST_ROWS", 1 << 30)  # never more at once
    source.release(0)
    async with JobHarness(graph) as job:
        await read_to(job, source, 2_000)
        await job.checkpoint()
        await read_to(job, source, 2_500)
        cut = asyncio.ensure_future(job.checkpoint())
        source.release()
        last = await cut
        behind = sum(t.records_in for t in job.deployment.tasks.values())
        assert behind > 2 * SPLITS * 2_500  # it went on meanwhile
    async with JobHarness(graph, restore=last, store=job.store) as again:
        assert sorted((await again.wait()).rows) == expected()


def copies_in(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*~*"))


class TestLocalRecovery:
    """Copies of the last confirmed snapshots on the task manager's disk."""

    CONFIG = {"state.backend.local-recovery": "true"}

    async def run(
        self, source: MemoryTable, graph: JobGraph, folder: Path
    ) -> tuple[Checkpoint, Any, set[str]]:
        """(the last checkpoint, the store, names of the copies)."""
        source.release(0)
        async with JobHarness(graph, config=self.CONFIG, local_state_dir=folder) as job:
            for rows in (3_000, 3_100, 3_200):
                await read_to(job, source, rows)
                last = await job.checkpoint()
            keys = {key for h in of_sums(job, last) for key in h.keys}
        source.release()
        copies = {path.name for path in copies_in(folder)}
        assert {key.replace("/", "~") for key in keys} <= copies
        return last, job.store, keys

    async def test_a_restart_reads_them_and_not_the_store(
        self, source: MemoryTable, graph: JobGraph, tmp_path: Path
    ) -> None:
        last, store, keys = await self.run(source, graph, tmp_path)
        await store.delete(sorted(keys))
        async with JobHarness(
            graph, restore=last, store=store, config=self.CONFIG, local_state_dir=tmp_path
        ) as job:
            result = await job.wait()
        assert sorted(result.rows) == expected()
        restored = [m for m in result.metrics.values() if m.restored_local_bytes]
        assert len(restored) >= 2
        assert all(m.restored_bytes >= m.restore_bytes > 0 for m in restored)

    @pytest.mark.parametrize("damage", ["footer", "block"])
    async def test_a_damaged_copy_gives_way_to_the_store(
        self, source: MemoryTable, graph: JobGraph, tmp_path: Path, damage: str, caplog: Any
    ) -> None:
        last, store, _ = await self.run(source, graph, tmp_path)
        for path in copies_in(tmp_path):
            data = bytearray(path.read_bytes())
            data[-40 if damage == "footer" else 60] ^= 1
            path.write_bytes(data)
        async with JobHarness(
            graph, restore=last, store=store, config=self.CONFIG, local_state_dir=tmp_path
        ) as job:
            assert sorted((await job.wait()).rows) == expected()
        assert "local_copy_damaged" in caplog.text

    async def test_copies_that_nobody_will_ask_for_are_removed(
        self, source: MemoryTable, graph: JobGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(checkpoints, "MAX_DELTAS", 1)
        source.release(0)
        async with JobHarness(graph, config=self.CONFIG, local_state_dir=tmp_path) as job:
            for rows in range(1_000, 1_600, 100):
                await read_to(job, source, rows)
                last = await job.checkpoint()
            found = {path.name for path in copies_in(tmp_path) if path.parent.name.startswith("v2-")}
        kept = {key.replace("/", "~") for h in of_sums(job, last) for key in h.keys}
        assert kept <= found
        assert len(found) <= 2 * 3  # a subtask's last chain of two, and the one before it


async def test_state_on_disk_is_in_every_checkpoint(
    source: MemoryTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job whose aggregation holds little of its state in memory: chains, and a restore."""
    monkeypatch.setattr("penstock.state.memory.HARD", 100)  # so small a state comes in lumps
    b = GraphBuilder()
    rows = b.source("memory", SCHEMA, {"name": "in"}, parallelism=2)
    spec = GroupAggregateSpec(keys=(0,), aggregates=AGGREGATES[:2])
    sums = b.vertex(
        spec, Schema(SUMS.fields[:3]), inputs=[(rows, Hash(keys=(0,)))], parallelism=2, uid="sums"
    )
    b.collect(sums, mode="upsert", keys=(0,))
    graph = b.build()
    config = {"state.backend.memory.per-slot": "24kb"}
    source.release(0)
    async with JobHarness(graph, config=config) as job:
        for rows_read in (3_000, 3_050, 3_100):
            await read_to(job, source, rows_read)
            last = await job.checkpoint()
        on_disk = sum(
            operator.gauges.get("numKeysOnDisk") or 0
            for task in job.metrics().values()
            for operator in task.operators
        )
        assert on_disk > 100
        assert any(h.chain for h in of_sums(job, last))
    source.release()
    async with JobHarness(graph, restore=last, store=job.store, parallelism=1, config=config) as again:
        assert sorted((await again.wait()).rows) == [row[:3] for row in expected()]


async def test_what_a_checkpoint_would_have_written_goes_with_its_task(
    source: MemoryTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The barrier was taken, and the task is cancelled before anything is written."""
    b = GraphBuilder()
    rows = b.source("memory", SCHEMA, {"name": "in"}, parallelism=1)
    out = MemoryTable("out", SCHEMA)
    b.sink("memory", rows, SCHEMA, {"name": "out"})
    source.release(100)
    cancelled: list[asyncio.Task[Any]] = []
    begin = MemoryWriter.begin_checkpoint

    def cancel_writes() -> None:
        for task in asyncio.all_tasks():
            if "TaskCheckpoints._write" in repr(task.get_coro()) and task not in cancelled:
                cancelled.append(task)
                task.cancel()

    def begin_and_cancel(writer: MemoryWriter, checkpoint_id: int) -> Any:
        asyncio.get_running_loop().call_soon(cancel_writes)  # before the first step of the write
        return begin(writer, checkpoint_id)

    monkeypatch.setattr(MemoryWriter, "begin_checkpoint", begin_and_cancel)
    gc.collect()  # what other tests left unawaited is not meant
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        job = JobHarness(b.build())
        await job.start()
        await job.until(job.coordinator.all_running)
        job.coordinator.trigger("checkpoint")
        await job.until(lambda: cancelled and cancelled[-1].done())
        await job.close()
        cancelled.clear()
        gc.collect()
    assert not job.checkpoints
    assert [str(w.message) for w in said if "never awaited" in str(w.message)] == []
    assert not out.committed
