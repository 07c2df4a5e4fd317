"""The events of jobs as server-sent events: of one job, and of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response, StreamingResponse

from penstock.messages import job_events as ev
from penstock_services.dispatcher.endpoint import Endpoint, get
from penstock_services.dispatcher.live_api import HEADERS
from penstock_services.dispatcher.views.common import Shape

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from penstock_services.dispatcher.event_feed import EventFeed


class EventGap(Shape, frozen=True, kw_only=True):
    """Events are missing here."""

    reason: str


class JobEventStream(Shape, frozen=True, kw_only=True):
    """The data of the server-sent events, by their names."""

    job_master_changed: ev.JobMasterChanged
    job_status_changed: ev.JobStatusChanged
    execution_state_changed: ev.ExecutionStateChanged
    checkpoint_changed: ev.CheckpointChanged
    failure_noted: ev.FailureNoted
    gap: EventGap


class EventsApi:
    """The endpoints of events."""

    def __init__(self, feed: EventFeed) -> None:
        self._feed = feed

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        note = "Server-sent events, resumed after `Last-Event-ID` (or `after`)"
        ends = f"{note}; 204 if the job has ended and nothing is left to tell."
        more = {"query": ("after",), "ours": True}
        return [
            get("/jobs/events", self._all, JobEventStream, note=f"{note}, of all jobs.", **more),
            get("/jobs/{job}/events", self._job, JobEventStream, note=ends, **more),
        ]

    async def _all(self, request: Request) -> Response:
        return _stream(self._feed.all_jobs(_last_event_id(request)))

    async def _job(self, request: Request) -> Response:
        events = await self._feed.of_job(request.path_params["job"], _last_event_id(request))
        return Response(status_code=204) if events is None else _stream(events)


def _last_event_id(request: Request) -> str:
    return request.headers.get("last-event-id") or request.query_params.get("after", "")


def _stream(events: AsyncIterator[bytes]) -> Response:
    return StreamingResponse(events, media_type="text/event-stream", headers=HEADERS)
