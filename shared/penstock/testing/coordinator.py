"""Takes the checkpoints of a job that runs in this process: the part of the job master that its tasks need."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.config import unaligned_patience_ms
from penstock.messages.states import ExecutionState
from penstock.runtime.elements import Barrier
from penstock.testing.results import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.jobgraph import JobGraph
    from penstock.messages.slot import CheckpointMetrics, StateHandle
    from penstock.runtime.task import Task


@dataclass(slots=True)
class InFlight:
    """A checkpoint that tasks are taking.

    Args:
        checkpoint_id: Its id.
        kind: ``checkpoint``, ``savepoint``, ``stop`` or ``drain``.
        barrier: The barrier that the tasks were given.
        acks: Execution id → state handle of the tasks that have acknowledged it.
        metrics: Execution id → how long the task's part took.
        done: Becomes the completed checkpoint.
        doomed: Abort it when all tasks have acknowledged it.
    """

    checkpoint_id: int
    kind: str
    barrier: Barrier
    acks: dict[str, StateHandle]
    metrics: dict[str, CheckpointMetrics]
    done: asyncio.Future[Checkpoint]
    doomed: bool = False


class Coordinator:
    """Triggers checkpoints one after the other and completes them. Use within a running event loop.

    Args:
        graph: The job.
        config: Its configuration.
        tasks: Execution id → task.
        now_ms: Processing time, ms since the epoch.
        next_id: Id of the next checkpoint.
    """

    def __init__(
        self,
        graph: JobGraph,
        config: Mapping[str, str],
        tasks: Mapping[str, Task],
        *,
        now_ms: Callable[[], int],
        next_id: int,
    ) -> None:
        self.graph = graph
        self.tasks = tasks
        #: All completed checkpoints, oldest first.
        self.completed: list[Checkpoint] = []
        #: Execution id → final state of the tasks that have finished.
        self.final: dict[str, StateHandle] = {}
        self.in_flight: InFlight | None = None
        self._config = config
        self._now_ms = now_ms
        self.next_id = next_id
        self._want_final = False
        self._triggered: set[str] = set()
        #: True when the job has finished or failed: nothing is triggered any more.
        self._closed = False
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Trigger nothing any more: the job has ended."""
        self._closed = True

    def all_running(self) -> bool:
        """Whether every task runs or has finished."""
        states = (ExecutionState.RUNNING, ExecutionState.FINISHED)
        return all(t.state in states for t in self.tasks.values())

    def ready(self) -> bool:
        """Whether a checkpoint can be triggered now."""
        return self.in_flight is None and self.all_running()

    def missing(self) -> list[str]:
        """Execution ids of the tasks that have not acknowledged the checkpoint in flight."""
        acks = self.in_flight.acks if self.in_flight else {}
        return sorted(set(self.tasks) - set(acks) - set(self.final))

    def trigger(
        self, kind: str, done: asyncio.Future[Checkpoint] | None = None
    ) -> asyncio.Future[Checkpoint]:
        """Start a checkpoint of ``kind``; the future becomes it. ``done``: the future of an earlier try."""
        checkpoint_id, self.next_id = self.next_id, self.next_id + 1
        done = done or self._loop.create_future()
        patience_ms = unaligned_patience_ms(self._config) if kind == "checkpoint" else None
        barrier = Barrier(checkpoint_id, self._now_ms(), kind, patience_ms)
        self.in_flight = InFlight(checkpoint_id, kind, barrier, {}, {}, done)
        self._want_final = False
        self._triggered = set()
        for name in self.starters():
            self._triggered.add(name)
            self.tasks[name].trigger_checkpoint(barrier)
        self._loop.call_soon(self._proceed)
        return done

    def starters(self) -> list[str]:
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
                if name not in self.final and all(u in self.final for u in upstream):
                    out.append(name)
        return out

    # -- what tasks say -------------------------------------------------------------------

    def acknowledged(
        self, name: str, checkpoint_id: int, handle: StateHandle, metrics: CheckpointMetrics
    ) -> None:
        """The task ``name`` has stored its part of the checkpoint ``checkpoint_id`` at ``handle``; ``metrics``: timings."""
        flight = self.in_flight
        if flight is not None and flight.checkpoint_id == checkpoint_id:
            flight.acks[name] = handle
            flight.metrics[name] = metrics
            self._loop.call_soon(self._proceed)

    def declined(self, checkpoint_id: int) -> None:
        """A task does not take part in the checkpoint ``checkpoint_id``: it was not ready. Abort and try again."""
        flight = self.in_flight
        if flight is not None and flight.checkpoint_id == checkpoint_id:
            self.in_flight = None
            for task in self.tasks.values():
                task.checkpoint_aborted(checkpoint_id)
            # A little later, as a job master would.
            self._loop.call_later(0.002, self._again, flight)

    def finished(self, name: str, final: StateHandle) -> bool:
        """The task ``name`` has finished with the state ``final``. Whether all tasks have."""
        self.final[name] = final
        # Downstream tasks may now need a trigger of their own.
        self._loop.call_soon(self._proceed)
        return len(self.final) == len(self.tasks)

    def final_checkpoint_wanted(self) -> None:
        """A task that has ended has output that only a checkpoint commits."""
        self._want_final = True
        self._loop.call_soon(self._proceed)

    # -- progress -------------------------------------------------------------------------

    def _again(self, flight: InFlight) -> None:
        if self._closed or flight.done.done():
            return
        if self.in_flight is not None:
            self._loop.call_later(0.002, self._again, flight)
            return
        self.trigger(flight.kind, flight.done)

    def _proceed(self) -> None:
        flight = self.in_flight
        if flight is None:
            if self._want_final and not self._closed:
                self.trigger("checkpoint")
            return
        for name in self.starters():
            if name not in self._triggered and name not in flight.acks:
                self._triggered.add(name)
                self.tasks[name].trigger_checkpoint(flight.barrier)
        handles = {**self.final, **flight.acks}
        if len(handles) < len(self.tasks):
            return
        self.in_flight = None
        if flight.doomed:
            for task in self.tasks.values():
                task.checkpoint_aborted(flight.checkpoint_id)
            self._loop.call_soon(self._proceed)
            return
        by_vertex = {
            v.id: tuple(handles[f"{v.id}:{i}"] for i in range(v.parallelism)) for v in self.graph.vertices
        }
        checkpoint = Checkpoint(flight.checkpoint_id, self.graph, by_vertex, flight.metrics)
        self.completed.append(checkpoint)
        for task in self.tasks.values():
            task.checkpoint_complete(flight.checkpoint_id)
        if not flight.done.done():
            flight.done.set_result(checkpoint)
        self._loop.call_soon(self._proceed)
