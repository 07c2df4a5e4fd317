"""The rows about active jobs, for lists: remembered, so that a list of a thousand jobs asks no thousand masters.

A row is asked for anew when an event tells that its job has changed, and when it is older than ``FRESH_MS``: in the
background then, while the request is answered with what is known. So a row is right but for the moment that an event takes, and
at most ``FRESH_MS`` plus one request old if an event was lost. A row older than ``OLDEST_MS`` is never shown.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.messages.cluster import JobOverview
    from penstock.ports import Clock

FRESH_MS = 10_000
OLDEST_MS = 30_000
#: Masters that are asked at once in the background: few, so that requests are answered between them.
_AT_ONCE = 4
#: The list of active jobs is read this often, and when an event names a job that is not in it.
LISTED_MS = 1_000


class _Row(NamedTuple):
    overview: JobOverview
    #: When it was asked for, and how many changes of the job had been told by then.
    asked_ms: int
    changes: int


class Overviews:
    """Remembers the overviews of active jobs.

    Args:
        list_ids: Lists the ids of the active jobs.
        ask: Gives a job's overview, from its master or its log; None for a job that was never accepted.
        clock: Tells the time.
    """

    def __init__(
        self,
        list_ids: Callable[[], Awaitable[list[str]]],
        ask: Callable[[str], Awaitable[JobOverview | None]],
        clock: Clock,
    ) -> None:
        self._list_ids = list_ids
        self._ask = ask
        self._clock = clock
        self._ids: list[str] = []
        #: When the ids were read; None: they are to be read again.
        self._listed_ms: int | None = None
        self._rows: dict[str, _Row] = {}
        self._changes: dict[str, int] = {}
        self._refreshing: set[str] = set()
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def changed(self, job_id: str) -> None:
        """Something about the job has changed, or will: its row is asked for before it is shown again."""
        self._changes[job_id] = self._changes.get(job_id, 0) + 1
        if job_id not in self._rows:
            self._listed_ms = None

    async def active(self) -> list[JobOverview]:
        """The overviews of the active jobs, in any order."""
        ids = await self._active_ids()
        now_ms = self._clock.now_ms()
        wrong = [job_id for job_id in ids if not self._shown(job_id, now_ms)]
        await asyncio.gather(*(self._refresh(job_id) for job_id in wrong))
        for job_id in ids:
            row = self._rows.get(job_id)
            if row is not None and now_ms - row.asked_ms > FRESH_MS and job_id not in self._refreshing:
                self._refresh_later(job_id)
        return [row.overview for job_id in ids if (row := self._rows.get(job_id)) is not None]

    async def _active_ids(self) -> list[str]:
        now_ms = self._clock.now_ms()
        if self._listed_ms is None or now_ms - self._listed_ms > LISTED_MS:
            self._listed_ms = now_ms  # before the list is read: what changes meanwhile makes it None again
            self._ids = await self._list_ids()
            self._forget_all_but(self._ids)
        return self._ids

    def _shown(self, job_id: str, now_ms: int) -> bool:
        row = self._rows.get(job_id)
        return (
            row is not None
            and row.changes == self._changes.get(job_id, 0)
            and now_ms - row.asked_ms <= OLDEST_MS
        )

    def _refresh_later(self, job_id: str) -> None:
        self._refreshing.add(job_id)
        task = asyncio.get_running_loop().create_task(self._in_turn(job_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _in_turn(self, job_id: str) -> None:
        try:
            async with self._at_once:
                await self._refresh(job_id)
        finally:
            self._refreshing.discard(job_id)

    async def _refresh(self, job_id: str) -> None:
        asked_ms, changes = self._clock.now_ms(), self._changes.get(job_id, 0)
        overview = await self._ask(job_id)
        if overview is None:
            self._rows.pop(job_id, None)
        else:
            self._rows[job_id] = _Row(overview, asked_ms, changes)

    def _forget_all_but(self, ids: list[str]) -> None:
        known = set(ids)
        for job_id in [job_id for job_id in self._rows if job_id not in known]:
            del self._rows[job_id]
        for job_id in [job_id for job_id in self._changes if job_id not in known]:
            del self._changes[job_id]
