"""The reports of a task. Called on the data thread; must not block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.messages.slot import CheckpointMetrics, ErrorInfo, StateHandle
    from penstock.messages.states import ExecutionState
    from penstock.runtime.task import Task


class TaskListener(Protocol):
    def state_changed(
        self, task: Task, state: ExecutionState, error: ErrorInfo | None, final: StateHandle | None
    ) -> None: ...

    def acknowledged(
        self, task: Task, checkpoint_id: int, handle: StateHandle, metrics: CheckpointMetrics
    ) -> None: ...

    def declined(self, task: Task, checkpoint_id: int, reason: str, *, finishing: bool) -> None:
        """``finishing``: its final state comes with FINISHED instead."""

    def final_checkpoint_wanted(self, task: Task) -> None: ...
