"""A slot's reports on their way to the job's master: in order, repeated until answered, bounded. At the
bound the slot's channel is read no further."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Union

from penstock.bus import RefusedError, request
from penstock.errors import BrokerError, PenstockError
from penstock.log_events import EventLog
from penstock.messages.cluster import Ack, Refused
from penstock.messages.job_master import SlotLost, SlotReport
from penstock.messages.slot import TaskMetricsReport

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.bus import Subjects
    from penstock.messages.slot import FromSlot
    from penstock.ports import Transport

_log = EventLog("penstock.taskmanager.relay")

#: How many reports, and bytes, may wait.
MAX_QUEUED = 1024
MAX_QUEUED_BYTES = 8 * 1024 * 1024
#: How many reports, and bytes, are sent in one message. Base64 and JSON make it larger by a half.
MAX_BATCH = 128
MAX_BATCH_BYTES = 128 * 1024


class Relay:
    """Sends the reports of one slot to the job's master. ``on_answer`` is called whenever the master has
    answered."""

    def __init__(
        self,
        transport: Transport,
        subjects: Subjects,
        *,
        job_id: str,
        taskmanager_id: str,
        allocation_id: str,
        on_answer: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._subjects = subjects
        self._job_id = job_id
        self._taskmanager_id = taskmanager_id
        self._allocation_id = allocation_id
        self._on_answer = on_answer
        self._queue: deque[tuple[Any, int]] = deque()
        self._bytes = 0
        #: Set when there is something to send, or when nothing more will come.
        self._work = asyncio.Event()
        #: Set when there is room for another report.
        self._room = asyncio.Event()
        self._closed = False

    async def put(self, report: FromSlot, size: int) -> None:
        """Queues a report of ``size`` bytes; waits while the queue is full. Only the latest metrics are kept."""
        if isinstance(report, TaskMetricsReport):
            for i, (queued, old) in enumerate(self._queue):
                if isinstance(queued, TaskMetricsReport):
                    self._queue[i] = (report, size)
                    self._bytes += size - old
                    return
        while self._queue and (len(self._queue) >= MAX_QUEUED or self._bytes + size > MAX_QUEUED_BYTES):
            self._room.clear()
            await self._room.wait()
        self._append(report, size)

    def tell(self, report: FromSlot) -> None:
        """Queues a report of the task manager itself about the slot. Such reports are rare and small, so this
        never waits."""
        if not self._closed:
            self._append(report, 0)

    def close(self, lost: SlotLost | None = None) -> None:
        """Takes no more reports. ``lost``, if given, is sent last and once."""
        if lost is not None and not self._closed:
            self._append(lost, 0)
        self._closed = True
        self._work.set()

    def _append(self, item: Any, size: int) -> None:
        self._queue.append((item, size))
        self._bytes += size
        self._work.set()

    async def run(self) -> None:
        """Sends until closed and empty. Cancel it to drop the rest."""
        while True:
            while not self._queue:
                if self._closed:
                    return
                self._work.clear()
                await self._work.wait()
            await self._send(self._take())

    def _take(self) -> SlotReport | SlotLost:
        """The next message; its reports leave the queue, and this task delivers them."""
        first = self._queue[0][0]
        if isinstance(first, SlotLost):
            self._queue.popleft()
            return first
        reports: list[FromSlot] = []
        total = 0
        while self._queue and len(reports) < MAX_BATCH:
            report, size = self._queue[0]
            if isinstance(report, SlotLost) or (reports and total + size > MAX_BATCH_BYTES):
                break
            self._queue.popleft()
            reports.append(report)
            total += size
        self._bytes -= total
        self._room.set()
        return SlotReport(
            job_id=self._job_id,
            taskmanager_id=self._taskmanager_id,
            allocation_id=self._allocation_id,
            reports=tuple(reports),
        )

    async def _send(self, message: SlotReport | SlotLost) -> None:
        subject = self._subjects.to_job(self._job_id, message)
        while True:
            try:
                await request(self._transport, subject, message, Union[Ack, Refused], deadline_s=60.0)
            except BrokerError as err:
                _log.warning("job_master_unreachable", job_id=self._job_id, error=err.message)
                continue
            except (RefusedError, PenstockError) as err:
                # The master answered: a repetition would get the same answer.
                _log.warning("report_refused", job_id=self._job_id, error=err)
            self._on_answer()
            return
