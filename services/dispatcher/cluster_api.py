"""The cluster over REST: its overview, its processes, its task managers, and the dispatcher itself, which
takes the place of Flink's job manager."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from penstock import __version__
from penstock.config import client_defaults
from penstock.errors import ExternalError
from penstock_services.dispatcher.endpoint import Endpoint, get, no_task_manager
from penstock_services.dispatcher.views import cluster, configuration, taskmanagers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from penstock.messages.cluster import ClusterOverview
    from penstock.messages.resource_manager import TaskManagerDetails
    from penstock.ports import Clock
    from penstock_services.common.presence import Census
    from penstock_services.dispatcher.directory import JobDirectory


class ClusterApi:
    """The endpoints of the cluster."""

    def __init__(
        self, directory: JobDirectory, census: Census, clock: Clock, config: Mapping[str, str], name: str
    ) -> None:
        self._directory = directory
        self._census = census
        self._clock = clock
        self._config = config
        self._name = name

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        hidden = "Secrets are hidden."
        defaults = "Options of the configuration that jobs inherit, for a client that plans; without secrets."
        pools = "Sizes of Java's memory pools are 0: Python has none of them."
        manager = "/taskmanagers/{manager}"
        return [
            get("/overview", self._overview, cluster.Overview),
            get("/config", self._dashboard_config, cluster.DashboardConfig),
            get("/cluster/info", self._info, dict[str, Any], ours=True),
            get("/cluster/job-defaults", self._job_defaults, dict[str, str], ours=True, note=defaults),
            get("/metrics", self._prometheus, None, ours=True),
            get("/taskmanagers", self._taskmanagers, taskmanagers.TaskManagers, note=pools),
            get(manager, self._taskmanager, taskmanagers.TaskManagerDetailsInfo, note=pools),
            get("/jobmanager/config", self._cluster_config, list[configuration.Option], note=hidden),
        ]

    # -- the cluster ---------------------------------------------------------------------

    async def _overview(self, _: Request) -> cluster.Overview:
        jobs = await self._directory.overviews()
        return cluster.overview(jobs, await self._directory.cluster_totals(), __version__)

    async def _dashboard_config(self, _: Request) -> cluster.DashboardConfig:
        return cluster.DashboardConfig(flink_version=f"penstock-{__version__}", cluster=self._name)

    async def _cluster_config(self, _: Request) -> list[configuration.Option]:
        return configuration.options(self._config)

    async def _job_defaults(self, _: Request) -> dict[str, str]:
        return client_defaults(self._config)

    async def _prometheus(self, _: Request) -> Response:
        from penstock_services.dispatcher.metrics import CONTENT_TYPE, render

        active = await self._directory.active()
        text = render(active, await self._directory.cluster(), self._clock.now_ms(), self._config)
        return Response(text, media_type=CONTENT_TYPE)

    async def _info(self, _: Request) -> dict[str, Any]:
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
            silent_ms = max(0, self._clock.now_ms() - manager.last_heartbeat_ms)
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
        return {"cluster": self._name, "version": __version__, "processes": processes}

    # -- task managers -------------------------------------------------------------------

    async def _led(self) -> ClusterOverview:
        overview = await self._directory.cluster()
        if overview is None:
            raise ExternalError(
                "no leading resource manager answers at the moment",
                remedy="if none runs, start one: python -m penstock_services.resourcemanager; if one runs, ask again",
            )
        return overview

    async def _manager(self, request: Request) -> TaskManagerDetails:
        wanted, known = request.path_params["manager"], (await self._led()).taskmanagers
        found = next((m for m in known if m.id == wanted), None)
        if found is None:
            raise no_task_manager(wanted, [m.id for m in known])
        return found

    async def _taskmanagers(self, _: Request) -> taskmanagers.TaskManagers:
        return taskmanagers.taskmanagers(await self._led())

    async def _taskmanager(self, request: Request) -> taskmanagers.TaskManagerDetailsInfo:
        return taskmanagers.taskmanager(await self._manager(request))
