"""Flame graphs over REST: the slots of a vertex are sampled when somebody asks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.bus import RefusedError
from penstock.errors import BrokerError, SpecError
from penstock.messages.states import ExecutionState
from penstock_services.dispatcher.endpoint import Endpoint, get
from penstock_services.dispatcher.vertex_api import chosen_subtasks, the_vertex
from penstock_services.dispatcher.views.flame import ENDED, FULL, OFF_CPU, ON_CPU, FlameGraph, merged

if TYPE_CHECKING:
    from starlette.requests import Request

    from penstock.messages.task_manager import StackSamples
    from penstock.ports import Clock
    from penstock_services.dispatcher.directory import JobDirectory

#: One sampling: a second. Its answer holds for so long, for all vertices of the job.
SAMPLES, INTERVAL_MS, FRESH_MS = 100, 10, 4_000


class FlameApi:
    """The endpoint of flame graphs."""

    def __init__(self, directory: JobDirectory, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        #: (job id, task manager) → when it was sampled, and the sampling.
        self._taken: dict[tuple[str, str], tuple[float, asyncio.Task[StackSamples | None]]] = {}

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        note = "Sampled for a second when asked for. Moments in which no step of the vertex ran count for nobody."
        path = "/jobs/{job}/vertices/{vertex}/flamegraph"
        return [get(path, self._graph, FlameGraph, query=("type", "subtaskindex"), note=note)]

    async def _graph(self, request: Request) -> FlameGraph:
        details = await self._directory.details(request.path_params["job"])
        vertex = the_vertex(details, request.path_params["vertex"])
        query = request.query_params
        kind = query.get("type", FULL).lower()
        if kind not in (FULL, ON_CPU, OFF_CPU):
            raise SpecError(
                "unknown type of flame graph",
                expected=f"{FULL}, {ON_CPU} or {OFF_CPU}",
                got=repr(kind[:40]),
                where="query 'type'",
            )
        subtasks = chosen_subtasks(query.get("subtaskindex"), vertex.subtasks)
        if all(subtask.state.terminal for subtask in subtasks):
            return FlameGraph(end_timestamp=ENDED)
        runs = [s for s in subtasks if s.state is ExecutionState.RUNNING and s.taskmanager_id]
        managers = sorted({s.taskmanager_id for s in runs if s.taskmanager_id})
        answers = await asyncio.gather(*(self._samples(details.job_id, m) for m in managers))
        wanted = {s.allocation_id for s in runs}
        frames = [
            slot.vertices[vertex.id]
            for answer in answers
            if answer is not None
            for allocation_id, slot in answer.slots.items()
            if allocation_id in wanted and vertex.id in slot.vertices
        ]
        return FlameGraph(end_timestamp=self._clock.now_ms(), data=merged(frames, kind))

    async def _samples(self, job_id: str, manager: str) -> StackSamples | None:
        """The samples of a task manager, shared by all who ask at about the same time."""
        now_ms = self._clock.monotonic_ms()
        self._taken = {key: kept for key, kept in self._taken.items() if now_ms - kept[0] < FRESH_MS}
        known = self._taken.get((job_id, manager))
        if known is None:
            sampling = asyncio.get_running_loop().create_task(self._take(job_id, manager))
            known = self._taken[job_id, manager] = (now_ms, sampling)
        return await asyncio.shield(known[1])

    async def _take(self, job_id: str, manager: str) -> StackSamples | None:
        """None if the task manager does not answer: it may have ended since."""
        try:
            return await self._directory.stack_samples(manager, job_id, SAMPLES, INTERVAL_MS)
        except (BrokerError, RefusedError):
            return None
