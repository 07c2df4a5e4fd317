"""The execution graph: a job graph's vertices as subtasks, each with its current attempt.

Pure: no clock, no I/O. Every change of an execution goes through ``transition``, which knows
``EXECUTION_TRANSITIONS``. A report that is late, repeated or impossible gets an ``Update`` as its answer,
never an exception.
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.errors import InternalError
from penstock.messages.states import EXECUTION_TRANSITIONS, ExecutionState
from penstock_services.jobmanager.topology import Inputs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.jobgraph import JobGraph, JobVertex
    from penstock.messages.job_master import TaskReport
    from penstock.messages.slot import ErrorInfo, StateHandle, TaskMetrics, TaskStateChanged

_E = ExecutionState


_LIFE = (_E.CREATED, _E.SCHEDULED, _E.DEPLOYING, _E.INITIALIZING, _E.RUNNING, _E.CANCELING)
#: State → the states that an execution has passed before.
_EARLIER = {state: frozenset(_LIFE[:i]) for i, state in enumerate(_LIFE)}


class Update(enum.Enum):
    """The answer to a report."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"  # the execution is already in that state
    LATE = "late"  # of an earlier attempt, or after the execution ended
    ILLEGAL = "illegal"  # no such transition
    UNKNOWN = "unknown"  # no such execution


@dataclass(slots=True)
class Execution:
    """One attempt of one subtask."""

    execution_id: str
    vertex_id: str
    subtask_index: int
    attempt: int
    state: ExecutionState = _E.CREATED
    #: State name → when it was entered, in milliseconds since 1970.
    timestamps: dict[str, int] = field(default_factory=dict)
    allocation_id: str | None = None
    taskmanager_id: str | None = None
    error: ErrorInfo | None = None
    #: The last snapshot of a FINISHED execution.
    final: StateHandle | None = None
    metrics: TaskMetrics | None = None

    def transition(self, state: ExecutionState, now_ms: int) -> Update:
        """Moves to a state if that is a transition, and answers with an ``Update`` otherwise."""
        if state is self.state:
            return Update.DUPLICATE
        if self.state.terminal:
            return Update.LATE
        if state not in EXECUTION_TRANSITIONS[self.state]:
            # A task may still report states that it passed before.
            return Update.LATE if state in _EARLIER[self.state] else Update.ILLEGAL
        self.state = state
        self.timestamps[state.value] = now_ms
        return Update.APPLIED


@dataclass(frozen=True, slots=True)
class Change:
    """An execution entered a state. ``previous``: None if it is new or was adopted."""

    execution: Execution
    state: ExecutionState
    previous: ExecutionState | None
    timestamp_ms: int


def execution_id(job_id: str, vertex_id: str, subtask_index: int, attempt: int) -> str:
    """The id of one attempt of one subtask."""
    return f"{job_id}_{vertex_id}_{subtask_index}_{attempt}"


