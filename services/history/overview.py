"""What a history server says of itself: Flink's overview and dashboard configuration, without a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import __version__
from penstock_services.dispatcher.endpoint import Endpoint, get
from penstock_services.dispatcher.views import cluster

if TYPE_CHECKING:
    from starlette.requests import Request

    from penstock_services.history.archive import Archive


class ArchiveOverview:
    """The endpoints that are about no single job."""

    def __init__(self, archive: Archive, name: str) -> None:
        self._archive = archive
        self._name = name

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        return [
            get("/overview", self._overview, cluster.Overview, note="Counts the jobs that have ended."),
            get("/config", self._config, cluster.DashboardConfig, note="web-history is true."),
        ]

    async def _overview(self, _: Request) -> cluster.Overview:
        return cluster.overview(await self._archive.overviews(), None, __version__)

    async def _config(self, _: Request) -> cluster.DashboardConfig:
        features = cluster.Features(web_cancel=False, web_history=True)
        return cluster.DashboardConfig(
            flink_version=f"penstock-{__version__}", cluster=self._name, features=features
        )
