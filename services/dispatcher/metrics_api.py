"""Metrics over REST: of jobs, task managers and the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_services.dispatcher.endpoint import Endpoint, get, no_task_manager
from penstock_services.dispatcher.vertex_api import the_vertex
from penstock_services.dispatcher.views import metrics

if TYPE_CHECKING:
    from starlette.requests import Request

    from penstock.ports import Clock
    from penstock_services.dispatcher.directory import JobDirectory


class MetricsApi:
    """The endpoints of metrics."""

    def __init__(self, directory: JobDirectory, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        one, many = list[metrics.Metric], list[metrics.AggregatedMetric]
        manager = "/taskmanagers/{manager}/metrics"
        operator = "/jobs/{job}/vertices/{vertex}/jm-operator-metrics"
        nothing = "Empty: operators have no part in the job manager. Their metrics stand with the vertex."
        return [
            get("/jobs/metrics", self._jobs, many, query=("get", "agg", "jobs")),
            get("/jobs/{job}/metrics", self._job, one, query=("get",)),
            get(operator, self._of_operator, one, query=("get",), note=nothing),
            get("/taskmanagers/metrics", self._managers, many, query=("get", "agg", "taskmanagers")),
            get(manager, self._manager, one, query=("get",)),
            get("/jobmanager/metrics", self._cluster, one, query=("get",), note="Of the whole cluster."),
        ]

    async def _jobs(self, request: Request) -> list[metrics.AggregatedMetric]:
        """Over the jobs named; without names over those that have not ended."""
        query, now_ms = request.query_params, self._clock.now_ms()
        if wanted := query.get("jobs"):
            jobs = [await self._directory.details(job_id) for job_id in wanted.split(",")]
        else:
            jobs = list((await self._directory.active()).details)
        values = [metrics.job_values(job, now_ms) for job in jobs]
        return metrics.aggregated(values, query.get("get"), query.get("agg"))

    async def _job(self, request: Request) -> list[metrics.Metric]:
        details = await self._directory.details(request.path_params["job"])
        values = metrics.job_values(details, self._clock.now_ms())
        return metrics.metric_list(values, request.query_params.get("get"))

    async def _of_operator(self, request: Request) -> list[metrics.Metric]:
        the_vertex(await self._directory.details(request.path_params["job"]), request.path_params["vertex"])
        return []

    async def _managers(self, request: Request) -> list[metrics.AggregatedMetric]:
        query, cluster = request.query_params, await self._directory.cluster()
        known = {m.id: m for m in cluster.taskmanagers} if cluster else {}
        wanted = query["taskmanagers"].split(",") if query.get("taskmanagers") else list(known)
        for name in wanted:
            if name not in known:
                raise no_task_manager(name, list(known))
        values = [metrics.taskmanager_values(known[name]) for name in wanted]
        return metrics.aggregated(values, query.get("get"), query.get("agg"))

    async def _manager(self, request: Request) -> list[metrics.Metric]:
        wanted, cluster = request.path_params["manager"], await self._directory.cluster()
        known = {m.id: m for m in cluster.taskmanagers} if cluster else {}
        if wanted not in known:
            raise no_task_manager(wanted, list(known))
        values = metrics.taskmanager_values(known[wanted])
        return metrics.metric_list(values, request.query_params.get("get"))

    async def _cluster(self, request: Request) -> list[metrics.Metric]:
        values = metrics.cluster_values(await self._directory.active(), await self._directory.cluster())
        return metrics.metric_list(values, request.query_params.get("get"))
