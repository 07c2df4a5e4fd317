"""The core of a job master: one job, from accepted to ended. Pure: ``step(event, now_ms)`` returns effects.
An ``After`` among them returns as an event when something is due.

A job master moves through the stages of ``stages.py`` by ``STAGE_TRANSITIONS``: the parts of the core
return ``Step``s, and only the core enters the stage of a step. The status of the job (``JobStatus``)
changes by ``JOB_TRANSITIONS``. It becomes globally terminal only when the Terminal entry is in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from penstock.errors import InternalError, ObjectStoreError
from penstock.messages import cluster as msg
from penstock.messages import slot as slot_msg
from penstock.messages.job_events import RequestJobEvents, after
from penstock.messages.states import ExecutionState, JobStatus
from penstock_services.jobmanager import effects as fx
from penstock_services.jobmanager.adopting import Adopting
from penstock_services.jobmanager.client_lease import ClientLease
from penstock_services.jobmanager.ending import Ending
from penstock_services.jobmanager.event_feed import EventFeed
from penstock_services.jobmanager.failover import Failover
from penstock_services.jobmanager.job_state import JobState
from penstock_services.jobmanager.reports import Reports
from penstock_services.jobmanager.savepoints import SavepointRequests
from penstock_services.jobmanager.stages import CLAIMING, Stage
from penstock_services.jobmanager.starting import Starting

if TYPE_CHECKING:
    from penstock.jobgraph import JobGraph
    from penstock_services.jobmanager.stages import Inherited, Settings

_E = ExecutionState
_J = JobStatus

#: How long a region that cannot start, because the others have slots of their own, waits for more slots. Then
#: all regions share fewer slots.
JOIN_AFTER_MS = 10_000


class JobMasterCore(JobState):
    """The decisions of one job master; see ``common.core.Core``."""

    def __init__(
        self, job_id: str, job_graph: JobGraph, settings: Settings, inherited: Inherited, now_ms: int
    ) -> None:
        super().__init__(job_id, job_graph, settings, inherited, now_ms)
        self._ending = Ending(self)
        self._starting = Starting(self, self._ending, inherited)
        self._failover = Failover(self, self._starting, self._ending)
        self._reports = Reports(self, self._failover)
        self._adopting = Adopting(self, self._starting, self._failover, inherited)
        self._savepoints = SavepointRequests(self)
        self._client = ClientLease(settings.config, now_ms)
        self._exceptions_kept = 0
        self._feed = EventFeed(self)
        self._may_run = inherited.job_attempt > 0 and not inherited.handed_over
        #: (token, message) of savepoints that were requested before the running tasks were known.
        self._deferred: list[tuple[int, msg.TriggerSavepoint]] = []

    # -- the step ------------------------------------------------------------------------

    def step(self, event: fx.Event, now_ms: int) -> list[fx.Effect]:
        """See ``Core.step``. Raises InternalError if an invariant is broken."""
        if self.stage is Stage.GONE:
            return self._refuse(event, "the job is over", now_ms)
        effects = self._handle(event, now_ms)
        effects += self._progress(now_ms)
        return self._feed.told(effects, now_ms) + self._keep_exceptions() + self._set_timer(now_ms)

    def _keep_exceptions(self) -> list[fx.Effect]:
        """Stores the exceptions for the next master. Once the job has ended, its archive holds them."""
        if self.exceptions.version == self._exceptions_kept or self.stage in (Stage.ARCHIVING, Stage.GONE):
            return []
        self._exceptions_kept = self.exceptions.version
        return [fx.KeepExceptions(tuple(self.exceptions.all()))]

    def _set_timer(self, now_ms: int) -> list[fx.Effect]:
        """Sets the one timer, if the next due time has moved."""
        wakeup_ms = self._next_due(now_ms)
        if wakeup_ms is None or wakeup_ms == self.due.timer_ms:
            return []
        self.due.timer_ms = wakeup_ms
        return [fx.After(max(0, wakeup_ms - now_ms), fx.Wakeup(), "wakeup")]

    def _handle(self, event: fx.Event, now_ms: int) -> list[fx.Effect]:
        match event:
            case fx.Asked(token, message):
                return self._received(token, message, now_ms)
            case fx.Begin():
                return self.enter(self._adopting.begin(now_ms)) if self._may_run else self._starting.load()
            case fx.Wakeup():
                self.due.timer_ms = None
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
                return (
                    self._adopting.found(found) if self.stage is Stage.ADOPTING else self.claim.found(found)
                )
            case fx.TaskManagers(registered):
                return self._compare_registered(registered, now_ms)
            case fx.LookedFor(taskmanager_id, gone):
                why = self.taskmanager_watch.looked_for(taskmanager_id, gone=gone)
                return self._taskmanager_lost(taskmanager_id, why, now_ms) if why else []
            case fx.NotAnnounced():
                self._adopting.not_announced(now_ms)
                return []
            case fx.LogAppended(entry, _):
                return self._logged(entry, now_ms)
            case fx.ManifestStored(checkpoint_id):
                return self.coordinator.manifest_stored(checkpoint_id, now_ms)
            case fx.ManifestNotStored(checkpoint_id, reason):
                return self.coordinator.manifest_not_stored(checkpoint_id, reason, now_ms)
            case fx.SavepointProbed(trigger_id, problem):
                return self._savepoints.probed(trigger_id, problem)
            case fx.ManifestLoaded(key, manifest):
                return self._starting.loaded(key, manifest)
            case fx.ManifestUnreadable(key, error):
                line = self.note(error, now_ms, task=f"checkpoint {key}")
                return [line, *self._starting.loaded(key, None)]
            case fx.Archived():
                self.archived = True
                return []
            case fx.Deposed(reason):
                return self.enter(self._ending.deposed(reason, now_ms))
            case fx.EffectFailed(effect, error):
                raise InternalError(f"{type(effect).__name__} failed: {error}", where=self.job_id) from error
            case _:
                assert_never(event)

    def _next_due(self, now_ms: int) -> int | None:
        """When the master must act without an event; None: not at all."""
        due = self.due
        limits = (due.restart_ms, due.restart_latest_ms, due.stop_latest_ms, self._client.due_ms)
        # A time limit that has passed waits for an event (an answer of the log), not for the clock.
        times = [due.coordinator_ms, *(t for t in limits if t is not None and t > now_ms)]
        if self.stage is Stage.ADOPTING:
            times.append(due.adopt_ms)
        if self.stage in CLAIMING:
            times.append(self.claim.declare_ms)
        return min((t for t in times if t is not None), default=None)

    def _refuse(self, event: fx.Event, reason: str, now_ms: int) -> list[fx.Effect]:
        if not isinstance(event, fx.Asked):
            return []
        if isinstance(event.message, msg.RequestJobDetails):
            from penstock_services.jobmanager.details import job_details

            return [fx.Answer(event.token, job_details(self, now_ms))]
        return [fx.Answer(event.token, msg.Refused(reason=reason))]

    def _progress(self, now_ms: int) -> list[fx.Effect]:
        """Does everything that the present facts allow, or that is due."""
        effects: list[fx.Effect] = []
        if (gone := self._client.ran_out(now_ms)) is not None:
            effects += self._client_gone(gone, now_ms)
        if self.stage in CLAIMING and now_ms >= self.claim.declare_ms:
            effects += self.claim.declare(now_ms)
        stage = None
        while stage is not self.stage:  # one action may make the next possible
            stage = self.stage
            match stage:
                case Stage.ADOPTING:
                    effects += self._adopt(now_ms)
                case Stage.RESTORING:
                    effects += self.enter(self._starting.restore(now_ms)) if self._starting.all_loaded else []
                case Stage.WAITING:
                    effects += self.enter(self._starting.announce(now_ms)) if self.pool.missing == 0 else []
                case Stage.DEPLOYED:
                    effects += self._run(now_ms)
                case Stage.BACKING_OFF:
                    effects += self.enter(self._failover.maybe_restart(now_ms))
                case Stage.STOPPING:
                    effects += self.enter(self._ending.maybe_stopped(now_ms))
                case Stage.ARCHIVING:
                    effects += self.enter(self._ending.maybe_gone())
        return effects

    def _adopt(self, now_ms: int) -> list[fx.Effect]:
        waiting = self._adopting.progress(now_ms)
        if waiting is not None:
            return waiting
        effects = self.enter(self._adopting.conclude(now_ms))
        effects += self.enter(self._adopting.restart_missing(now_ms))
        deferred, self._deferred = self._deferred, []
        for token, message in deferred:
            effects += self._savepoints.ask(token, message)
        return effects

    def _declared(self, answer: fx.Declared, now_ms: int) -> list[fx.Effect]:
        if answer.needed == 0:
            return self.claim.give_back()
        if self.stage is Stage.WAITING:
            alone = self.affected == self.layout.all
            if self.claim.too_few_to_keep_apart(answer, now_ms, 0 if alone else JOIN_AFTER_MS):
                return self.claim.join() + ([] if alone else self.enter(self._failover.restart_all(now_ms)))
        return self.claim.declared(answer, now_ms) + self.taskmanager_watch.answered(answer.epoch, now_ms)

    def _compare_registered(self, registered: frozenset[str], now_ms: int) -> list[fx.Effect]:
        held = {slot.taskmanager_id for slot in self.pool.all()}
        effects, lost = self.taskmanager_watch.known(held, registered, now_ms)
        for taskmanager_id, reason in lost.items():
            effects += self._taskmanager_lost(taskmanager_id, reason, now_ms)
        return effects

    def _taskmanager_lost(self, taskmanager_id: str, reason: str, now_ms: int) -> list[fx.Effect]:
        effects: list[fx.Effect] = []
        for held in self.pool.of_taskmanager(taskmanager_id):
            effects += self.enter(self._failover.slot_lost(held.allocation_id, reason, now_ms))
        return effects

    def _run(self, now_ms: int) -> list[fx.Effect]:
        """Handles checkpoints and the end of the job."""
        if self.graph.all_finished:
            self.due.coordinator_ms = None  # the master waits for an event: no timer runs meanwhile
            if not self.coordinator.in_flight.settled:
                return []
            effects = self.coordinator.abandon("the job finished", now_ms)
            if self.settings.backfills:
                return effects + self.enter(self._ending.hand_over(now_ms))
            return effects + self.enter(self._ending.close(_J.FINISHED, None, now_ms))
        effects, self.due.coordinator_ms = self.coordinator.step(now_ms)
        if (reason := self.coordinator.tolerance.take_failure()) is not None:
            error = ObjectStoreError(
                reason,
                expected="checkpoints that complete",
                remedy="see what the subtasks say, or raise execution.checkpointing.timeout or "
                "execution.checkpointing.tolerable-failed-checkpoints",
            )
            effects += self.enter(self._failover.fail(slot_msg.ErrorInfo(error=error.to_dict()), now_ms))
        return effects

    # -- messages ------------------------------------------------------------------------

    def _received(self, token: int, message: msg.ToJobMaster, now_ms: int) -> list[fx.Effect]:
        ack: Any = msg.Ack()
        self._client.heard(now_ms)
        if self._ending.handing_over and not isinstance(message, msg.RequestJobDetails):
            return []  # if asked again, the request reaches the master of the streaming job
        match message:
            case msg.RequestJobDetails():
                from penstock_services.jobmanager.details import job_details

                return [fx.Answer(token, job_details(self, now_ms))]
            case RequestJobEvents(epoch=epoch, sequence=sequence):
                return [fx.Answer(token, after(self._feed.events, epoch, sequence))]
            case msg.OfferSlots():
                ack, effects = self._offered(message, now_ms)
            case msg.SlotReport():
                effects = []
                for report in message.reports:
                    if self.stage is Stage.ADOPTING and self._adopting.early(report, message):
                        continue
                    effects += self.enter(self._reports.take(report, message, now_ms))
            case msg.SlotLost():
                lost = self._failover.slot_lost(
                    message.allocation_id, message.reason, now_ms, exit_code=message.exit_code
                )
                effects = self.enter(lost)
            case msg.TaskManagerLost():
                effects = self._taskmanager_lost(message.taskmanager_id, message.reason, now_ms)
            case msg.CancelJob():
                effects = self._cancel(now_ms)
            case msg.ClientHeartbeat():
                self._client.renew(now_ms)
                effects = []
            case msg.TriggerSavepoint() if self.stage is Stage.ADOPTING:
                self._deferred.append((token, message))
                return []
            case msg.TriggerSavepoint():
                return self._savepoints.ask(token, message)
            case msg.SlotsUnavailable():
                self.claim.cluster_has(message.total, message.free)
                effects = []
            case _:
                assert_never(message)
        return [fx.Answer(token, ack), *effects]

    def _offered(self, offer: msg.OfferSlots, now_ms: int) -> tuple[msg.OfferReply, list[fx.Effect]]:
        effects: list[fx.Effect] = []
        if self.stage is Stage.ADOPTING:
            accepted = self._adopting.offered(offer, now_ms)
            for report, relay in self._adopting.no_longer_early():
                effects += self.enter(self._reports.take(report, relay, now_ms))
        elif self.stage in (Stage.STOPPING, Stage.CLOSING, Stage.ARCHIVING):
            held = self.pool.addresses()
            accepted = tuple(s.allocation_id for s in offer.slots if s.allocation_id in held)
        else:
            accepted = self.pool.offer(offer)
        return msg.OfferReply(accepted=accepted), effects

    def _cancel(self, now_ms: int, error: dict[str, Any] | None = None) -> list[fx.Effect]:
        """Cancels the job. ``error``: the reason, if no user requested it."""
        if self.stage in (Stage.CLOSING, Stage.ARCHIVING) or self.status in (_J.CANCELLING, _J.FAILING):
            return []
        if self.status in (_J.INITIALIZING, _J.RECONCILING):
            self.set_status(_J.CREATED, now_ms)
        told = [self.note(error, now_ms)] if error is not None else []
        return told + self.enter(self._ending.stop(_J.CANCELED, error, now_ms))

    def _client_gone(self, error: dict[str, Any], now_ms: int) -> list[fx.Effect]:
        return [] if self._ending.handing_over else self._cancel(now_ms, error)

    # -- answers to effects --------------------------------------------------------------

    def _logged(self, entry: msg.LogEntry, now_ms: int) -> list[fx.Effect]:
        match entry:
            case msg.Restored():
                return self.enter(self._starting.deploy(now_ms)) if self.stage is Stage.ANNOUNCING else []
            case msg.CheckpointCompleted() if self._ending.handing_over:
                return self.enter(self._ending.handed_over())
            case msg.CheckpointCompleted():
                return self.coordinator.logged(entry, now_ms)
            case msg.SavepointRequested():
                return self._savepoints.logged(entry, now_ms)
            case msg.Terminal():
                return self.enter(self._ending.closed(entry, now_ms))
            case _:
                return []

    def _command_done(self, command: fx.Command, reply: Any, now_ms: int) -> list[fx.Effect]:
        self.claim.answered(command)
        match reply:
            case msg.Refused(reason=reason, fenced=True):
                return self.enter(self._ending.deposed(reason, now_ms))
            case msg.Refused(reason=reason, no_slot=no_slot):
                effects = self._command_lost(command, reason, now_ms)
                return effects + (self._gone(command, reason, now_ms) if no_slot else [])
            case msg.Failed(error=error):
                return self._command_failed(command, error, now_ms)
        match command.message:
            case msg.SlotCommand(command=slot_msg.CheckpointComplete(), command_id=command_id):
                return self.coordinator.complete_heard(command_id)
            case _:
                return []

    def _command_failed(self, command: fx.Command, error: dict[str, Any], now_ms: int) -> list[fx.Effect]:
        """The task manager raised an error. A failed deployment fails the attempt."""
        message = command.message
        if isinstance(message, msg.DeploySlot) and self._is_current(message):
            executions = self.graph.in_allocation(message.allocation_id)
            self.graph.transition_all(executions, _E.FAILED, now_ms)
            failed = self._failover.fail(
                slot_msg.ErrorInfo(error=error),
                now_ms,
                vertices={e.vertex_id for e in executions},
                location=command.taskmanager_id,
            )
            return self.enter(failed)
        return self._command_lost(command, str(error.get("message")), now_ms)

    def _command_lost(self, command: fx.Command, reason: str, now_ms: int) -> list[fx.Effect]:
        self.claim.answered(command)
        message = command.message
        match message:
            case msg.DeploySlot() if self._is_current(message):
                why = f"cannot deploy: {reason}"
                return self.enter(self._failover.slot_lost(message.allocation_id, why, now_ms))
            case msg.SlotCommand(command=slot_msg.TriggerCheckpoint(checkpoint_id=checkpoint_id)):
                return self.coordinator.trigger_failed(
                    checkpoint_id, f"could not be triggered at {command.taskmanager_id}: {reason}", now_ms
                )
            case msg.SlotCommand(command=slot_msg.CheckpointComplete(), command_id=command_id):
                self.coordinator.complete_lost(
                    command_id
                )  # otherwise it is repeated with the next declaration
                return []
            case _:
                return []  # cancelling and freeing have their own time limits

    def _gone(self, command: fx.Command, reason: str, now_ms: int) -> list[fx.Effect]:
        """The task manager was restarted, and nothing reported it, because the resource manager that knew its
        slots ended as well."""
        message = command.message
        if not isinstance(message, msg.SlotCommand) or self.stage not in CLAIMING:
            return []
        if self.pool.get(message.allocation_id) is None:
            return []
        why = f"{command.taskmanager_id} was started anew: {reason}"
        return self.enter(self._failover.slot_lost(message.allocation_id, why, now_ms))

    def _is_current(self, message: msg.DeploySlot) -> bool:
        deploy = message.deploy
        return (
            deploy is not None
            and all(self.graph.get(t.execution_id) is not None for t in deploy.tasks)
            and self.stage in CLAIMING
            and self.pool.get(message.allocation_id) is not None
        )
