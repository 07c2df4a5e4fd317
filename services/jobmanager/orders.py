"""Makes the commands of a job master to task managers, each with its own id. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.messages.slot import CancelTasks, MasterChanged
from penstock.messages.task_manager import DeploySlot, FreeSlot, SlotCommand
from penstock_services.jobmanager.effects import Command

if TYPE_CHECKING:
    from penstock.messages.slot import Deploy
    from penstock.messages.task_manager import SharedDeploy


class Orders:
    """The commands of one master."""

    def __init__(self, job_id: str, epoch: int) -> None:
        self._job_id = job_id
        self._epoch = epoch
        self._count = 0

    def _id(self, word: str) -> str:
        # The epoch belongs to this master alone, so the id is unique in the cluster.
        self._count += 1
        return f"{self._job_id}-{self._epoch}-{word}-{self._count}"

    def deploy(self, taskmanager_id: str, deploy: Deploy, shared: SharedDeploy) -> Command:
        """Deploys the tasks of a slot."""
        message = DeploySlot(command_id=self._id("deploy"), allocation_id=deploy.allocation_id, deploy=deploy)
        return Command(taskmanager_id, message, shared)

    def cancel(self, taskmanager_id: str, allocation_id: str) -> Command:
        """Cancels all tasks of the slot."""
        message = SlotCommand(
            command_id=self._id("cancel"),
            allocation_id=allocation_id,
            command=CancelTasks(epoch=self._epoch),
        )
        return Command(taskmanager_id, message)

    def introduce(self, taskmanager_id: str, allocation_id: str) -> Command:
        """Tells the slot that it has a new master."""
        message = SlotCommand(
            command_id=self._id("introduce"),
            allocation_id=allocation_id,
            command=MasterChanged(epoch=self._epoch),
        )
        return Command(taskmanager_id, message)

    def free(self, taskmanager_id: str, allocation_id: str) -> Command:
        """Gives a slot back."""
        message = FreeSlot(
            command_id=self._id("free"),
            job_id=self._job_id,
            allocation_id=allocation_id,
            epoch=self._epoch,
        )
        return Command(taskmanager_id, message)
