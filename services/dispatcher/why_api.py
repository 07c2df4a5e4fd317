"""Verdicts over REST: why a job is slow, has no output, or fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.messages.states import JobStatus
from penstock_services.dispatcher.endpoint import Endpoint, get
from penstock_services.dispatcher.views.common import Shape
from penstock_services.dispatcher.why.findings import Verdict
from penstock_services.dispatcher.why.verdict import verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from penstock.messages.cluster import JobOverview
    from penstock.ports import Clock
    from penstock_services.dispatcher.active_jobs import ActiveJobs
    from penstock_services.dispatcher.directory import JobDirectory

#: Of the jobs that failed, so many, and those of the last day, have a verdict in the list.
FAILED_JOBS = 20
FAILED_MS = 24 * 3_600_000


class Verdicts(Shape, frozen=True, kw_only=True):
    """``GET /jobs/why``: of each job that has not ended, the latest first; then of the latest that failed. ``unanswered``:
    the ids of jobs whose masters did not answer in time. What is said of these is from their logs.

    A query that failed has told its client so; it has no verdict here.
    """

    jobs: list[Verdict]
    unanswered: list[str] = []


class WhyApi:
    """The endpoints of verdicts."""

    def __init__(self, directory: JobDirectory, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        #: Job id → its verdict, which is final.
        self._failed: dict[str, Verdict] = {}

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        many = "Of each job that has not ended, and of the latest that failed, queries of clients apart."
        one = "What is wrong with a job, why, and what to do."
        return [
            get("/jobs/why", self._all, Verdicts, note=many, ours=True),
            get("/jobs/{job}/why", self._one, Verdict, note=one, ours=True),
        ]

    async def _one(self, request: Request) -> Verdict:
        return verdict(await self._directory.details(request.path_params["job"]), self._clock.now_ms())

    async def _all(self, _: Request) -> Verdicts:
        active = await self._directory.active()
        return await self.verdicts(
            active, await self._directory.ended({job.job_id for job in active.details})
        )

    async def verdicts(self, active: ActiveJobs, ended: Sequence[JobOverview]) -> Verdicts:
        """The verdicts about these jobs. ``ended``: the latest first."""
        now_ms = self._clock.now_ms()
        since_ms = now_ms - FAILED_MS
        failed = [
            job.job_id
            for job in ended
            if job.status is JobStatus.FAILED and not job.interactive and (job.end_ms or 0) > since_ms
        ][:FAILED_JOBS]
        self._failed = {job_id: known for job_id, known in self._failed.items() if job_id in failed}
        for job_id in failed:
            if job_id not in self._failed:
                self._failed[job_id] = verdict(await self._directory.details(job_id), now_ms)
        found = [verdict(job, now_ms) for job in reversed(active.details)]
        return Verdicts(
            jobs=found + [self._failed[job_id] for job_id in failed], unanswered=list(active.unanswered)
        )
