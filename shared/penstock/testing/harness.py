"""Runs a job graph in this process: with real tasks, one slot, a memory store, and the part of the job master
that checkpoints need.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.config import STATE_MEMORY, unaligned_patience_ms
from penstock.connectors.collect import MaterializedResult, decode_chunk, results_prefix
from penstock.errors import InternalError, PenstockError, error_from_dict
from penstock.messages.slot import CheckpointMetrics, StateHandle, TaskDescriptor, TaskMetrics
from penstock.messages.states import ExecutionState
from penstock.runtime.artifacts import load_functions
from penstock.runtime.credit import CreditPool
from penstock.runtime.deployment import Deployment
from penstock.runtime.elements import Barrier
from penstock.runtime.environment import Environment, wall_clock_ms
from penstock.snapshots.manifest import CheckpointManifest, VertexState, handles_by_vertex
from penstock.state.memory import StateMemory
from penstock.store.memory import MemoryStore
from penstock.testing.graphs import with_parallelism
from penstock.types import RowKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.jobgraph import JobGraph
    from penstock.messages.slot import ErrorInfo
    from penstock.ports import Store
    from penstock.runtime.task import Task

Row = "tuple[Any, ...]"


#: Seconds after which a waiting caller gives up. Only ends tests that hang; it is no limit of speed.
PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A completed checkpoint.

    Args:
        checkpoint_id: Its id, from 1.
        graph: The job.
        handles: Vertex id → state handles of its subtasks.
        metrics: Execution id → how long the task's part took.
    """

    checkpoint_id: int
    graph: JobGraph
    handles: Mapping[str, tuple[StateHandle, ...]]
    metrics: Mapping[str, CheckpointMetrics] = field(default_factory=dict)

    def handles_of(self, graph: JobGraph) -> Mapping[str, tuple[StateHandle, ...]]:
        """The state handles by the vertices of ``graph``, which may be chained differently: assigned by
        operator uid, as the job master does. InternalError when the state of an operator has no place in
        ``graph``."""
        manifest = CheckpointManifest(
            job_id="",
            job_name=self.graph.name,
            checkpoint_id=self.checkpoint_id,
            kind="checkpoint",
            timestamp_ms=0,
            job_attempt=1,
            epoch=1,
            vertices=tuple(
                VertexState(
                    vertex_id=v.id,
                    name=v.name,
                    uids=tuple(n.uid for n in v.operators),
                    parallelism=v.parallelism,
                    max_parallelism=v.max_parallelism,
                    handles=self.handles[v.id],
                )
                for v in self.graph.vertices
            ),
        )
        wanted = [(v.id, tuple(n.uid for n in v.operators)) for v in graph.vertices]
        handles, left = handles_by_vertex(manifest, wanted)
        if left:
            raise InternalError("the checkpoint holds state of operators that the graph lacks", got=str(left))
        return handles


@dataclass(slots=True)
class RunResult:
    """The output of a job.

    Args:
        rows: The collect sink's final rows: its changelog, materialised (of an upsert sink by the sink's keys).
        changelog: (kind, row) in the order of arrival.
        metrics: "vertex:subtask" → the task's metrics.
        checkpoints: All completed checkpoints, oldest first.
        store: The object store.
    """

    rows: list[tuple[Any, ...]]
    changelog: list[tuple[RowKind, tuple[Any, ...]]]
    metrics: dict[str, TaskMetrics]
    checkpoints: list[Checkpoint]
    store: Store

    @property
    def counters(self) -> dict[str, int]:
        """Each counter, summed over all operators."""
        out: dict[str, int] = {}
        for task in self.metrics.values():
            for operator in task.operators:
                for name, value in operator.counters.items():
                    out[name] = out.get(name, 0) + value
        return out

    def gauge(self, name: str) -> list[float]:
        """Values of a gauge over all operators that have it."""
        found = [o.gauges.get(name) for t in self.metrics.values() for o in t.operators]
        return [v for v in found if v is not None]


