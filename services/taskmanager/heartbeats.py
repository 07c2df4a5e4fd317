"""Reports to the resource manager: a whole report every interval and at every change, and a last one at the
end."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from penstock.bus import request
from penstock.errors import BrokerError, PenstockError
from penstock.messages.cluster import Ack
from penstock.messages.resource_manager import DeregisterTaskManager, RegisterReply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.messages.resource_manager import RegisterTaskManager
    from penstock_services.common.main import ServiceContext
    from penstock_services.taskmanager.slot_table import SlotTable

#: For this long after the start, a missing resource manager is not logged.
STARTUP_MS = 3_000


class Heartbeats:
    """Sends reports to the resource manager. ``report()`` makes a report; ``before()`` is awaited before
    each."""

    def __init__(
        self,
        context: ServiceContext,
        interval_ms: int,
        table: SlotTable,
        report: Callable[[], RegisterTaskManager],
        before: Callable[[], Awaitable[None]],
    ) -> None:
        self._context = context
        self._interval_ms = interval_ms
        self._table = table
        self._report = report
        self._before = before
        #: When it is set, the next report is sent at once.
        self.changed = asyncio.Event()
        self._heard: bool | None = None
        self._started_ms = context.clock.monotonic_ms()

    async def run(self) -> None:
        """Sends reports until it is cancelled."""
        while True:
            self.changed.clear()
            await self._before()
            try:
                reply = await self._ask(
                    self._report(), RegisterReply, deadline_s=self._interval_ms / 1000, retry=False
                )
                # A deposed leader may still answer: only the newest epoch counts.
                if reply.epoch >= self._table.resourcemanager_epoch:
                    self._table.resourcemanager_epoch = reply.epoch
                    self._tell(True, f"{reply.resourcemanager_id} epoch={reply.epoch}")
            except BrokerError as err:
                self._tell(False, err.message)
            with contextlib.suppress(TimeoutError):
                # No leader (at the start, or between two leaders): ask again soon.
                pause_ms = self._interval_ms if self._heard else min(100, self._interval_ms)
                async with asyncio.timeout(pause_ms / 1000):
                    await self.changed.wait()

    async def goodbye(self, taskmanager_id: str) -> None:
        """Tells the resource manager that this task manager leaves. A failure is ignored."""
        if not self._heard:
            return
        message = DeregisterTaskManager(taskmanager_id=taskmanager_id, reason="it was shut down")
        with contextlib.suppress(PenstockError):  # no leader: it will notice the missing heartbeats
            await self._ask(message, Ack, deadline_s=1.0)

    async def _ask(self, message: Any, reply_type: Any, *, deadline_s: float, retry: bool = True) -> Any:
        context = self._context
        return await request(
            context.transport,
            context.subjects.to_resourcemanager(message),
            message,
            reply_type,
            timeout_s=min(1.0, deadline_s),
            deadline_s=deadline_s,
            retry=retry,
        )

    def _tell(self, heard: bool, what: str) -> None:
        """Logs the state if it has changed."""
        starting = self._context.clock.monotonic_ms() - self._started_ms < STARTUP_MS
        if not heard and self._heard is None and starting:
            return  # the other services are starting too: no cause for alarm yet
        if heard != self._heard:
            if heard:
                self._context.log.info("taskmanager_registered", resourcemanager_id=what)
            else:
                self._context.log.warning("resourcemanager_unreachable", error=what)
        self._heard = heard
