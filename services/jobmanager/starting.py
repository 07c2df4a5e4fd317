"""The start of a job, from accepted to deployed: restoring, slots, the entry Restored in the log,
deployments. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.messages import cluster as msg
from penstock.messages.states import ExecutionState, JobStatus
from penstock_services.jobmanager import effects as fx
from penstock_services.jobmanager.restoring import Loading, state_of
from penstock_services.jobmanager.scheduler import assign, deployments
from penstock_services.jobmanager.stages import Stage, Step

if TYPE_CHECKING:
    from penstock.snapshots.manifest import CheckpointManifest
    from penstock_services.jobmanager.checkpoints import Completed
    from penstock_services.jobmanager.ending import Ending
    from penstock_services.jobmanager.job_state import JobState
    from penstock_services.jobmanager.stages import Inherited

_E = ExecutionState
_J = JobStatus


class Starting:
    """The start, and every restart, of one job."""

    def __init__(self, job: JobState, ending: Ending, inherited: Inherited) -> None:
        self._job = job
        self._ending = ending
        self._loading = Loading(inherited, job.settings.config)

    def load(self) -> list[fx.Effect]:
        """Reads the manifests that may be restored."""
        return [fx.LoadManifest(key) for key in self._loading.keys]

    @property
    def all_loaded(self) -> bool:
        """Whether all manifests have been read or found unreadable."""
        return self._loading.done

    def loaded(self, key: str, manifest: CheckpointManifest | None) -> list[fx.Effect]:
        """One manifest was read (None: it is unreadable)."""
        if self._loading.loaded(key, manifest) and self._loading.own:
            self._job.coordinator.retention.inherit(self._loading.found)
        return []

    def restore(self, now_ms: int) -> Step:
        """All facts are known: starts from the newest checkpoint, or without state if there is none."""
        job = self._job
        job.set_status(_J.CREATED, now_ms)
        found = self._loading.found
        if self._loading.keys and not found:
            # A start without state would lose the state of the checkpoints silently.
            latest = job.exceptions.latest
            return self._ending.stop(_J.FAILED, latest["error"] if latest else None, now_ms)
        try:
            self._choose(found[-1] if found else None)
        except PenstockError as err:
            line = job.note(err.to_dict(), now_ms)
            return self._ending.stop(_J.FAILED, err.to_dict(), now_ms).after(line)
        return self.wait_for_slots(now_ms)

    @property
    def unreadable(self) -> bool:
        """Whether a restart needs a checkpoint that this master has not been able to read."""
        return self._loading.unreadable and self._job.coordinator.last_completed is None

    def load_again(self) -> list[fx.Effect]:
        """Reads all manifests again."""
        self._loading.again()
        return self.load()

    def choose_again(self) -> None:
        """Chooses the snapshot for a restart: the newest checkpoint, otherwise the savepoint from which the
        job began."""
        found = self._loading.found
        begun_from = found[-1] if found and not self._loading.own else None
        self._choose(self._job.coordinator.last_completed or begun_from)

    def _choose(self, completed: Completed | None) -> None:
        """Restores this checkpoint; None: starts without state."""
        job = self._job
        if completed is None:
            return
        job.restore = state_of(completed, job.job_graph, job.settings.config)
        job.restored_checkpoint_id = completed.checkpoint_id
        job.coordinator.next_id = max(job.coordinator.next_id, completed.checkpoint_id + 1)

    def wait_for_slots(self, now_ms: int) -> Step:
        """Begins a new attempt, and declares the need for slots."""
        job = self._job
        job.job_attempt += 1
        job.graph.new_attempt(job.job_attempt, now_ms, job.affected)
        job.graph.transition_all(job.graph.of(job.affected), _E.SCHEDULED, now_ms)
        return Step(job.claim.declare(now_ms), Stage.WAITING)

    def announce(self, now_ms: int) -> Step:
        """All slots are held: logs the checkpoint from which this attempt starts."""
        job = self._job
        restored = msg.Restored(
            epoch=job.settings.epoch,
            job_attempt=job.job_attempt,
            checkpoint_id=job.restored_checkpoint_id,
            timestamp_ms=now_ms,
            vertices=() if job.affected == job.layout.all else tuple(sorted(job.affected)),
            slots=job.pool.needed,
        )
        return Step([fx.AppendLog(restored)], Stage.ANNOUNCING)

    def deploy(self, now_ms: int) -> Step:
        """Restored is in the log: deploys the tasks."""
        job = self._job
        if job.pool.missing:  # a slot was lost meanwhile
            return Step(stage=Stage.WAITING)
        job.set_status(_J.RUNNING, now_ms)
        if job.restored_checkpoint_id:
            job.coordinator.history.counts["restored"] += 1
        assign(job.graph, job.pool, job.layout, job.affected)
        shared, messages = deployments(
            job.graph,
            job.pool,
            job.layout,
            job.affected,
            epoch=job.settings.epoch,
            job_secret=job.settings.secret,
            storage=job.settings.storage,
            config=job.settings.config,
            restored_checkpoint_id=job.restored_checkpoint_id,
            restore=job.restore,
        )
        job.graph.transition_all(job.graph.of(job.affected), _E.DEPLOYING, now_ms)
        fields = {
            "attempt": job.job_attempt,
            "slots": len(messages),
            "restored_checkpoint_id": job.restored_checkpoint_id,
        }
        deploys = [job.orders.deploy(job.taskmanager_of(d.allocation_id), d, shared) for d in messages]
        return Step([fx.Say("info", "job_deploying", fields), *deploys], Stage.DEPLOYED)
