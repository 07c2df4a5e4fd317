"""An endpoint of the REST API: its path, its handler, and the types of its body and its answer. The routes,
the table in the docs and the OpenAPI document are made from the same endpoints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from starlette.routing import Route

from penstock_services.common.http import NotFoundError, answer, guarded
from penstock_services.common.security.access import require
from penstock_services.common.security.roles import Role

if TYPE_CHECKING:
    from starlette.requests import Request

#: Answers a request with a value of the endpoint's type, or with a ready response (a text).
Handler = Callable[["Request"], Awaitable[Any]]


@dataclass(frozen=True)
class Endpoint:
    """``answers``: the type of the answer; None: a text. ``takes``: the type of the body; None: no body.
    ``query``: the names of query parameters. ``note``: how the answer differs from Flink's, such as why it
    is always empty. ``ours``: Flink has no such endpoint. ``role``: what its callers must be
    allowed to do; None: as ``needs`` says."""

    method: str
    path: str
    handler: Handler
    answers: Any
    status: int = 200
    takes: Any = None
    query: tuple[str, ...] = ()
    note: str = ""
    ours: bool = False
    role: Role | None = None

    @property
    def needs(self) -> Role:
        """The role of its callers: what only reads needs ``read``, all else ``operate``, unless declared."""
        return self.role or (Role.READ if self.method == "GET" else Role.OPERATE)

    def route(self) -> Route:
        """The route of the endpoint for Starlette. Errors of the handler become answers."""

        async def answered(request: Request) -> Response:
            require(request.scope, self.needs)
            found = await self.handler(request)
            return found if isinstance(found, Response) else answer(found, self.status)

        return Route(self.path, guarded(answered), methods=[self.method])


def get(path: str, handler: Handler, answers: Any, **more: Any) -> Endpoint:
    """A GET endpoint; ``more``: further fields of ``Endpoint``."""
    return Endpoint("GET", path, handler, answers, **more)


def post(path: str, handler: Handler, answers: Any, **more: Any) -> Endpoint:
    """A POST endpoint; ``more``: further fields of ``Endpoint``."""
    return Endpoint("POST", path, handler, answers, **more)


def patch(path: str, handler: Handler, answers: Any, **more: Any) -> Endpoint:
    """A PATCH endpoint; ``more``: further fields of ``Endpoint``."""
    return Endpoint("PATCH", path, handler, answers, **more)


def no_task_manager(wanted: str, known: list[str]) -> NotFoundError:
    """The error for an unknown task manager."""
    return NotFoundError(
        f"there is no task manager '{wanted[:255]}'",
        expected=", ".join(known) or "the id of one; none is registered",
        remedy="GET /taskmanagers lists them",
    )
