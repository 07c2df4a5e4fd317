"""From accepted to deployed: what to restore, slots, Restored in the log, deployments. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.messages import cluster as msg
from penstock.messages.states import ExecutionState, JobStatus
from services.jobmanager import effects as fx
from services.jobmanager.restoring import Loading, state_of
from services.jobmanager.scheduler import assign, deployments
from services.jobmanager.stages import Stage

if TYPE_CHECKING:
    from penstock.messages.manifest import CheckpointManifest
    from services.jobmanager.checkpoints import Completed
    from services.jobmanager.ending import Ending
    from services.jobmanager.job_state import JobState
    from services.jobmanager.stages import Inherited

_E = ExecutionState
_J = JobStatus


class Starting:
    def __init__(self, job: JobState, ending: Ending, inherited: Inherited) -> None:
        self._job = job
        self._ending = ending
        self._loading = Loading(inherited, job.settings.config)

    def load(self) -> list[fx.Effect]:
        """Manifests of what may be restored."""
        return [fx.LoadManifest(key) for key in self._loading.keys]

    @property
    def all_loaded(self) -> bool:
        return self._loading.done

    def loaded(self, key: str, manifest: CheckpointManifest | None) -> list[fx.Effect]:
        """One manifest is read (None: unreadable)."""
        if self._loading.loaded(key, manifest) and self._loading.own:
            self._job.coordinator.retention.inherit(self._loading.found)
        return []

    def restore(self, now_ms: int) -> list[fx.Effect]:
        """Everything that can be known is: begin from the newest checkpoint there is."""
        job = self._job
        job.set_status(_J.CREATED, now_ms)
        found = self._loading.found
        if self._loading.keys and not found:
            # Starting from nothing would silently lose what the checkpoints held.
            latest = job.exceptions.latest
            return self._ending.stop(_J.FAILED, latest["error"] if latest else None, now_ms)
        try:
            self.choose_restore(found[-1] if found else None)
        except PenstockError as err:
            line = job.note(err.to_dict(), now_ms)
            return [line, *self._ending.stop(_J.FAILED, err.to_dict(), now_ms)]
        return self.wait_for_slots(now_ms)

    def begun_from(self) -> None:
        """For tasks that are taken over: until they complete a checkpoint of the job, a restart
        begins again from the savepoint that the job began from."""
        if self._loading.found and not self._loading.own:
            self.choose_restore(self._loading.found[-1])

    def choose_restore(self, completed: Completed | None) -> None:
        """None: no checkpoint since the start, which then counts again."""
        job = self._job
        if completed is None:
            return
        job.restore = state_of(completed, job.job_graph, job.settings.config)
        job.restored_checkpoint_id = completed.checkpoint_id
        job.coordinator.next_id = max(job.coordinator.next_id, completed.checkpoint_id + 1)

    def wait_for_slots(self, now_ms: int) -> list[fx.Effect]:
        job = self._job
        job.stage = Stage.WAITING
        job.job_attempt += 1
        job.graph.new_attempt(job.job_attempt, now_ms, job.affected)
        job.graph.transition_all(job.graph.of(job.affected), _E.SCHEDULED, now_ms)
        return job.claim.declare(now_ms)

    def announce(self, now_ms: int) -> list[fx.Effect]:
        """All slots are here: say in the log from where this attempt starts."""
        job = self._job
        job.stage = Stage.ANNOUNCING
        return [
            fx.AppendLog(
                msg.Restored(
                    epoch=job.settings.epoch,
                    job_attempt=job.job_attempt,
                    checkpoint_id=job.restored_checkpoint_id,
                    timestamp_ms=now_ms,
                    vertices=() if job.affected == job.layout.all else tuple(sorted(job.affected)),
                    slots=job.pool.needed,
                )
            )
        ]

    def deploy(self, now_ms: int) -> list[fx.Effect]:
        job = self._job
        if job.pool.missing:  # one was lost meanwhile
            job.stage = Stage.WAITING
            return []
        job.stage = Stage.DEPLOYED
        job.set_status(_J.RUNNING, now_ms)
        if job.restored_checkpoint_id:
            job.coordinator.counts["restored"] += 1
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
        said = {"attempt": job.job_attempt, "slots": len(messages), "restored": job.restored_checkpoint_id}
        return [
            fx.Say("info", "deploys", said),
            *(
                job.orders.deploy(job.taskmanager_of(deploy.allocation_id), deploy, shared)
                for deploy in messages
            ),
        ]
