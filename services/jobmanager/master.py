"""The job master's core: one job, from accepted to over. Pure: ``step(event, now_ms)``
answers effects; the ``After`` among them comes back when something is due without an event.

::

    restoring ─→ waiting for slots ─→ announcing ─→ deployed ─→ closing ─→ archiving ─→ gone
     (manifests)   (job CREATED)      (Restored       │  ↑      (Terminal
                        ↑               in the log)   │  │       in the log)
                        └───── backing off ←──────────┘  └ stopping (FAILING, CANCELLING)
                              (job RESTARTING)

The job's own status (``JobStatus``) moves by ``JOB_TRANSITIONS``. It becomes globally
terminal only when the Terminal entry is in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from penstock.errors import InternalError, ObjectStoreError, PenstockError
from penstock.messages import cluster as msg
from penstock.messages import slot as slot_msg
from penstock.messages.layout import checkpoints_prefix, staged_prefix
from penstock.messages.states import JOB_TRANSITIONS, ExecutionState, JobStatus
from services.jobmanager import effects as fx
from services.jobmanager.checkpoint_coordinator import CheckpointCoordinator
from services.jobmanager.checkpoint_decider import CheckpointConfig
from services.jobmanager.checkpoints import Completed, Request
from services.jobmanager.claim import SlotClaim
from services.jobmanager.exceptions import ExceptionHistory, loss
from services.jobmanager.execution_graph import ExecutionGraph, Update
from services.jobmanager.orders import Orders
from services.jobmanager.restart import FailureHandler, GiveUp, Restart
from services.jobmanager.restoring import Loading, state_of
from services.jobmanager.scheduler import assign, deployments
from services.jobmanager.stages import CLAIMING, Deadlines, Stage

if TYPE_CHECKING:
    from penstock.jobgraph import JobGraph
    from penstock.messages.manifest import CheckpointManifest
    from penstock.messages.slot import ErrorInfo, StateHandle
    from services.jobmanager.execution_graph import Execution
    from services.jobmanager.slots import SlotPool
    from services.jobmanager.stages import Inherited, Settings

_E = ExecutionState
_J = JobStatus

#: Tasks that were told to cancel get so long; then their processes are ended.
CANCEL_GRACE_MS = 4_000
#: Before a restart the others are cancelled; it does not wait longer than this for them.
RESTART_GRACE_MS = 2_000


class JobMasterCore:
    def __init__(
        self, job_id: str, job_graph: JobGraph, settings: Settings, inherited: Inherited, now_ms: int
    ) -> None:
        self.job_id = job_id
        self.job_graph = job_graph
        self.settings = settings
        self.status = _J.INITIALIZING
        self.stage = Stage.RESTORING
        self.timestamps: dict[str, int] = {_J.INITIALIZING.value: now_ms}
        self.start_ms = inherited.accepted_ms or now_ms
        self.end_ms: int | None = None
        self.graph = ExecutionGraph(job_id, job_graph)
        self.orders = Orders(job_id, settings.epoch)
        self.claim = SlotClaim(job_graph, self.orders)
        self.coordinator = CheckpointCoordinator(
            job_graph.name,
            self.graph,
            CheckpointConfig.of(settings.config),
            epoch=settings.epoch,
            first_id=inherited.highest_checkpoint_id + 1,
        )
        self.failures = FailureHandler(settings.config)
        self.exceptions = ExceptionHistory()
        self.job_attempt = inherited.job_attempt
        self.restored_checkpoint_id = 0
        self.restarts = 0
        self._restore: dict[str, tuple[StateHandle, ...]] = {}
        self._loading = Loading(inherited, settings.config)
        self._due = Deadlines()
        self._final: tuple[JobStatus, dict[str, Any] | None] | None = None
        self._archived = False
        #: Slots that hang in a step, by allocation: {allocation_id, taskmanager_id, tasks, …}.
        self.stalled: dict[str, dict[str, Any]] = {}

    @property
    def pool(self) -> SlotPool:
        return self.claim.pool

    # -- the step ------------------------------------------------------------------------

    def step(self, event: fx.Event, now_ms: int) -> list[fx.Effect]:
        if self.stage is Stage.GONE:
            return self._refuse(event, "the job is over")
        effects = self._handle(event, now_ms)
        effects += self._progress(now_ms)
        return effects + self._set_timer(now_ms)

    def _begin(self, now_ms: int) -> list[fx.Effect]:
        """First of all: load what may be restored; give back what an earlier master held."""
        orphans: list[fx.Effect] = [fx.FindAllocations()] if self.job_attempt else []
        if not self._loading.keys:
            self._set_status(_J.CREATED, now_ms)
            return orphans + self._wait_for_slots(now_ms)
        return orphans + [fx.LoadManifest(key) for key in self._loading.keys]

    def _set_timer(self, now_ms: int) -> list[fx.Effect]:
        """One timer, moved when what is due next has moved."""
        wakeup_ms = self._next_due(now_ms)
        if wakeup_ms is None or wakeup_ms == self._due.timer_ms:
            return []
        self._due.timer_ms = wakeup_ms
        return [fx.After(max(0, wakeup_ms - now_ms), fx.Wakeup(), "wakeup")]

    def _handle(self, event: fx.Event, now_ms: int) -> list[fx.Effect]:
        match event:
            case fx.Asked(token, message):
                return self._received(token, message, now_ms)
            case fx.Begin():
                return self._begin(now_ms)
            case fx.Wakeup():
                self._due.timer_ms = None
                return []
            case fx.CommandDone(command, reply):
                return self._command_done(command, reply, now_ms)
            case fx.CommandLost(command, reason):
                return self._command_lost(command, reason, now_ms)
            case fx.Declared():
                return self._declared(event, now_ms)
            case fx.NotDeclared(needed):
                return self.claim.give_back() if needed == 0 else []
            case fx.Allocations(found):
                return self.claim.found(found)
            case fx.LogAppended(entry, _):
                return self._logged(entry, now_ms)
            case fx.ManifestStored(checkpoint_id):
                return self.coordinator.manifest_stored(checkpoint_id, now_ms)
            case fx.ManifestNotStored(checkpoint_id, reason):
                return self.coordinator.manifest_not_stored(checkpoint_id, reason, now_ms)
            case fx.ManifestLoaded(key, manifest):
                return self._loaded(key, manifest, now_ms)
            case fx.ManifestUnreadable(key, error):
                self._note(error, now_ms, task=f"checkpoint {key}")
                return self._loaded(key, None, now_ms)
            case fx.Archived():
                self._archived = True
                return []
            case fx.Deposed(reason):
                return self._deposed(reason, now_ms)
            case fx.EffectFailed(effect, error):
                raise InternalError(f"{type(effect).__name__} failed: {error}", where=self.job_id) from error
            case _:
                assert_never(event)

    def _next_due(self, now_ms: int) -> int | None:
        """When something has to be looked at without an event."""
        due = self._due
        limits = (due.restart_ms, due.restart_latest_ms, due.stop_latest_ms)
        # A limit that has passed waits for an event (an answer of the log), not for the clock.
        times = [due.coordinator_ms, *(t for t in limits if t is not None and t > now_ms)]
        if self.stage in CLAIMING:
            times.append(self.claim.declare_ms)
        return min((t for t in times if t is not None), default=None)

    def _refuse(self, event: fx.Event, reason: str) -> list[fx.Effect]:
        if not isinstance(event, fx.Asked):
            return []
        if isinstance(event.message, msg.RequestJobDetails):
            from services.jobmanager.details import job_details

            return [fx.Answer(event.token, job_details(self))]
        return [fx.Answer(event.token, msg.Refused(reason=reason))]

    def _progress(self, now_ms: int) -> list[fx.Effect]:
        """Whatever has become possible, or due, with what is known now."""
        effects: list[fx.Effect] = []
        if self.stage in CLAIMING and now_ms >= self.claim.declare_ms:
            effects += self.claim.declare(now_ms)
        stage = None
        while stage is not self.stage:  # one thing may make the next possible
            stage = self.stage
            match stage:
                case Stage.WAITING:
                    effects += self._announce(now_ms) if self.pool.missing == 0 else []
                case Stage.DEPLOYED:
                    effects += self._run(now_ms)
                case Stage.BACKING_OFF:
                    effects += self._maybe_restart(now_ms)
                case Stage.STOPPING:
                    effects += self._maybe_stopped(now_ms)
                case Stage.ARCHIVING:
                    effects += self._maybe_gone()
        return effects

    # -- life cycle ----------------------------------------------------------------------

    def _set_status(self, status: JobStatus, now_ms: int) -> None:
        if status is self.status:
            return
        if status not in JOB_TRANSITIONS[self.status]:
            raise InternalError(
                "no such transition of a job",
                expected=", ".join(sorted(s.value for s in JOB_TRANSITIONS[self.status])),
                got=f"{self.status.value} → {status.value}",
                where=self.job_id,
            )
        self.status = status
        self.timestamps[status.value] = now_ms

    def _loaded(self, key: str, manifest: CheckpointManifest | None, now_ms: int) -> list[fx.Effect]:
        """One manifest is read (None: unreadable). When all are, go on."""
        if self.stage is not Stage.RESTORING or not self._loading.loaded(key, manifest):
            return []
        self._set_status(_J.CREATED, now_ms)
        found = self._loading.found
        if not found:
            # Starting from nothing would silently lose what the checkpoints held.
            latest = self.exceptions.latest
            return self._stop(_J.FAILED, latest["error"] if latest else None, now_ms)
        if self._loading.own:
            self.coordinator.retained.extend(found)
        try:
            self._choose_restore(found[-1])
        except PenstockError as err:
            self._note(err.to_dict(), now_ms)
            return self._stop(_J.FAILED, err.to_dict(), now_ms)
        return self._wait_for_slots(now_ms)

    def _choose_restore(self, completed: Completed | None) -> None:
        """None: no checkpoint since the start, which then counts again."""
        if completed is None:
            return
        self._restore = state_of(completed, self.job_graph, self.settings.config)
        self.restored_checkpoint_id = completed.checkpoint_id
        self.coordinator.next_id = max(self.coordinator.next_id, completed.checkpoint_id + 1)

    def _wait_for_slots(self, now_ms: int) -> list[fx.Effect]:
        self.stage = Stage.WAITING
        self.job_attempt += 1
        self.graph.new_attempt(self.job_attempt, now_ms)
        self.graph.transition_all(self.graph, _E.SCHEDULED, now_ms)
        return self.claim.declare(now_ms)

    def _declared(self, answer: fx.Declared, now_ms: int) -> list[fx.Effect]:
        if answer.needed == 0:
            return self.claim.give_back()
        return self.claim.declared(answer, now_ms)

    def _announce(self, now_ms: int) -> list[fx.Effect]:
        """All slots are here: say in the log from where this attempt starts."""
        self.stage = Stage.ANNOUNCING
        return [
            fx.AppendLog(
                msg.Restored(
                    epoch=self.settings.epoch,
                    job_attempt=self.job_attempt,
                    checkpoint_id=self.restored_checkpoint_id,
                    timestamp_ms=now_ms,
                )
            )
        ]

    def _deploy(self, now_ms: int) -> list[fx.Effect]:
        if self.pool.missing:  # one was lost meanwhile
            self.stage = Stage.WAITING
            return []
        self.stage = Stage.DEPLOYED
        self._set_status(_J.RUNNING, now_ms)
        if self.restored_checkpoint_id:
            self.coordinator.counts["restored"] += 1
        assign(self.graph, self.pool)
        messages = deployments(
            self.graph,
            self.pool,
            epoch=self.settings.epoch,
            job_secret=self.settings.secret,
            storage=self.settings.storage,
            config=self.settings.config,
            restored_checkpoint_id=self.restored_checkpoint_id,
            restore=self._restore,
        )
        self.graph.transition_all(self.graph, _E.DEPLOYING, now_ms)
        return [self.orders.deploy(self._taskmanager_of(deploy.allocation_id), deploy) for deploy in messages]

    def _run(self, now_ms: int) -> list[fx.Effect]:
        """Checkpoints, and the end."""
        if self.graph.all_finished:
            if not self.coordinator.settled:
                return []
            effects = self.coordinator.abandon("the job finished", now_ms)
            return effects + self._close(_J.FINISHED, None, now_ms)
        effects, self._due.coordinator_ms = self.coordinator.step(now_ms)
        if self.coordinator.job_failure is not None:
            reason, self.coordinator.job_failure = self.coordinator.job_failure, None
            error = ObjectStoreError(
                reason,
                expected="checkpoints that complete",
                remedy="see what the subtasks say, or raise execution.checkpointing.timeout or "
                "execution.checkpointing.tolerable-failed-checkpoints",
            )
            effects += self._fail(slot_msg.ErrorInfo(error=error.to_dict()), now_ms)
        return effects

    # -- failure and restart -------------------------------------------------------------

    def _note(self, error: dict[str, Any], now_ms: int, *, task: str | None = None) -> None:
        self.exceptions.add(slot_msg.ErrorInfo(error=error), now_ms, job_attempt=self.job_attempt, task=task)

    def _fail(
        self, info: ErrorInfo, now_ms: int, *, task: str | None = None, location: str | None = None
    ) -> list[fx.Effect]:
        """Something of the running attempt failed: restart, or fail the job."""
        first = self.stage in (Stage.WAITING, Stage.ANNOUNCING, Stage.DEPLOYED)
        self.exceptions.add(
            info, now_ms, job_attempt=self.job_attempt, task=task, location=location, concurrent=not first
        )
        if not first:
            return []
        decision = self.failures.decide(info.error, self.restored_checkpoint_id, now_ms)
        effects = self.coordinator.abandon("the job failed", now_ms)
        self._due.coordinator_ms = None
        match decision:
            case Restart(delay_ms):
                self._set_status(_J.RESTARTING, now_ms)
                self.stage = Stage.BACKING_OFF
                self._due.restart_ms = now_ms + delay_ms
                self._due.restart_latest_ms = now_ms + max(delay_ms, RESTART_GRACE_MS)
                return effects + self._cancel_tasks(now_ms)
            case GiveUp(reason):
                entry = self.exceptions.latest
                if entry is not None:
                    entry["not_restarted"] = reason
                return effects + self._stop(_J.FAILED, info.error, now_ms)

    def _maybe_restart(self, now_ms: int) -> list[fx.Effect]:
        due = self._due
        assert due.restart_ms is not None
        assert due.restart_latest_ms is not None
        if now_ms < due.restart_ms or not self.coordinator.settled:
            return []
        if not self.graph.all_terminal:
            if now_ms < due.restart_latest_ms and not self._only_stalled_left():
                return []
            # Their processes are ended by the new deployment; nobody waits for them.
            self.graph.transition_all(list(self.graph), _E.CANCELED, now_ms)
        due.restart_ms = due.restart_latest_ms = None
        self.restarts += 1
        self._choose_restore(self.coordinator.last_completed)
        self._set_status(_J.CREATED, now_ms)
        return self._wait_for_slots(now_ms)

    def _cancel_tasks(self, now_ms: int) -> list[fx.Effect]:
        """Tell every slot with live tasks to cancel them."""
        live = [e for e in self.graph if not e.state.terminal]
        slots = {(e.taskmanager_id, e.allocation_id) for e in live if e.allocation_id}
        effects: list[fx.Effect] = []
        for execution in live:
            deployed = execution.allocation_id is not None and self.pool.get(execution.allocation_id)
            self.graph.transition(execution, _E.CANCELING if deployed else _E.CANCELED, now_ms)
        for taskmanager_id, allocation_id in sorted(slots):
            if taskmanager_id is None or allocation_id is None or self.pool.get(allocation_id) is None:
                continue
            effects.append(self.orders.cancel(taskmanager_id, allocation_id))
        return effects

    def _slot_lost(
        self, allocation_id: str, reason: str, now_ms: int, *, exit_code: int | None = None
    ) -> list[fx.Effect]:
        self.stalled.pop(allocation_id, None)
        held = self.pool.remove(allocation_id)
        # The allocation is given back even if only its process died: a task manager that
        # still counts it as ours would leave us waiting for a slot that nobody gives.
        effects: list[fx.Effect] = []
        if held is not None:
            effects.append(self.orders.free(held.taskmanager_id, held.allocation_id))
        lost = [e for e in self.graph.in_allocation(allocation_id) if not e.state.terminal]
        # A task that was being cancelled is as good as cancelled when its process is gone.
        canceling = [e for e in lost if e.state is _E.CANCELING]
        self.graph.transition_all(canceling, _E.CANCELED, now_ms)
        failed = self.graph.transition_all([e for e in lost if e not in canceling], _E.FAILED, now_ms)
        self.claim.declare_ms = now_ms
        if not lost:
            return effects
        task, location = self._task_name(lost[0]), lost[0].taskmanager_id
        where = f"task manager {held.taskmanager_id}" if held else f"allocation {allocation_id}"
        info = slot_msg.ErrorInfo(error=loss(reason, exit_code, task=task, where=where))
        if failed:
            return effects + self._fail(info, now_ms, task=task, location=location)
        self.exceptions.add_cause(info, now_ms, job_attempt=self.job_attempt, task=task, location=location)
        given_up = self.failures.cause(info.error, self.restored_checkpoint_id)
        if given_up is None or self.stage is not Stage.BACKING_OFF:
            return effects
        if (entry := self.exceptions.latest) is not None:
            entry["not_restarted"] = given_up.reason
        return effects + self._stop(_J.FAILED, info.error, now_ms)

    def _task_name(self, execution: Execution) -> str:
        vertex = self.job_graph.vertex(execution.vertex_id)
        return f"{vertex.name} ({execution.subtask_index + 1}/{vertex.parallelism})"

    # -- the end -------------------------------------------------------------------------

    def _stop(self, status: JobStatus, error: dict[str, Any] | None, now_ms: int) -> list[fx.Effect]:
        """Cancel what runs, then close with ``status`` (FAILED or CANCELED)."""
        self._due.restart_ms = self._due.coordinator_ms = None
        self._set_status(_J.FAILING if status is _J.FAILED else _J.CANCELLING, now_ms)
        self.stage = Stage.STOPPING
        self._final = (status, error)
        self._due.stop_latest_ms = now_ms + CANCEL_GRACE_MS
        return self.coordinator.abandon("the job stops", now_ms) + self._cancel_tasks(now_ms)

    def _maybe_stopped(self, now_ms: int) -> list[fx.Effect]:
        due = self._due
        assert self._final is not None
        assert due.stop_latest_ms is not None
        if not self.coordinator.settled:
            return []
        if not self.graph.all_terminal:
            if now_ms < due.stop_latest_ms and not self._only_stalled_left():
                return []
            self.graph.transition_all(list(self.graph), _E.CANCELED, now_ms)
        return self._close(*self._final, now_ms)

    def _close(self, status: JobStatus, error: dict[str, Any] | None, now_ms: int) -> list[fx.Effect]:
        self.stage = Stage.CLOSING
        self._due.stop_latest_ms = self._due.coordinator_ms = None
        return [
            fx.AppendLog(
                msg.Terminal(epoch=self.settings.epoch, status=status, timestamp_ms=now_ms, error=error)
            )
        ]

    def _closed(self, entry: msg.Terminal, now_ms: int) -> list[fx.Effect]:
        """The end is in the log: give everything back and keep the details.

        First the need for slots, then the slots: else they would come straight back."""
        from services.jobmanager.details import job_details

        self._set_status(entry.status, now_ms)
        self.end_ms = entry.timestamp_ms
        self.stage = Stage.ARCHIVING
        # A failed or cancelled job can be resumed from its last checkpoint; of a finished
        # one only savepoints are of use.
        finished = entry.status is _J.FINISHED
        kept = [c for c in self.coordinator.retained if c.kind != "checkpoint" or not finished]
        keep = {c.manifest_key for c in kept} | {key for c in kept for key in c.manifest.object_keys()}
        return [
            fx.Declare(0),
            fx.Notify(
                "job", {"job_id": self.job_id, "name": self.job_graph.name, "status": self.status.value}
            ),
            fx.Archive(
                job_details(self),
                delete_prefixes=(checkpoints_prefix(self.job_id), staged_prefix(self.job_id))
                if finished
                else (),
                keep=frozenset(keep),
            ),
        ]

    def _maybe_gone(self) -> list[fx.Effect]:
        return self._gone(self.status, "") if self._archived and self.claim.given_back else []

    def _gone(self, status: JobStatus, reason: str) -> list[fx.Effect]:
        self.stage = Stage.GONE
        return [fx.Stop(status, reason)]

    def _deposed(self, reason: str, now_ms: int) -> list[fx.Effect]:
        """Another master leads (or may): say nothing more to anybody."""
        if not self.status.terminal:
            self._set_status(_J.SUSPENDED, now_ms)
        return self._gone(self.status, reason)

    # -- messages ------------------------------------------------------------------------

    def _received(self, token: int, message: msg.ToJobMaster, now_ms: int) -> list[fx.Effect]:
        ack: Any = msg.Ack()
        match message:
            case msg.RequestJobDetails():
                from services.jobmanager.details import job_details

                return [fx.Answer(token, job_details(self))]
            case msg.OfferSlots():
                return [fx.Answer(token, msg.OfferReply(accepted=self._offered(message)))]
            case msg.SlotReport():
                effects: list[fx.Effect] = []
                for report in message.reports:
                    effects += self._report(report, message, now_ms)
            case msg.SlotLost():
                effects = self._slot_lost(
                    message.allocation_id, message.reason, now_ms, exit_code=message.exit_code
                )
            case msg.TaskManagerLost():
                effects = []
                for held in self.pool.of_taskmanager(message.taskmanager_id):
                    effects += self._slot_lost(held.allocation_id, message.reason, now_ms)
            case msg.CancelJob():
                ack, effects = self._cancel(now_ms)
            case msg.TriggerSavepoint():
                ack, effects = self._savepoint(message), []
            case msg.SlotsUnavailable():
                self.claim.cluster_has(message.total, message.free)
                effects = []
            case _:
                assert_never(message)
        return [fx.Answer(token, ack), *effects]

    def _offered(self, offer: msg.OfferSlots) -> tuple[str, ...]:
        if self.stage in (Stage.STOPPING, Stage.CLOSING, Stage.ARCHIVING):
            held = self.pool.addresses()
            return tuple(s.allocation_id for s in offer.slots if s.allocation_id in held)
        return self.pool.offer(offer)

    def _report(self, report: slot_msg.FromSlot, relay: msg.SlotReport, now_ms: int) -> list[fx.Effect]:
        match report:
            case slot_msg.TaskStateChanged():
                return self._task_state(report, now_ms)
            case slot_msg.FinalCheckpointWanted():
                execution = self.graph.get(report.execution_id)
                if execution is not None and not execution.state.terminal:
                    execution.wants_final_checkpoint = True
                return []
            case slot_msg.CheckpointAcknowledged():
                return self.coordinator.acknowledge(report, now_ms)[1]
            case slot_msg.CheckpointDeclined():
                return self.coordinator.decline(report, now_ms)
            case slot_msg.TaskMetricsReport():
                for metrics in report.tasks:
                    execution = self.graph.get(metrics.execution_id)
                    if execution is not None:
                        execution.metrics = metrics
                return []
            case slot_msg.SlotStalled():
                self._slot_stalled(report, relay.taskmanager_id, now_ms)
                return []
            case slot_msg.SlotReady() | slot_msg.SlotLog():
                return []
            case _:
                assert_never(report)

    def _slot_stalled(self, report: slot_msg.SlotStalled, taskmanager_id: str, now_ms: int) -> None:
        if not report.stalled:
            self.stalled.pop(report.allocation_id, None)
            return
        tasks = [self._task_name(e) for e in self.graph.in_allocation(report.allocation_id)]
        self.stalled[report.allocation_id] = {
            "allocation_id": report.allocation_id,
            "taskmanager_id": taskmanager_id,
            "tasks": tasks,
            "frame": report.frame,
            "since_ms": now_ms,
        }

    def _only_stalled_left(self) -> bool:
        """What has not ended hangs in a step and will take no order: end its process."""
        return all(e.state.terminal or e.allocation_id in self.stalled for e in self.graph)

    def _task_state(self, report: slot_msg.TaskStateChanged, now_ms: int) -> list[fx.Effect]:
        answer = self.graph.report(report)
        if answer is Update.ILLEGAL:
            execution = self.graph.get(report.execution_id)
            assert execution is not None
            return self._inconsistent(execution, report, now_ms)
        if answer is not Update.APPLIED:
            return []
        execution = self.graph.get(report.execution_id)
        assert execution is not None
        if report.state is _E.FINISHED:
            return self.coordinator.task_finished(execution, now_ms)
        if report.state in (_E.FAILED, _E.CANCELED) and self.stage is Stage.DEPLOYED:
            info = report.error
            if info is None:
                error = InternalError(f"a task was {report.state.value} that nobody stopped")
                info = slot_msg.ErrorInfo(error=error.to_dict())
            return self._fail(
                info, now_ms, task=self._task_name(execution), location=execution.taskmanager_id
            )
        if report.error is not None and report.state is _E.FAILED:
            self.exceptions.add(
                report.error,
                now_ms,
                job_attempt=self.job_attempt,
                task=self._task_name(execution),
                location=execution.taskmanager_id,
                concurrent=True,
            )
        return []

    def _inconsistent(
        self, execution: Execution, report: slot_msg.TaskStateChanged, now_ms: int
    ) -> list[fx.Effect]:
        error = InternalError(
            "a task reports a state that it cannot be in",
            expected=f"a state that follows {execution.state.value}",
            got=report.state.value,
            where=report.execution_id,
        )
        self.graph.transition(execution, _E.FAILED, now_ms)
        return self._fail(slot_msg.ErrorInfo(error=error.to_dict()), now_ms, task=self._task_name(execution))

    def _cancel(self, now_ms: int) -> tuple[Any, list[fx.Effect]]:
        if self.stage in (Stage.CLOSING, Stage.ARCHIVING) or self.status in (_J.CANCELLING, _J.FAILING):
            return msg.Ack(), []
        if self.status is _J.INITIALIZING:
            self._set_status(_J.CREATED, now_ms)
        return msg.Ack(), self._stop(_J.CANCELED, None, now_ms)

    def _savepoint(self, message: msg.TriggerSavepoint) -> Any:
        if self.stage is not Stage.DEPLOYED:
            return msg.Refused(
                reason=f"a {message.kind} needs a running job; this one is {self.status.value}"
            )
        reason = self.coordinator.request(Request(message.command_id, message.kind, message.directory))
        return msg.Refused(reason=reason) if reason else msg.Ack()

    # -- answers to effects --------------------------------------------------------------

    def _logged(self, entry: msg.LogEntry, now_ms: int) -> list[fx.Effect]:
        match entry:
            case msg.Restored():
                return self._deploy(now_ms) if self.stage is Stage.ANNOUNCING else []
            case msg.CheckpointCompleted():
                return self.coordinator.logged(entry, now_ms)
            case msg.Terminal():
                return self._closed(entry, now_ms)
            case _:
                return []

    def _command_done(self, command: fx.Command, reply: Any, now_ms: int) -> list[fx.Effect]:
        self.claim.answered(command)
        match reply:
            case msg.Refused(reason=reason, fenced=True):
                return self._deposed(reason, now_ms)
            case msg.Refused(reason=reason):
                return self._command_lost(command, reason, now_ms)
            case msg.Failed(error=error):
                return self._command_failed(command, error, now_ms)
            case _:
                return []

    def _command_failed(self, command: fx.Command, error: dict[str, Any], now_ms: int) -> list[fx.Effect]:
        """The task manager raised: for a deployment that fails the attempt."""
        message = command.message
        if isinstance(message, msg.DeploySlot) and self._is_current(message):
            executions = self.graph.in_allocation(message.allocation_id)
            self.graph.transition_all(executions, _E.FAILED, now_ms)
            return self._fail(slot_msg.ErrorInfo(error=error), now_ms, location=command.taskmanager_id)
        return self._command_lost(command, str(error.get("message")), now_ms)

    def _command_lost(self, command: fx.Command, reason: str, now_ms: int) -> list[fx.Effect]:
        self.claim.answered(command)
        message = command.message
        match message:
            case msg.DeploySlot() if self._is_current(message):
                return self._slot_lost(message.allocation_id, f"cannot deploy: {reason}", now_ms)
            case msg.SlotCommand(command=slot_msg.TriggerCheckpoint(checkpoint_id=checkpoint_id)):
                return self.coordinator.trigger_failed(
                    checkpoint_id, f"could not be triggered at {command.taskmanager_id}: {reason}", now_ms
                )
            case msg.SlotCommand(command=slot_msg.CheckpointComplete()):
                self.coordinator.complete_lost()  # else it is repeated with the next one
                return []
            case _:
                return []  # cancelling and freeing have their own time limits

    def _is_current(self, message: msg.DeploySlot) -> bool:
        deploy = message.deploy
        return (
            deploy is not None
            and deploy.job_attempt == self.job_attempt
            and self.stage is Stage.DEPLOYED
            and self.pool.get(message.allocation_id) is not None
        )

    def _taskmanager_of(self, allocation_id: str) -> str:
        held = self.pool.get(allocation_id)
        assert held is not None
        return held.taskmanager_id

    # -- showing -------------------------------------------------------------------------

    @property
    def waiting_for(self) -> str | None:
        return self.claim.waiting_for() if self.stage is Stage.WAITING else None

    def validate_state(self) -> None:
        """InternalError when an invariant is broken; called after every step in tests."""
        self.graph.validate_state()
        self.coordinator.validate_state()
        problems = []
        if self.status.globally_terminal and self.stage not in (Stage.ARCHIVING, Stage.GONE):
            problems.append(f"{self.status.value} while {self.stage.value}")
        if self.stage is Stage.DEPLOYED and self.status is not _J.RUNNING:
            problems.append(f"deployed and {self.status.value}")
        if self.stage is Stage.DEPLOYED and self.graph.count(_E.FAILED, _E.CANCELED):
            problems.append("a failed task was not noticed")
        if self.coordinator.pending and self.stage not in (Stage.DEPLOYED,) and self.coordinator.settled:
            problems.append(f"a checkpoint in flight while {self.stage.value}")
        if len(self.pool.all()) > self.pool.needed:
            problems.append("more slots than needed")
        if problems:
            raise InternalError("job master: " + "; ".join(problems))
