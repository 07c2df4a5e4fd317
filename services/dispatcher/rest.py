"""The REST API: Flink's paths and shapes, with and without ``/v1``, and a few of ours.

Handlers only translate; the facts come from the job directory.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from penstock import __version__
from penstock.errors import ExternalError, SpecError
from penstock_services.dispatcher import vertex_views, views
from penstock_services.dispatcher.checkpoint_api import CheckpointApi
from penstock_services.dispatcher.http import (
    NotFoundError,
    SameOrigin,
    accepted,
    answer,
    body_of,
    error_answer,
    guarded,
    no_task_manager,
    number_of,
)
from penstock_services.dispatcher.log_api import LogApi
from penstock_services.dispatcher.spec import parse_spec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    from penstock.messages.cluster import JobDetails, VertexDetails
    from penstock.ports import Clock
    from penstock_services.common.presence import Census
    from penstock_services.dispatcher.directory import JobDirectory
    from penstock_services.dispatcher.results import Results
    from penstock_services.dispatcher.submission import Submitter

    Handler = Callable[[Request], Awaitable[Response]]

DASHBOARD = Path(__file__).parent / "dashboard.html"
#: The dashboard: one file, which loads nothing from elsewhere.
_CSP = "default-src 'none'; connect-src 'self'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
REFRESH_MS = 1_000


class Rest:
    def __init__(
        self,
        *,
        directory: JobDirectory,
        submitter: Submitter,
        results: Results,
        census: Census,
        clock: Clock,
        config: Mapping[str, str],
        cluster: str,
    ) -> None:
        self._directory = directory
        self._submitter = submitter
        self._results = results
        self._census = census
        self._clock = clock
        self._config = config
        self._cluster = cluster
        self._checkpoints = CheckpointApi(directory, config)
        self._logs = LogApi(directory)

    def app(self, *, hosts: frozenset[str] | None = None) -> Starlette:
        """``hosts``: host names under which it may be called; None = any."""
        api = self._routes()
        methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
        unknown = Route("/{rest:path}", guarded(self._unknown), methods=methods)
        return Starlette(
            routes=[
                Route("/", guarded(self._dashboard)),
                Route("/metrics", guarded(self._metrics)),
                Mount("/v1", routes=[*api, unknown]),
                *api,
                unknown,
            ],
            middleware=[Middleware(SameOrigin, hosts=hosts)],
            exception_handlers={Exception: lambda request, err: error_answer(err, accepted(request.scope))},
        )

    def _routes(self) -> list[BaseRoute]:
        def get(path: str, handler: Handler) -> Route:
            return Route(path, guarded(handler), methods=["GET"])

        job, vertex = "/jobs/{job}", "/jobs/{job}/vertices/{vertex}"
        return [
            get("/overview", self._overview),
            get("/config", self._web_config),
            get("/cluster/info", self._info),
            get("/jobs/overview", self._jobs_overview),
            get("/jobs", self._jobs),
            Route("/jobs", guarded(self._submit), methods=["POST"]),
            Route(job, guarded(self._cancel), methods=["PATCH"]),
            Route(f"{job}/clientHeartbeat", guarded(self._client_heartbeat), methods=["PATCH"]),
            get(job, self._of_job(lambda d, now: views.job(d, now))),
            get(f"{job}/config", self._of_job(lambda d, _: views.job_config(d))),
            get(f"{job}/plan", self._of_job(lambda d, _: {"plan": views.plan(d)})),
            get(f"{job}/status", self._of_job(lambda d, _: {"status": d.status.value})),
            get(f"{job}/exceptions", self._exceptions),
            get(f"{job}/accumulators", self._of_job(lambda d, _: views.accumulators(d))),
            get(f"{job}/execution-result", self._of_job(lambda d, _: views.execution_result(d))),
            get(f"{job}/metrics", self._job_metrics),
            get(f"{job}/results", self._fetch_results),
            get(f"{job}/dead-letters", self._dead_letters),
            get(f"{job}/spark", self._spark),
            *self._checkpoints.routes(),
            get(vertex, self._of_vertex(vertex_views.vertex)),
            get(f"{vertex}/backpressure", self._of_vertex(vertex_views.backpressure)),
            get(f"{vertex}/watermarks", self._of_vertex(lambda v, _: vertex_views.watermarks(v))),
            get(f"{vertex}/subtasktimes", self._of_vertex(vertex_views.subtask_times)),
            get(f"{vertex}/taskmanagers", self._of_vertex(vertex_views.taskmanagers)),
            get(f"{vertex}/metrics", self._vertex_metrics),
            get(f"{vertex}/subtasks/metrics", self._vertex_metrics),
            get("/taskmanagers", self._taskmanagers),
            get("/taskmanagers/{manager}", self._taskmanager),
            *self._logs.routes(),
            get("/jobmanager/config", self._jobmanager_config),
        ]

    # -- helpers -------------------------------------------------------------------------

    def _now(self) -> int:
        return self._clock.now_ms()

    async def _details(self, request: Request) -> JobDetails:
        return await self._directory.details(request.path_params["job"])

    def _of_job(self, view: Callable[[JobDetails, int], Any]) -> Handler:
        async def handle(request: Request) -> Response:
            return answer(view(await self._details(request), self._now()))

        return handle

    async def _vertex(self, request: Request) -> VertexDetails:
        details = await self._details(request)
        wanted = request.path_params["vertex"]
        for vertex in details.vertices:
            if vertex.id == wanted:
                return vertex
        raise NotFoundError(
            f"job {details.job_id} has no vertex '{wanted}'",
            expected=", ".join(v.id for v in details.vertices) or "a job with vertices",
        )

    def _of_vertex(self, view: Callable[[VertexDetails, int], Any]) -> Handler:
        async def handle(request: Request) -> Response:
            return answer(view(await self._vertex(request), self._now()))

        return handle

    # -- cluster -------------------------------------------------------------------------

    async def _dashboard(self, _: Request) -> Response:
        headers = {"cache-control": "no-cache", "content-security-policy": _CSP}
        return FileResponse(DASHBOARD, media_type="text/html", headers=headers)

    async def _unknown(self, request: Request) -> Response:
        raise NotFoundError(
            f"no such path: {request.method} {request.url.path}",
            expected="a path of docs/rest.md (Flink's REST API, with or without /v1)",
        )

    async def _overview(self, _: Request) -> Response:
        jobs = await self._directory.overviews()
        return answer(views.overview(jobs, await self._directory.cluster(), __version__))

    async def _web_config(self, _: Request) -> Response:
        features = {"web-submit": False, "web-cancel": True, "web-rescale": False, "web-history": False}
        return answer(
            {
                "refresh-interval": REFRESH_MS,
                "timezone-name": "UTC",
                "timezone-offset": 0,
                "flink-version": f"penstock-{__version__}",
                "flink-revision": "",
                "features": features,
                "cluster": self._cluster,
            }
        )

    async def _jobmanager_config(self, _: Request) -> Response:
        config = views.redacted(dict(self._config))
        return answer([{"key": k, "value": v} for k, v in sorted(config.items())])

    async def _info(self, _: Request) -> Response:
        """Every process of the cluster, and the slots of task managers."""
        processes: list[dict[str, Any]] = [
            {"role": p.role, "id": p.id, "pid": p.pid, "host": p.host, "state": "running", **p.details}
            for p in await self._census.take(self._clock.sleep)
            if p.role != "taskmanager"
        ]
        overview = await self._directory.cluster()
        for process in processes:
            if process["role"] == "resourcemanager" and overview is not None:
                leads = process["id"] == overview.resourcemanager_id
                process["state"] = "leading" if leads else "standby"
        for manager in overview.taskmanagers if overview else ():
            silent_ms = max(0, self._now() - manager.last_heartbeat_ms)
            processes.append(
                {
                    "role": "taskmanager",
                    "id": manager.id,
                    "pid": manager.pid,
                    "host": manager.host,
                    "state": f"heard {silent_ms / 1000:.1f} s ago",
                    "data_port": manager.data_port,
                    "slots": [msgspec.to_builtins(slot) for slot in manager.slots],
                    "details": manager.details,
                }
            )
        return answer({"cluster": self._cluster, "version": __version__, "processes": processes})

    async def _managers(self) -> list[dict[str, Any]]:
        overview = await self._directory.cluster()
        if overview is None:
            raise ExternalError(
                "no resource manager leads at the moment",
                remedy="start one: python -m penstock_services.resourcemanager",
            )
        return [
            {
                "id": m.id,
                "path": f"{m.host}:{m.pid}",
                "dataPort": m.data_port,
                "jmxPort": -1,
                "timeSinceLastHeartbeat": m.last_heartbeat_ms,
                "slotsNumber": len(m.slots),
                "freeSlots": sum(s.state == "free" for s in m.slots),
                "hardware": m.details.get("hardware", {}),
                "pid": m.pid,
                "host": m.host,
                "slots": [msgspec.to_builtins(slot) for slot in m.slots],
                "details": m.details,
            }
            for m in overview.taskmanagers
        ]

    async def _taskmanagers(self, _: Request) -> Response:
        return answer({"taskmanagers": await self._managers()})

    async def _taskmanager(self, request: Request) -> Response:
        wanted = request.path_params["manager"]
        managers = await self._managers()
        for manager in managers:
            if manager["id"] == wanted:
                return answer(manager)
        raise no_task_manager(wanted, [m["id"] for m in managers])

    async def _metrics(self, _: Request) -> Response:
        from penstock_services.dispatcher.metrics import CONTENT_TYPE, render

        jobs = await self._directory.active()
        text = render(jobs, await self._directory.cluster(), self._now(), self._config)
        return Response(text, media_type=CONTENT_TYPE)

    # -- jobs ----------------------------------------------------------------------------

    async def _submit(self, request: Request) -> Response:
        spec = await asyncio.to_thread(parse_spec, await body_of(request))
        reply = await self._submitter.submit(spec)
        return answer({"jobid": reply.job_id, "name": reply.name, "created": reply.created})

    async def _jobs(self, _: Request) -> Response:
        jobs = await self._directory.overviews()
        return answer({"jobs": [{"id": j.job_id, "status": j.status.value} for j in jobs]})

    async def _jobs_overview(self, _: Request) -> Response:
        now_ms = self._now()
        return answer({"jobs": [views.job_row(j, now_ms) for j in await self._directory.overviews()]})

    async def _cancel(self, request: Request) -> Response:
        mode = request.query_params.get("mode", "cancel")
        if mode != "cancel":
            raise SpecError("unknown mode", expected="mode=cancel", got=repr(mode), where="query 'mode'")
        await self._directory.cancel(request.path_params["job"])
        return answer({}, 202)

    async def _client_heartbeat(self, request: Request) -> Response:
        # Flink's body gives the expiry by the client's clock. Here the job's own client.heartbeat.timeout
        # counts, by its master's clock.
        await body_of(request, 1024)
        await self._directory.client_heartbeat(request.path_params["job"])
        return answer({}, 202)

    async def _exceptions(self, request: Request) -> Response:
        limit = number_of(request, "maxExceptions", 20)
        return answer(views.exceptions(await self._details(request), limit))

    async def _fetch_results(self, request: Request) -> Response:
        after = request.query_params.get("after", "")
        wait_ms = number_of(request, "wait_ms", 0)
        return answer(await self._results.fetch(request.path_params["job"], after, wait_ms))

    async def _dead_letters(self, request: Request) -> Response:
        after, limit = request.query_params.get("after", ""), number_of(request, "limit", 100)
        return answer(await self._results.dead_letters(request.path_params["job"], after, limit))

    async def _spark(self, request: Request) -> Response:
        return answer(await self._results.spark(request.path_params["job"]))

    async def _job_metrics(self, request: Request) -> Response:
        values = vertex_views.job_metric_values(await self._details(request), self._now())
        return answer(vertex_views.metric_list(values, request.query_params.get("get")))

    async def _vertex_metrics(self, request: Request) -> Response:
        values = vertex_views.vertex_metric_values(await self._vertex(request))
        return answer(vertex_views.metric_list(values, request.query_params.get("get")))
