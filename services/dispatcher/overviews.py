"""The rows about active jobs, for lists: remembered, so that a list of a thousand jobs asks no thousand masters.

A row is asked for anew when an event tells that its job has changed, and when it is older than ``FRESH_MS``: in the
background then, while the request is answered with what is known. So a row is right but for the moment that an event takes, and
at most ``FRESH_MS`` plus one request old if an event was lost. A row older than ``OLDEST_MS`` is never shown.

The jobs that have ended are listed right after the active ones, so a job that has left the list of active jobs is in the
other one.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.log_events import EventLog
from penstock_services.dispatcher.active_jobs import asked_in_turn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from penstock.messages.cluster import JobOverview
    from penstock.ports import Clock

_log = EventLog("penstock.rest")

FRESH_MS = 10_000
OLDEST_MS = 30_000
#: Rows that could not be refreshed in the background are tried again after this time.
RETRY_S = 2.0
#: Masters that are asked at once in the background: few, so that requests are answered between them.
_AT_ONCE = 4
#: The lists of active and of ended jobs are read this often, and when an event names a job that is not in them.
LISTED_MS = 1_000


class _Row(NamedTuple):
    overview: JobOverview
    #: When it was asked for, and how many changes of the job had been told by then.
    asked_ms: int
    changes: int


class Overviews:
    """Remembers the overviews of active jobs, and which jobs have ended.

    Args:
        list_active: Lists the ids of the active jobs.
        list_ended: Gives the overviews of all ended jobs, in the order of lists.
        ask: Gives an active job's overview, from its master or its log; None for a job that was never accepted.
        clock: Tells the time.
    """

    def __init__(
        self,
        list_active: Callable[[], Awaitable[list[str]]],
        list_ended: Callable[[], Awaitable[list[JobOverview]]],
        ask: Callable[[str], Awaitable[JobOverview | None]],
        clock: Clock,
    ) -> None:
        self._list_active = list_active
        self._list_ended = list_ended
        self._ask = ask
        self._clock = clock
        self._ids: list[str] = []
        self._ended: list[JobOverview] = []
        #: When the lists were read; None: they are to be read again.
        self._listed_ms: int | None = None
        self._listing = asyncio.Lock()
        self._rows: dict[str, _Row] = {}
        self._changes: dict[str, int] = {}
        #: The jobs whose rows wait for the background, as an ordered set.
        self._waiting: dict[str, None] = {}
        self._refreshing: asyncio.Task[None] | None = None

    def changed(self, job_id: str) -> None:
        """Something about the job has changed, or will: its row is asked for before it is shown again."""
        self._changes[job_id] = self._changes.get(job_id, 0) + 1
        if job_id not in self._rows:
            self._listed_ms = None

    async def all(self) -> tuple[list[JobOverview], list[JobOverview]]:
        """The overviews of the active jobs, in any order, and of those that have ended. As long as nothing about a job
        has changed, its overview is the same object."""
        await self._list()
        now_ms, ids, ended = self._clock.now_ms(), self._ids, self._ended
        wrong = [job_id for job_id in ids if not self._shown(job_id, now_ms)]
        await asked_in_turn(self._refresh, wrong)
        rows = [row for job_id in ids if (row := self._rows.get(job_id)) is not None]
        self._refresh_later(row.overview.job_id for row in rows if now_ms - row.asked_ms > FRESH_MS)
        return [row.overview for row in rows], ended

    async def _list(self) -> None:
        async with self._listing:  # a second request waits for the lists that the first one reads
            now_ms = self._clock.now_ms()
            if self._listed_ms is not None and now_ms - self._listed_ms <= LISTED_MS:
                return
            self._listed_ms = now_ms  # before the lists are read: what changes meanwhile makes it None again
            try:
                ids = await self._list_active()
                self._ids, self._ended = ids, await self._list_ended()
            except BaseException:
                self._listed_ms = None
                raise
            self._forget_all_but(self._ids)

    def _shown(self, job_id: str, now_ms: int) -> bool:
        row = self._rows.get(job_id)
        return (
            row is not None
            and row.changes == self._changes.get(job_id, 0)
            and now_ms - row.asked_ms <= OLDEST_MS
        )

    def _refresh_later(self, job_ids: Iterable[str]) -> None:
        self._waiting.update(dict.fromkeys(job_ids))
        if self._waiting and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh_waiting())

    async def _refresh_waiting(self) -> None:
        """Refreshes rows until none waits. A row that cannot be refreshed is tried again until it is too old to be
        shown: then the next list asks for it, and reports the error."""
        while self._waiting:
            batch = list(islice(self._waiting, _AT_ONCE))
            results = await asyncio.gather(*(self._refresh(i) for i in batch), return_exceptions=True)
            errors = [result for result in results if isinstance(result, Exception)]
            if errors:
                _log.warning("rows_not_refreshed", waiting=len(self._waiting), error=str(errors[0]))
                await self._clock.sleep(RETRY_S)
            now_ms = self._clock.now_ms()
            for job_id in batch:
                self._waiting.pop(job_id, None)
                row = self._rows.get(job_id)
                if row is not None and FRESH_MS < now_ms - row.asked_ms <= OLDEST_MS:
                    self._waiting[job_id] = None  # behind all others

    async def _refresh(self, job_id: str) -> None:
        asked_ms, changes = self._clock.now_ms(), self._changes.get(job_id, 0)
        overview, known = await self._ask(job_id), self._rows.get(job_id)
        if overview is None:
            self._rows.pop(job_id, None)
        elif known is not None and known.overview == overview:
            self._rows[job_id] = _Row(known.overview, asked_ms, changes)
        else:
            self._rows[job_id] = _Row(overview, asked_ms, changes)

    def _forget_all_but(self, ids: list[str]) -> None:
        known = set(ids)
        remembered: tuple[dict[str, Any], ...] = (self._rows, self._changes, self._waiting)
        for by_id in remembered:
            for job_id in [job_id for job_id in by_id if job_id not in known]:
                del by_id[job_id]
