"""The execution graph: a job graph's vertices as subtasks, each with its current attempt.

Pure: no clock, no I/O. Every change of an execution goes through ``transition``, which
knows ``EXECUTION_TRANSITIONS``; a report that is late, repeated or impossible gets an
``Update`` as its answer, never an exception.
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.errors import InternalError
from penstock.messages.states import EXECUTION_TRANSITIONS, ExecutionState
from services.jobmanager.topology import upstream_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.jobgraph import JobGraph, JobVertex
    from penstock.messages.slot import ErrorInfo, StateHandle, TaskMetrics, TaskStateChanged

_E = ExecutionState


_LIFE = (_E.CREATED, _E.SCHEDULED, _E.DEPLOYING, _E.INITIALIZING, _E.RUNNING, _E.CANCELING)
#: states that lie behind an execution in this one
_EARLIER = {state: frozenset(_LIFE[:i]) for i, state in enumerate(_LIFE)}


class Update(enum.Enum):
    """What became of a report."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"  # the execution is in that state already
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
    #: state name → ms since the epoch when it was entered
    timestamps: dict[str, int] = field(default_factory=dict)
    allocation_id: str | None = None
    taskmanager_id: str | None = None
    error: ErrorInfo | None = None
    #: last snapshot, of a FINISHED execution
    final: StateHandle | None = None
    #: has read all its input and waits for a checkpoint to commit its output
    wants_final_checkpoint: bool = False
    metrics: TaskMetrics | None = None

    def transition(self, state: ExecutionState, now_ms: int) -> Update:
        if state is self.state:
            return Update.DUPLICATE
        if self.state.terminal:
            return Update.LATE
        if state not in EXECUTION_TRANSITIONS[self.state]:
            # A task may still report what it went through before.
            return Update.LATE if state in _EARLIER[self.state] else Update.ILLEGAL
        self.state = state
        self.timestamps[state.value] = now_ms
        return Update.APPLIED


def execution_id(job_id: str, vertex_id: str, subtask_index: int, attempt: int) -> str:
    return f"{job_id}_{vertex_id}_{subtask_index}_{attempt}"