class ExecutionGraph:
    """All subtasks of a job. Attempts are counted for the job: vertices that restart together get the same
    number; the others keep theirs. ``job_attempt`` is the latest."""

    def __init__(self, job_id: str, job_graph: JobGraph) -> None:
        self.job_id = job_id
        self.job_graph = job_graph
        self.job_attempt = 0
        self._by_id: dict[str, Execution] = {}
        self._by_vertex: dict[str, list[Execution]] = {v.id: [] for v in job_graph.vertices}
        self._by_allocation: dict[str, list[Execution]] = {}
        self._inputs = Inputs(job_graph)
        self._counts: Counter[ExecutionState] = Counter()
        #: Vertex id → how many of its subtasks have finished.
        self._finished: Counter[str] = Counter()
        #: Ids of executions that have read all their input and wait for a checkpoint to commit their output.
        self.wanting: set[str] = set()
        self._changes: list[Change] = []

    def take_changes(self) -> list[Change]:
        """The changes of states since the last call."""
        found, self._changes = self._changes, []
        return found

    # -- the attempt ---------------------------------------------------------------------

    def new_attempt(self, job_attempt: int, now_ms: int, vertices: Iterable[str] | None = None) -> None:
        """Replaces the executions of ``vertices`` (None: all) by CREATED ones of ``job_attempt``. Raises
        InternalError if one of them has not ended, or if the number does not grow."""
        if job_attempt <= self.job_attempt:
            raise InternalError(
                "job attempts only grow", expected=f"more than {self.job_attempt}", got=str(job_attempt)
            )
        wanted = [v.id for v in self.job_graph.vertices] if vertices is None else list(vertices)
        if any(not e.state.terminal for v in wanted for e in self._by_vertex[v]):
            raise InternalError("a new attempt while executions of the old one live", got=self.summary())
        for vertex_id in wanted:
            self._replace(vertex_id, job_attempt, now_ms)
        self.job_attempt = job_attempt

    def resume(self, attempts: Mapping[str, int], now_ms: int) -> None:
        """Makes executions of the attempts (vertex id → attempt) that an earlier master began. The states of
        their tasks are not known."""
        for vertex_id, attempt in attempts.items():
            self._replace(vertex_id, attempt, now_ms)
        self.job_attempt = max(attempts.values(), default=0)

    def _replace(self, vertex_id: str, attempt: int, now_ms: int) -> None:
        for old in self._by_vertex[vertex_id]:
            del self._by_id[old.execution_id]
            self._counts[old.state] -= 1
            self.wanting.discard(old.execution_id)
            self._unplace(old)
        self._finished[vertex_id] = 0
        executions = [
            Execution(
                execution_id(self.job_id, vertex_id, index, attempt),
                vertex_id,
                index,
                attempt,
                timestamps={_E.CREATED.value: now_ms},
            )
            for index in range(self.job_graph.vertex(vertex_id).parallelism)
        ]
        self._by_vertex[vertex_id] = executions
        self._by_id.update((e.execution_id, e) for e in executions)
        self._counts[_E.CREATED] += len(executions)
        self._changes += [Change(e, _E.CREATED, None, now_ms) for e in executions]

    def place(self, execution: Execution, allocation_id: str, taskmanager_id: str) -> None:
        """Records the slot of an execution."""
        self._unplace(execution)
        execution.allocation_id, execution.taskmanager_id = allocation_id, taskmanager_id
        self._by_allocation.setdefault(allocation_id, []).append(execution)

    def _unplace(self, execution: Execution) -> None:
        if execution.allocation_id is None:
            return
        there = self._by_allocation[execution.allocation_id]
        there.remove(execution)
        if not there:
            del self._by_allocation[execution.allocation_id]

    # -- reading -------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Execution]:
        for executions in self._by_vertex.values():
            yield from executions

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, execution_id: str) -> Execution | None:
        """The execution with this id, or None."""
        return self._by_id.get(execution_id)

    def vertex(self, vertex_id: str) -> list[Execution]:
        """Executions of a vertex by subtask index."""
        return self._by_vertex[vertex_id]

    def vertices(self) -> Iterator[tuple[JobVertex, list[Execution]]]:
        """Each vertex with its executions."""
        for vertex in self.job_graph.vertices:
            yield vertex, self._by_vertex[vertex.id]

    def of(self, vertices: Iterable[str]) -> Iterator[Execution]:
        """The executions of ``vertices``, in the order of the job graph: the order of a set would differ
        between processes."""
        wanted = frozenset(vertices)
        for vertex_id, executions in self._by_vertex.items():
            if vertex_id in wanted:
                yield from executions

    def upstream(self, execution: Execution) -> Iterator[Execution]:
        """Executions with a channel to this one."""
        for source, indices in self._inputs.of(execution.vertex_id, execution.subtask_index):
            for index in indices:
                yield self._by_vertex[source][index]

    def upstream_finished(self, execution: Execution) -> bool:
        """Whether every execution with a channel to this one has finished, so that no barrier will reach it."""
        for source, indices in self._inputs.of(execution.vertex_id, execution.subtask_index):
            if self._finished[source] == len(self._by_vertex[source]):
                continue
            if len(indices) == len(self._by_vertex[source]):
                return False
            if any(self._by_vertex[source][i].state is not _E.FINISHED for i in indices):
                return False
        return True

    def in_allocation(self, allocation_id: str) -> list[Execution]:
        """The executions in one allocation."""
        return list(self._by_allocation.get(allocation_id, ()))

    def count(self, *states: ExecutionState) -> int:
        """How many executions are in one of these states."""
        return sum(self._counts[state] for state in states)

    @property
    def all_finished(self) -> bool:
        """Whether all executions have finished."""
        return self.count(_E.FINISHED) == len(self)

    @property
    def all_terminal(self) -> bool:
        """Whether all executions have ended."""
        return self.count(_E.FINISHED, _E.CANCELED, _E.FAILED) == len(self)

    @property
    def all_running_or_finished(self) -> bool:
        """Whether all executions run or have finished."""
        return self.count(_E.RUNNING, _E.FINISHED) == len(self)

    def summary(self) -> str:
        """``"2 RUNNING, 1 FAILED"``"""
        return ", ".join(f"{n} {state.value}" for state, n in self._counts.items() if n)

    # -- changing ------------------------------------------------------------------------

    def transition(self, execution: Execution, state: ExecutionState, now_ms: int) -> Update:
        """Moves an execution to a state, and updates the counts."""
        before = execution.state
        answer = execution.transition(state, now_ms)
        if answer is Update.APPLIED:
            self._changes.append(Change(execution, state, before, now_ms))
            self._counts[before] -= 1
            self._counts[state] += 1
            if state is _E.FINISHED:
                self._finished[execution.vertex_id] += 1
            if state.terminal:
                self.wanting.discard(execution.execution_id)
        return answer

    def wants_final_checkpoint(self, execution: Execution) -> None:
        """Records that an execution waits for its final checkpoint."""
        if not execution.state.terminal:
            self.wanting.add(execution.execution_id)

    def adopt(self, execution: Execution, report: TaskReport, now_ms: int) -> None:
        """Takes over the state that an earlier master's task has reached."""
        self._counts[execution.state] -= 1
        self._counts[report.state] += 1
        execution.state = report.state
        self._changes.append(Change(execution, report.state, None, now_ms))
        execution.timestamps[report.state.value] = now_ms
        execution.final = report.final
        if report.state is _E.FINISHED:
            self._finished[execution.vertex_id] += 1
        if report.wants_final_checkpoint:
            self.wants_final_checkpoint(execution)

    def transition_all(
        self, executions: Iterable[Execution], state: ExecutionState, now_ms: int
    ) -> list[Execution]:
        """Moves all of these to a state. Returns those that changed."""
        return [e for e in executions if self.transition(e, state, now_ms) is Update.APPLIED]

    def report(self, report: TaskStateChanged) -> Update:
        """A task's own report of its state."""
        execution = self._by_id.get(report.execution_id)
        if execution is None:
            return Update.LATE if report.job_attempt < self.job_attempt else Update.UNKNOWN
        answer = self.transition(execution, report.state, report.timestamp_ms)
        if answer is Update.APPLIED:
            execution.error = report.error
            execution.final = report.final
        return answer

    def validate_state(self) -> None:
        """InternalError if an invariant is broken; called after every step in tests."""
        counted = Counter(e.state for e in self)
        problems = []
        if +counted != +self._counts:
            problems.append(f"counts {dict(self._counts)} are not {dict(counted)}")
        for vertex, executions in self.vertices():
            if executions and len(executions) != vertex.parallelism:
                problems.append(f"vertex {vertex.id} has {len(executions)} of {vertex.parallelism} subtasks")
            for index, execution in enumerate(executions):
                if execution.subtask_index != index or execution.attempt > self.job_attempt:
                    problems.append(f"{execution.execution_id} stands at {vertex.id}[{index}]")
                deployed = execution.state not in (_E.CREATED, _E.SCHEDULED, _E.CANCELED, _E.FAILED)
                if deployed and execution.allocation_id is None and execution.state is not _E.CANCELING:
                    problems.append(f"{execution.execution_id} is {execution.state.value} without a slot")
                if execution.final is not None and execution.state is not _E.FINISHED:
                    problems.append(f"{execution.execution_id} has a final snapshot and is not FINISHED")
                if execution.execution_id in self.wanting and execution.state.terminal:
                    problems.append(f"{execution.execution_id} has ended and wants a checkpoint")
                if execution.state.value not in execution.timestamps:
                    problems.append(f"{execution.execution_id} entered {execution.state.value} at no time")
        for vertex, executions in self.vertices():
            finished = sum(e.state is _E.FINISHED for e in executions)
            if finished != self._finished[vertex.id]:
                problems.append(f"{vertex.id}: {self._finished[vertex.id]} finished, not {finished}")
        placed = {e.execution_id for there in self._by_allocation.values() for e in there}
        if placed != {e.execution_id for e in self if e.allocation_id is not None}:
            problems.append("executions are not in the slots that they should be in")
        if problems:
            raise InternalError("execution graph: " + "; ".join(problems))


def error_of(error: dict[str, Any], traceback: str = "") -> ErrorInfo:
    """An ``ErrorInfo`` for a failure that the master itself noticed."""
    from penstock.messages.slot import ErrorInfo

    return ErrorInfo(error=error, traceback=traceback)
