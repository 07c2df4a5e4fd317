"""A task: one subtask of a vertex, an actor on the slot's data thread.

It runs in *steps*, callbacks of at most a few milliseconds on the event loop. A step
pulls on the generator at hand, or takes the next thing to do: a command, a due timer, a
source's watermark, an event of the input gates, rows of a source. It stops pulling while
an output lacks credit or a sink is not ready (back-pressure), and flushes its outputs as
soon as there is nothing more to do (natural batching).

::

    INITIALIZING → RUNNING → FINISHED
          │           ├→ FAILED
          └───────────┴→ CANCELED
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from penstock.cancelling import end_tasks
from penstock.config import BUFFER_TIMEOUT_MS
from penstock.errors import InternalError
from penstock.messages.slot import CheckpointMetrics
from penstock.messages.states import ExecutionState
from penstock.runtime.badrecords import BadRecords
from penstock.runtime.budget import STEP_S, RowBudget, least_rows
from penstock.runtime.chain import Chain, ChainNode, blamed
from penstock.runtime.checkpoints import TASK_UID, SnapshotWriter, restore_vertex, task_snapshot
from penstock.runtime.drivers import AsyncOperator, SinkDriver
from penstock.runtime.elements import END_OF_INPUT, Barrier
from penstock.runtime.failures import error_info
from penstock.runtime.gates import (
    BarrierAligned,
    GateBatch,
    GateEnded,
    GateStatus,
    GateWatermark,
    InputGates,
)
from penstock.runtime.kernels.hashing import key_group_range
from penstock.runtime.operator import MAX_WATERMARK, OperatorContext, OperatorSnapshot
from penstock.runtime.taskmetrics import TaskClock, collect_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph import JobVertex
    from penstock.messages.slot import ErrorInfo, StateHandle, TaskDescriptor, TaskMetrics
    from penstock.runtime.environment import Environment
    from penstock.runtime.outputs import Outputs
    from penstock.types.logical import Schema

#: At first a batch is cut to this many rows; then by what was measured.
FIRST_ROWS = 256
MAX_ROWS = 65_536
#: A source that gives fewer rows than this at once has nearly run empty.
TRICKLE_ROWS = 128
#: A batch costs about 0.3 ms however small it is: a trickle gathers for so long, or the
#: buffer timeout if that is shorter.
TRICKLE_PAUSE_S = 0.002


class TaskListener(Protocol):
    """What a task tells the outside. Called on the data thread; must not block."""

    def state_changed(
        self, task: Task, state: ExecutionState, error: ErrorInfo | None, final: StateHandle | None
    ) -> None: ...

    def acknowledged(
        self, task: Task, checkpoint_id: int, handle: StateHandle, metrics: CheckpointMetrics
    ) -> None: ...

    def declined(self, task: Task, checkpoint_id: int, reason: str, *, finishing: bool) -> None:
        """``finishing``: its final state comes with FINISHED instead."""

    def final_checkpoint_wanted(self, task: Task) -> None: ...


class Task:
    def __init__(
        self,
        descriptor: TaskDescriptor,
        vertex: JobVertex,
        *,
        environment: Environment,
        gates: InputGates,
        gate_schemas: list[Schema],
        outputs: Outputs,
        chain: Chain,
        listener: TaskListener,
    ) -> None:
        self.descriptor = descriptor
        self.vertex = vertex
        self.state = ExecutionState.DEPLOYING
        self.chain = chain
        self.gates = gates
        self.outputs = outputs
        self.clock = TaskClock()
        self.records_in = 0
        self._environment = environment
        self._gate_schemas = gate_schemas
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._buffer_timeout_s = BUFFER_TIMEOUT_MS.read(environment.config) / 1000
        #: Between two polls that bring a trickle. A lone row after a pause never waits.
        self._trickle_pause_s = min(TRICKLE_PAUSE_S, self._buffer_timeout_s)
        self._snapshots = SnapshotWriter(environment, vertex, descriptor)

        self._scheduled = False
        self._work: Iterator[None] | None = None
        self._todo: deque[Iterator[None]] = deque()
        least = least_rows([o.spec for o in self.vertex.operators])
        self._budget = RowBudget(FIRST_ROWS, least=least, most=MAX_ROWS)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._background: set[asyncio.Task[Any]] = set()
        self._source_waits: dict[ChainNode, asyncio.Task[None]] = {}
        #: Sources that gave a trickle → when to poll them again at the earliest.
        self._resting: dict[ChainNode, float] = {}
        self._sink_waits: dict[SinkDriver, asyncio.Task[None]] = {}
        self._sink_flushes: dict[SinkDriver, asyncio.Task[None]] = {}
        #: Sinks may hold rows that were not flushed.
        self._unflushed = False
        self._commits: asyncio.Task[None] | None = None
        self._writes: set[asyncio.Task[None]] = set()
        self._dead_letters: list[BadRecords] = []
        self._blocked_since = 0.0
        self._drained: asyncio.Future[None] | None = None

        self._last_checkpoint_id = 0
        self._waiting_triggers: list[Barrier] = []
        self._ended_sources: set[ChainNode] = set()
        self._ended_gates: set[int] = set()
        self._all_done = False
        self._closing = False
        #: Checkpoint after whose completion the task ends (final, stop, drain).
        self._last_wanted: int | None = None
        self._final_wanted = False
        self._stopping: int | None = None
        gates.on_ready = self.wake
        outputs.on_unblocked = self._on_unblocked

    @property
    def name(self) -> str:
        index, parallelism = self.descriptor.subtask_index, self.vertex.parallelism
        return f"{self.vertex.name} ({index + 1}/{parallelism})"

    # -- life cycle --------------------------------------------------------------------

    def start(self) -> None:
        """Restore, initialise and run; what comes of it is told to the listener."""
        self._become(ExecutionState.INITIALIZING)
        self._spawn(self._start())

    async def _start(self) -> None:
        try:
            restored = await restore_vertex(self.descriptor, self.vertex, self._environment.store)
            self.chain.open(self._context, restored.operators if restored else {})
            for node in self.chain.nodes:
                if isinstance(node.operator, AsyncOperator):
                    await self._start_operator(node)
        except Exception as err:
            await self.fail(err)
            return
        if self.state is not ExecutionState.INITIALIZING:
            return
        if restored is not None:
            self._last_checkpoint_id = restored.checkpoint_id
            self._todo.append(self.chain.restore_watermarks(restored.watermarks))
        self._become(ExecutionState.RUNNING)
        self.wake()

    async def _start_operator(self, node: ChainNode) -> None:
        try:
            await node.operator.start()  # type: ignore[attr-defined]
        except Exception as err:
            raise blamed(err, node) from None

    async def cancel(self) -> None:
        """Stop at once; nothing more is emitted. Idempotent."""
        if self.state.terminal or self.state is ExecutionState.CANCELING:
            return
        self._become(ExecutionState.CANCELING)
        await self._close()
        self._become(ExecutionState.CANCELED)

    async def fail(self, err: BaseException) -> None:
        if self.state.terminal or self.state is ExecutionState.CANCELING:
            return
        info = error_info(err, task=self.name)
        self._become(ExecutionState.FAILED, error=info)
        await self._close()

    def _fail_soon(self, err: BaseException) -> None:
        if not self.state.terminal and self.state is not ExecutionState.CANCELING:
            self._spawn(self.fail(err))

    async def _close(self) -> None:
        self._work = None
        self._todo.clear()
        if self._timer is not None:
            self._timer.cancel()
        me = asyncio.current_task()
        await end_tasks([t for t in self._background if t is not me])
        for node in self.chain.nodes:
            if isinstance(node.operator, AsyncOperator):
                try:
                    await node.operator.stop()
                except Exception as err:
                    self._environment.log("warning", f"{self.name}: closing '{node.node.name}' failed: {err}")
        for failure in self.chain.close():
            self._environment.log("warning", f"{self.name}: closing an operator failed: {failure}")

    def _become(
        self,
        state: ExecutionState,
        *,
        error: ErrorInfo | None = None,
        final: StateHandle | None = None,
    ) -> None:
        self.state = state
        self._listener.state_changed(self, state, error, final)

    def _context(self, node: ChainNode) -> OperatorContext:
        env, vertex, index = self._environment, self.vertex, self.descriptor.subtask_index
        local_dir = env.local_dir / f"{vertex.id}-{index}" / str(self.chain.nodes.index(node))

        def wake_at(at_ms: int) -> None:
            if node.wake_ms is None or at_ms < node.wake_ms:
                node.wake_ms = at_ms
                self._arm(at_ms)

        local_dir.mkdir(parents=True, exist_ok=True)
        ctx = OperatorContext(
            job_id=env.job_id,
            job_name=env.job_name,
            vertex_id=vertex.id,
            uid=node.node.uid,
            name=node.node.name,
            subtask_index=index,
            parallelism=vertex.parallelism,
            max_parallelism=vertex.max_parallelism,
            attempt=env.job_attempt,
            input_schemas=self.chain.input_schemas(node, self._gate_schemas),
            output_schema=node.node.output,
            config=env.config,
            metrics=node.metrics,
            key_groups=key_group_range(index, vertex.parallelism, vertex.max_parallelism),
            local_dir=local_dir,
            now_ms=env.now_ms,
            wake_at=wake_at,
            function=env.function,
            store=env.store,
            run=env.helper.run,
        )
        # Sources and sinks keep their own bad records, with the raw bytes.
        if getattr(node.node.spec, "on_error", None) == "dead-letter" and not isinstance(
            node.operator, AsyncOperator
        ):
            letters = BadRecords(ctx, "dead-letter")
            self._dead_letters.append(letters)
            ctx.report_error = lambda err, record: letters.keep(err, record, node.node.name)
        return ctx

    @property
    def scheduled(self) -> bool:
        """A step is due."""
        return self._scheduled

    # -- steps -------------------------------------------------------------------------

    def wake(self) -> None:
        """Something may have to be done: run a step soon."""
        if not self._scheduled and self.state is ExecutionState.RUNNING:
            self._scheduled = True
            self._loop.call_soon(self._step)

    def _step(self) -> None:
        self._scheduled = False
        if self.state is not ExecutionState.RUNNING:
            return
        started = time.perf_counter()
        self.clock.enter("busy", started)
        try:
            outcome = self._run_until(started + STEP_S)
        except (Exception, SystemExit) as err:  # sys.exit() in a function ends the task, not us
            self.clock.enter("idle")
            self._fail_soon(err)
            return
        now = time.perf_counter()
        if outcome == "more":
            self.outputs.flush_older_than(now - self._buffer_timeout_s)
            self.clock.enter("idle", now)
            self.wake()
        elif outcome == "blocked":
            self.clock.enter("back-pressured", now)
        else:
            self.clock.enter("idle", now)

    def _run_until(self, deadline: float) -> str:
        """Work until the time is up ("more"), an output is "blocked", or all is done
        ("idle")."""
        while True:
            if self._is_blocked():
                self.outputs.flush()
                return "blocked"
            work = self._work
            if work is None:
                work = self._next_work()
                if work is None:
                    return self._run_empty()
                self._work = work
            self._unflushed = True
            for _ in work:
                if self.outputs.blocked or time.perf_counter() >= deadline or self._sinks_busy():
                    break
            else:
                self._work = None
            if time.perf_counter() >= deadline:
                return "blocked" if self._is_blocked() else "more"

    def _is_blocked(self) -> bool:
        blocked = self.outputs.blocked or self._sinks_busy()
        now = time.perf_counter()
        if blocked and not self._blocked_since:
            self._blocked_since = now
        elif not blocked and self._blocked_since:
            took_ms = int((now - self._blocked_since) * 1000)
            self._blocked_since = 0.0
            for node in self.chain.sources:
                node.operator.not_polled(took_ms)  # type: ignore[attr-defined]
        return blocked

    def _sinks_busy(self) -> bool:
        busy = False
        for sink in self.chain.sinks:
            if not sink.ready():
                busy = True
                if sink not in self._sink_waits:
                    self._sink_waits[sink] = self._spawn(self._await_sink(sink))
        return busy

    async def _await_sink(self, sink: SinkDriver) -> None:
        try:
            await sink.wait_ready()
        finally:
            del self._sink_waits[sink]
            self.wake()

    def _run_empty(self) -> str:
        """Nothing to do: everything accumulated goes out."""
        self.outputs.flush()
        if self._unflushed:
            self._unflushed = False
            for sink in self.chain.sinks:
                if sink in self._sink_flushes:
                    self._unflushed = True  # once more, when this flush is over
                elif sink.has_flush:
                    self._sink_flushes[sink] = self._spawn(self._flush_sink(sink))
        self._arm_for_sources()
        return "blocked" if self.outputs.blocked else "idle"

    async def _flush_sink(self, sink: SinkDriver) -> None:
        try:
            await sink.flush()
        finally:
            del self._sink_flushes[sink]
            self.wake()

    def _on_unblocked(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self.wake()

    # -- what to do next -----------------------------------------------------------------

    def _next_work(self) -> Iterator[None] | None:
        if self._todo:
            return self._todo.popleft()
        if self._stopping is not None or self._closing:
            return None
        now_ms = self._environment.now_ms()
        wake_ms = self.chain.next_wake_ms()
        if wake_ms is not None:
            if wake_ms <= now_ms:
                return self.chain.fire_timers(now_ms)
            self._arm(wake_ms)
        for node in self.chain.sources:
            work = self._source_work(node, now_ms)
            if work is not None:
                return work
        event = self.gates.poll(self._budget.rows)
        if event is not None:
            return self._gate_work(event)
        for node in self.chain.sources:
            work = self._poll_source(node)
            if work is not None:
                return work
        if self.gates.all_ended and self._sources_ended():
            return self._after_end()
        return None

    def _gate_work(self, event: Any) -> Iterator[None]:
        match event:
            case GateBatch(gate=gate, batch=batch):
                self.records_in += batch.num_rows
                return self._timed(self.chain.process(gate, batch), batch.num_rows, self._budget)
            case GateWatermark(gate=gate, value=value):
                return self.chain.watermark(gate, value)
            case GateStatus(gate=gate, idle=idle):
                return self.chain.status(gate, idle)
            case GateEnded(gate=gate):
                self._ended_gates.add(gate)
                if self._waiting_triggers:
                    self._todo.append(self._start_triggered())
                return self.chain.end_gate(gate)
            case BarrierAligned(barrier=barrier, alignment_ms=alignment_ms):
                return self._checkpoint(barrier, alignment_ms)
        raise InternalError(f"unknown gate event {event!r}")

    def _timed(
        self, work: Iterator[None], rows: int, budget: RowBudget, before_s: float = 0.0
    ) -> Iterator[None]:
        """Measures the time from pull to pull, to cut the next batch to a step."""
        spent, at = before_s, time.perf_counter()
        for _ in work:
            spent += time.perf_counter() - at
            yield
            at = time.perf_counter()
        budget.note(rows, spent + time.perf_counter() - at)

    # -- sources -------------------------------------------------------------------------

    def _source_work(self, node: ChainNode, now_ms: int) -> Iterator[None] | None:
        """A watermark that is due, or the source's end."""
        if node in self._ended_sources:
            return None
        source: Any = node.operator
        watermark, idle = source.position(now_ms)
        if watermark > node.output_watermark or idle != node.idle:
            return self.chain.made_watermark(node, watermark, idle)
        return None

    def _poll_source(self, node: ChainNode) -> Iterator[None] | None:
        if node in self._ended_sources:
            return None
        source: Any = node.operator
        if node not in self._resting:
            started = time.perf_counter()
            rows = source.poll()
            if rows is not None:
                spent_s = time.perf_counter() - started
                # A trickle: let rows gather while the loop turns, instead of spinning on them.
                if rows.num_rows < TRICKLE_ROWS:
                    self._resting[node] = time.perf_counter() + self._trickle_pause_s
                work = self.chain.emit(node, iter((rows,)))
                return self._timed(work, rows.num_rows, source.budget, spent_s)
        if source.ended():
            self._ended_sources.add(node)
            return self.chain.end_source(node)
        if node not in self._source_waits:
            self._source_waits[node] = self._spawn(self._await_source(node))
        return None

    async def _await_source(self, node: ChainNode) -> None:
        source: Any = node.operator
        try:
            await source.wait()
            early_s = self._resting.get(node, 0.0) - time.perf_counter()
            if early_s > 0:
                await asyncio.sleep(early_s)
        except Exception as err:
            raise blamed(err, node) from None
        finally:
            self._resting.pop(node, None)
            del self._source_waits[node]
            self.wake()

    def _sources_ended(self) -> bool:
        return len(self._ended_sources) == len(self.chain.sources)

    def _arm_for_sources(self) -> None:
        now_ms = self._environment.now_ms()
        for node in self.chain.sources:
            if node not in self._ended_sources:
                at_ms = node.operator.next_position_ms(now_ms)  # type: ignore[attr-defined]
                if at_ms is not None:
                    self._arm(at_ms)

    def _arm(self, at_ms: int) -> None:
        """Wake at this processing time."""
        if self._timer is not None:
            if self._timer_ms <= at_ms:
                return
            self._timer.cancel()
        self._timer_ms = at_ms
        delay = max(0, at_ms - self._environment.now_ms()) / 1000
        self._timer = self._loop.call_later(delay, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self.wake()

    # -- checkpoints -----------------------------------------------------------------------

    def trigger_checkpoint(self, barrier: Barrier) -> None:
        """From the coordinator, to a task without running upstream tasks."""
        if self.state is not ExecutionState.RUNNING or self._closing:
            finishing = self._closing or self.state is ExecutionState.FINISHED
            reason = f"{self.name} is {'finishing' if finishing else self.state.value}"
            self._listener.declined(self, barrier.checkpoint_id, reason, finishing=finishing)
            return
        self._waiting_triggers.append(barrier)
        self._todo.append(self._start_triggered())
        self.wake()

    def _start_triggered(self) -> Iterator[None]:
        # What its ended upstream tasks sent may still be queued here: the cut is behind it.
        if self.gates.all_ended and not self.gates.has_events:
            waiting, self._waiting_triggers = self._waiting_triggers, []
            for barrier in waiting:
                if self._closing:
                    reason = f"{self.name} is finishing"
                    self._listener.declined(self, barrier.checkpoint_id, reason, finishing=True)
                elif barrier.checkpoint_id > self._last_checkpoint_id:
                    yield from self._checkpoint(barrier, 0.0)
        yield

    def _checkpoint(self, barrier: Barrier, alignment_ms: float) -> Iterator[None]:
        checkpoint_id = barrier.checkpoint_id
        self._last_checkpoint_id = checkpoint_id
        started = time.perf_counter()
        start_delay_ms = max(0.0, self._environment.now_ms() - barrier.timestamp_ms - alignment_ms)
        if barrier.kind == "drain" and not self._all_done:
            yield from self._drain_now()
        yield from self.chain.prepare_checkpoint(checkpoint_id)
        self.outputs.emit(barrier)
        snapshots = self._take_snapshots(checkpoint_id)
        sync_ms = (time.perf_counter() - started) * 1000
        if barrier.kind in ("stop", "drain"):
            self._stopping = checkpoint_id
            self._last_wanted = checkpoint_id
        elif self._final_wanted and self._last_wanted is None:
            self._last_wanted = checkpoint_id
        metrics = CheckpointMetrics(alignment_ms=alignment_ms, start_delay_ms=start_delay_ms, sync_ms=sync_ms)
        write = self._spawn(self._write_checkpoint(checkpoint_id, snapshots, metrics))
        self._writes.add(write)
        write.add_done_callback(self._writes.discard)
        yield

    def _take_snapshots(self, checkpoint_id: int) -> dict[str, OperatorSnapshot]:
        snapshots = self.chain.snapshot(checkpoint_id)
        snapshots[TASK_UID] = task_snapshot(self.chain.watermarks())
        return snapshots

    async def _write_checkpoint(
        self, checkpoint_id: int, snapshots: dict[str, OperatorSnapshot], metrics: CheckpointMetrics
    ) -> None:
        started = time.perf_counter()
        for letters in self._dead_letters:
            await letters.flush()
        handle = await self._snapshots.write(checkpoint_id, snapshots)
        took_ms = (time.perf_counter() - started) * 1000
        metrics = CheckpointMetrics(
            alignment_ms=metrics.alignment_ms,
            start_delay_ms=metrics.start_delay_ms,
            sync_ms=metrics.sync_ms,
            async_ms=took_ms,
            size_bytes=handle.size_bytes,
        )
        self._listener.acknowledged(self, checkpoint_id, handle, metrics)

    def checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is in the log: commit. May be repeated."""
        if self.state is not ExecutionState.RUNNING:
            return
        before = self._commits
        self._commits = self._spawn(self._commit(checkpoint_id, before))

    async def _commit(self, checkpoint_id: int, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            # Not ``await before``: cancelling this one must not cancel that one.
            await asyncio.wait([before])
        self.chain.checkpoint_complete(checkpoint_id)
        for sink in self.chain.sinks:
            await sink.commit(checkpoint_id)
        if self._last_wanted is not None and checkpoint_id >= self._last_wanted:
            await self._finish()

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        if self.state is not ExecutionState.RUNNING:
            return
        self.gates.abort(checkpoint_id)
        self.chain.checkpoint_aborted(checkpoint_id)
        self._waiting_triggers = [b for b in self._waiting_triggers if b.checkpoint_id != checkpoint_id]
        if self._last_wanted == checkpoint_id:
            self._last_wanted = None
            if self._stopping == checkpoint_id and not self._all_done:
                self._stopping = None
            elif self._final_wanted:
                self._listener.final_checkpoint_wanted(self)
        self.wake()

    # -- the end -----------------------------------------------------------------------------

    def _drain_now(self) -> Iterator[None]:
        """Stop with drain: event time ends here, every operator finishes."""
        for node in self.chain.sources:
            if node not in self._ended_sources:
                self._ended_sources.add(node)
                node.operator.stop_reading()  # type: ignore[attr-defined]
                yield from self.chain.end_source(node)
        for gate in self.chain.gates.keys() - self._ended_gates:
            self._ended_gates.add(gate)
            yield from self.chain.watermark(gate, MAX_WATERMARK)
            yield from self.chain.end_gate(gate)
        self._all_done = True

    def _after_end(self) -> Iterator[None] | None:
        """Everything came to its end: a last checkpoint if a sink needs one, then over."""
        if self._waiting_triggers:
            return self._start_triggered()
        if self._all_done:
            return None
        self._all_done = True
        if any(sink.wants_final_checkpoint() for sink in self.chain.sinks):
            self._final_wanted = True
            self._listener.final_checkpoint_wanted(self)
        else:
            self._spawn(self._finish())
        return None

    async def _finish(self) -> None:
        """Close the outputs, take the final state, report FINISHED.

        The final state is an object of its own, also behind a final checkpoint: that one's
        may be deleted (subsumed) before the report of FINISHED names it.
        """
        self._closing = True
        pending = [*self._sink_flushes.values(), *self._writes]
        if pending:
            await asyncio.wait(pending)
        for sink in self.chain.sinks:
            await sink.flush()
            await sink.complete()
        for letters in self._dead_letters:
            await letters.flush()
        checkpoint_id = self._last_checkpoint_id
        handle = await self._snapshots.write(checkpoint_id, self._take_snapshots(checkpoint_id), final=True)
        if self._last_wanted is None and any(s.wants_final_checkpoint() for s in self.chain.sinks):
            # Nobody would commit it: better a restart than rows that are lost.
            raise InternalError("a task would finish with output that is not committed", where=self.name)
        self.outputs.emit(END_OF_INPUT)
        while self.outputs.blocked:
            self._drained = self._loop.create_future()
            await self._drained
        if self.state is not ExecutionState.RUNNING:
            return
        await self._close()
        self._become(ExecutionState.FINISHED, final=handle)

    # -- helpers -----------------------------------------------------------------------------

    def _spawn(self, coroutine: Any) -> asyncio.Task[Any]:
        """A background task of this task: its failure fails the task."""
        task = self._loop.create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._fail_soon(task.exception())  # type: ignore[arg-type]

    def metrics(self) -> TaskMetrics:
        return collect_metrics(self)

    def watermark_holder(self) -> str | None:
        """Who holds the watermark back: a split, or a channel."""
        for node in self.chain.sources:
            holder = node.operator.watermark_holder()  # type: ignore[attr-defined]
            if holder is not None:
                return holder
        return self.gates.watermark_holder()
