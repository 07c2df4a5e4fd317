"""The end of a job: running tasks are cancelled, Terminal is logged, slots are given back. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.config import EXTERNALIZED_RETENTION
from penstock.messages import cluster as msg
from penstock.messages.layout import (
    BACKFILL_CHECKPOINT_ID,
    backfill_manifest_key,
    checkpoints_prefix,
    staged_prefix,
)
from penstock.messages.states import ExecutionState, JobStatus
from penstock_services.jobmanager import effects as fx
from penstock_services.jobmanager.inheritance import BACKFILL
from penstock_services.jobmanager.stages import Stage, Step

if TYPE_CHECKING:
    from penstock_services.jobmanager.job_state import JobState

_E = ExecutionState
_J = JobStatus

#: How long cancelled tasks may take to end. Then their processes are ended.
CANCEL_GRACE_MS = 4_000


class Ending:
    """The end of a job."""

    def __init__(self, job: JobState) -> None:
        self._job = job

    def stop(self, status: JobStatus, error: dict[str, Any] | None, now_ms: int) -> Step:
        """Cancels all tasks, then closes the job with ``status`` (FAILED or CANCELED)."""
        job = self._job
        job.due.restart_ms = job.due.coordinator_ms = None
        job.set_status(_J.FAILING if status is _J.FAILED else _J.CANCELLING, now_ms)
        job.affected = job.layout.all
        job.final = (status, error)
        job.due.stop_latest_ms = now_ms + CANCEL_GRACE_MS
        abandoned = job.coordinator.abandon("the job stops", now_ms)
        return Step(abandoned + job.cancel_tasks(job.layout.all, now_ms), Stage.STOPPING)

    def maybe_stopped(self, now_ms: int) -> Step:
        """Closes the job if all tasks have ended or their time is over."""
        job = self._job
        due = job.due
        assert job.final is not None
        assert due.stop_latest_ms is not None
        if not job.coordinator.in_flight.settled:
            return Step()
        if not job.graph.all_terminal:
            if now_ms < due.stop_latest_ms and not job.only_stalled_left():
                return Step()
            job.graph.transition_all(list(job.graph), _E.CANCELED, now_ms)
        return self.close(*job.final, now_ms)

    def close(self, status: JobStatus, error: dict[str, Any] | None, now_ms: int) -> Step:
        """Logs that the job has ended with ``status``."""
        job = self._job
        job.due.stop_latest_ms = job.due.coordinator_ms = None
        terminal = msg.Terminal(epoch=job.settings.epoch, status=status, timestamp_ms=now_ms, error=error)
        return Step([fx.AppendLog(terminal)], Stage.CLOSING)

    # -- the end of a backfill, which is not the job's ------------------------------------

    @property
    def handing_over(self) -> bool:
        """Whether the end of this graph is that of a backfill, after which the streaming job starts."""
        job = self._job
        return job.settings.backfills and job.stage in (Stage.CLOSING, Stage.ARCHIVING) and job.final is None

    def hand_over(self, now_ms: int) -> Step:
        """The history is read and its state is stored: logs the job's first checkpoint."""
        job = self._job
        job.due.coordinator_ms = None
        completed = msg.CheckpointCompleted(
            epoch=job.settings.epoch,
            checkpoint_id=BACKFILL_CHECKPOINT_ID,
            manifest_key=backfill_manifest_key(job.job_id, job.job_attempt),
            timestamp_ms=now_ms,
            kind=BACKFILL,
        )
        return Step([fx.AppendLog(completed)], Stage.CLOSING)

    def handed_over(self) -> Step:
        """The entry is in the log, and another master starts the streaming job from it. Only the slots are
        given back; no details are stored."""
        self._job.archived = True
        return Step([fx.Declare(0)], Stage.ARCHIVING)

    # --------------------------------------------------------------------------------------

    def closed(self, entry: msg.Terminal, now_ms: int) -> Step:
        """Terminal is in the log: gives everything back and stores the details.

        The need for slots is withdrawn before the slots are given back; otherwise they would be allocated
        to the job again.
        """
        job = self._job
        from penstock_services.jobmanager.details import job_details

        job.set_status(entry.status, now_ms)
        job.end_ms = entry.timestamp_ms
        keeps = self._keeps_checkpoints(entry.status)
        kept = list(job.coordinator.retention.retained) if keeps else []
        # There are checkpoints, but this master could read none of them. It does not know which objects they
        # name, so it deletes none.
        unread = keeps and not kept and job.coordinator.history.counts["completed"] > 0
        delete = (() if unread else (checkpoints_prefix(job.job_id),)) + (
            # Staged rows are committed by the job that resumes from a checkpoint which is kept.
            () if kept or unread else (staged_prefix(job.job_id),)
        )
        keep = {c.manifest_key for c in kept} | {key for c in kept for key in c.manifest.object_keys()}
        effects: list[fx.Effect] = [
            fx.Declare(0),
            # Task managers may hold slots of the job from an earlier master.
            fx.Announce(msg.JobOver(job_id=job.job_id, epoch=job.settings.epoch)),
            fx.Notify("job", {"job_id": job.job_id, "name": job.job_graph.name, "status": job.status.value}),
            fx.Archive(
                job_details(job, now_ms),
                delete_prefixes=delete,
                keep=frozenset(keep),
            ),
        ]
        return Step(effects, Stage.ARCHIVING)

    def _keeps_checkpoints(self, status: JobStatus) -> bool:
        """A failed or cancelled job can be resumed from its last checkpoint."""
        match EXTERNALIZED_RETENTION.read(self._job.settings.config):
            case "RETAIN_ON_CANCELLATION":
                return status is not _J.FINISHED
            case "DELETE_ON_CANCELLATION":
                return status is _J.FAILED
            case _:
                return False

    def maybe_gone(self) -> Step:
        """Stops the master if the details are stored and all slots are given back."""
        job = self._job
        if not (job.archived and job.claim.given_back):
            return Step()
        return self._gone(job.status, "its history is read, the stream goes on" if self.handing_over else "")

    def _gone(self, status: JobStatus, reason: str) -> Step:
        return Step([fx.Stop(status, reason)], Stage.GONE)

    def deposed(self, reason: str, now_ms: int) -> Step:
        """Another master leads, or may lead: this one sends nothing more."""
        job = self._job
        if not job.status.terminal:
            job.set_status(_J.SUSPENDED, now_ms)
        return self._gone(job.status, reason)
