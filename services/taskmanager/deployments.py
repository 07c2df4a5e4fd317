"""Reads the shared part of the deployments of a large job's slots, once for a task manager."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import ObjectStoreError
from penstock.messages.task_manager import DeploySlot, SharedDeploy

if TYPE_CHECKING:
    from penstock_services.common.main import ServiceContext


class SharedDeployments:
    """Keeps the last shared part for the other slots of the task manager."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._reading = asyncio.Lock()
        self._last: tuple[str, SharedDeploy] | None = None

    async def whole(self, message: DeploySlot) -> DeploySlot:
        """The deployment with its shared part from the object store. Raises ObjectStoreError if the object
        does not exist."""
        key = message.deploy_key or ""
        async with self._reading:
            if self._last is None or self._last[0] != key:
                self._last = (key, await self._read(key))
            shared = self._last[1]
        deploy = shared.of(message.allocation_id, message.tasks)
        return DeploySlot(command_id=message.command_id, allocation_id=message.allocation_id, deploy=deploy)

    async def _read(self, key: str) -> SharedDeploy:
        try:
            data = await (await self._context.store()).get(key)
        except KeyError:
            raise ObjectStoreError(
                "the deployment of a slot is not in the object store",
                where=key,
                remedy="job manager and task managers must have the same high-availability.storageDir",
            ) from None
        return msgspec.msgpack.decode(data, type=SharedDeploy)
