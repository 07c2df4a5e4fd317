"""The parallelism of running jobs over REST. It is fixed, and a request for another one is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import SpecError, UnsupportedError
from penstock_services.common.http import NotFoundError, body_of
from penstock_services.dispatcher.endpoint import Endpoint, get, patch
from penstock_services.dispatcher.views import rescales
from penstock_services.dispatcher.views.common import Empty
from penstock_services.dispatcher.views.operations import Operation, Triggered

if TYPE_CHECKING:
    from starlette.requests import Request

    from penstock.messages.cluster import JobDetails
    from penstock_services.dispatcher.directory import JobDirectory
    from penstock_services.dispatcher.endpoint import Handler

_Requirements = dict[str, rescales.VertexRequirements]


class RescaleApi:
    """The endpoints of rescaling."""

    def __init__(self, directory: JobDirectory) -> None:
        self._directory = directory

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        job = "/jobs/{job}"
        needs, history = f"{job}/resource-requirements", f"{job}/rescales"
        never = "Empty: a running job keeps its parallelism."
        always = self._always
        return [
            get(needs, self._requirements, _Requirements, note="Both bounds are the parallelism."),
            Endpoint(
                "PUT", needs, self._require, Empty, takes=_Requirements,
                note="Accepted if nothing changes; else refused.",
            ),
            patch(f"{job}/rescaling", self._rescale, Triggered, query=("parallelism",), note="Refused."),
            get(f"{job}/rescaling/{{trigger}}", self._unknown, Operation, note="404: there is no request."),
            get(f"{history}/overview", always(rescales.RescalesOverview()), rescales.RescalesOverview, note=never),
            get(f"{history}/summary", always(rescales.RescalesSummary()), rescales.RescalesSummary, note=never),
            get(f"{history}/history", always([]), list[dict[str, Any]], note=never),
            get(f"{history}/config", always(rescales.RescaleConfig()), rescales.RescaleConfig, note=never),
            get(f"{history}/details/{{rescale}}", self._unknown, dict[str, Any], note="404: there is none."),
        ]  # fmt: skip

    async def _details(self, request: Request) -> JobDetails:
        return await self._directory.details(request.path_params["job"])

    def _always(self, answer: Any) -> Handler:
        async def handle(request: Request) -> Any:
            await self._details(request)  # or it raises that there is no such job
            return answer

        return handle

    async def _requirements(self, request: Request) -> _Requirements:
        return rescales.requirements(await self._details(request))

    async def _require(self, request: Request) -> Empty:
        details = await self._details(request)
        try:
            wanted = msgspec.json.decode(await body_of(request, 1024 * 1024), type=_Requirements)
        except msgspec.MsgspecError as err:
            expected = '{"<vertex>": {"parallelism": {"lowerBound": 1, "upperBound": 4}}}'
            raise SpecError("not resource requirements", expected=expected, got=str(err)) from err
        known = rescales.requirements(details)
        for vertex, bounds in wanted.items():
            if vertex not in known:
                raise SpecError("unknown vertex", expected=", ".join(known), got=repr(vertex[:80]))
            if bounds != known[vertex]:
                raise _fixed(details)
        return Empty()

    async def _rescale(self, request: Request) -> Triggered:
        raise _fixed(await self._details(request))

    async def _unknown(self, request: Request) -> Any:
        details = await self._details(request)
        raise NotFoundError(f"job {details.job_id} was never rescaled: a running job keeps its parallelism")


def _fixed(details: JobDetails) -> UnsupportedError:
    return UnsupportedError(
        "a running job keeps its parallelism",
        where=f"job {details.job_id}",
        remedy="stop it with a savepoint and start it from there with another parallelism: "
        "`penstock stop JOB`, then `penstock run -s SAVEPOINT -p N`",
    )
