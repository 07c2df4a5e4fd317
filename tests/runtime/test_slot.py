"""Real slot processes, forked by a real template: data between them, checkpoints, kills."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from penstock.connectors.collect import MaterializedResult, decode_chunk, results_prefix
from penstock.jobgraph import FunctionArtifact, Hash, JobGraph
from penstock.jobgraph.specs import PythonSpec, UnionSpec
from penstock.messages.slot import (
    CancelTasks,
    CheckpointAcknowledged,
    CheckpointComplete,
    SlotLog,
    StateHandle,
    TaskMetricsReport,
    TaskStateChanged,
    TriggerCheckpoint,
)
from penstock.messages.states import ExecutionState
from penstock.store.open import open_store
from penstock.testing import GraphBuilder
from penstock.testing.slots import TestTaskManager
from penstock.types import Batch, Schema
from penstock.types.logical import BigIntType, VarCharType

SCHEMA = Schema.of(("k", BigIntType(nullable=False)), ("s", VarCharType()))
ROWS = 20_000


def exchange_graph() -> JobGraph:
    """values (1) → hash → union (2) → collect (1): crosses slots twice."""
    b = GraphBuilder()
    source = b.values(Batch.of(SCHEMA, [(i, f"row {i}" if i % 5 else None) for i in range(ROWS)]))
    keyed = b.vertex(UnionSpec(), SCHEMA, inputs=[(source, Hash(keys=(0,)))], parallelism=2)
    b.collect(keyed)
    return b.build()


LOCATIONS = {"v0:0": "slot-a", "v1:0": "slot-a", "v1:1": "slot-b", "v2:0": "slot-b"}


def states(tm: TestTaskManager) -> dict[str, list[ExecutionState]]:
    out: dict[str, list[ExecutionState]] = {}
    for slot in tm.slots.values():
        for m in slot.messages:
            if isinstance(m, TaskStateChanged):
                out.setdefault(m.execution_id, []).append(m.state)
    return out


async def collected(url: str) -> list[tuple[Any, ...]]:
    store, result = open_store(url), MaterializedResult()
    for key, _ in await store.list(results_prefix("test-job")):
        result.add(decode_chunk(key, await store.get(key)))
    return result.rows()


@pytest.mark.parametrize("unix", [True, False])
async def test_a_job_over_two_slots(tmp_path: Path, unix: bool) -> None:
    url = tmp_path.as_uri()
    async with TestTaskManager(unix=unix) as tm:
        await tm.fork("slot-a")
        b = await tm.fork("slot-b")
        tm.deploy(exchange_graph(), LOCATIONS, store_url=url)
        # Each is awaited: that the last one has finished says nothing of another slot's messages.
        for where, at in LOCATIONS.items():
            end = lambda m, name=f"{where}:1": m.execution_id == name and m.state.terminal  # noqa: E731
            await tm.slots[at].wait_for(TaskStateChanged, end)
        E = ExecutionState
        assert set(map(tuple, states(tm).values())) == {(E.INITIALIZING, E.RUNNING, E.FINISHED)}
        reports = [m for m in b.messages if isinstance(m, TaskMetricsReport)]
        assert reports[-1].rss_bytes > 0
        assert not tm.refused
    rows = await collected(url)
    assert sorted(rows) == sorted((i, f"row {i}" if i % 5 else None) for i in range(ROWS))


async def test_slot_start_time(capsys: pytest.CaptureFixture[str]) -> None:
    async with TestTaskManager() as tm:
        started = time.perf_counter()
        slot = await tm.fork("slot-a")
        took_ms = (time.perf_counter() - started) * 1000
        assert slot.pid != os.getpid()
        with capsys.disabled():
            print(f"\n  template import {tm.import_ms:.0f} ms, slot ready after {took_ms:.1f} ms")


USE_EVERYTHING = """
import numpy as np, pyarrow as pa, pyarrow.compute as pc, plyvel, obstore, polars as pl, tempfile
assert int(np.linalg.norm(np.ones((64, 64)) @ np.ones((64, 64)))) == 4096
assert pc.sum(pa.array(range(100_000))).as_py() == 4999950000
with tempfile.TemporaryDirectory() as folder:
    db = plyvel.DB(folder, create_if_missing=True)
    db.put(b"k", b"v")
    assert db.get(b"k") == b"v"
    db.close()
