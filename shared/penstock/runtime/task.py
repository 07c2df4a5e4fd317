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
from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.config import BUFFER_TIMEOUT_MS
from penstock.errors import InternalError
from penstock.messages.states import ExecutionState
from penstock.operators.budget import STEP_S, RowBudget, least_rows, most_rows
from penstock.operators.drivers import AsyncOperator
from penstock.runtime.background import BackgroundTasks, WakeTimer
from penstock.runtime.chain import Chain
from penstock.runtime.channels import (
    BarrierAligned,
    GateBatch,
    GateEnded,
    GateEvent,
    GateStatus,
    GateWatermark,
)
from penstock.runtime.checkpoints import local_copies, restore_vertex
from penstock.runtime.contexts import OperatorContexts
from penstock.runtime.failures import error_info
from penstock.runtime.gates import InputGates
from penstock.runtime.in_flight import GateEdge, Replay, restore_in_flight
from penstock.runtime.replays import Replays
from penstock.runtime.task_checkpoints import TaskCheckpoints
from penstock.runtime.task_sinks import TaskSinks
from penstock.runtime.task_sources import TaskSources, timed
from penstock.runtime.taskmetrics import TaskClock, collect_metrics
from penstock.snapshots.restoring import Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph import JobVertex
    from penstock.messages.slot import ErrorInfo, StateHandle, TaskDescriptor, TaskMetrics
    from penstock.runtime.elements import Barrier
    from penstock.runtime.environment import Environment
    from penstock.runtime.listener import TaskListener
    from penstock.runtime.outputs import Outputs

#: The first batch is cut to this many rows; later ones by measured time.
FIRST_ROWS = 256
MAX_ROWS = 65_536


