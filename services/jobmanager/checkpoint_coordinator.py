"""The checkpoint coordinator: triggers, collects acknowledgements, completes, retains.

Pure. The life of a checkpoint, of which several may be in flight::

    ACKNOWLEDGING → STORING (manifest object) → LOGGING (decision log) → COMPLETED
          └──────────────┴→ FAILED

A checkpoint in LOGGING can no longer fail, because the entry may already be in the log. Checkpoints complete in order. One
that every subtask has acknowledged replaces the unfinished ones before it; it waits for savepoints and for one that is
being stored. A report that is late, repeated, or of an unknown checkpoint is answered with an ``Ack``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import InternalError
from penstock.messages.cluster import CheckpointCompleted
from penstock.messages.slot import (
    CheckpointAcknowledged,
    CheckpointDeclined,
)
from penstock_services.jobmanager.checkpoint_decider import (
    At,
    CheckpointConfig,
    Now,
    Schedule,
    Tolerance,
    decide,
)
from penstock_services.jobmanager.checkpoint_history import CheckpointHistory, waiting
from penstock_services.jobmanager.checkpoint_orders import (
    abort,
    begin,
    complete,
    first_triggered,
    manifest_of,
    orphans,
    trigger,
)
from penstock_services.jobmanager.checkpoint_places import Places
from penstock_services.jobmanager.checkpoint_requests import Requests
from penstock_services.jobmanager.checkpoints import (
    STOPS,
    Ack,
    Completed,
    Pending,
    Phase,
    Request,
)
from penstock_services.jobmanager.checkpoints_in_flight import InFlight
from penstock_services.jobmanager.culprit import expired, slowest
from penstock_services.jobmanager.effects import DeleteObjects, Effect, Notify
from penstock_services.jobmanager.retention import Retention

if TYPE_CHECKING:
    from penstock.messages.cluster import CheckpointDetails
    from penstock_services.jobmanager.execution_graph import Execution, ExecutionGraph


class CheckpointCoordinator:
    """The checkpoints of one job. ``first_id``: the first id to use, above every id that was used before."""

    def __init__(
        self,
        job_name: str,
        graph: ExecutionGraph,
        config: CheckpointConfig,
        *,
        epoch: int,
        first_id: int = 1,
    ) -> None:
        self.config = config
        self.next_id = first_id
        self.in_flight = InFlight()
        self.retention = Retention(config.num_retained)
        self._first_id = first_id
        self.schedule = Schedule()
        self.history = CheckpointHistory(graph.job_id, epoch)
        self._job_name = job_name
        self._graph = graph
        self._epoch = epoch
        self._requests = Requests(epoch)
        self.places = Places(graph.job_id, epoch, config.savepoint_dir)
        #: Whether a savepoint that stops the job is in flight or completed.
        self.stopping = False
        #: Ids of executions whose final checkpoint is complete. They finish when they are told.
        self._served: set[str] = set()
        self.tolerance = Tolerance(config.tolerable_failures)

    # -- deciding ------------------------------------------------------------------------

    @property
    def last_completed(self) -> Completed | None:
        """The newest checkpoint to restore from."""
        return self.retention.last

    def knows(self, trigger_id: str) -> bool:
        """Whether a request with this id is queued, in flight, or answered."""
        known = [*self._requests, *(pending.request for pending in self.in_flight.values())]
        return any(r is not None and r.trigger_id == trigger_id for r in known) or self.history.knows(
            trigger_id
        )

    def request(self, request: Request) -> None:
        """Queues a savepoint or checkpoint that a user requested; the request is in the log."""
        self._requests.add(request)

    def refuse(self, request: Request, reason: str, now_ms: int, *, logs: bool = True) -> list[Effect]:
        """The request will not be begun. Not ``logs``: the log gets no further entry for it."""
        self.history.refused(request, reason, now_ms)
        return [self._requests.failed(request, 0, reason, now_ms)] if logs else []

    def step(self, now_ms: int) -> tuple[list[Effect], int | None]:
        """Triggers checkpoints, or fails those that have timed out. Returns the effects, and when to call it
        again (None: after the next event)."""
        effects: list[Effect] = []
        deadlines: list[int] = []
        for pending in list(self.in_flight.values()):
            if pending.phase is not Phase.ACKNOWLEDGING or pending.whole:
                continue
            deadline = pending.trigger_ms + self.config.timeout_ms
            if now_ms < deadline:
                effects += self._trigger(pending, orphans(self._graph, pending))
                deadlines.append(deadline)
            else:
                effects += self._expire(pending, now_ms)
                deadlines.append(now_ms)
        self._look(now_ms)
        match decide(self.config, self.schedule, now_ms):
            case Now(reason):
                effects += self._start(reason, now_ms)
                # Another checkpoint may be due, where several may be in flight.
                deadlines.append(
                    now_ms if self.config.max_concurrent > 1 else now_ms + self.config.timeout_ms
                )
            case At(ms):
                deadlines.append(ms)
        return effects, min(deadlines, default=None)

    def _expire(self, pending: Pending, now_ms: int) -> list[Effect]:
        return self._fail(pending, expired(pending, self._graph, self.config.timeout_ms, now_ms), now_ms)

    def _look(self, now_ms: int) -> None:
        """Updates the schedule from the execution graph."""
        schedule, graph = self.schedule, self._graph
        schedule.look(graph, now_ms, stopping=self.stopping)
        on_their_way = (pending.final_of for pending in self.in_flight.values())
        schedule.final_wanted = (
            schedule.ready_since_ms is not None and not graph.wanting <= self._served.union(*on_their_way)
        )
        schedule.requested = len(self._requests) > 0
        schedule.in_flight = len(self.in_flight)

    # -- starting ------------------------------------------------------------------------

    def _start(self, reason: str, now_ms: int) -> list[Effect]:
        request = self._requests.take() if reason == "requested" else None
        kind = request.kind if request else "checkpoint"
        checkpoint_id, self.next_id = self.next_id, self.next_id + 1
        pending = begin(self._graph, checkpoint_id, kind, now_ms)
        pending.request, pending.floor = request, self.retention.floor
        self.in_flight[checkpoint_id] = pending
        self.schedule.last_trigger_ms = now_ms
        self.stopping = kind in STOPS
        self.history.began(pending.details("IN_PROGRESS"))
        return self._trigger(pending, first_triggered(self._graph))

    def _trigger(self, pending: Pending, executions: list[Execution]) -> list[Effect]:
        pending.triggered.update(e.execution_id for e in executions)
        patience_ms = self.config.unaligned_patience_ms if pending.kind == "checkpoint" else None
        return list(trigger(self._epoch, pending, executions, patience_ms))

    # -- answers of tasks ----------------------------------------------------------------

    def acknowledge(self, ack: CheckpointAcknowledged, now_ms: int) -> tuple[Ack, list[Effect]]:
        """A subtask has stored its snapshot."""
        pending = self.in_flight.get(ack.checkpoint_id)
        if pending is None:
            return Ack.DISCARDED, self._discard(ack)
        if ack.execution_id not in pending.expected:
            return Ack.UNKNOWN, self._discard(ack)
        if ack.execution_id in pending.acknowledged or pending.phase is not Phase.ACKNOWLEDGING:
            return Ack.DUPLICATE, []
        pending.take(ack, now_ms)
        return Ack.SUCCESS, self._maybe_store(pending, now_ms)

    def _discard(self, ack: CheckpointAcknowledged) -> list[Effect]:
        """Deletes the object of a late acknowledgement, unless a retained checkpoint names it. Objects of
        checkpoints of other masters are not touched."""
        key = ack.handle.key
        ours = self._first_id <= ack.checkpoint_id < self.next_id
        if key is None or not ours or key in self._named():
            return []
        return [DeleteObjects(frozenset({key}))]

    def decline(self, decline: CheckpointDeclined, now_ms: int) -> list[Effect]:
        """A subtask takes no part in a checkpoint: the checkpoint fails, unless the subtask is about to
        finish."""
        pending = self.in_flight.acknowledging(decline.checkpoint_id)
        if pending is None or decline.execution_id not in pending.expected:
            return []
        if decline.finishing:
            return []  # FINISHED follows, with a final snapshot that replaces the acknowledgement
        vertex_id, index = pending.expected[decline.execution_id]
        reason = f"declined by subtask {index} of vertex {vertex_id}: {decline.reason}"
        return self._fail(pending, reason, now_ms)

    def trigger_failed(self, checkpoint_id: int, reason: str, now_ms: int) -> list[Effect]:
        """A trigger command did not reach its slot. This does not count as a failed checkpoint: the bus or
        the slot is lost, and the job learns of a lost slot in another way."""
        pending = self.in_flight.acknowledging(checkpoint_id)
        if pending is None:
            return []
        return self._abort(pending, reason, now_ms)

    def complete_lost(self, command_id: str) -> None:
        """A slot may not have been told that a checkpoint is complete. Tasks that wait for their final
        checkpoint get another one."""
        self._served.clear()
        self.retention.lost(command_id)

    def complete_heard(self, command_id: str) -> list[Effect]:
        """A slot has confirmed that a checkpoint is complete. When all slots have, older objects may be
        deleted."""
        return self._subsume() if self.retention.heard(command_id) else []

    def _subsume(self) -> list[Effect]:
        return self.retention.subsume(self._in_use(), self.in_flight.floors())

    def replaced(self, highest_id: int, now_ms: int) -> list[Effect]:
        """Records checkpoints that an earlier master had in flight as failed."""
        last = self.last_completed
        first = 0 if last is None else last.checkpoint_id
        return self.history.replaced(range(first + 1, highest_id + 1), now_ms)

    def adopt(self, highest_id: int) -> list[Effect]:
        """For tasks that an earlier master left running: confirms the last checkpoint again (a commit may be
        repeated), and aborts the checkpoints that were in flight."""
        last = self.last_completed
        first = 0 if last is None else last.checkpoint_id
        effects: list[Effect] = []
        if last is not None:
            effects += self._confirm(last.checkpoint_id)
        for checkpoint_id in range(first + 1, highest_id + 1):
            effects += abort(self._graph, self._epoch, checkpoint_id)
        return effects

    def _confirm(self, checkpoint_id: int) -> list[Effect]:
        commands = complete(self._graph, self._epoch, checkpoint_id)
        self.retention.told(checkpoint_id, commands)
        return list(commands)

    def task_finished(self, execution: Execution, now_ms: int) -> list[Effect]:
        """A task has finished. Its final snapshot replaces the acknowledgement, which will not come."""
        effects: list[Effect] = []
        self.in_flight.finished(execution)
        for pending in list(self.in_flight.values()):
            if pending.checkpoint_id in self.in_flight:
                effects += self._maybe_store(pending, now_ms)
        return effects

    # -- completing ----------------------------------------------------------------------

    def _maybe_store(self, pending: Pending, now_ms: int) -> list[Effect]:
        if not pending.whole:
            return []
        effects: list[Effect] = []
        for older in self.in_flight.replaced_by(pending):
            effects += self._abort(older, f"subsumed by checkpoint {pending.checkpoint_id}", now_ms)
        return effects + self._store_next()

    def _store_next(self) -> list[Effect]:
        """Stores the oldest checkpoint, if every subtask has acknowledged it."""
        pending = self.in_flight.to_store()
        if pending is None:
            return []
        pending.phase = Phase.STORING
        pending.manifest = manifest_of(pending, self._graph, self._job_name, self._epoch)
        return [self.places.store(pending, pending.manifest)]

    def manifest_stored(self, checkpoint_id: int, now_ms: int) -> list[Effect]:
        """The manifest is stored: appends CheckpointCompleted to the log."""
        pending = self.in_flight.in_phase(checkpoint_id, Phase.STORING)
        if pending is None:
            return []
        pending.phase = Phase.LOGGING
        beside = self.retention.kept_beside(self.places.completed(pending))
        return [self.places.entry(pending, now_ms, beside)]

    def manifest_not_stored(self, checkpoint_id: int, reason: str, now_ms: int) -> list[Effect]:
        """The manifest could not be stored: the checkpoint fails."""
        pending = self.in_flight.in_phase(checkpoint_id, Phase.STORING)
        if pending is None:
            return []
        return self._fail(pending, reason, now_ms)

    def logged(self, entry: CheckpointCompleted, now_ms: int) -> list[Effect]:
        """The checkpoint is in the log: tells all slots, and drops the checkpoints that it replaces. Raises
        InternalError if the checkpoint is not in flight."""
        pending = self.in_flight.get(entry.checkpoint_id)
        if pending is None or pending.manifest is None:
            raise InternalError("a logged checkpoint is not in flight", got=str(entry))
        self.retention.complete(self.places.completed(pending))
        self.tolerance.completed()
        self._served |= pending.final_of
        effects = self._confirm(entry.checkpoint_id)
        effects += self._end(pending, "COMPLETED", now_ms, path=entry.path or entry.manifest_key)
        effects.append(
            Notify("checkpoint", {"job_id": self._graph.job_id, "checkpoint_id": entry.checkpoint_id})
        )
        if self.retention.all_heard:  # no slot is left to tell
            effects += self._subsume()
        return effects + self._store_next()

    def _in_use(self) -> set[str]:
        """Keys of objects of the checkpoints in flight, and of final snapshots that later checkpoints reuse."""
        handles = [*(e.final for e in self._graph), *self.in_flight.handles()]
        return {key for handle in handles if handle is not None for key in handle.keys}

    def _named(self) -> set[str]:
        return self.retention.named() | self._in_use()

    # -- ending --------------------------------------------------------------------------

    def _fail(self, pending: Pending, reason: str, now_ms: int) -> list[Effect]:
        """The checkpoint has failed. If a user requested it, the failure is logged for the user; otherwise it
        counts towards the tolerated failures."""
        effects = self._abort(pending, reason, now_ms)
        if pending.request is None:
            self.tolerance.failed(pending.checkpoint_id, reason)
        return effects

    def _abort(self, pending: Pending, reason: str, now_ms: int) -> list[Effect]:
        if pending.kind in STOPS:
            self.stopping = False
        own = pending.own_keys()
        effects = self._end(pending, "FAILED", now_ms, failure=reason)
        if pending.request is not None:
            effects.append(self._requests.failed(pending.request, pending.checkpoint_id, reason, now_ms))
        effects += abort(self._graph, self._epoch, pending.checkpoint_id)
        named = self._named()
        leftover = frozenset(key for key in own if key not in named)
        if leftover:
            effects.append(DeleteObjects(leftover))
        if self.retention.all_heard:  # this checkpoint may have been the reason to keep an old one
            effects += self._subsume()
        return effects + self._store_next()

    def abandon(self, reason: str, now_ms: int) -> list[Effect]:
        """The job stops or restarts: checkpoints in flight are over (an entry on its way into the log still
        counts). Counts of failures start again."""
        self.tolerance = Tolerance(self.config.tolerable_failures)
        self.stopping = False
        self.schedule = Schedule(last_trigger_ms=self.schedule.last_trigger_ms)
        self._served.clear()
        effects: list[Effect] = []
        while self._requests:
            effects += self.refuse(self._requests.take(), reason, now_ms)
        # The newest first: a checkpoint that waits for an older one is then not stored any more.
        for pending in reversed(list(self.in_flight.values())):
            if pending.phase is not Phase.LOGGING:
                effects += self._abort(pending, reason, now_ms)
        return effects

    def _end(
        self,
        pending: Pending,
        status: str,
        now_ms: int,
        *,
        path: str | None = None,
        failure: str | None = None,
    ) -> list[Effect]:
        details = pending.details(status)
        details.end_timestamp_ms, details.path, details.failure = now_ms, path, failure
        details.slowest = slowest(pending, self._graph, now_ms)
        del self.in_flight[pending.checkpoint_id]
        self.schedule.last_end_ms = now_ms
        self.schedule.last_failed = status == "FAILED"
        return self.history.ended(details)

    # -- showing -------------------------------------------------------------------------

    def details(self, now_ms: int) -> list[CheckpointDetails]:
        """All checkpoints for REST, newest first; requests and checkpoints in flight come before those that
        ended."""
        now = []
        for pending in reversed(self.in_flight.values()):
            now.append(pending.details("IN_PROGRESS"))
            now[-1].slowest = slowest(pending, self._graph, now_ms)
        return waiting(self._requests) + now + self.history.newest_first()

    def validate_state(self) -> None:
        """Raises InternalError if an invariant is broken. Called after every step in tests."""
        problems = self.in_flight.problems(self.next_id, self.history.counts["in_progress"])
        problems += self.retention.problems(self.in_flight.floors())
        if problems:
            raise InternalError("checkpoint coordinator: " + "; ".join(problems))
