"""Jobs without a master, as their decision logs describe them.

A log is followed, not read again: every request reads the entries that were added since the request before
(one read, if there is none), and is answered from the facts that are known then.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from penstock.jobgraph.graph import decode_job_graph
from penstock.messages.cluster import JobDetails
from penstock.store import job_log
from penstock_services.common.http import NotFoundError
from penstock_services.jobmanager.checkpoint_history import HISTORY
from penstock_services.jobmanager.details import logged_details
from penstock_services.jobmanager.inheritance import read_logged_job
from penstock_services.jobmanager.kept_exceptions import kept_exceptions

if TYPE_CHECKING:
    from penstock.jobgraph import JobGraph
    from penstock.ports import Store

#: How many logs are followed at the same time. A new one replaces the log with the oldest request.
FOLLOWED = 256


class UnknownJobError(NotFoundError):
    """There is no job with this id (404)."""

    code = "PS-NO-JOB"


class LoggedJobs:
    """The logs that one dispatcher follows. ``forget`` a job that has a master, because the master knows
    more."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._followed: OrderedDict[str, _Followed] = OrderedDict()

    async def details(self, job_id: str) -> JobDetails:
        """The details of a job. Raises UnknownJobError if the job was never accepted."""
        followed = self._followed.setdefault(job_id, _Followed(self._store, job_id))
        self._followed.move_to_end(job_id)
        if len(self._followed) > FOLLOWED:
            self._followed.popitem(last=False)
        try:
            return await followed.details()
        except UnknownJobError:
            self.forget(job_id)
            raise

    @property
    def followed(self) -> tuple[str, ...]:
        """The ids of the followed jobs, the last requested one at the end."""
        return tuple(self._followed)

    def forget(self, job_id: str) -> None:
        """Stops following a job."""
        self._followed.pop(job_id, None)


class _Followed:
    """One followed log. ``_told``: the details up to entry ``_told_at`` (0: none yet)."""

    def __init__(self, store: Store, job_id: str) -> None:
        self._store = store
        self._job_id = job_id
        self._log = job_log(store, job_id)
        self._graph: JobGraph | None = None
        self._told: JobDetails | None = None
        self._told_at = 0
        #: A request that comes during another one waits, and then reads the entries that were added.
        self._reading = asyncio.Lock()

    async def details(self) -> JobDetails:
        async with self._reading:
            await self._log.read()
            if self._told is None or self._told_at < self._log.last:
                self._told = await self._tell()
                self._told_at = self._log.last
            return self._told

    async def _tell(self) -> JobDetails:
        """The details of an accepted job. No master has begun, or the last one has ended."""
        logged, epoch = read_logged_job(self._log.entries, HISTORY), self._log.latest_epoch
        accepted, terminal = logged.accepted, logged.terminal
        if accepted is None:
            raise UnknownJobError(
                f"there is no job '{self._job_id}'",
                got=self._job_id,
                remedy="`penstock list` shows the jobs there are",
            )
        if terminal is None:
            if self._graph is None:
                self._graph = decode_job_graph(await self._store.get(accepted.job_graph_key))
            details = logged_details(self._job_id, self._graph, logged, epoch)
            exceptions = await kept_exceptions(self._store, self._job_id)
            return msgspec.structs.replace(details, exceptions=exceptions)
        return JobDetails(
            job_id=self._job_id,
            name=accepted.name,
            status=terminal.status,
            attempt=logged.inherited.job_attempt,
            epoch=epoch,
            start_ms=accepted.timestamp_ms,
            end_ms=terminal.timestamp_ms,
            timestamps={"INITIALIZING": accepted.timestamp_ms},
        )
