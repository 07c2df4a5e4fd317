"""The vertices of a job over REST."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import SpecError
from penstock_services.common.http import NotFoundError, is_number
from penstock_services.dispatcher.endpoint import Endpoint, get
from penstock_services.dispatcher.views import metrics, vertices
from penstock_services.dispatcher.views.common import attempt_number, find_vertex, vertex_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request

    from penstock.messages.cluster import JobDetails, SubtaskDetails, VertexDetails
    from penstock.ports import Clock
    from penstock_services.dispatcher.directory import JobDirectory
    from penstock_services.dispatcher.endpoint import Handler


def the_vertex(details: JobDetails, wanted: str) -> VertexDetails:
    """The vertex with this id. Raises NotFoundError, which names the existing vertices."""
    found = find_vertex(details.vertices, wanted)
    if found is None:
        known = ", ".join(f"{vertex_id(v.id)} ({v.name[:40]})" for v in details.vertices)
        raise NotFoundError(
            f"job {details.job_id} has no vertex '{wanted[:255]}'", expected=known or "a job with vertices"
        )
    return found


class VertexApi:
    """The endpoints of vertices."""

    def __init__(self, directory: JobDirectory, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        vertex = "/jobs/{job}/vertices/{vertex}"
        subtask = f"{vertex}/subtasks/{{index}}"
        attempt = f"{subtask}/attempts/{{attempt}}"
        of, of_subtask = self._of_vertex, self._of_subtask
        last = "Of the latest attempt; earlier ones are not kept."
        return [
            get(vertex, of(vertices.vertex), vertices.Vertex),
            get(f"{vertex}/backpressure", of(vertices.backpressure), vertices.VertexBackPressure),
            get(f"{vertex}/watermarks", of(lambda v, _: metrics.watermarks(v)), list[metrics.Metric]),
            get(f"{vertex}/subtasktimes", of(vertices.subtask_times), vertices.VertexTimes),
            get(f"{vertex}/taskmanagers", of(vertices.taskmanagers), vertices.VertexTaskManagers),
            get(
                f"{vertex}/accumulators",
                of(lambda v, _: vertices.vertex_accumulators(v)),
                vertices.VertexAccumulators,
            ),
            get(
                f"{vertex}/subtasks/accumulators",
                of(lambda v, _: vertices.subtasks_accumulators(v)),
                vertices.SubtasksAccumulators,
            ),
            get(f"{vertex}/metrics", self._metrics, list[metrics.Metric], query=("get",)),
            get(
                f"{vertex}/subtasks/metrics",
                self._aggregated,
                list[metrics.AggregatedMetric],
                query=("get", "agg", "subtasks"),
            ),
            get(f"{subtask}/metrics", self._subtask_metrics, list[metrics.Metric], query=("get",)),
            get(subtask, of_subtask(vertices.subtask), vertices.Subtask),
            get(attempt, of_subtask(vertices.subtask), vertices.Subtask, note=last),
            get(
                f"{attempt}/accumulators",
                of_subtask(lambda s, _: vertices.attempt_accumulators(s)),
                vertices.AttemptAccumulators,
                note=last,
            ),
        ]

    async def _vertex(self, request: Request) -> VertexDetails:
        details = await self._directory.details(request.path_params["job"])
        return the_vertex(details, request.path_params["vertex"])

    def _of_vertex(self, view: Callable[[VertexDetails, int], Any]) -> Handler:
        async def handle(request: Request) -> Any:
            return view(await self._vertex(request), self._clock.now_ms())

        return handle

    async def _subtask(self, request: Request) -> SubtaskDetails:
        vertex, wanted = await self._vertex(request), request.path_params["index"]
        found = next((s for s in vertex.subtasks if str(s.subtask_index) == wanted), None)
        if found is None:
            raise NotFoundError(
                f"vertex {vertex.name[:80]} has no subtask '{wanted[:20]}'",
                expected=f"a number from 0 to {vertex.parallelism - 1}",
            )
        attempt = request.path_params.get("attempt")
        if attempt is not None and attempt != str(attempt_number(found.attempt)):
            raise NotFoundError(
                f"attempt '{attempt[:20]}' of subtask {wanted} is not known (any more)",
                expected=f"{attempt_number(found.attempt)}, the latest",
            )
        return found

    def _of_subtask(self, view: Callable[[SubtaskDetails, int], Any]) -> Handler:
        async def handle(request: Request) -> Any:
            return view(await self._subtask(request), self._clock.now_ms())

        return handle

    async def _metrics(self, request: Request) -> list[metrics.Metric]:
        values = metrics.vertex_values(await self._vertex(request))
        return metrics.metric_list(values, request.query_params.get("get"))

    async def _subtask_metrics(self, request: Request) -> list[metrics.Metric]:
        values = metrics.subtask_values(await self._subtask(request))
        return metrics.metric_list(values, request.query_params.get("get"))

    async def _aggregated(self, request: Request) -> list[metrics.AggregatedMetric]:
        query = request.query_params
        found = (await self._vertex(request)).subtasks
        chosen = chosen_subtasks(query.get("subtasks"), found)
        return metrics.aggregated(
            [metrics.subtask_values(s) for s in chosen], query.get("get"), query.get("agg")
        )


def chosen_subtasks(text: str | None, known: Sequence[SubtaskDetails]) -> list[SubtaskDetails]:
    """The subtasks of ``?subtasks=0,2-4``; all without it. Raises SpecError for what is neither a number nor
    a range."""
    if not text:
        return list(known)
    wanted: list[tuple[int, int]] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not (is_number(first) and (is_number(last) if dash else True)):
            raise SpecError(
                "not subtasks", expected="numbers and ranges such as 0,2-4", got=repr(part[:80]),
                where="query 'subtasks'",
            )  # fmt: skip
        wanted.append((int(first), int(last) if dash else int(first)))
    return [s for s in known if any(low <= s.subtask_index <= high for low, high in wanted)]
