"""State as frames and frames as state, against the streaming runtime."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.api import KeyedProcessFunction, Sink, StreamExecutionEnvironment, Types
from penstock.errors import SpecError, UnsupportedError
from penstock.messages.slot import StateHandle
from penstock.snapshots.contract import OperatorSnapshot
from penstock.snapshots.manifest import (
    CheckpointManifest,
    VertexState,
    encode_manifest,
    key_groups_of,
    read_manifest,
)
from penstock.snapshots.writing import write_snapshot
from penstock.spark import StateFrame, read_savepoint, write_savepoint
from penstock.state.backends import make_backend
from penstock.state.blocks import KeyLayout
from penstock.state.descriptors import MapStateDescriptor, ValueStateDescriptor
from penstock.store.open import open_store
from penstock.testing import JobHarness

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


class Totals(KeyedProcessFunction):
    """Sum and seen values of a key; says both with every record."""

    def open(self, context: Any) -> None:
        self.total = context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self.seen = context.get_map_state(MapStateDescriptor("seen", Types.LONG(), Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.total.update((self.total.value() or 0) + value[1])
        self.seen.put(value[1], (self.seen.get(value[1]) or 0) + 1)
        ctx.timer_service().register_event_time_timer(10_000)
        yield value[0], self.total.value()


def graph(rows: list[tuple[str, int]]) -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    stream = env.from_collection(rows, PAIR).key_by(0).process(Totals(), PAIR).uid("totals")
    stream.sink_to(Sink.connector("collect")).set_parallelism(1)
    return env.job_graph("totals")


async def saved(job_graph: Any, folder: Path) -> None:
    """Run to the end and keep its last checkpoint as a savepoint in a folder."""
    async with JobHarness(job_graph) as job:
        await job.wait()
        checkpoint = await job.checkpoint() if not job.checkpoints else job.checkpoints[-1]
        store = open_store(f"file://{folder}")
        vertices = tuple(
            VertexState(
                vertex_id=v.id, name=v.name, uids=tuple(n.uid for n in v.operators), parallelism=v.parallelism,
                max_parallelism=v.max_parallelism, handles=checkpoint.handles[v.id],
            )
            for v in checkpoint.graph.vertices
        )  # fmt: skip
        for vertex in vertices:
            for handle in vertex.handles:
                for key in handle.keys:
                    await store.put(key, await job.store.get(key))
        manifest = CheckpointManifest(
            job_id="j", job_name="totals", checkpoint_id=checkpoint.checkpoint_id, kind="savepoint", timestamp_ms=0,
            job_attempt=1, epoch=1, vertices=vertices,
        )  # fmt: skip
        await store.put("manifest", encode_manifest(manifest))


ROWS = [("a", 1), ("b", 2), ("a", 1), ("c", 5), ("a", 4)]


def test_state_reads_as_typed_frames(spark: Any, tmp_path: Path) -> None:
    asyncio.run(saved(graph(ROWS), tmp_path))
    savepoint = read_savepoint(str(tmp_path), spark)
    assert "totals" in savepoint.operators
    assert savepoint.states("totals") == ["map/seen", "timer/event", "timer/processing", "value/total"]
    total = savepoint.frame("totals", "value/total")
    assert [(f.name, f.dataType.simpleString()) for f in total.schema] == [
        ("key0", "string"),
        ("value", "bigint"),
    ]
    assert sorted(map(tuple, total.collect())) == [("a", 6), ("b", 2), ("c", 5)]
    seen = savepoint.frame("totals", "map/seen")
    assert sorted(map(tuple, seen.collect())) == [("a", 1, 2), ("a", 4, 1), ("b", 2, 1), ("c", 5, 1)]
    with pytest.raises(SpecError, match="no state 'value/totl'") as err:
        savepoint.frame("totals", "value/totl")
    assert "value/total" in str(err.value)


def test_a_state_in_two_forms_is_refused(spark: Any, tmp_path: Path) -> None:
    """Of two subtasks only one had asked for it in the form of the present program."""
    asyncio.run(in_two_forms(tmp_path))
    savepoint = read_savepoint(str(tmp_path), spark)
    assert savepoint.states("op") == ["timer/event", "timer/processing", "value/v"]
    with pytest.raises(UnsupportedError, match="in two forms") as err:
        savepoint.frame("op", "value/v")
    assert "BIGINT" in (err.value.got or "")
    assert savepoint.frame("op", "timer/event").count() == 0


async def in_two_forms(folder: Path) -> None:
    layout = KeyLayout((Types.LONG(),), 128)
    handles = []
    for index, type_ in enumerate((Types.INT(), Types.LONG())):
        backend = make_backend(
            "hashmap", layout, now_ms=lambda: 0, uid="op", local_dir=folder, cache_entries=8
        )
        backend.scope.key = next(k for k in range(100) if layout.group_of(k) // 64 == index)
        backend.state(ValueStateDescriptor("v", type_)).update(1)
        data = write_snapshot(
            {"op": OperatorSnapshot(keyed=backend.cut()).copied()},
            checkpoint_id=1,
            key_groups=key_groups_of(index, 2, 128),
        )
        handles.append(
            StateHandle(
                vertex_id="v", subtask_index=index, checkpoint_id=1, key_groups=key_groups_of(index, 2, 128),
                size_bytes=len(data), inline=data,
            )
        )  # fmt: skip
    vertex = VertexState(
        vertex_id="v", name="v", uids=("op",), parallelism=2, max_parallelism=128, handles=tuple(handles)
    )
    manifest = CheckpointManifest(
        job_id="j", job_name="two", checkpoint_id=1, kind="savepoint", timestamp_ms=0, job_attempt=1, epoch=1,
        vertices=(vertex,),
    )  # fmt: skip
    await open_store(f"file://{folder}").put("manifest", encode_manifest(manifest))


def test_a_job_starts_from_state_made_of_frames(spark: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame([("a", 100), ("b", 200)], "k string, n bigint")
    seen = spark.createDataFrame([("a", 7, 1)], "k string, v bigint, n bigint")
    states = {
        "value/total": StateFrame.of(frame, ValueStateDescriptor("total", Types.LONG()), [Types.STRING()]),
        "map/seen": StateFrame.of(
            seen, MapStateDescriptor("seen", Types.LONG(), Types.LONG()), [Types.STRING()]
        ),
    }
    folder = write_savepoint(str(tmp_path / "made"), {"totals": states}, parallelism=3)
    assert sorted(map(tuple, read_savepoint(folder, spark).frame("totals", "value/total").collect())) == [
        ("a", 100), ("b", 200),
    ]  # fmt: skip
    assert asyncio.run(started(folder)) == [("a", 101), ("b", 202), ("c", 3)]


async def started(folder: str) -> list[Any]:
    """The job's rows when it starts from the savepoint."""
    from penstock.snapshots.manifest import handles_by_vertex
    from penstock.testing.results import Checkpoint

    job_graph = graph([("a", 1), ("b", 2), ("c", 3)])
    store = open_store("file:///")
    manifest = await read_manifest(store, folder)
    handles, left = handles_by_vertex(
        manifest, [(v.id, tuple(n.uid for n in v.operators)) for v in job_graph.vertices]
    )
    assert not left
    by_vertex = {v.id: handles.get(v.id, ()) for v in job_graph.vertices}
    checkpoint = Checkpoint(1, job_graph, by_vertex)
    async with JobHarness(job_graph, restore=checkpoint, store=store) as job:
        return sorted(tuple(row) for row in (await job.wait()).rows)
