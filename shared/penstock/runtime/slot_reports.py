"""The reports of a slot to its task manager: states of tasks, their checkpoints, and log lines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from penstock.log_events import LogEvent
from penstock.messages.slot import (
    CheckpointAcknowledged,
    CheckpointDeclined,
    CheckpointMetrics,
    Deploy,
    FinalCheckpointWanted,
    SlotLog,
    StateHandle,
    TaskStateChanged,
)
from penstock.messages.states import ExecutionState
from penstock.redaction import without_credentials
from penstock.runtime.control_channel import ControlChannel
from penstock.runtime.environment import wall_clock_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.messages.slot import ErrorInfo
    from penstock.runtime.task import Task

#: Metrics and log lines are dropped while the task manager has more unread bytes than this.
MAX_UNREAD_BYTES = 8 * 1024 * 1024
#: The most characters of a field in the task manager's log.
MAX_LOG_CHARACTERS = 16 * 1024


class SlotReports:
    """The listener of a slot's tasks. ``before_end`` is called before a task's last report."""

    def __init__(self, control: ControlChannel, before_end: Callable[[], None]) -> None:
        self._control = control
        self._before_end = before_end
        #: The deployment that the slot runs; None before there is one.
        self.deploy: Deploy | None = None

    def state_changed(
        self, task: Task, state: ExecutionState, error: ErrorInfo | None, final: StateHandle | None
    ) -> None:
        """Report a task's new state; metrics are reported before a terminal state."""
        if state is ExecutionState.DEPLOYING:
            return
        if state.terminal:
            self._before_end()  # first: with the last report of the last task the job is over
        d = task.descriptor
        self.send_state(d.execution_id, d.vertex_id, d.subtask_index, error, state, final)

    def send_state(
        self,
        execution_id: str,
        vertex_id: str,
        subtask_index: int,
        error: ErrorInfo | None,
        state: ExecutionState = ExecutionState.FAILED,
        final: StateHandle | None = None,
    ) -> None:
        deploy = self.deploy
        assert deploy is not None
        self._control.send(
            TaskStateChanged(
                job_id=deploy.job_id,
                job_attempt=deploy.job_attempt,
                execution_id=execution_id,
                vertex_id=vertex_id,
                subtask_index=subtask_index,
                state=state,
                timestamp_ms=wall_clock_ms(),
                error=error,
                final=final,
            )
        )

    def acknowledged(
        self, task: Task, checkpoint_id: int, handle: StateHandle, metrics: CheckpointMetrics
    ) -> None:
        """Report a written snapshot."""
        assert self.deploy is not None
        self._control.send(
            CheckpointAcknowledged(
                job_id=self.deploy.job_id,
                job_attempt=self.deploy.job_attempt,
                execution_id=task.descriptor.execution_id,
                vertex_id=task.descriptor.vertex_id,
                subtask_index=task.descriptor.subtask_index,
                checkpoint_id=checkpoint_id,
                handle=handle,
                metrics=metrics,
            )
        )

    def declined(self, task: Task, checkpoint_id: int, reason: str, *, finishing: bool) -> None:
        """Report that a task takes no part in a checkpoint."""
        self.decline(task.descriptor.execution_id, checkpoint_id, reason, finishing)

    def decline(self, execution_id: str, checkpoint_id: int, reason: str, finishing: bool = False) -> None:
        if self.deploy is None:
            return
        self._control.send(
            CheckpointDeclined(
                job_id=self.deploy.job_id,
                job_attempt=self.deploy.job_attempt,
                execution_id=execution_id,
                checkpoint_id=checkpoint_id,
                reason=reason,
                finishing=finishing,
            )
        )

    def final_checkpoint_wanted(self, task: Task) -> None:
        """Report that a task needs a final checkpoint."""
        assert self.deploy is not None
        self._control.send(
            FinalCheckpointWanted(
                job_id=self.deploy.job_id,
                job_attempt=self.deploy.job_attempt,
                execution_id=task.descriptor.execution_id,
            )
        )

    def log(self, level: str, event: str, /, **fields: Any) -> None:
        """Log an event to stderr and to the task manager, without credentials. Events are dropped if the latter
        does not read."""
        told = {name: without_credentials(str(value)) for name, value in fields.items()}
        print(f"{level}: {LogEvent(event, told)}", file=sys.stderr, flush=True)  # noqa: T201  the slot's own log
        # The slot's log has all of it; reports that the task manager does not read must not pile up here.
        if self._control.unread_bytes <= MAX_UNREAD_BYTES:
            short = {name: value[:MAX_LOG_CHARACTERS] for name, value in told.items()}
            self._control.send(SlotLog(level=level, event=event, fields=short))