@dataclass(slots=True)
class _InFlight:
    checkpoint_id: int
    kind: str
    barrier: Barrier
    acks: dict[str, StateHandle]
    metrics: dict[str, CheckpointMetrics]
    done: asyncio.Future[Checkpoint]
    #: The checkpoint is aborted when all tasks have acknowledged it.
    doomed: bool = False


class ManualClock:
    """Processing time that only a test moves. ``start_ms``: where it starts, ms since the epoch."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = start_ms

    def now_ms(self) -> int:
        """The time, ms since the epoch."""
        return self._now_ms

    def advance(self, ms: int) -> None:
        """Move the time forward by ``ms``."""
        self._now_ms += ms


class JobHarness:
    """One attempt of a job, with real tasks in this process. Use within a running event loop::

        async with JobHarness(graph) as job:
            checkpoint = await job.checkpoint()
            result = await job.wait()

    Leaving the block cancels what still runs.

    Args:
        graph: The job.
        parallelism: Run at this parallelism instead of the graph's.
        store: The object store; None: one in memory.
        restore: Start from this checkpoint.
        job_id: The job's id.
        attempt: Number of the attempt; None: 2 with ``restore``, else 1.
        config: Configuration that overrides the graph's.
        checkpoint_interval_s: Take a checkpoint every so many seconds.
        credit_pool_bytes: Credit that all channels share.
        clock: Processing time that moves only by ``advance``.
        local_state_dir: Folder for state on the local disk.
    """

    def __init__(
        self,
        graph: JobGraph,
        *,
        parallelism: int | None = None,
        store: Store | None = None,
        restore: Checkpoint | None = None,
        job_id: str = "test-job",
        attempt: int | None = None,
        config: Mapping[str, str] | None = None,
        checkpoint_interval_s: float | None = None,
        credit_pool_bytes: int = CreditPool().total,
        clock: ManualClock | None = None,
        local_state_dir: Path | None = None,
    ) -> None:
        self.graph = graph if parallelism is None else with_parallelism(graph, parallelism)
        self.store: Store = store or MemoryStore()
        self.restored = restore
        self.job_id = job_id
        self.attempt = attempt if attempt is not None else (2 if restore else 1)
        self.states: dict[str, list[ExecutionState]] = {}
        self.checkpoints: list[Checkpoint] = []
        self.pool_bytes = credit_pool_bytes
        self.clock = clock
        self._local_state_dir = local_state_dir
        self._config = {**self.graph.config, **(config or {})}
        self._interval_s = checkpoint_interval_s
        self._final: dict[str, StateHandle] = {}
        self._in_flight: _InFlight | None = None
        self._next_id = (restore.checkpoint_id if restore else 0) + 1
        self._want_final = False
        self._end_metrics: dict[str, TaskMetrics] = {}
        self._ended: asyncio.Future[None]
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-test-")
        self._periodic: asyncio.Task[None] | None = None

    async def __aenter__(self) -> JobHarness:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Start the attempt; ``async with`` calls it."""
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        folder = Path(self._folder.name)
        self.environment = Environment(
            job_id=self.job_id,
            job_name=self.graph.name,
            job_attempt=self.attempt,
            config=self._config,
            local_dir=folder,
            local_state_dir=self._local_state_dir,
            memory=StateMemory(STATE_MEMORY.read(self._config)),
            store=self.store,
            function=await load_functions(self.graph, self.store, folder),
            credits=CreditPool(self.pool_bytes),
            now_ms=wall_clock_ms if self.clock is None else self.clock.now_ms,
        )
        handles = self.restored.handles_of(self.graph) if self.restored else {}
        descriptors = [
            TaskDescriptor(
                execution_id=f"{vertex.id}:{index}",
                vertex_id=vertex.id,
                subtask_index=index,
                attempt=self.attempt,
                restore=handles.get(vertex.id, ()),
            )
            for vertex in self.graph.vertices
            for index in range(vertex.parallelism)
        ]
        self.deployment = Deployment(self.graph, descriptors, environment=self.environment, listener=self)
        self.deployment.start()
        if self._interval_s is not None:
            self._periodic = self._loop.create_task(self._checkpoint_periodically(self._interval_s))

    async def close(self) -> None:
        """Kill the attempt: cancel its tasks, without a last checkpoint."""
        if self._periodic is not None:
            self._periodic.cancel()
        await asyncio.gather(*(task.cancel() for task in self.deployment.tasks.values()))
        self.environment.helper.close()
        self._folder.cleanup()

    @property
    def ended(self) -> bool:
        """Whether the job has finished or failed."""
        return self._ended.done()

    async def wait(self, timeout_s: float = PATIENCE_S) -> RunResult:
        """Wait until the job has finished; its result.

        Raises:
            PenstockError: What failed the job.
            InternalError: It did not end within ``timeout_s``.
        """
        try:
            await asyncio.wait_for(asyncio.shield(self._ended), timeout_s)
        except TimeoutError:
            raise InternalError("the job did not end in time", got=self.describe()) from None
        return await self.result()

    async def checkpoint(self, kind: str = "checkpoint", timeout_s: float = PATIENCE_S) -> Checkpoint:
        """Trigger a checkpoint and wait until it is complete and all tasks know it.

        Args:
            kind: ``checkpoint``, ``savepoint``, ``stop`` or ``drain``.
            timeout_s: Give up after this many seconds.

        Raises:
            InternalError: It could not be started or did not complete in time.
        """
        deadline = time.monotonic() + timeout_s
        while self._in_flight is not None or not self._all_running():
            if self._ended.done() or time.monotonic() > deadline:
                self._ended.done() and self._ended.result()
                raise InternalError("no checkpoint could be started", got=self.describe())
            await asyncio.sleep(0.001)
        done = self._trigger(kind)
        try:
            return await asyncio.wait_for(asyncio.shield(done), timeout_s)
        except TimeoutError:
            raise InternalError("the checkpoint did not complete", got=self.describe()) from None

    async def abort_checkpoint(self, timeout_s: float = PATIENCE_S) -> None:
        """Let all tasks take a checkpoint, and then abort it, as when its manifest cannot be written.

        ``timeout_s``: give up after this many seconds.
        """
        await self.until(lambda: self._in_flight is None and self._all_running(), timeout_s)
        self._trigger("checkpoint")
        flight = self._in_flight
        assert flight is not None
        flight.doomed = True
        await self.until(lambda: self._in_flight is not flight, timeout_s)

    async def stop(self, *, drain: bool = False) -> Checkpoint:
        """Stop the job with a savepoint, the result. ``drain``: emit what windows and timers still hold first."""
        checkpoint = await self.checkpoint("drain" if drain else "stop")
        await asyncio.wait_for(asyncio.shield(self._ended), PATIENCE_S)
        return checkpoint

    async def until(self, condition: Any, timeout_s: float = PATIENCE_S) -> None:
        """Wait until ``condition()`` holds.

        Raises:
            PenstockError: The job has failed.
            InternalError: The condition did not hold within ``timeout_s``.
        """
        deadline = time.monotonic() + timeout_s
        while not condition():
            if self._ended.done():
                self._ended.result()
            if time.monotonic() > deadline:
                raise InternalError("the condition did not come true", got=self.describe())
            await asyncio.sleep(0.001)

    def advance(self, ms: int) -> None:
        """Move the manual clock forward by ``ms``; due timers fire in the tasks' next steps.

        Raises:
            InternalError: The harness has no manual clock.
        """
        if self.clock is None:
            raise InternalError("advance() needs JobHarness(clock=ManualClock(…))")
        self.clock.advance(ms)
        for task in self.deployment.tasks.values():
            task.wake()

    def metrics(self) -> dict[str, TaskMetrics]:
        """ "vertex:subtask" → the task's metrics, of tasks that have ended as well."""
        live = {name: task.metrics() for name, task in self.deployment.tasks.items()}
        return {**live, **self._end_metrics}

    async def result(self) -> RunResult:
        """What the job has given so far."""
        prefix = results_prefix(self.job_id)
        found = MaterializedResult(self._result_keys())
        for key, _ in await self.store.list(prefix):
            found.add(decode_chunk(key, await self.store.get(key)))
        changelog = [(RowKind(kind), row) for kind, row in found.changelog]
        return RunResult(found.rows(), changelog, self.metrics(), self.checkpoints, self.store)

    def describe(self) -> str:
        """The state of every task, one line for each, for the messages of failed tests."""
        tasks = self.deployment.tasks
        lines = [f"{name} {t.vertex.name}: {t.state.value}" for name, t in tasks.items()]
        if self._in_flight is not None:
            missing = sorted(set(tasks) - set(self._in_flight.acks) - set(self._final))
            lines.append(f"checkpoint {self._in_flight.checkpoint_id} waits for {missing}")
        return "; ".join(lines)

    # -- the listener -------------------------------------------------------------------

    def state_changed(
        self, task: Task, state: ExecutionState, error: ErrorInfo | None, final: StateHandle | None
    ) -> None:
        """Called by ``task`` when its ``state`` changes; ``error``: what failed it; ``final``: its final snapshot."""
        name = task.descriptor.execution_id
        self.states.setdefault(name, []).append(state)
        if state.terminal:
            self._end_metrics[name] = task.metrics()
        if state is ExecutionState.FAILED and not self._ended.done():
            assert error is not None
            self._ended.set_exception(_as_error(error))
            self._ended.exception()  # otherwise asyncio would complain about a test that never waits
        if state is ExecutionState.FINISHED:
            assert final is not None
            self._final[name] = final
            if len(self._final) == len(self.deployment.tasks) and not self._ended.done():
                self._ended.set_result(None)
            # Downstream tasks may now need a trigger of their own.
            self._loop.call_soon(self._continue)

    def acknowledged(
        self, task: Task, checkpoint_id: int, handle: StateHandle, metrics: CheckpointMetrics
    ) -> None:
        """Called by ``task`` when its part of the checkpoint ``checkpoint_id`` is stored at ``handle``; ``metrics``: timings."""
        flight = self._in_flight
        if flight is not None and flight.checkpoint_id == checkpoint_id:
            flight.acks[task.descriptor.execution_id] = handle
            flight.metrics[task.descriptor.execution_id] = metrics
            self._loop.call_soon(self._continue)

    def declined(self, task: Task, checkpoint_id: int, reason: str, *, finishing: bool) -> None:
        """Called by ``task`` when it does not take part in the checkpoint ``checkpoint_id``.

        ``reason``: why, in words; ``finishing``: it ends, and its final snapshot takes the place of the acknowledgement.
        """
        flight = self._in_flight
        if finishing:
            return  # the task's final state takes the place of the acknowledgement
        if flight is not None and flight.checkpoint_id == checkpoint_id:
            self._in_flight = None
            for other in self.deployment.tasks.values():
                other.checkpoint_aborted(checkpoint_id)
            # A task was not ready. Try again a little later, as a job master would.
            self._loop.call_later(0.002, self._again, flight)

    def _again(self, flight: _InFlight) -> None:
        if self._ended.done() or flight.done.done():
            return
        if self._in_flight is not None:
            self._loop.call_later(0.002, self._again, flight)
            return
        self._trigger(flight.kind, flight.done)

    def final_checkpoint_wanted(self, task: Task) -> None:
        """Called by ``task`` at its end, if it has output that only a checkpoint commits."""
        self._want_final = True
        self._loop.call_soon(self._continue)

    # -- the coordinator ------------------------------------------------------------------

    def _all_running(self) -> bool:
        states = (ExecutionState.RUNNING, ExecutionState.FINISHED)
        return all(t.state in states for t in self.deployment.tasks.values())

    def _trigger(
        self, kind: str, done: asyncio.Future[Checkpoint] | None = None
    ) -> asyncio.Future[Checkpoint]:
        checkpoint_id, self._next_id = self._next_id, self._next_id + 1
        done = done or self._loop.create_future()
        patience_ms = unaligned_patience_ms(self._config) if kind == "checkpoint" else None
        barrier = Barrier(checkpoint_id, self.environment.now_ms(), kind, patience_ms)
        self._in_flight = _InFlight(checkpoint_id, kind, barrier, {}, {}, done)
        self._want_final = False
        self._triggered: set[str] = set()
        for name in self._starters():
            self._triggered.add(name)
            self.deployment.tasks[name].trigger_checkpoint(barrier)
        self._loop.call_soon(self._continue)
        return done

    def _starters(self) -> list[str]:
        """Running tasks all of whose upstream tasks are finished."""
        out = []
        for vertex in self.graph.vertices:
            upstream = [
                f"{edge.source}:{i}"
                for edge in self.graph.inputs_of(vertex.id)
                for i in range(self.graph.vertex(edge.source).parallelism)
            ]
            for index in range(vertex.parallelism):
                name = f"{vertex.id}:{index}"
                if name not in self._final and all(u in self._final for u in upstream):
                    out.append(name)
        return out

    def _continue(self) -> None:
        flight = self._in_flight
        if flight is None:
            if self._want_final and not self._ended.done():
                self._trigger("checkpoint")
            return
        for name in self._starters():
            if name not in self._triggered and name not in flight.acks:
                self._triggered.add(name)
                self.deployment.tasks[name].trigger_checkpoint(flight.barrier)
        handles = {**self._final, **flight.acks}
        if len(handles) < len(self.deployment.tasks):
            return
        self._in_flight = None
        if flight.doomed:
            for task in self.deployment.tasks.values():
                task.checkpoint_aborted(flight.checkpoint_id)
            self._loop.call_soon(self._continue)
            return
        by_vertex = {
            v.id: tuple(handles[f"{v.id}:{i}"] for i in range(v.parallelism)) for v in self.graph.vertices
        }
        checkpoint = Checkpoint(flight.checkpoint_id, self.graph, by_vertex, flight.metrics)
        self.checkpoints.append(checkpoint)
        for task in self.deployment.tasks.values():
            task.checkpoint_complete(flight.checkpoint_id)
        if not flight.done.done():
            flight.done.set_result(checkpoint)
        self._loop.call_soon(self._continue)

    async def _checkpoint_periodically(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            if self._in_flight is None and self._all_running() and not self._ended.done():
                self._trigger("checkpoint")

    def _result_keys(self) -> tuple[int, ...] | None:
        from penstock.jobgraph.specs import SinkSpec

        for vertex in self.graph.vertices:
            for node in vertex.operators:
                spec = node.spec
                if isinstance(spec, SinkSpec) and spec.connector == "collect" and spec.mode == "upsert":
                    return spec.keys
        return None


def _as_error(info: ErrorInfo) -> PenstockError:
    error = error_from_dict(info.error)
    error.add_note(info.traceback)
    return error


async def run_graph_async(graph: JobGraph, *, timeout_s: float = PATIENCE_S, **options: Any) -> RunResult:
    """``run_graph`` within a running event loop."""
    async with JobHarness(graph, **options) as job:
        return await job.wait(timeout_s)


def run_graph(graph: JobGraph, *, timeout_s: float = PATIENCE_S, **options: Any) -> RunResult:
    """Run a bounded job to its end, outside of an event loop.

    Args:
        graph: The job.
        timeout_s: Give up after this many seconds.
        options: Those of ``JobHarness``: ``parallelism``, ``store``, ``restore``, ``config`` …
    """
    return asyncio.run(run_graph_async(graph, timeout_s=timeout_s, **options))
