"""Applications over REST. Every job is an application of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_services.dispatcher.endpoint import Endpoint, get, post
from penstock_services.dispatcher.views import applications, configuration
from penstock_services.dispatcher.views.common import Empty

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from penstock.messages.cluster import JobDetails
    from penstock.ports import Clock
    from penstock_services.dispatcher.directory import JobDirectory


class ApplicationApi:
    """The endpoints of applications."""

    def __init__(self, directory: JobDirectory, clock: Clock, config: Mapping[str, str]) -> None:
        self._directory = directory
        self._clock = clock
        self._config = config

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        one = "/applications/{application}"
        same = "Each job is an application of its own, with the job's id."
        return [
            get("/applications/overview", self._overview, applications.ApplicationsOverview, note=same),
            get(one, self._application, applications.Application),
            get(f"{one}/exceptions", self._exceptions, applications.ApplicationExceptions),
            get(f"{one}/jobmanager/config", self._options, list[configuration.Option]),
            post(f"{one}/cancel", self._cancel, Empty, status=202, note="Cancels the job."),
        ]

    async def _details(self, request: Request) -> JobDetails:
        return await self._directory.details(request.path_params["application"])

    async def _overview(self, _: Request) -> applications.ApplicationsOverview:
        return applications.overview(await self._directory.overviews(), self._clock.now_ms())

    async def _application(self, request: Request) -> applications.Application:
        return applications.application(await self._details(request), self._clock.now_ms())

    async def _exceptions(self, request: Request) -> applications.ApplicationExceptions:
        return applications.application_exceptions(await self._details(request))

    async def _options(self, request: Request) -> list[configuration.Option]:
        await self._details(request)  # or it raises that there is no such job
        return configuration.options(self._config)

    async def _cancel(self, request: Request) -> Empty:
        await self._directory.cancel(request.path_params["application"])
        return Empty()
