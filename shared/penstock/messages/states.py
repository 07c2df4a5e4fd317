"""Life cycles, with their transitions. The diagrams and the tables are held together by
``tests/messages/test_states.py``.

Job (``JobStatus``)::

    INITIALIZING → CREATED → RUNNING → FINISHED
        │            │          ├→ FAILING → FAILED
        │            │          ├→ CANCELLING → CANCELED
        │            │          ├→ RESTARTING → CREATED
        │            │          └→ SUSPENDED            (locally terminal: leadership lost)
        │            └→ CANCELLING, FAILING, RESTARTING, SUSPENDED
        └→ RECONCILING → CREATED      (a new master finds out what of the job runs)

Execution (one attempt of one subtask, ``ExecutionState``)::

    CREATED → SCHEDULED → DEPLOYING → INITIALIZING → RUNNING → FINISHED
    any non-terminal → CANCELING → CANCELED;  any non-terminal → FAILED
"""

from __future__ import annotations

import enum


class JobStatus(str, enum.Enum):
    """The status of a job; the module's docstring has the diagram."""

    INITIALIZING = "INITIALIZING"
    RECONCILING = "RECONCILING"
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    FAILING = "FAILING"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELED = "CANCELED"
    FINISHED = "FINISHED"
    RESTARTING = "RESTARTING"
    SUSPENDED = "SUSPENDED"

    @property
    def globally_terminal(self) -> bool:
        """Whether the job has ended for good, so that no other master may continue it."""
        return self in (JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED)

    @property
    def terminal(self) -> bool:
        """Whether the job has ended for this master: for good, or because it no longer leads the job."""
        return self.globally_terminal or self is JobStatus.SUSPENDED


_J = JobStatus
JOB_TRANSITIONS: dict[JobStatus, frozenset[JobStatus]] = {
    _J.INITIALIZING: frozenset({_J.CREATED, _J.RECONCILING, _J.FAILED, _J.CANCELED, _J.SUSPENDED}),
    _J.RECONCILING: frozenset({_J.CREATED, _J.SUSPENDED}),
    _J.CREATED: frozenset({_J.RUNNING, _J.CANCELLING, _J.FAILING, _J.RESTARTING, _J.SUSPENDED}),
    _J.RUNNING: frozenset({_J.FINISHED, _J.FAILING, _J.CANCELLING, _J.RESTARTING, _J.SUSPENDED}),
    _J.RESTARTING: frozenset({_J.CREATED, _J.FAILING, _J.CANCELLING, _J.SUSPENDED}),
    _J.FAILING: frozenset({_J.FAILED, _J.SUSPENDED}),
    _J.CANCELLING: frozenset({_J.CANCELED, _J.FAILING, _J.SUSPENDED}),
    _J.FAILED: frozenset(),
    _J.CANCELED: frozenset(),
    _J.FINISHED: frozenset(),
    _J.SUSPENDED: frozenset(),
}


class ExecutionState(str, enum.Enum):
    """The state of one attempt of one subtask; the module's docstring has the diagram."""

    CREATED = "CREATED"
    SCHEDULED = "SCHEDULED"
    DEPLOYING = "DEPLOYING"
    INITIALIZING = "INITIALIZING"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELING = "CANCELING"
    CANCELED = "CANCELED"
    FAILED = "FAILED"

    @property
    def terminal(self) -> bool:
        """Whether the execution has ended."""
        return self in (ExecutionState.FINISHED, ExecutionState.CANCELED, ExecutionState.FAILED)


_E = ExecutionState
_STOP = frozenset({_E.CANCELING, _E.CANCELED, _E.FAILED})
EXECUTION_TRANSITIONS: dict[ExecutionState, frozenset[ExecutionState]] = {
    _E.CREATED: _STOP | {_E.SCHEDULED},
    _E.SCHEDULED: _STOP | {_E.DEPLOYING},
    _E.DEPLOYING: _STOP | {_E.INITIALIZING, _E.RUNNING, _E.FINISHED},
    _E.INITIALIZING: _STOP | {_E.RUNNING, _E.FINISHED},
    _E.RUNNING: _STOP | {_E.FINISHED},
    _E.CANCELING: frozenset({_E.CANCELED, _E.FAILED, _E.FINISHED}),
    _E.FINISHED: frozenset(),
    _E.CANCELED: frozenset(),
    _E.FAILED: frozenset(),
}
