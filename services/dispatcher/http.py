"""What every HTTP answer has in common: errors in one shape, limits, and who may ask."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from starlette.responses import Response

from penstock.bus import RefusedError
from penstock.errors import InternalError, PenstockError, SnapshotError, SpecError
from services.dispatcher.directory import UnknownJobError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

_log = logging.getLogger("penstock.rest")

#: A job graph may hold data (VALUES) and pickled functions; anything larger belongs into files.
MAX_BODY_BYTES = 32 * 1024 * 1024
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


class NotFoundError(SpecError):
    code = "PS-NOT-FOUND"


class TooLargeError(SpecError):
    code = "PS-TOO-LARGE"


class ForbiddenError(SpecError):
    code = "PS-FORBIDDEN"


def answer(data: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(data), status, media_type="application/json")


def status_of(err: PenstockError) -> int:
    match err:
        case UnknownJobError() | NotFoundError():
            return 404
        case TooLargeError():
            return 413
        case ForbiddenError():
            return 403
        case RefusedError():
            return 409
        case SnapshotError():  # trying again brings the same
            return 400
    return {"user": 400, "external": 503}.get(err.domain, 500)


def error_answer(err: BaseException) -> Response:
    if not isinstance(err, PenstockError):
        _log.error("a request failed", exc_info=err)
        err = InternalError(f"{type(err).__name__}: {err}", remedy="see the dispatcher's log")
    return answer({"errors": [str(err)], "error": err.to_dict()}, status_of(err))


def guarded(handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """The handler, its errors as answers."""

    async def run(request: Request) -> Response:
        try:
            return await handler(request)
        except Exception as err:
            return error_answer(err)

    return run


async def body_of(request: Request, limit: int = MAX_BODY_BYTES) -> bytes:
    """TooLargeError as soon as it is known to be."""
    parts, size = [], 0
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(int(declared), limit)
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _too_large(size, limit)
        parts.append(part)
    return b"".join(parts)


def _too_large(size: int, limit: int) -> TooLargeError:
    return TooLargeError(
        "the request's body is too large",
        expected=f"at most {limit} bytes",
        got=f"{size} bytes or more",
        remedy="put data into files that the job reads",
    )


class SameOrigin:
    """Refuses what a browser sends on behalf of another site: a page elsewhere must not
    submit jobs (which run code) to a dispatcher on this machine. With ``hosts`` (a bind to
    loopback) the Host header must be one of them too, against DNS rebinding."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None = None) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (problem := self._problem(scope)) is not None:
            await error_answer(problem)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _problem(self, scope: Scope) -> ForbiddenError | None:
        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}
        host = headers.get("host", "")
        name = urlsplit(f"//{host}").hostname or ""
        if self._hosts is not None and name not in self._hosts:
            return ForbiddenError(
                "this dispatcher does not go by that name",
                expected=", ".join(sorted(self._hosts)),
                got=repr(host),
                remedy="use http://127.0.0.1, or set rest.bind-address to serve others",
            )
        origin = headers.get("origin")
        foreign = origin is not None and urlsplit(origin).netloc.lower() != host.lower()
        if scope["method"] not in SAFE_METHODS and foreign:
            return ForbiddenError(
                "requests from other sites are refused", expected=f"an origin at {host}", got=repr(origin)
            )
        return None
