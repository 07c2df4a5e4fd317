"""A task's part in checkpoints, and how it finishes: a task whose output waits for a commit finishes only after
a complete checkpoint."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import InternalError
from penstock.messages.slot import CheckpointMetrics
from penstock.messages.states import ExecutionState
from penstock.operators.operator import MAX_WATERMARK
from penstock.runtime.checkpoints import TASK_UID, SnapshotWriter, task_snapshot
from penstock.runtime.elements import END_OF_INPUT
from penstock.runtime.in_flight import IN_FLIGHT_ITEMS, IN_FLIGHT_UID, encode_in_flight
from penstock.runtime.overtaking import InFlight, Overtaking
from penstock.snapshots.contract import OperatorSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.messages.slot import StateHandle
    from penstock.runtime.elements import Barrier
    from penstock.runtime.environment import Environment
    from penstock.runtime.listener import TaskListener
    from penstock.runtime.task import Task


class TaskCheckpoints:
    """Triggers, snapshots, commits and aborts of one task, and how it finishes."""

    def __init__(self, task: Task, environment: Environment, listener: TaskListener) -> None:
        self._task = task
        self._chain = task.chain
        self._environment = environment
        self._listener = listener
        self._snapshots = SnapshotWriter(environment, task.vertex, task.descriptor, task.contexts.epochs)
        self._overtaking = Overtaking(task, environment)
        #: The last checkpoint that the task took part in, or was restored from.
        self.last_id = 0
        self._waiting_triggers: list[Barrier] = []
        self._commits: asyncio.Task[None] | None = None
        self._writes: set[asyncio.Task[None]] = set()
        self._drained: asyncio.Future[None] | None = None
        self._ended_gates: set[int] = set()
        self._all_done = False
        #: True if the task takes part in no further checkpoint, because its final state is being written.
        self.closing = False
        #: The checkpoint whose completion ends the task (final, stop, drain).
        self._last_wanted: int | None = None
        self.final_wanted = False
        #: Stop or drain: the checkpoint after whose barrier no more work is done.
        self.stopping: int | None = None

    # -- triggers ------------------------------------------------------------------------

    def trigger(self, barrier: Barrier) -> None:
        """Starts a checkpoint on the coordinator's trigger; for tasks without running upstream tasks."""
        task = self._task
        if task.state is not ExecutionState.RUNNING or self.closing:
            finishing = self.closing or task.state is ExecutionState.FINISHED
            reason = f"{task.name} is {'finishing' if finishing else task.state.value}"
            self._listener.declined(task, barrier.checkpoint_id, reason, finishing=finishing)
            return
        self._waiting_triggers.append(barrier)
        if barrier.patience_ms is not None:
            task.gates.announce(barrier)
        task.do(self._start_triggered())

    def _start_triggered(self) -> Iterator[None]:
        # Elements of its ended upstream tasks may still be queued here: the cut is behind them.
        gates = self._task.gates
        if gates.all_ended and not gates.has_events and self._task.replay is None:
            waiting, self._waiting_triggers = self._waiting_triggers, []
            for barrier in waiting:
                if self.closing:
                    reason = f"{self._task.name} is finishing"
                    self._listener.declined(self._task, barrier.checkpoint_id, reason, finishing=True)
                elif barrier.checkpoint_id > self.last_id:
                    yield from self.take(barrier, 0.0)
        yield

    def gate_ended(self, gate: int) -> None:
        """Starts triggers that waited for the end of a gate."""
        self._ended_gates.add(gate)
        self.replayed()

    def replayed(self) -> None:
        """An event for which a trigger may wait has happened: start the waiting triggers."""
        if self._waiting_triggers:
            self._task.do(self._start_triggered())

    # -- overtaking ------------------------------------------------------------------------

    def announced(self, barrier: Barrier) -> None:
        """A barrier that may overtake has arrived."""
        self._overtaking.expect(barrier)

    def urgent(self) -> bool:
        """Whether a barrier is about to overtake: work then continues without credit."""
        return not self.closing and self.stopping is None and self._overtaking.urgent()

    @property
    def overtakes(self) -> bool:
        """Whether a barrier that overtakes is being taken."""
        return self._overtaking.taking

    def urgent_work(self, max_rows: int) -> Iterator[None] | None:
        """The work before a barrier that overtakes, then the barrier itself."""
        gates = self._task.gates
        event = gates.urge(max_rows)
        if event is not None:
            return self._task.gate_work(event)
        return self.take(*self._overtaking.overtake()) if gates.may_overtake else None

    # -- taking one ------------------------------------------------------------------------

    def take(
        self, barrier: Barrier, alignment_ms: float, overtaken: InFlight | None = None
    ) -> Iterator[None]:
        """Takes a checkpoint: emits the output before the barrier, then the barrier, then takes the state."""
        env, task, checkpoint_id = self._environment, self._task, barrier.checkpoint_id
        self.last_id = checkpoint_id
        task.gates.forget(checkpoint_id)
        started = env.time_s()
        start_delay_ms = max(0.0, env.now_ms() - barrier.timestamp_ms - alignment_ms)
        if barrier.kind == "drain" and not self._all_done:
            yield from self._drain_now()
        before = self._chain.prepare_checkpoint(checkpoint_id)
        yield from self._overtaking.take(before, barrier, overtaken)
        snapshots = self._take_snapshots(checkpoint_id, barrier.kind)
        sync_ms = (env.time_s() - started) * 1000
        if barrier.kind in ("stop", "drain"):
            self.stopping = checkpoint_id
            self._last_wanted = checkpoint_id
        elif self.final_wanted and self._last_wanted is None:
            self._last_wanted = checkpoint_id
        metrics = CheckpointMetrics(alignment_ms=alignment_ms, start_delay_ms=start_delay_ms, sync_ms=sync_ms)
        if overtaken is not None:
            snapshots[IN_FLIGHT_UID] = OperatorSnapshot(pending=self._save(overtaken))
        write = task.spawn(self._write(checkpoint_id, snapshots, metrics, overtaken))
        self._writes.add(write)
        write.add_done_callback(self._writes.discard)
        write.add_done_callback(lambda done: _written(done, snapshots))
        yield

    def _take_snapshots(self, checkpoint_id: int, kind: str) -> dict[str, OperatorSnapshot]:
        self._snapshots.begin(checkpoint_id, kind)
        snapshots = self._chain.snapshot(checkpoint_id)
        self._task.replays.add_to(snapshots, checkpoint_id)
        snapshots[TASK_UID] = task_snapshot(self._chain.watermarks())
        return snapshots

    async def _write(
        self,
        checkpoint_id: int,
        snapshots: dict[str, OperatorSnapshot],
        metrics: CheckpointMetrics,
        overtaken: InFlight | None,
    ) -> None:
        started = self._environment.time_s()
        handle = await self._snapshots.write(checkpoint_id, snapshots)
        if handle is None:  # The checkpoint was aborted, so the job master does not wait for an answer.
            return
        in_flight_bytes = 0 if overtaken is None else overtaken.nbytes
        handle = msgspec.structs.replace(handle, in_flight_bytes=in_flight_bytes)
        took_ms = (self._environment.time_s() - started) * 1000
        metrics = CheckpointMetrics(
            alignment_ms=metrics.alignment_ms,
            start_delay_ms=metrics.start_delay_ms,
            sync_ms=metrics.sync_ms,
            async_ms=took_ms,
            size_bytes=handle.size_bytes,
            in_flight_bytes=in_flight_bytes,
            unaligned=overtaken is not None,
        )
        self._listener.acknowledged(self._task, checkpoint_id, handle, metrics)

    async def _save(self, overtaken: InFlight) -> dict[str, list[bytes]]:
        await overtaken.wait()
        task = self._task

        def encode() -> list[bytes]:
            return encode_in_flight(overtaken.contents, task.gate_edges, task.descriptor.subtask_index)

        return {IN_FLIGHT_ITEMS: await self._environment.helper.run(encode)}

    # -- completion and abort ------------------------------------------------------------------

    def complete(self, checkpoint_id: int) -> None:
        """The checkpoint is in the log: commit. May be repeated."""
        # At once: after this message the objects of older snapshots may be deleted.
        self._snapshots.confirmed(checkpoint_id)
        before = self._commits
        self._commits = self._task.spawn(self._commit(checkpoint_id, before))

    async def _commit(self, checkpoint_id: int, before: asyncio.Task[Any] | None) -> None:
        if before is not None:
            # ``await before`` would cancel the earlier commit when this one is cancelled.
            await asyncio.wait([before])
        self._chain.checkpoint_complete(checkpoint_id)
        await self._task.contexts.confirm_letters(checkpoint_id)
        await self._task.replays.complete(checkpoint_id)
        await self._task.sinks.commit(checkpoint_id)
        if self._last_wanted is not None and checkpoint_id >= self._last_wanted:
            await self._finish()

    def abort(self, checkpoint_id: int) -> None:
        """The checkpoint is aborted: its snapshot is dropped, and a stop that waited for it is called off."""
        self._snapshots.aborted(checkpoint_id)
        self._overtaking.give_up(checkpoint_id)
        self._chain.checkpoint_aborted(checkpoint_id)
        self._waiting_triggers = [b for b in self._waiting_triggers if b.checkpoint_id != checkpoint_id]
        if self._last_wanted == checkpoint_id:
            self._last_wanted = None
            if self.stopping == checkpoint_id and not self._all_done:
                self.stopping = None
            elif self.final_wanted:
                self._listener.final_checkpoint_wanted(self._task)

    # -- the end -----------------------------------------------------------------------------

    def _drain_now(self) -> Iterator[None]:
        """Stop with drain: event time ends here, and every operator finishes."""
        yield from self._task.sources.end_all()
        for gate in self._chain.gates.keys() - self._ended_gates:
            self._ended_gates.add(gate)
            yield from self._chain.watermark(gate, MAX_WATERMARK)
            yield from self._chain.end_gate(gate)
        self._all_done = True

    def after_end(self) -> Iterator[None] | None:
        """All inputs have ended: takes a last checkpoint if a sink needs one; then the task is over."""
        if self._waiting_triggers:
            return self._start_triggered()
        if self._all_done:
            return None
        self._all_done = True
        if self._task.sinks.wants_final_checkpoint():
            self.final_wanted = True
            self._listener.final_checkpoint_wanted(self._task)
        else:
            self._task.spawn(self._finish())
        return None

    async def _finish(self) -> None:
        """Closes the outputs, takes the final state, reports FINISHED.

        The final state is an object of its own, also behind a final checkpoint: that checkpoint's object may
        be deleted (subsumed) before the report of FINISHED names it.
        """
        task = self._task
        self.closing = True
        await task.sinks.flushed()
        if self._writes:
            await asyncio.wait(list(self._writes))
        await task.sinks.complete(stopped=self.stopping is not None)
        if self.stopping is None:  # Otherwise the savepoint holds them.
            for node in self._chain.nodes:
                node.send_letters()
        await task.contexts.last_letters(self.last_id)
        handle = await self._write_final()
        if self._last_wanted is None and task.sinks.wants_final_checkpoint():
            # No checkpoint would commit it: a restart is better than lost rows.
            raise InternalError("a task would finish with output that is not committed", where=task.name)
        task.outputs.emit(END_OF_INPUT)
        while task.outputs.blocked:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained
        await task.finished(handle)

    async def _write_final(self) -> StateHandle:
        snapshots = self._take_snapshots(self.last_id, "final")
        handle = await self._snapshots.write(self.last_id, snapshots, final=True)
        assert handle is not None
        return handle

    def outputs_unblocked(self) -> None:
        """All outputs have credit again: a task that waits for this may finish."""
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)


def _written(write: asyncio.Task[None], snapshots: Mapping[str, OperatorSnapshot]) -> None:
    """Waits for the write. It may also have been cancelled before it had begun."""
    if write.cancelled() or write.exception() is not None:
        for snapshot in snapshots.values():
            snapshot.abandon()
