"""Tracks what runs in a slot: the task manager sees its deployment, its reports and its commands. Pure.

A new master is told this at once, even while the slot itself is busy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.messages.job_master import SlotDeployment, TaskReport
from penstock.messages.slot import (
    CheckpointAcknowledged,
    CheckpointComplete,
    FinalCheckpointWanted,
    TaskStateChanged,
    TriggerCheckpoint,
)
from penstock.messages.states import ExecutionState

if TYPE_CHECKING:
    from typing import Any

    from penstock.messages.slot import Deploy, FromSlot


class Tracking:
    """The tracked state of one slot's process."""

    def __init__(self, deploy: Deploy) -> None:
        self._attempt = deploy.job_attempt
        self._epoch = deploy.epoch
        self._tasks = {
            task.execution_id: TaskReport(
                execution_id=task.execution_id,
                vertex_id=task.vertex_id,
                subtask_index=task.subtask_index,
                state=ExecutionState.DEPLOYING,
            )
            for task in deploy.tasks
        }
        self._confirmed = deploy.restored_checkpoint_id
        self._highest = deploy.restored_checkpoint_id

    def reported(self, report: FromSlot) -> None:
        """The slot sends a report to the master."""
        match report:
            case TaskStateChanged(execution_id=execution_id, state=state, final=final):
                known = self._tasks.get(execution_id)
                if known is not None and not known.state.terminal:
                    self._tasks[execution_id] = msgspec.structs.replace(
                        known,
                        state=state,
                        final=final,
                        wants_final_checkpoint=known.wants_final_checkpoint and not state.terminal,
                    )
            case FinalCheckpointWanted(execution_id=execution_id):
                known = self._tasks.get(execution_id)
                if known is not None and not known.state.terminal:
                    self._tasks[execution_id] = msgspec.structs.replace(known, wants_final_checkpoint=True)
            case CheckpointAcknowledged(checkpoint_id=checkpoint_id):
                self._highest = max(self._highest, checkpoint_id)

    def commanded(self, command: Any) -> None:
        """Records a command of a master that goes to the slot."""
        match command:
            case TriggerCheckpoint(checkpoint_id=checkpoint_id):
                self._highest = max(self._highest, checkpoint_id)
            case CheckpointComplete(checkpoint_id=checkpoint_id):
                self._confirmed = max(self._confirmed, checkpoint_id)
                self._highest = max(self._highest, checkpoint_id)

    def report(self) -> SlotDeployment:
        """What runs in the slot, for an offer."""
        return SlotDeployment(
            job_attempt=self._attempt,
            epoch=self._epoch,
            tasks=tuple(self._tasks.values()),
            confirmed_checkpoint_id=self._confirmed,
            highest_checkpoint_id=self._highest,
        )
