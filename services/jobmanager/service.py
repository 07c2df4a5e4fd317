"""The job manager: competes for the lease of every accepted job that has not ended.

``RunJob`` tells it about a job. It also reads the list of active jobs regularly, so that every job manager
finds a job whose submission was interrupted, or whose master has ended.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.bus import serve_typed
from penstock.errors import PenstockError
from penstock.messages.cluster import Ack, RunJob
from penstock.messages.layout import ACTIVE_PREFIX
from penstock_services.common.actor import RestartPolicy
from penstock_services.jobmanager.job import Job

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.ports import LeaseStore, Store
    from penstock_services.common.main import ServiceContext

#: The time between two readings of the list of active jobs.
SCAN_S = 2.0


class JobManagerService:
    """A job manager process; see ``common.main.Service``."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._leases: LeaseStore | None = None
        self._store: Store | None = None
        self._jobs: dict[str, Job] = {}
        self._ended: set[str] = set()
        self._over: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()

    async def start(self) -> Mapping[str, Any]:
        """See ``Service.start``."""
        context = self._context
        self._store = await context.store()
        self._leases = context.leases()
        await serve_typed(context.transport, context.subjects.jobmanager_run, RunJob, self._run_job)
        context.supervisor.start("scan", self._scan)
        context.supervisor.start("reaper", self._reap)
        return {}

    async def stop(self) -> None:
        """Gives all leases back at once, so that another job manager need not wait for their expiry."""
        for name in ("scan", "reaper"):
            await self._context.supervisor.stop(name)
        await asyncio.gather(*(self._context.supervisor.stop(f"job-{j}") for j in list(self._jobs)))

    async def _run_job(self, message: RunJob) -> Ack:
        self._bid(message.job_id)
        return Ack()

    def _bid(self, job_id: str) -> None:
        if job_id in self._jobs or job_id in self._ended:
            return
        assert self._leases is not None
        assert self._store is not None
        job = Job(self._context, self._leases, self._store, job_id, self._is_over)
        self._jobs[job_id] = job
        self._context.supervisor.start(f"job-{job_id}", job.run, RestartPolicy(max_restarts=1_000_000))

    def _is_over(self, job_id: str, ended: bool) -> None:
        self._over.put_nowait((job_id, ended))

    async def _reap(self) -> None:
        """Stops competing for jobs that are over. It is a task of its own, because a job cannot stop itself."""
        while True:
            job_id, ended = await self._over.get()
            if ended:
                self._ended.add(job_id)
            self._jobs.pop(job_id, None)
            await self._context.supervisor.stop(f"job-{job_id}")

    async def _scan(self) -> None:
        assert self._store is not None
        while True:
            try:
                listed = await self._store.list(ACTIVE_PREFIX)
            except PenstockError as err:
                self._context.log.warning("active_jobs_not_listed", error=err.message)
            else:
                active = {key.removeprefix(ACTIVE_PREFIX) for key, _ in listed}
                for job_id in sorted(active):
                    self._bid(job_id)
                for job_id in set(self._jobs) - active:
                    # The job ended under another master, which stores the archive before it removes the job
                    # from the list.
                    if not self._jobs[job_id].election.still_leading():
                        self._is_over(job_id, True)
                self._ended &= active
            await self._context.clock.sleep(SCAN_S)
