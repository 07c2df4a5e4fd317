"""A new job master adopts a running job: it finds out which tasks still run, and continues. Pure.

It asks all task managers what runs there for the job. Tasks of the attempts that the log names as current
are kept. When all of them are found, or no more can be found, the master introduces itself to the tasks,
aborts the checkpoints in flight, confirms the last completed one again (a commit may be repeated), and
restarts only the tasks that are missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.messages import cluster as msg
from penstock.messages import slot as slot_msg
from penstock.messages.states import ExecutionState, JobStatus
from penstock_services.jobmanager import effects as fx
from penstock_services.jobmanager.exceptions import loss
from penstock_services.jobmanager.stages import Stage, Step

if TYPE_CHECKING:
    from penstock_services.jobmanager.execution_graph import Execution
    from penstock_services.jobmanager.failover import Failover
    from penstock_services.jobmanager.job_state import JobState
    from penstock_services.jobmanager.regions import Place
    from penstock_services.jobmanager.stages import Inherited
    from penstock_services.jobmanager.starting import Starting

_E = ExecutionState
_J = JobStatus

#: How often the task managers are asked, until all tasks are found.
ASK_MS = 500
#: After this time the resource manager is asked which slots are the job's; it may be new itself.
CENSUS_AFTER_MS = 2_000
#: How long answers are awaited. Only time with a connection to the bus counts.
PATIENCE_MS = 10_000
#: A task in one of these states continues, or has finished.
_HEALTHY = frozenset({_E.DEPLOYING, _E.INITIALIZING, _E.RUNNING, _E.FINISHED})


class Adopting:
    """The adoption of a job by this master, from ``begin`` to ``conclude``."""

    def __init__(self, job: JobState, starting: Starting, failover: Failover, inherited: Inherited) -> None:
        self._job = job
        self._starting = starting
        self._failover = failover
        self._inherited = inherited
        self._latest_ms = 0
        self._census_ms = 0
        #: Ids of the executions that a task manager has reported.
        self._known: set[str] = set()
        #: Allocation ids that were offered.
        self._offered: set[str] = set()
        #: Whether the resource manager knows no further slot of the job.
        self._complete = False
        self._highest_id = inherited.highest_checkpoint_id
        #: Reports of tasks whose slot has not been offered yet, in order.
        self._early: list[tuple[slot_msg.FromSlot, msg.SlotReport]] = []
        #: Tasks that were found not to run any more.
        self._broken: list[Execution] = []

    def begin(self, now_ms: int) -> Step:
        """Starts the adoption: the manifests are loaded, and the task managers are asked."""
        job, inherited = self._job, self._inherited
        job.set_status(_J.RECONCILING, now_ms)
        attempts = {v: inherited.vertices.get(v, inherited.base)[0] for v in job.layout.all}
        job.graph.resume(attempts, now_ms)
        if job.layout.can_join and inherited.slots != job.layout.slots_needed:
            job.claim.join()
        started = (inherited.vertices.get(v, inherited.base)[1] for v in job.layout.all)
        job.restored_checkpoint_id = max(started, default=0)
        self._latest_ms = now_ms + PATIENCE_MS
        self._census_ms = now_ms + CENSUS_AFTER_MS
        return Step([*self._starting.load(), *self._ask(now_ms)], Stage.ADOPTING)

    def _ask(self, now_ms: int) -> list[fx.Effect]:
        job = self._job
        job.due.adopt_ms = now_ms + ASK_MS
        call = fx.Announce(msg.AdoptJob(job_id=job.job_id, epoch=job.settings.epoch))
        return [call, fx.FindAllocations()] if now_ms >= self._census_ms else [call]

    def not_announced(self, now_ms: int) -> None:
        """The bus is disconnected, so no task manager can answer: the time limits begin again."""
        self._latest_ms = now_ms + PATIENCE_MS
        self._census_ms = now_ms + CENSUS_AFTER_MS

    def found(self, allocations: tuple[tuple[str, str], ...]) -> list[fx.Effect]:
        """The resource manager's list of (task manager id, allocation id) of the job."""
        self._complete = all(allocation_id in self._offered for _, allocation_id in allocations)
        return []

    def offered(self, offer: msg.OfferSlots, now_ms: int) -> tuple[str, ...]:
        """Adopts the tasks in the offered slots. Returns the accepted allocation ids."""
        job = self._job
        accepted: list[str] = []
        for slot in offer.slots:
            self._offered.add(slot.allocation_id)
            taken = self._take(slot, offer.taskmanager_id, now_ms)
            if taken or job.pool.missing > 0 or job.pool.get(slot.allocation_id) is not None:
                accepted += job.pool.offer(msgspec.structs.replace(offer, slots=(slot,)))
        return tuple(accepted)

    def _take(self, slot: msg.SlotOffer, taskmanager_id: str, now_ms: int) -> bool:
        """Whether the slot's tasks belong to the attempt that the log names. If so, they are adopted."""
        job, deployed = self._job, slot.deployed
        if deployed is None:
            return False
        self._highest_id = max(self._highest_id, deployed.highest_checkpoint_id)
        mine = [(r, job.graph.get(r.execution_id)) for r in deployed.tasks]
        ours = [(report, execution) for report, execution in mine if execution is not None]
        if not ours or len(ours) != len(mine):
            return False
        for report, execution in ours:
            if execution.execution_id in self._known:
                continue
            self._known.add(execution.execution_id)
            job.graph.adopt(execution, report, now_ms)
            job.graph.place(execution, slot.allocation_id, taskmanager_id)
            job.pool.took(slot.allocation_id, self._place_of(execution))
        return True

    def _place_of(self, execution: Execution) -> Place:
        return self._job.layout.place(execution.vertex_id, execution.subtask_index)

    def early(self, report: slot_msg.FromSlot, relay: msg.SlotReport) -> bool:
        """Keeps the report of a task whose slot has not been offered yet. False: the report can be handled
        now."""
        execution_id = getattr(report, "execution_id", None)
        if execution_id is None or execution_id in self._known:
            return False
        self._early.append((report, relay))
        return True

    # -- the end of it -------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether all tasks are found."""
        return len(self._known) == len(self._job.graph)

    def progress(self, now_ms: int) -> list[fx.Effect] | None:
        """The effects that ask further. None: everything is known, and ``conclude`` may be called."""
        job = self._job
        if self._starting.all_loaded and (self.ready or self._complete or now_ms >= self._latest_ms):
            return None
        if job.due.adopt_ms is not None and now_ms >= job.due.adopt_ms:
            return self._ask(now_ms)
        return []

    def no_longer_early(self) -> list[tuple[slot_msg.FromSlot, msg.SlotReport]]:
        """The kept reports of tasks that have been found since, in order."""
        waiting, self._early = self._early, []
        return [item for item in waiting if not self.early(*item)]

    def conclude(self, now_ms: int) -> Step:
        """Continues with the tasks that run, or starts the whole job again if too few do."""
        job = self._job
        job.due.adopt_ms = None
        job.coordinator.next_id = max(job.coordinator.next_id, self._highest_id + 1)
        effects = job.coordinator.replaced(self._highest_id, now_ms)
        broken = self._broken = [
            e for e in job.graph if e.execution_id not in self._known or e.state not in _HEALTHY
        ]
        units = job.layout.unit({e.vertex_id for e in broken})
        if units == job.layout.all and all(e.execution_id not in self._known for e in broken):
            self._broken = []
            return self._start_anew(now_ms).after(*effects)
        job.set_status(_J.CREATED, now_ms)
        job.set_status(_J.RUNNING, now_ms)
        effects += self._introduce() + job.coordinator.adopt(self._highest_id)
        return Step(effects, Stage.DEPLOYED)

    def restart_missing(self, now_ms: int) -> Step:
        """Restarts the tasks that no longer ran, once the rest of the job counts as deployed."""
        job, broken = self._job, self._broken
        lost = job.graph.transition_all(broken, _E.FAILED, now_ms)
        if not broken:
            return Step()
        first = (lost or broken)[0]
        task = job.task_name(first)
        info = slot_msg.ErrorInfo(error=self._missing(len(broken), task))
        return self._failover.fail(info, now_ms, vertices={e.vertex_id for e in broken}, task=task)

    def _missing(self, count: int, task: str) -> dict[str, Any]:
        reason = f"{count} of {len(self._job.graph)} tasks did not run any more when this master took over"
        return loss(reason, None, task=task, where=task or f"job {self._job.job_id}")

    def _start_anew(self, now_ms: int) -> Step:
        """Starts the job again, as after a full restart."""
        job = self._job
        effects = job.cancel_tasks(job.layout.all, now_ms)
        live = [e for e in job.graph if not e.state.terminal]
        job.graph.transition_all(live, _E.CANCELED, now_ms)
        if self._known:
            effects.append(job.note(self._missing(len(job.graph) - len(self._known), ""), now_ms))
        job.restored_checkpoint_id = 0
        return self._starting.restore(now_ms).after(*effects)

    def _introduce(self) -> list[fx.Effect]:
        job = self._job
        slots = {(e.taskmanager_id, e.allocation_id) for e in job.graph if e.allocation_id}
        return [
            job.orders.introduce(taskmanager_id, allocation_id)
            for taskmanager_id, allocation_id in sorted(slots)
            if taskmanager_id is not None and allocation_id is not None
        ]
