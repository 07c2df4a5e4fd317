"""The receiver of a task's reports. All methods are called on the data thread and must not block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.messages.slot import CheckpointMetrics, ErrorInfo, StateHandle
    from penstock.messages.states import ExecutionState
    from penstock.runtime.task import Task


class TaskListener(Protocol):
    """Receives the reports of tasks."""

    def state_changed(
        self, task: Task, state: ExecutionState, error: ErrorInfo | None, final: StateHandle | None
    ) -> None:
        """The task's state changed. ``error`` says why it failed; ``final`` is the last snapshot of a finished
        task."""

    def acknowledged(
        self, task: Task, checkpoint_id: int, handle: StateHandle, metrics: CheckpointMetrics
    ) -> None:
        """The snapshot of a checkpoint is written; ``handle`` names it."""

    def declined(self, task: Task, checkpoint_id: int, reason: str, *, finishing: bool) -> None:
        """The task takes no part in the checkpoint. ``finishing``: its final state comes with FINISHED instead."""

    def final_checkpoint_wanted(self, task: Task) -> None:
        """The task has ended with output that waits for a commit, and needs a final checkpoint."""
