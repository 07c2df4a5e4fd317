"""Runs a job graph in this process: with real tasks, one slot, a memory store, and the part of the job master
that checkpoints need (``coordinator``).
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.config import STATE_MEMORY
from penstock.connectors.collect import MaterializedResult, decode_chunk, results_prefix
from penstock.errors import InternalError, PenstockError, error_from_dict
from penstock.messages.slot import CheckpointMetrics, StateHandle, TaskDescriptor, TaskMetrics
from penstock.messages.states import ExecutionState
from penstock.runtime.artifacts import load_functions
from penstock.runtime.credit import CreditPool
from penstock.runtime.deployment import Deployment
from penstock.runtime.environment import Environment, wall_clock_ms
from penstock.state.memory import StateMemory
from penstock.store.memory import MemoryStore
from penstock.testing.coordinator import Coordinator
from penstock.testing.graphs import with_parallelism
from penstock.testing.results import Checkpoint, RunResult
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
        self.pool_bytes = credit_pool_bytes
        self.clock = clock
        self._local_state_dir = local_state_dir
        self._config = {**self.graph.config, **(config or {})}
        self._interval_s = checkpoint_interval_s
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
        self.coordinator = Coordinator(
            self.graph,
            self._config,
            self.deployment.tasks,
            now_ms=self.environment.now_ms,
            next_id=(self.restored.checkpoint_id if self.restored else 0) + 1,
        )
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

    @property
    def checkpoints(self) -> list[Checkpoint]:
        """All completed checkpoints, oldest first."""
        return self.coordinator.completed

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
            PenstockError: The job has failed.
            InternalError: It could not be started or did not complete in time.
        """
        deadline = time.monotonic() + timeout_s
        while not self.coordinator.ready():
            if self._ended.done() or time.monotonic() > deadline:
                self._ended.done() and self._ended.result()
                raise InternalError("no checkpoint could be started", got=self.describe())
            await asyncio.sleep(0.001)
        done = self.coordinator.trigger(kind)
        failed = asyncio.ensure_future(self._failed())
        either: set[asyncio.Future[Any]] = {done, failed}
        await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not done.done() and not failed.done():
            failed.cancel()
            raise InternalError("the checkpoint did not complete", got=self.describe())
        if not done.done():
            await failed  # a job that has failed completes no checkpoint
        failed.cancel()
        return await done

    async def _failed(self) -> None:
        """Raises the job's error when it fails; waits for ever when it ends well."""
        await asyncio.shield(self._ended)
        await asyncio.Event().wait()

    async def abort_checkpoint(self, timeout_s: float = PATIENCE_S) -> None:
        """Let all tasks take a checkpoint, and then abort it, as when its manifest cannot be written.

        ``timeout_s``: give up after this many seconds.
        """
        await self.until(self.coordinator.ready, timeout_s)
        self.coordinator.trigger("checkpoint")
        flight = self.coordinator.in_flight
        assert flight is not None
        flight.doomed = True
        await self.until(lambda: self.coordinator.in_flight is not flight, timeout_s)

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
        if (flight := self.coordinator.in_flight) is not None:
            lines.append(f"checkpoint {flight.checkpoint_id} waits for {self.coordinator.missing()}")
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
            self.coordinator.close()
            self._ended.exception()  # otherwise asyncio would complain about a test that never waits
        if state is ExecutionState.FINISHED:
            assert final is not None
            if self.coordinator.finished(name, final) and not self._ended.done():
                self.coordinator.close()
                self._ended.set_result(None)

    def acknowledged(
        self, task: Task, checkpoint_id: int, handle: StateHandle, metrics: CheckpointMetrics
    ) -> None:
        """Called by ``task`` when its part of the checkpoint ``checkpoint_id`` is stored at ``handle``; ``metrics``: timings."""
        self.coordinator.acknowledged(task.descriptor.execution_id, checkpoint_id, handle, metrics)

    def declined(self, task: Task, checkpoint_id: int, reason: str, *, finishing: bool) -> None:
        """Called by ``task`` when it does not take part in the checkpoint ``checkpoint_id``.

        ``reason``: why, in words; ``finishing``: it ends, and its final snapshot takes the place of the acknowledgement.
        """
        if not finishing:
            self.coordinator.declined(checkpoint_id)

    def final_checkpoint_wanted(self, task: Task) -> None:
        """Called by ``task`` at its end, if it has output that only a checkpoint commits."""
        self.coordinator.final_checkpoint_wanted()

    async def _checkpoint_periodically(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            if self.coordinator.ready() and not self._ended.done():
                self.coordinator.trigger("checkpoint")

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