store = obstore.store.MemoryStore()
obstore.put(store, "a", b"b")
assert bytes(obstore.get(store, "a").bytes()) == b"b"
assert pl.DataFrame({"a": [1, 1, 2]}).group_by("a").len().height == 2
"""


def use_everything(row: Any) -> Any:
    exec(USE_EVERYTHING, {})
    return row


async def test_the_template_has_one_thread() -> None:
    async with TestTaskManager() as tm:
        own = [str(tm.template.pid)]
        assert os.listdir(f"/proc/{tm.template.pid}/task") == own
        await tm.fork("slot-a")
        assert os.listdir(f"/proc/{tm.template.pid}/task") == own


async def test_every_library_works_in_a_slot(tmp_path: Path) -> None:
    """After a fork, what started threads at import hangs; the template imports nothing such."""
    b = GraphBuilder()
    source = b.values(Batch.of(SCHEMA, [(1, "a")]))
    b.functions["f"] = FunctionArtifact(data=cloudpickle.dumps(use_everything))
    b.chain(source, PythonSpec(kind="map", function="f"), SCHEMA)
    b.collect(source)
    async with TestTaskManager() as tm:
        slot = await tm.fork("slot-a")
        tm.deploy(b.build(), {"v0:0": "slot-a", "v1:0": "slot-a"}, store_url=tmp_path.as_uri())
        done = await slot.wait_for(TaskStateChanged, lambda m: m.state.terminal)
        assert done.state is ExecutionState.FINISHED, done.error
        await slot.wait_for(TaskStateChanged, lambda m: m.execution_id == "v1:0:1" and m.state.terminal)
    assert await collected(tmp_path.as_uri()) == [(1, "a")]


def break_the_figures(row: Any) -> Any:
    from penstock.runtime.task import Task

    def metrics(self: Any) -> Any:
        raise ZeroDivisionError("no figures")

    Task.metrics = metrics  # type: ignore[method-assign]
    return row


async def test_a_slot_that_cannot_report_fails_its_tasks_and_says_why(tmp_path: Path) -> None:
    b = GraphBuilder()
    schema = Schema.of(("k", BigIntType(nullable=False)))
    options = {"rows-per-second": "10", "fields.k.kind": "sequence", "fields.k.start": "0"}
    source = b.source("datagen", schema, options | {"fields.k.end": "1000000"})
    b.functions["f"] = FunctionArtifact(data=cloudpickle.dumps(break_the_figures))
    b.chain(source, PythonSpec(kind="map", function="f"), schema)
    b.collect(source)
    locations = dict.fromkeys(("v0:0", "v1:0", "v2:0"), "slot-a")
    async with TestTaskManager() as tm:
        slot = await tm.fork("slot-a")
        tm.deploy(b.build(), locations, store_url=tmp_path.as_uri())
        for where in ("v1:0:1", "v2:0:1"):
            end = lambda m, name=where: m.execution_id == name and m.state.terminal  # noqa: E731
            failed = await slot.wait_for(TaskStateChanged, end)
            assert failed.state is ExecutionState.FAILED
            assert failed.error.error["message"] == (
                "the slot cannot report its figures: ZeroDivisionError: no figures"
            )
            assert "in metrics" in failed.error.traceback
        await slot.wait_for(SlotLog, lambda m: m.level == "error" and "no figures" in m.fields["error"])


def leave_a_failed_future_behind(row: Any) -> Any:
    """As uvloop does when an attempt to connect is given up before its name is looked up."""
    import socket

    future = asyncio.get_running_loop().create_future()
    if row[0] == "name":
        future.set_exception(socket.gaierror(-3, "Temporary failure in name resolution"))
    else:
        future.set_exception(ZeroDivisionError("a bug"))
    del future
    return row


@pytest.mark.parametrize("error", ["name", "bug"])
async def test_only_an_attempt_to_connect_may_fail_unawaited(tmp_path: Path, error: str) -> None:
    b = GraphBuilder()
    schema = Schema.of(("s", VarCharType()))
    if error == "name":
        source = b.values(Batch.of(schema, [(error,)]))
    else:  # it does not end by itself
        source = b.source("datagen", schema, {"rows-per-second": "10"})
    b.functions["f"] = FunctionArtifact(data=cloudpickle.dumps(leave_a_failed_future_behind))
    b.chain(source, PythonSpec(kind="map", function="f"), schema)
    b.collect(source)
    async with TestTaskManager() as tm:
        slot = await tm.fork("slot-a")
        graph = b.build()
        locations = {f"{vertex.id}:0": "slot-a" for vertex in graph.vertices}
        tm.deploy(graph, locations, store_url=tmp_path.as_uri())
        done = await slot.wait_for(
            TaskStateChanged, lambda m: m.execution_id == "v1:0:1" and m.state.terminal
        )
        if error == "name":
            assert done.state is ExecutionState.FINISHED, done.error
            text = "Temporary failure in name"
            await slot.wait_for(SlotLog, lambda m: m.level == "warning" and text in m.fields["error"])
        else:
            assert done.state is ExecutionState.FAILED
            assert "a bug" in done.error.traceback


def paced_graph(rows: int, rows_per_second: int) -> JobGraph:
    """A sequence at its own pace → hash → union (2) → collect."""
    b = GraphBuilder()
    schema = Schema.of(("k", BigIntType(nullable=False)))
    options = {
        "rows-per-second": str(rows_per_second),
        "fields.k.kind": "sequence",
        "fields.k.start": "0",
        "fields.k.end": str(rows - 1),
    }
    source = b.source("datagen", schema, options)
    keyed = b.vertex(UnionSpec(), schema, inputs=[(source, Hash(keys=(0,)))], parallelism=2)
    b.collect(keyed)
    return b.build()


PACED = {"v0:0": "slot-a", "v1:0": "slot-a", "v2:0": "slot-a", "v2:1": "slot-b", "v3:0": "slot-b"}


class Master:
    """As much of a job master as one checkpoint needs."""

    def __init__(self, tm: TestTaskManager, locations: dict[str, str], attempt: int) -> None:
        self.tm, self.locations, self.attempt = tm, locations, attempt

    def messages(self, kind: type) -> list[Any]:
        slots = {self.tm.slots[name] for name in self.locations.values()}
        return [m for slot in slots for m in slot.messages if isinstance(m, kind)]

    async def checkpoint(self, checkpoint_id: int) -> dict[str, tuple[StateHandle, ...]]:
        final = {m.execution_id: m.final for m in self.messages(TaskStateChanged) if m.final is not None}
        for slot in {self.tm.slots[name] for name in self.locations.values()}:
            slot.send(
                TriggerCheckpoint(
                    epoch=1,
                    checkpoint_id=checkpoint_id,
                    timestamp_ms=int(time.time() * 1000),
                    execution_ids=tuple(
                        f"{where}:{self.attempt}"
                        for where, at in self.locations.items()
                        if self.tm.slots[at] is slot and where == "v1:0"
                    ),
                )
            )
        handles: dict[str, list[StateHandle]] = {}
        for where, at in self.locations.items():
            name = f"{where}:{self.attempt}"
            handle = final.get(name)
            if handle is None:
                ack = await self.tm.slots[at].wait_for(
                    CheckpointAcknowledged,
                    lambda m, n=name: m.execution_id == n and m.checkpoint_id == checkpoint_id,
                )
                handle = ack.handle
            handles.setdefault(where.rsplit(":", 1)[0], []).append(handle)
        for slot in {self.tm.slots[name] for name in self.locations.values()}:
            slot.send(CheckpointComplete(epoch=1, checkpoint_id=checkpoint_id))
        return {vertex: tuple(found) for vertex, found in handles.items()}


async def test_checkpoint_kill_restore(tmp_path: Path) -> None:
    rows, url = 300_000, tmp_path.as_uri()
    async with TestTaskManager() as tm:
        for name in ("slot-a", "slot-b", "slot-c", "slot-d"):
            await tm.fork(name)
        # Five minutes of rows, so that they do not run out before the kill; then all at once.
        tm.deploy(paced_graph(rows, 1_000), PACED, store_url=url)
        running = lambda name: lambda m: m.execution_id == name and m.state is ExecutionState.RUNNING  # noqa: E731
        for where, at in PACED.items():
            await tm.slots[at].wait_for(TaskStateChanged, running(f"{where}:1"))
        # The enumerator has nothing more to find: it is finished, and the reader starts barriers.
        await tm.slots["slot-a"].wait_for(TaskStateChanged, lambda m: m.execution_id == "v0:0:1" and m.final)
        async with asyncio.timeout(60):
            while not (before := len(await collected(url))):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        checkpoint = await Master(tm, PACED, 1).checkpoint(1)
        await tm.kill("slot-a")
        # Its peer notices the broken connection by itself.
        lost = await tm.slots["slot-b"].wait_for(TaskStateChanged, lambda m: m.state is ExecutionState.FAILED)
        assert "broke" in lost.error.error["message"]

        again = {w: {"slot-a": "slot-c", "slot-b": "slot-d"}[a] for w, a in PACED.items()}
        tm.deploy(paced_graph(rows, 0), again, attempt=2, store_url=url, restore=checkpoint)
        end = lambda m: m.execution_id == "v3:0:2" and m.state.terminal  # noqa: E731
        done = await tm.slots["slot-d"].wait_for(TaskStateChanged, end)
        assert done.state is ExecutionState.FINISHED, done.error
    assert 0 < before < rows
    result = [k for (k,) in await collected(url)]
    assert sorted(result) == list(range(rows))


async def test_old_epochs_are_refused(tmp_path: Path) -> None:
    async with TestTaskManager() as tm:
        slot = await tm.fork("slot-a")
        tm.deploy(exchange_graph(), dict.fromkeys(LOCATIONS, "slot-a"), store_url=tmp_path.as_uri())
        slot.send(CancelTasks(epoch=0))
        refused = await slot.wait_for(SlotLog, lambda m: m.event == "command_refused")
        assert "epoch 0" in refused.fields["error"]
        end = lambda m: m.execution_id == "v2:0:1" and m.state.terminal  # noqa: E731
        assert (await slot.wait_for(TaskStateChanged, end)).state is ExecutionState.FINISHED


async def test_a_killed_slot_is_reaped() -> None:
    async with TestTaskManager() as tm:
        slot = await tm.fork("slot-a")
        await tm.kill("slot-a")
        assert os.waitstatus_to_exitcode(tm.exits[slot.pid]) == -9


async def test_closing_the_template_ends_its_slots() -> None:
    gone = asyncio.Event()
    async with TestTaskManager() as tm:
        pidfd = os.pidfd_open((await tm.fork("slot-a")).pid)
        asyncio.get_running_loop().add_reader(pidfd, gone.set)
        assert not gone.is_set()
    await asyncio.wait_for(gone.wait(), 20)
    asyncio.get_running_loop().remove_reader(pidfd)
    os.close(pidfd)
