"""Failures: whether, when and from which checkpoint the job or a part of it restarts. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import SnapshotError
from penstock.messages import slot as slot_msg
from penstock.messages.states import ExecutionState, JobStatus
from penstock_services.jobmanager.exceptions import loss
from penstock_services.jobmanager.restart import GiveUp, Restart
from penstock_services.jobmanager.stages import Stage, Step

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.messages.slot import ErrorInfo
    from penstock_services.jobmanager import effects as fx
    from penstock_services.jobmanager.ending import Ending
    from penstock_services.jobmanager.job_state import JobState
    from penstock_services.jobmanager.starting import Starting

_E = ExecutionState
_J = JobStatus

#: How long a restart waits for the other tasks, which are cancelled first.
RESTART_GRACE_MS = 2_000


class Failover:
    """Decides about failures of one job."""

    def __init__(self, job: JobState, starting: Starting, ending: Ending) -> None:
        self._job = job
        self._starting = starting
        self._ending = ending
        self._read_twice = False

    def fail(
        self,
        info: ErrorInfo,
        now_ms: int,
        *,
        vertices: Iterable[str] | None = None,
        task: str | None = None,
        location: str | None = None,
    ) -> Step:
        """A task of ``vertices`` (None: of the whole job) has failed: restarts the vertices connected with
        them, or fails the job."""
        job = self._job
        hit = job.layout.all if vertices is None else job.layout.unit(vertices)
        known = job.stage is Stage.BACKING_OFF and hit <= job.affected
        first = not known and job.stage in (
            Stage.WAITING, Stage.ANNOUNCING, Stage.DEPLOYED, Stage.BACKING_OFF,
        )  # fmt: skip
        if not first:
            return Step(job.failed_as_well(info, now_ms, task=task, location=location))
        job.exceptions.add(info, now_ms, job_attempt=job.job_attempt, task=task, location=location)
        effects = job.coordinator.abandon("the job failed", now_ms)
        job.due.coordinator_ms = None
        decision: Restart | GiveUp
        if info.error.get("type") == SnapshotError.__name__ and job.restored_checkpoint_id:
            decision = self._without_damaged()
        else:
            decision = job.failures.decide(info.error, job.restored_checkpoint_id, now_ms)
        match decision:
            case Restart(delay_ms):
                entry = job.exceptions.latest or {}
                line = job.say(
                    "warning", "job_restarting", info, task=task, taskmanager_id=location, delay_ms=delay_ms,
                    vertices=f"{len(hit)} of {len(job.layout.all)}", reason=entry.get("restored_instead"),
                )  # fmt: skip
                return self._back_off(hit, delay_ms, now_ms).after(line, *effects)
            case GiveUp(reason):
                given_up = self._give_up(reason, info, now_ms, task=task, location=location)
                return given_up.after(*effects)

    def _give_up(
        self, reason: str, info: ErrorInfo, now_ms: int, *, task: str | None, location: str | None
    ) -> Step:
        job = self._job
        if (entry := job.exceptions.latest) is not None:
            entry["not_restarted"] = reason
        line = job.say("error", "job_failed", info, task=task, taskmanager_id=location, reason=reason)
        return self._ending.stop(_J.FAILED, info.error, now_ms).after(line)

    def _without_damaged(self) -> Restart | GiveUp:
        """The restored state cannot be read: starts from the checkpoint before it."""
        job = self._job
        damaged = job.restored_checkpoint_id
        job.coordinator.retention.discredit(damaged)
        before = job.coordinator.last_completed
        if before is None or before.checkpoint_id == damaged:
            return GiveUp(f"checkpoint {damaged} cannot be read, and no other one is retained")
        if (entry := job.exceptions.latest) is not None:
            entry["restored_instead"] = (
                f"checkpoint {damaged} cannot be read: checkpoint {before.checkpoint_id} is used instead"
            )
        return Restart(0)

    def _back_off(self, hit: frozenset[str], delay_ms: int, now_ms: int) -> Step:
        job, due = self._job, self._job.due
        # Vertices that are already being restarted start together with those that failed now.
        job.affected = hit if job.stage is Stage.DEPLOYED else job.affected | hit
        job.set_status(_J.RESTARTING, now_ms)
        due.restart_ms = max(due.restart_ms or 0, now_ms + delay_ms)
        due.restart_latest_ms = max(due.restart_latest_ms or 0, now_ms + max(delay_ms, RESTART_GRACE_MS))
        return Step(job.cancel_tasks(job.affected, now_ms), Stage.BACKING_OFF)

    def restart_all(self, now_ms: int) -> Step:
        """Nothing has failed, but the tasks have to move: restarts at once, without using a restart of the
        strategy."""
        job = self._job
        effects = job.coordinator.abandon("the job is placed anew", now_ms)
        job.due.coordinator_ms = None
        return self._back_off(job.layout.all, 0, now_ms).after(*effects)

    def maybe_restart(self, now_ms: int) -> Step:
        """Restarts if the delay is over and the affected tasks have ended, or their time is over."""
        job = self._job
        due = job.due
        assert due.restart_ms is not None
        assert due.restart_latest_ms is not None
        if not job.coordinator.in_flight.settled or not self._starting.all_loaded:
            return Step()
        if self._starting.unreadable:
            return self._read_again(now_ms)
        if now_ms < due.restart_ms:
            return Step()
        live = [e for e in job.graph.of(job.affected) if not e.state.terminal]
        if live:
            if now_ms < due.restart_latest_ms and not job.only_stalled_left():
                return Step()
            # The new deployment ends their processes, so nothing has to wait for these tasks.
            job.graph.transition_all(live, _E.CANCELED, now_ms)
        due.restart_ms = due.restart_latest_ms = None
        job.restarts += 1
        self._starting.choose_again()
        job.set_status(_J.CREATED, now_ms)
        return self._starting.wait_for_slots(now_ms)

    def _read_again(self, now_ms: int) -> Step:
        """Tasks were adopted, but the checkpoint from which they started could not be read: reads the
        manifests once more."""
        if not self._read_twice:
            self._read_twice = True
            return Step(self._starting.load_again())
        latest = self._job.exceptions.latest
        assert latest is not None, "that it cannot be read was noted"
        return self._give_up(
            "what the job has to be restored from cannot be read, and it must not begin from nothing",
            slot_msg.ErrorInfo(error=latest["error"]), now_ms, task=None, location=None,
        )  # fmt: skip

    def slot_lost(
        self, allocation_id: str, reason: str, now_ms: int, *, exit_code: int | None = None
    ) -> Step:
        """A slot process has ended: gives the allocation back, and handles the loss of its tasks."""
        job = self._job
        job.stalled.pop(allocation_id, None)
        held = job.pool.remove(allocation_id)
        # The allocation is given back even if only its process ended. A task manager that still counts the
        # slot as the job's would otherwise keep it, and the job would wait for a slot that is never offered.
        effects: list[fx.Effect] = []
        if held is not None:
            effects.append(job.orders.free(held.taskmanager_id, held.allocation_id))
        lost = [e for e in job.graph.in_allocation(allocation_id) if not e.state.terminal]
        # A task that was being cancelled counts as cancelled when its process has ended, but only if this
        # master cancelled it: a task manager may end a slot for its own reasons.
        canceling = [e for e in lost if e.state is _E.CANCELING and job.told_to_end(e)]
        job.graph.transition_all(canceling, _E.CANCELED, now_ms)
        failed = job.graph.transition_all([e for e in lost if e not in canceling], _E.FAILED, now_ms)
        job.claim.declare_ms = now_ms
        if not lost:
            return self._late_cause(reason, exit_code, allocation_id, now_ms).after(*effects)
        task, location = job.task_name(lost[0]), lost[0].taskmanager_id
        where = f"task manager {held.taskmanager_id}" if held else f"allocation {allocation_id}"
        info = slot_msg.ErrorInfo(error=loss(reason, exit_code, task=task, where=where))
        if failed:
            vertices = {e.vertex_id for e in failed}
            failure = self.fail(info, now_ms, vertices=vertices, task=task, location=location)
            return failure.after(*effects)
        job.exceptions.add_cause(info, now_ms, job_attempt=job.job_attempt, task=task, location=location)
        effects.append(job.say("warning", "slot_lost", info, task=task, taskmanager_id=location))
        return self._maybe_give_up(info, now_ms).after(*effects)

    def _late_cause(self, reason: str, exit_code: int | None, allocation_id: str, now_ms: int) -> Step:
        """The cause of a loss was reported after its first symptom, and the tasks are already being
        restarted."""
        job = self._job
        error = loss(reason, exit_code, task="a task", where=f"allocation {allocation_id}")
        if error.get("ended") is None:
            return Step()
        info = slot_msg.ErrorInfo(error=error)
        job.exceptions.add(info, now_ms, job_attempt=job.job_attempt, concurrent=True)
        return self._maybe_give_up(info, now_ms).after(job.say("warning", "slot_lost", info))

    def _maybe_give_up(self, info: ErrorInfo, now_ms: int) -> Step:
        job = self._job
        given_up = job.failures.cause(info.error, job.restored_checkpoint_id)
        if given_up is None or job.stage not in (Stage.BACKING_OFF, Stage.WAITING, Stage.ANNOUNCING):
            return Step()
        return self._give_up(given_up.reason, info, now_ms, task=None, location=None)
