"""The REST API: Flink's paths and answers, with and without ``/v1``, and some endpoints of Penstock's own.

Handlers only translate; the facts come from the job directory.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.routing import Mount, Route

from penstock import __version__
from penstock.messages.spec_schema import job_spec_schema
from penstock_services.common.http import NotFoundError, accepted, error_answer, guarded
from penstock_services.common.security.front_door import open_door
from penstock_services.dispatcher import openapi
from penstock_services.dispatcher.absent_api import AbsentApi
from penstock_services.dispatcher.application_api import ApplicationApi
from penstock_services.dispatcher.checkpoint_api import CheckpointApi
from penstock_services.dispatcher.cluster_api import ClusterApi
from penstock_services.dispatcher.dead_letters import DeadLetters
from penstock_services.dispatcher.endpoint import get
from penstock_services.dispatcher.events_api import EventsApi
from penstock_services.dispatcher.flame_api import FlameApi
from penstock_services.dispatcher.identity_api import IdentityApi
from penstock_services.dispatcher.job_api import JobApi
from penstock_services.dispatcher.live_api import LiveApi
from penstock_services.dispatcher.log_api import LogApi
from penstock_services.dispatcher.metrics_api import MetricsApi
from penstock_services.dispatcher.package_api import PackageApi
from penstock_services.dispatcher.process_api import ProcessApi
from penstock_services.dispatcher.rescale_api import RescaleApi
from penstock_services.dispatcher.sql_api import SqlApi
from penstock_services.dispatcher.tap_api import TapApi
from penstock_services.dispatcher.vertex_api import VertexApi
from penstock_services.dispatcher.web_pages import pages
from penstock_services.dispatcher.why_api import WhyApi

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from penstock.ports import Clock
    from penstock_services.common.kept_lines import KeptLines
    from penstock_services.common.presence import Census
    from penstock_services.common.security.front_door import FrontDoor
    from penstock_services.dispatcher.directory import JobDirectory
    from penstock_services.dispatcher.endpoint import Endpoint
    from penstock_services.dispatcher.event_feed import EventFeed
    from penstock_services.dispatcher.packages import Packages
    from penstock_services.dispatcher.results import Results
    from penstock_services.dispatcher.submission import Submitter


class Rest:
    """The whole REST API."""

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
        own_log: KeptLines,
        events: EventFeed,
        packages: Packages,
    ) -> None:
        why = WhyApi(directory, clock)
        self._sql = SqlApi(config)
        self._apis = (
            MetricsApi(directory, clock),
            JobApi(directory, submitter, results, clock, config, DeadLetters(directory)),
            CheckpointApi(directory, config),
            VertexApi(directory, clock),
            ClusterApi(directory, census, clock, config, cluster),
            LogApi(directory),
            ProcessApi(directory, own_log),
            ApplicationApi(directory, clock, config),
            RescaleApi(directory),
            why,
            FlameApi(directory, clock),
            LiveApi(directory, why, clock),
            EventsApi(events),
            TapApi(directory, clock, config),
            PackageApi(packages, submitter, config),
            IdentityApi(),
            self._sql,
            AbsentApi(directory),
        )

    def endpoints(self) -> list[Endpoint]:
        """All endpoints, in the order in which they are tried."""
        found = [endpoint for api in self._apis for endpoint in api.endpoints()]
        found.append(get("/openapi.json", self._openapi, dict[str, Any], ours=True))
        note = "The JSON Schema of a job spec, for editors."
        found.append(get("/schema/job", self._schema, dict[str, Any], ours=True, note=note))
        return in_order(found)

    async def _openapi(self, _: Request) -> Any:
        return openapi.document(self.endpoints(), __version__)

    async def _schema(self, _: Request) -> Any:
        return job_spec_schema()

    async def close(self) -> None:
        """Closes the connections to the SQL gateway."""
        await self._sql.close()

    def app(self, door: FrontDoor | None = None) -> Starlette:
        """The application for the HTTP server; ``door`` as in ``application``."""
        return application(self.endpoints(), door)


def in_order(endpoints: Iterable[Endpoint]) -> list[Endpoint]:
    """Endpoints in the order in which they are tried: a path with a fixed name comes before one with a parameter."""
    return sorted(endpoints, key=lambda e: [part.startswith("{") for part in e.path.split("/")])


def application(endpoints: Sequence[Endpoint], door: FrontDoor | None = None) -> Starlette:
    """The endpoints with the dashboard, with and without ``/v1``. ``door``: who may enter; None: everybody."""
    door = door or open_door()
    api = [endpoint.route() for endpoint in endpoints]
    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    unknown = Route("/{rest:path}", guarded(_unknown), methods=methods)
    return Starlette(
        routes=[*pages(door.login), Mount("/v1", routes=[*api, unknown]), *api, unknown],
        middleware=door.middleware(),
        exception_handlers={Exception: lambda request, err: error_answer(err, accepted(request.scope))},
    )


def described() -> list[Endpoint]:
    """Every endpoint, for descriptions. Its handlers cannot be called, because there is no cluster."""
    nobody: Any = None
    rest = Rest(
        directory=nobody,
        submitter=nobody,
        results=nobody,
        census=nobody,
        clock=nobody,
        config={},
        cluster="",
        own_log=nobody,
        events=nobody,
        packages=nobody,
    )
    return rest.endpoints()


async def _unknown(request: Request) -> Response:
    raise NotFoundError(
        f"no such path: {request.method} {request.url.path}",
        expected="a path of docs/rest.md (Flink's REST API, with or without /v1)",
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--openapi"]:  # from which the dashboard's client is generated
        text = json.dumps(openapi.document(described(), __version__))
    else:
        text = openapi.page(described())  # docs/rest-endpoints.md
    sys.stdout.write(text)
