"""The stream of server-sent events: the cluster, its jobs and one job, as they change."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.responses import StreamingResponse

from penstock import __version__
from penstock.errors import SpecError
from penstock_services.dispatcher.endpoint import Endpoint, get
from penstock_services.dispatcher.live import Live
from penstock_services.dispatcher.views import checkpoints, cluster, jobs, taskmanagers
from penstock_services.dispatcher.views.common import Shape
from penstock_services.dispatcher.why.findings import Verdict
from penstock_services.dispatcher.why.verdict import verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from penstock.ports import Clock
    from penstock_services.dispatcher.directory import JobDirectory
    from penstock_services.dispatcher.why_api import WhyApi

OVERVIEW, MANAGERS, JOB = "overview", "taskmanagers", "job:"
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


class LiveOverview(Shape, frozen=True, kw_only=True):
    """The topic ``overview``. ``unanswered``: as of ``GET /jobs/why``."""

    overview: cluster.Overview
    jobs: list[jobs.JobRow]
    why: list[Verdict]
    unanswered: list[str] = []


class LiveJob(Shape, frozen=True, kw_only=True):
    """The topic ``job:ID``. ``checkpoints``: as of ``GET /jobs/{id}/checkpoints``."""

    job: jobs.Job
    why: Verdict
    checkpoints: checkpoints.CheckpointingStatistics


class LiveTaskManagers(Shape, frozen=True, kw_only=True):
    """The topic ``taskmanagers``. ``taskmanagers``: empty while no resource manager leads."""

    taskmanagers: list[taskmanagers.TaskManager]


class LiveEvents(Shape, frozen=True, kw_only=True):
    """``GET /stream``: the data of the events, by the kind of the topic. An event's name is its topic; its data may
    be ``{"errors": [text]}`` instead."""

    overview: LiveOverview
    job: LiveJob
    taskmanagers: LiveTaskManagers


class LiveApi:
    """The endpoint of the stream."""

    def __init__(self, directory: JobDirectory, why: WhyApi, clock: Clock) -> None:
        self._directory = directory
        self._why = why
        self._clock = clock
        self._live = Live(self._topic, clock)

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        topics = f"Server-sent events. Topics: {OVERVIEW}, {MANAGERS}, {JOB}ID, with commas between."
        return [get("/stream", self._stream, LiveEvents, query=("topics",), note=topics, ours=True)]

    async def _stream(self, request: Request) -> Response:
        names = [name for name in request.query_params.get("topics", OVERVIEW).split(",") if name]
        events = self._live.watch(list(dict.fromkeys(names)))
        return StreamingResponse(events, media_type="text/event-stream", headers=HEADERS)

    def _topic(self, name: str) -> Callable[[], Awaitable[Any]]:
        if name == OVERVIEW:
            return self._overview
        if name == MANAGERS:
            return self._managers
        if name.startswith(JOB) and name != JOB and name.isprintable():
            return partial(self._job, name.removeprefix(JOB))
        raise SpecError(
            "unknown topic",
            expected=f"{OVERVIEW}, {MANAGERS} or {JOB}ID",
            got=repr(name[:80]),
            where="query 'topics'",
        )

    async def _overview(self) -> LiveOverview:
        directory, now_ms = self._directory, self._clock.now_ms()
        active = await directory.active()
        ended = await directory.ended({job.job_id for job in active.details})
        rows = [job.overview() for job in reversed(active.details)] + ended
        found = cluster.overview(rows, await directory.cluster_totals(), __version__)
        why = await self._why.verdicts(active, ended)
        return LiveOverview(
            overview=found,
            jobs=jobs.jobs_overview(rows, now_ms).jobs,
            why=why.jobs,
            unanswered=why.unanswered,
        )

    async def _managers(self) -> LiveTaskManagers:
        overview = await self._directory.cluster()
        found = taskmanagers.taskmanagers(overview).taskmanagers if overview is not None else []
        return LiveTaskManagers(taskmanagers=found)

    async def _job(self, job_id: str) -> LiveJob:
        details, now_ms = await self._directory.details(job_id), self._clock.now_ms()
        return LiveJob(
            job=jobs.job(details, now_ms),
            why=verdict(details, now_ms),
            checkpoints=checkpoints.checkpoints(details),
        )