class Task:
    """One subtask. It restores its state, runs its chain in steps, and reports to its listener."""

    def __init__(
        self,
        descriptor: TaskDescriptor,
        vertex: JobVertex,
        *,
        environment: Environment,
        gates: InputGates,
        gate_edges: list[GateEdge],
        outputs: Outputs,
        chain: Chain,
        listener: TaskListener,
    ) -> None:
        self.descriptor = descriptor
        self.vertex = vertex
        self.state = ExecutionState.DEPLOYING
        self.chain = chain
        self.gates = gates
        self.gate_edges = gate_edges
        self.outputs = outputs
        #: Rows that were in flight at the checkpoint, to be processed before any input.
        self.replay: Replay | None = None
        #: Progress of reading the checkpoint.
        self.restoring = Source(environment.store)
        self.clock = TaskClock(environment.time_s)
        self.records_in = 0
        self._environment = environment
        self._time_s = environment.time_s
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._buffer_timeout_s = BUFFER_TIMEOUT_MS.read(environment.config) / 1000

        self._scheduled = False
        self._work: Iterator[None] | None = None
        self._todo: deque[Iterator[None]] = deque()
        specs = [o.spec for o in self.vertex.operators]
        self._budget = RowBudget(FIRST_ROWS, least=least_rows(specs), most=most_rows(specs, MAX_ROWS))
        self._timer = WakeTimer(self._loop, environment.now_ms, self.wake)
        self.arm = self._timer.arm  # wakes the task at a processing time, ms since the epoch
        self._background = BackgroundTasks(self._loop, self._fail_soon)
        #: Runs a coroutine as a background task of this task: its failure fails the task.
        self.spawn = self._background.spawn
        self._blocked_since = 0.0

        schemas = [edge.schema for edge in gate_edges]
        self.contexts = OperatorContexts(environment, descriptor, chain, schemas, self.arm)
        self.sources = TaskSources(chain, environment, spawn=self.spawn, wake=self.wake)
        self.sinks = TaskSinks(chain, spawn=self.spawn, wake=self.wake)
        self.checkpoints = TaskCheckpoints(self, environment, listener)
        self.replays = Replays(self, environment)
        gates.on_ready = self.wake
        gates.on_announced = self.checkpoints.announced
        outputs.on_unblocked = self._on_unblocked

    @property
    def name(self) -> str:
        """The name for people: ``vertex (subtask/parallelism)``, counted from 1."""
        index, parallelism = self.descriptor.subtask_index, self.vertex.parallelism
        return f"{self.vertex.name} ({index + 1}/{parallelism})"

    # -- life cycle --------------------------------------------------------------------

    def start(self) -> None:
        """Restores, initialises and runs; the listener gets the outcome."""
        self._become(ExecutionState.INITIALIZING)
        self.spawn(self._start())

    async def _start(self) -> None:
        try:
            env = self._environment
            self.restoring = Source(env.store, local_copies(env), env.helper.run, env.log)
            began = self._time_s()
            restored = await restore_vertex(self.descriptor, self.vertex, self.restoring)
            self.restoring.read_ms = (self._time_s() - began) * 1000
            self.replay = await restore_in_flight(
                self.descriptor, self.vertex, self.gate_edges, self._environment.store
            )
            began = self._time_s()
            self.chain.open(self.contexts.make, restored.operators if restored else {})
            self.restoring.load_ms = (self._time_s() - began) * 1000
            for node in self.chain.nodes:
                if isinstance(node.operator, AsyncOperator):
                    try:
                        await node.operator.start()
                    except Exception as err:
                        raise self.chain.blame(err, node) from None
        except Exception as err:
            await self.fail(err)
            return
        if self.state is not ExecutionState.INITIALIZING:
            return
        if restored is not None:
            self.checkpoints.last_id = restored.checkpoint_id
            self._todo.append(self.chain.restore_watermarks(restored.watermarks))
        self._become(ExecutionState.RUNNING)
        self.replays.start(restored.operators if restored else {})
        self.wake()

    async def cancel(self) -> None:
        """Stops at once; nothing more is emitted. Idempotent."""
        if self.state.terminal or self.state is ExecutionState.CANCELING:
            return
        self._become(ExecutionState.CANCELING)
        await self._close()
        self._become(ExecutionState.CANCELED)

    async def fail(self, err: BaseException) -> None:
        """End the task with an error, which the listener gets."""
        if self.state.terminal or self.state is ExecutionState.CANCELING:
            return
        info = error_info(err, task=self.name, operator=self.chain.blamed_operator(err))
        self._become(ExecutionState.FAILED, error=info)
        await self._close()

    def _fail_soon(self, err: BaseException) -> None:
        if not self.state.terminal and self.state is not ExecutionState.CANCELING:
            self.spawn(self.fail(err))

    async def finished(self, final: StateHandle) -> None:
        """Ends the task as FINISHED, when all work is done and sent."""
        if self.state is not ExecutionState.RUNNING:
            return
        await self._close()
        self._become(ExecutionState.FINISHED, final=final)

    async def _close(self) -> None:
        self._work = None
        self._todo.clear()
        self._timer.cancel()
        await self._background.end()
        for node in self.chain.nodes:
            if isinstance(node.operator, AsyncOperator):
                try:
                    await node.operator.stop()
                except Exception as err:
                    self._environment.log(
                        "warning", "operator_close_failed", task=self.name, operator=node.node.name, error=err
                    )
        for failure in self.chain.close():
            self._environment.log("warning", "operator_close_failed", task=self.name, error=failure)

    def _become(
        self,
        state: ExecutionState,
        *,
        error: ErrorInfo | None = None,
        final: StateHandle | None = None,
    ) -> None:
        self.state = state
        self._listener.state_changed(self, state, error, final)

    @property
    def scheduled(self) -> bool:
        """Whether a step is due."""
        return self._scheduled

    # -- steps -------------------------------------------------------------------------

    def wake(self) -> None:
        """Schedules a step, because there may be work."""
        if not self._scheduled and self.state is ExecutionState.RUNNING:
            self._scheduled = True
            self._loop.call_soon(self._step)

    def do(self, work: Iterator[None]) -> None:
        """Schedules work that runs before any input, in the order of the calls."""
        self._todo.append(work)
        self.wake()

    def _step(self) -> None:
        self._scheduled = False
        if self.state is not ExecutionState.RUNNING:
            return
        started = self._time_s()
        self.clock.enter("busy", started)
        try:
            outcome = self._run_until(started + STEP_S)
        except (Exception, SystemExit) as err:  # sys.exit() in a function ends the task, not the slot
            self.clock.enter("idle")
            self._fail_soon(err)
            return
        now = self._time_s()
        if outcome == "more":
            self.outputs.flush_older_than(now - self._buffer_timeout_s)
            self.clock.enter("idle", now)
            self.wake()
        elif outcome == "blocked":
            self.clock.enter("back-pressured", now)
        else:
            self.clock.enter("idle", now)

    def _run_until(self, deadline: float) -> str:
        """Works until the time is up ("more"), an output is "blocked", or all is done ("idle")."""
        while True:
            work, urgent = self._work, self.checkpoints.urgent()
            if self._is_blocked() and not (urgent and self._may_go_on()):
                self.outputs.flush()
                return "blocked"
            if work is None:
                work = self._next_work(urgent=urgent)
                if work is None:
                    return self._run_empty()
                self._work = work
            self.sinks.unflushed = True
            for _ in work:
                if self._time_s() >= deadline or self._must_pause(urgent=urgent):
                    break
            else:
                self._work = None
            if self._time_s() >= deadline:
                urgent = self.checkpoints.urgent() and self._may_go_on()
                return "blocked" if self._is_blocked() and not urgent else "more"

    def _must_pause(self, *, urgent: bool) -> bool:
        if urgent:
            return self.outputs.overdrawn or not self._may_go_on()
        return self.outputs.blocked or self.sinks.busy()

    def _may_go_on(self) -> bool:
        """Before a barrier that overtakes, outputs need no credit. But an operator that awaits a response in
        the middle of a batch must receive it first."""
        return self._work is None or self.checkpoints.overtakes or not self.sinks.busy()

    def _is_blocked(self) -> bool:
        blocked = self.outputs.blocked or self.sinks.busy()
        now = self._time_s()
        if blocked and not self._blocked_since:
            self._blocked_since = now
        elif not blocked and self._blocked_since:
            took_ms = int((now - self._blocked_since) * 1000)
            self._blocked_since = 0.0
            self.sources.not_polled(took_ms)
        return blocked

    def _run_empty(self) -> str:
        """Sends all collected rows when there is no more work."""
        self.outputs.flush()
        self.sinks.flush_soon()
        at_ms = self.sources.next_position_ms(self._environment.now_ms())
        if at_ms is not None:
            self.arm(at_ms)
        return "blocked" if self.outputs.blocked else "idle"

    def _on_unblocked(self) -> None:
        self.checkpoints.outputs_unblocked()
        self.wake()

    # -- what to do next -----------------------------------------------------------------

    def _next_work(self, *, urgent: bool) -> Iterator[None] | None:
        """``urgent``: a barrier is about to overtake; the work before it comes first."""
        if self._todo:
            return self._todo.popleft()
        if urgent:
            return self.checkpoints.urgent_work(self._budget.rows)
        if self.checkpoints.stopping is not None or self.checkpoints.closing:
            return None
        now_ms = self._environment.now_ms()
        wake_ms = self.chain.next_wake_ms()
        if wake_ms is not None:
            if wake_ms <= now_ms:
                return self.chain.fire_timers(now_ms)
            self.arm(wake_ms)
        work = self.sources.due(now_ms)
        if work is not None:
            return work
        event = self._replayed() or self.gates.poll(self._budget.rows)
        if event is not None:
            return self.gate_work(event)
        work = self.sources.poll()
        if work is not None:
            return work
        if self.gates.all_ended and self.sources.all_ended:
            return self.checkpoints.after_end()
        return None

    def _replayed(self) -> GateEvent | None:
        if self.replay is None:
            return None
        event = self.replay.poll(self._budget.rows)
        if event is None:
            self.replay = None
            self.checkpoints.replayed()
        return event

    def gate_work(self, event: Any) -> Iterator[None]:
        """The work for an event of the input gates."""
        match event:
            case GateBatch(gate=gate, batch=batch):
                rows = batch.num_rows
                self.records_in += rows
                return timed(self.chain.process(gate, batch), rows, self._budget, self._time_s)
            case GateWatermark(gate=gate, value=value):
                return self.chain.watermark(gate, value)
            case GateStatus(gate=gate, idle=idle):
                return self.chain.status(gate, idle)
            case GateEnded(gate=gate):
                self.checkpoints.gate_ended(gate)
                return self.chain.end_gate(gate)
            case BarrierAligned(barrier=barrier, alignment_ms=alignment_ms):
                return self.checkpoints.take(barrier, alignment_ms)
        raise InternalError(f"unknown gate event {event!r}")

    # -- checkpoints -----------------------------------------------------------------------

    def trigger_checkpoint(self, barrier: Barrier) -> None:
        """Starts a checkpoint on the coordinator's trigger; for tasks without running upstream tasks."""
        self.checkpoints.trigger(barrier)

    def checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is in the log: commit. May be repeated."""
        if self.state is ExecutionState.RUNNING:
            self.checkpoints.complete(checkpoint_id)

    def checkpoint_aborted(self, checkpoint_id: int) -> None:
        """The checkpoint is aborted: stop aligning and writing it."""
        if self.state is ExecutionState.RUNNING:
            self.gates.abort(checkpoint_id)
            self.checkpoints.abort(checkpoint_id)
            self.wake()

    # -- helpers -----------------------------------------------------------------------------

    def metrics(self) -> TaskMetrics:
        """The task's totals and rates for the reporter."""
        return collect_metrics(self)

    @property
    def in_pool_usage(self) -> float:
        """The share of the slot's network memory that its channels have borrowed, from 0 to 1."""
        return self._environment.credits.usage

    def watermark_holder(self) -> str | None:
        """The split or channel that holds the watermark back; None if there is none."""
        return self.sources.watermark_holder() or self.gates.watermark_holder()