class ExecutionGraph:
    """All subtasks of a job in their current attempt (global failover: one number for
    all, the job attempt)."""

    def __init__(self, job_id: str, job_graph: JobGraph) -> None:
        self.job_id = job_id
        self.job_graph = job_graph
        self.job_attempt = 0
        self._by_id: dict[str, Execution] = {}
        self._by_vertex: dict[str, list[Execution]] = {v.id: [] for v in job_graph.vertices}
        self._upstream: dict[tuple[str, int], list[tuple[str, int]]] = {
            (vertex.id, index): upstream_of(job_graph, vertex.id, index)
            for vertex in job_graph.vertices
            for index in range(vertex.parallelism)
        }
        self._counts: Counter[ExecutionState] = Counter()

    # -- the attempt ---------------------------------------------------------------------

    def new_attempt(self, job_attempt: int, now_ms: int) -> None:
        """Replace every execution by a CREATED one of ``job_attempt``."""
        if job_attempt <= self.job_attempt:
            raise InternalError(
                "job attempts only grow", expected=f"more than {self.job_attempt}", got=str(job_attempt)
            )
        if any(not e.state.terminal for e in self):
            raise InternalError("a new attempt while executions of the old one live", got=self.summary())
        self.job_attempt = job_attempt
        self._by_id.clear()
        for vertex in self.job_graph.vertices:
            self._by_vertex[vertex.id] = [
                Execution(
                    execution_id(self.job_id, vertex.id, index, job_attempt),
                    vertex.id,
                    index,
                    job_attempt,
                    timestamps={_E.CREATED.value: now_ms},
                )
                for index in range(vertex.parallelism)
            ]
            self._by_id.update((e.execution_id, e) for e in self._by_vertex[vertex.id])
        self._counts = Counter({_E.CREATED: len(self._by_id)})

    # -- reading -------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Execution]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, execution_id: str) -> Execution | None:
        return self._by_id.get(execution_id)

    def vertex(self, vertex_id: str) -> list[Execution]:
        """Executions of a vertex by subtask index."""
        return self._by_vertex[vertex_id]

    def vertices(self) -> Iterator[tuple[JobVertex, list[Execution]]]:
        for vertex in self.job_graph.vertices:
            yield vertex, self._by_vertex[vertex.id]

    def upstream(self, execution: Execution) -> list[Execution]:
        """Executions with a channel to this one."""
        found = self._upstream[execution.vertex_id, execution.subtask_index]
        return [self._by_vertex[vertex_id][index] for vertex_id, index in found]

    def in_allocation(self, allocation_id: str) -> list[Execution]:
        return [e for e in self if e.allocation_id == allocation_id]

    def count(self, *states: ExecutionState) -> int:
        return sum(self._counts[state] for state in states)

    @property
    def all_finished(self) -> bool:
        return self.count(_E.FINISHED) == len(self)

    @property
    def all_terminal(self) -> bool:
        return self.count(_E.FINISHED, _E.CANCELED, _E.FAILED) == len(self)

    @property
    def all_running_or_finished(self) -> bool:
        return self.count(_E.RUNNING, _E.FINISHED) == len(self)

    def summary(self) -> str:
        """``"2 RUNNING, 1 FAILED"``"""
        return ", ".join(f"{n} {state.value}" for state, n in self._counts.items() if n)

    # -- changing ------------------------------------------------------------------------

    def transition(self, execution: Execution, state: ExecutionState, now_ms: int) -> Update:
        before = execution.state
        answer = execution.transition(state, now_ms)
        if answer is Update.APPLIED:
            self._counts[before] -= 1
            self._counts[state] += 1
        return answer

    def transition_all(
        self, executions: Iterable[Execution], state: ExecutionState, now_ms: int
    ) -> list[Execution]:
        """Those that changed."""
        return [e for e in executions if self.transition(e, state, now_ms) is Update.APPLIED]

    def report(self, report: TaskStateChanged) -> Update:
        """A task's own report of its state."""
        if report.job_attempt != self.job_attempt:
            return Update.LATE if report.job_attempt < self.job_attempt else Update.UNKNOWN
        execution = self._by_id.get(report.execution_id)
        if execution is None:
            return Update.UNKNOWN
        answer = self.transition(execution, report.state, report.timestamp_ms)
        if answer is Update.APPLIED:
            execution.error = report.error
            execution.final = report.final
            if report.state.terminal:
                execution.wants_final_checkpoint = False
        return answer

    def validate_state(self) -> None:
        """InternalError when an invariant is broken; called after every step in tests."""
        counted = Counter(e.state for e in self)
        problems = []
        if +counted != +self._counts:
            problems.append(f"counts {dict(self._counts)} are not {dict(counted)}")
        for vertex, executions in self.vertices():
            if executions and len(executions) != vertex.parallelism:
                problems.append(f"vertex {vertex.id} has {len(executions)} of {vertex.parallelism} subtasks")
            for index, execution in enumerate(executions):
                if execution.subtask_index != index or execution.attempt != self.job_attempt:
                    problems.append(f"{execution.execution_id} stands at {vertex.id}[{index}]")
                deployed = execution.state not in (_E.CREATED, _E.SCHEDULED, _E.CANCELED, _E.FAILED)
                if deployed and execution.allocation_id is None and execution.state is not _E.CANCELING:
                    problems.append(f"{execution.execution_id} is {execution.state.value} without a slot")
                if execution.final is not None and execution.state is not _E.FINISHED:
                    problems.append(f"{execution.execution_id} has a final snapshot and is not FINISHED")
                if execution.state.value not in execution.timestamps:
                    problems.append(f"{execution.execution_id} entered {execution.state.value} at no time")
        if problems:
            raise InternalError("execution graph: " + "; ".join(problems))


def error_of(error: dict[str, Any], traceback: str = "") -> ErrorInfo:
    """An ``ErrorInfo`` for a failure that the master itself saw."""
    from penstock.messages.slot import ErrorInfo

    return ErrorInfo(error=error, traceback=traceback)
