"""Taps over REST: the edges of a job, and the rows that pass over one of them as server-sent events.

A listener has a tap of its own in each slot whose tasks send over the edge. The dispatcher asks the slots once a second;
when it asks no more, the taps end.
"""

from __future__ import annotations

import asyncio
import uuid
from random import Random
from typing import TYPE_CHECKING, Any

from starlette.responses import StreamingResponse

from penstock import config as conf
from penstock.bus import RefusedError
from penstock.errors import BrokerError, PenstockError, SpecError
from penstock.messages.taps import Tap
from penstock.messages.task_manager import RequestTap
from penstock_services.common.http import NotFoundError, number_of
from penstock_services.common.security.roles import role_of
from penstock_services.dispatcher.endpoint import Endpoint, get
from penstock_services.dispatcher.live_api import HEADERS
from penstock_services.dispatcher.views import taps as views

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from penstock.messages.cluster import JobDetails
    from penstock.messages.taps import EdgeTapped
    from penstock.ports import Clock
    from penstock_services.dispatcher.directory import JobDirectory

#: Seconds between two looks, and for how long a slot goes on looking when nobody asks.
PERIOD_S, LEASE_MS = 1.0, 5_000
#: Rows a second of one listener: by default and at most.
ROWS, MOST_ROWS = 20, 100
#: So many may listen to one dispatcher at once.
LISTENERS = 32
COMMENT = b": nobody answers for the job\n\n"


class TapApi:
    """The endpoints of edges."""

    def __init__(self, directory: JobDirectory, clock: Clock, config: Mapping[str, str]) -> None:
        self._directory = directory
        self._clock = clock
        self._role = role_of(conf.TAP_ROLE.read(config), conf.TAP_ROLE.key)
        hidden = conf.TAP_HIDDEN.read(config).split(",")
        self._hidden = tuple(part.strip() for part in hidden if part.strip())
        self._random = Random()
        self._listeners = 0
        #: Requests that end a tap and are on their way.
        self._closing: set[asyncio.Task[Any]] = set()

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        note = (
            f"Server-sent events `rows`, one a second, then `end`. `rows`: the most in an event, {ROWS} unless given, "
            f"at most {MOST_ROWS}. The role is `{conf.TAP_ROLE.key}`."
        )
        tap = "/jobs/{job}/edges/{edge}/tap"
        return [
            get("/jobs/{job}/edges", self._edges, views.JobEdges, ours=True),
            get(tap, self._tap, views.TapStream, query=("rows",), note=note, ours=True, role=self._role),
        ]

    async def _edges(self, request: Request) -> views.JobEdges:
        details = await self._directory.details(request.path_params["job"])
        return views.JobEdges(edges=views.offered(details))

    async def _tap(self, request: Request) -> Response:
        rows = number_of(request, "rows", ROWS)
        if not 1 <= rows <= MOST_ROWS:
            raise SpecError(
                "not a number of rows that is shown",
                expected=f"1 to {MOST_ROWS}",
                got=str(rows),
                where="query 'rows'",
            )
        details = await self._directory.details(request.path_params["job"])
        edge = the_edge(details, request.path_params["edge"])
        if self._listeners >= LISTENERS:
            raise SpecError(
                "too many taps are open",
                expected=f"at most {LISTENERS}",
                remedy="close some, or ask another dispatcher",
            )
        events = self._events(details.job_id, edge.id, rows)
        return StreamingResponse(events, media_type="text/event-stream", headers=HEADERS)

    async def _events(self, job_id: str, edge_id: str, rows: int) -> AsyncIterator[bytes]:
        tap = Tap(tap_id=uuid.uuid4().hex, edge_id=edge_id, rows=rows, lease_ms=LEASE_MS, hidden=self._hidden)
        asked: dict[str, dict[str, int]] = {}
        self._listeners += 1
        try:
            while True:
                began_ms = self._clock.monotonic_ms()
                details = await self._details(job_id)
                if details is not None and (reason := _over(details, edge_id)):
                    yield views.encoded("end", views.TapEnd(reason=reason))
                    return
                if details is None:
                    yield COMMENT
                else:
                    edge = the_edge(details, edge_id)
                    asked = views.places(details, edge)
                    yield await self._look(job_id, edge, asked, tap)
                took_s = (self._clock.monotonic_ms() - began_ms) / 1000
                await self._clock.sleep(max(0.0, PERIOD_S - took_s))
        finally:
            self._listeners -= 1
            self._close(job_id, asked, tap)

    async def _details(self, job_id: str) -> JobDetails | None:
        """None while neither a master nor the store answers."""
        try:
            return await self._directory.details(job_id)
        except PenstockError:
            return None

    async def _look(
        self, job_id: str, edge: views.Edge, asked: Mapping[str, Mapping[str, int]], tap: Tap
    ) -> bytes:
        answers = await asyncio.gather(
            *(self._of_manager(job_id, manager, slots, tap) for manager, slots in asked.items())
        )
        found = {slot: sample for answer in answers for slot, sample in answer.items()}
        subtasks = {slot: n for slots in asked.values() for slot, n in slots.items()}
        return views.encoded("rows", views.tap_event(edge, subtasks, found, tap.rows, self._random))

    async def _of_manager(
        self, job_id: str, manager: str, slots: Mapping[str, int], tap: Tap
    ) -> dict[str, EdgeTapped]:
        """Empty if the task manager does not answer: it may have ended since."""
        message = RequestTap(job_id=job_id, allocation_ids=tuple(slots), tap=tap)
        try:
            return (await self._directory.tap(manager, message)).slots
        except (BrokerError, RefusedError):
            return {}

    def _close(self, job_id: str, asked: Mapping[str, Mapping[str, int]], tap: Tap) -> None:
        """Ends the taps now rather than when their lease ends."""
        last = Tap(tap_id=tap.tap_id, edge_id=tap.edge_id, rows=tap.rows, lease_ms=0)
        for manager, slots in asked.items():
            closing = asyncio.get_running_loop().create_task(self._of_manager(job_id, manager, slots, last))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


def the_edge(details: JobDetails, wanted: str) -> views.Edge:
    """The edge with this id or short name. Raises NotFoundError, which names those that exist."""
    known = views.edges(details)
    found = next((edge for edge in known if wanted in (edge.id, edge.row.name)), None)
    if found is None:
        names = ", ".join(
            f"{e.row.name} ({e.row.source_name[:40]} → {e.row.target_name[:40]})" for e in known
        )
        raise NotFoundError(
            f"job {details.job_id} has no edge '{wanted[:255]}'",
            expected=names or "an edge; this job has none, because all of it runs in one vertex or on Spark",
            remedy=f"GET /jobs/{details.job_id}/edges lists them",
        )
    return found


def _over(details: JobDetails, edge_id: str) -> str:
    """Why no more rows will come; empty if some may."""
    if details.status.globally_terminal:
        return f"the job is {details.status.value}"
    if all(edge.id != edge_id for edge in views.edges(details)):
        return "the job goes on without this edge"
    return ""
