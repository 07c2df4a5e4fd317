"""The facts that a job master knows about its job, shared by the parts of its core. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import InternalError
from penstock.messages import slot as slot_msg
from penstock.messages.states import JOB_TRANSITIONS, ExecutionState, JobStatus
from penstock_services.jobmanager import effects as fx
from penstock_services.jobmanager.checkpoint_coordinator import CheckpointCoordinator
from penstock_services.jobmanager.checkpoint_decider import CheckpointConfig
from penstock_services.jobmanager.checkpoints import Request
from penstock_services.jobmanager.claim import SlotClaim
from penstock_services.jobmanager.exceptions import ExceptionHistory, in_a_line
from penstock_services.jobmanager.execution_graph import ExecutionGraph
from penstock_services.jobmanager.orders import Orders
from penstock_services.jobmanager.regions import Layout
from penstock_services.jobmanager.restart import FailureHandler
from penstock_services.jobmanager.stages import CLAIMING, STAGE_TRANSITIONS, Deadlines, Stage
from penstock_services.jobmanager.taskmanager_watch import TaskManagerWatch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.jobgraph import JobGraph
    from penstock.messages.slot import ErrorInfo, StateHandle
    from penstock_services.jobmanager.execution_graph import Execution
    from penstock_services.jobmanager.slots import SlotPool
    from penstock_services.jobmanager.stages import Inherited, Settings, Step

_E = ExecutionState
_J = JobStatus


class JobState:
    """The state of one job under one master."""

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
        self.layout = Layout(job_graph, settings.config)
        self.claim = SlotClaim(self.layout, self.orders)
        self.taskmanager_watch = TaskManagerWatch(
            settings.heartbeat_interval_ms, settings.heartbeat_timeout_ms
        )
        #: The vertices that are being started or restarted. The others keep running.
        self.affected: frozenset[str] = self.layout.all
        self.coordinator = CheckpointCoordinator(
            job_graph.name,
            self.graph,
            CheckpointConfig.of(settings.config),
            epoch=settings.epoch,
            first_id=inherited.highest_checkpoint_id + 1,
        )
        self.coordinator.history.inherit(
            inherited.history,
            completed=inherited.checkpoints_completed,
            failed=inherited.checkpoints_failed,
            restored=inherited.checkpoints_restored,
            statistics=inherited.statistics,
        )
        for wanted in inherited.requests:
            self.coordinator.request(Request(wanted.trigger_id, wanted.kind, wanted.directory))
        self.failures = FailureHandler(settings.config, job_id)
        self.exceptions = ExceptionHistory(inherited.exceptions)
        self.job_attempt = inherited.job_attempt
        self.restored_checkpoint_id = 0
        self.restarts = 0
        self.due = Deadlines()
        #: Vertex id → handles that the next deployment restores.
        self.restore: dict[str, tuple[StateHandle, ...]] = {}
        #: The status and the error with which the job ends, once no task runs.
        self.final: tuple[JobStatus, dict[str, Any] | None] | None = None
        self.archived = False
        #: Allocation id → {allocation_id, taskmanager_id, tasks, …} of slots whose step does not end.
        self.stalled: dict[str, dict[str, Any]] = {}

    @property
    def pool(self) -> SlotPool:
        """The slots that the job holds."""
        return self.claim.pool

    @property
    def waiting_for(self) -> str | None:
        """A sentence about what the job waits for; None if it does not wait."""
        if self.stage is Stage.ADOPTING:
            return "a new job manager looks for the tasks of the job that still run"
        return self.claim.waiting_for() if self.stage is Stage.WAITING else None

    def set_status(self, status: JobStatus, now_ms: int) -> None:
        """Changes the status of the job. Raises InternalError if that is no transition."""
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

    def enter(self, step: Step) -> list[fx.Effect]:
        """Moves to the stage of a decision, and returns its effects. Raises InternalError if that is no
        transition. Only the core calls this: its parts decide, and do not move the job themselves."""
        if step.stage is not None and step.stage is not self.stage:
            if step.stage not in STAGE_TRANSITIONS[self.stage]:
                raise InternalError(
                    "no such transition of a job master",
                    expected=", ".join(sorted(s.value for s in STAGE_TRANSITIONS[self.stage])),
                    got=f"{self.stage.value} → {step.stage.value}",
                    where=self.job_id,
                )
            self.stage = step.stage
        return step.effects

    def note(self, error: dict[str, Any], now_ms: int, *, task: str | None = None) -> fx.Effect:
        """Adds a failure to the exception history. The effect writes it to the log as well."""
        info = slot_msg.ErrorInfo(error=error)
        self.exceptions.add(info, now_ms, job_attempt=self.job_attempt, task=task)
        return self.say("warning", "job_problem_noted", info, task=task)

    def failed_as_well(
        self, info: ErrorInfo, now_ms: int, *, task: str | None, location: str | None
    ) -> list[fx.Effect]:
        """A further failure, before the job has restarted after the first."""
        kept = self.exceptions.add(
            info, now_ms, job_attempt=self.job_attempt, task=task, location=location, concurrent=True
        )
        return [self.say("info", "task_failed_too", info, task=task, taskmanager_id=location)] if kept else []

    def say(
        self, level: Literal["info", "warning", "error"], event: str, info: ErrorInfo, **more: Any
    ) -> fx.Effect:
        """A line about a failure in the job manager's log."""
        told = {name: value for name, value in more.items() if value is not None}
        return fx.Say(level, event, {"attempt": self.job_attempt, **told, **in_a_line(info)})

    def task_name(self, execution: Execution) -> str:
        """The name of a task for people: vertex name (subtask number/parallelism)."""
        vertex = self.job_graph.vertex(execution.vertex_id)
        return f"{vertex.name} ({execution.subtask_index + 1}/{vertex.parallelism})"

    def taskmanager_of(self, allocation_id: str) -> str:
        """The id of the task manager of an allocation that the job holds."""
        held = self.pool.get(allocation_id)
        assert held is not None
        return held.taskmanager_id

    def cancel_tasks(self, vertices: Iterable[str], now_ms: int) -> list[fx.Effect]:
        """Tells every slot with live tasks of ``vertices`` to cancel these tasks."""
        live = [e for e in self.graph.of(vertices) if not e.state.terminal]
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

    def told_to_end(self, execution: Execution) -> bool:
        """Whether the execution should end: its vertex is being restarted, or the job ends."""
        if self.stage is Stage.DEPLOYED:
            return False
        return self.stage not in CLAIMING or execution.vertex_id in self.affected

    def only_stalled_left(self) -> bool:
        """Whether all tasks that have not ended are in slots whose step does not end. Such slots take no
        command, so their processes are ended."""
        return all(e.state.terminal or e.allocation_id in self.stalled for e in self.graph.of(self.affected))

    def validate_state(self) -> None:
        """Raises InternalError if an invariant is broken. Called after every step in tests."""
        self.graph.validate_state()
        self.coordinator.validate_state()
        problems = []
        if self.status.globally_terminal and self.stage not in (Stage.ARCHIVING, Stage.GONE):
            problems.append(f"{self.status.value} while {self.stage.value}")
        if self.stage is Stage.DEPLOYED and self.status is not _J.RUNNING:
            problems.append(f"deployed and {self.status.value}")
        if self.stage is Stage.DEPLOYED and self.graph.count(_E.FAILED, _E.CANCELED):
            problems.append("a failed task was not noticed")
        if (
            self.coordinator.in_flight
            and self.stage not in (Stage.DEPLOYED,)
            and self.coordinator.in_flight.settled
        ):
            problems.append(f"a checkpoint in flight while {self.stage.value}")
        if len(self.pool.all()) > self.pool.needed:
            problems.append("more slots than needed")
        if problems:
            raise InternalError("job master: " + "; ".join(problems))
