"""The paths of Flink's REST API for things that Penstock does not have. Lists are empty; a request that would
create such a thing is refused, with what to do instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import UnsupportedError
from penstock_services.common.http import NotFoundError
from penstock_services.common.security.roles import Role
from penstock_services.dispatcher.endpoint import Endpoint, get, post
from penstock_services.dispatcher.views import absent
from penstock_services.dispatcher.views.common import Empty
from penstock_services.dispatcher.views.operations import Operation, Triggered

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from penstock_services.dispatcher.directory import JobDirectory
    from penstock_services.dispatcher.endpoint import Handler


def _profiler() -> UnsupportedError:
    return UnsupportedError(
        "the dispatcher profiles no process",
        remedy="`py-spy record --pid PID`; GET /cluster/info lists the pids",
    )


def _cluster() -> UnsupportedError:
    return UnsupportedError(
        "the cluster is not stopped over REST",
        remedy="stop its services where they were started: Ctrl-C, systemctl stop, docker compose down",
    )


def _coordinator() -> UnsupportedError:
    return UnsupportedError(
        "operators have no coordinators that take requests",
        expected="Flink's requests are serialized Java objects",
        remedy="GET /jobs/{id}/results fetches the rows of a SELECT",
    )


class AbsentApi:
    """The endpoints of these paths."""

    def __init__(self, directory: JobDirectory) -> None:
        self._directory = directory

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        data_set = "/datasets/{dataset}"
        refused, none, missing = "Refused.", "Empty.", "404: there is none."
        no_profile = _refusing(_profiler)
        found = [
            get("/datasets", _answering(absent.DataSets()), absent.DataSets, note=none),
            Endpoint("DELETE", data_set, _no_data_set, Triggered, status=202, note=missing),
            get("/datasets/delete/{trigger}", _no_data_set, Operation, note=missing),
            post("/jobs/{job}/coordinators/{operator}", _refusing(_coordinator), Empty, note=refused, role=Role.SUBMIT),
            Endpoint("DELETE", "/cluster", _refusing(_cluster), Empty, note=refused, role=Role.ADMIN),
        ]  # fmt: skip
        for process in ("/jobmanager", "/taskmanagers/{manager}"):
            found += [
                get(f"{process}/profiler", _answering(absent.Profiles()), absent.Profiles, note=none),
                post(f"{process}/profiler", no_profile, Empty, note=refused),
                get(f"{process}/profiler/{{name}}", _no_profile, None, note=missing),
            ]
        return found


def _refusing(error: Callable[[], UnsupportedError]) -> Handler:
    async def handle(_: Request) -> Any:
        raise error()

    return handle


def _answering(answer: Any) -> Handler:
    async def handle(_: Request) -> Any:
        return answer

    return handle


async def _no_data_set(_: Request) -> Any:
    raise NotFoundError("there are no cached data sets: no job leaves one behind")


async def _no_profile(_: Request) -> Any:
    raise NotFoundError("there are no profiles", remedy="`py-spy record --pid PID`")
