"""What all HTTP answers share: the form of errors, limits, and who may send requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from penstock.bus import RefusedError
from penstock.bus.envelope import told
from penstock.errors import REST_ERROR_TYPE, PenstockError, SnapshotError, SpecError
from penstock.log_events import EventLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

_log = EventLog("penstock.rest")

#: The size limit of a body. A job graph may hold data (VALUES) and pickled functions; larger data belongs
#: into files.
MAX_BODY_BYTES = 32 * 1024 * 1024
#: Seconds within which the next part of the body, and the whole body, must arrive.
BODY_PAUSE_S, BODY_S = 10.0, 60.0
#: Digits of a number in a query string.
_MAX_DIGITS = 15
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


class NotFoundError(SpecError):
    """The path names something that does not exist (404)."""

    code = "PS-NOT-FOUND"


class TooLargeError(SpecError):
    """The body is too large (413)."""

    code = "PS-TOO-LARGE"


class TooSlowError(SpecError):
    """The body does not arrive in time (408)."""

    code = "PS-TOO-SLOW"


class ForbiddenError(SpecError):
    """The request is not allowed (403)."""

    code = "PS-FORBIDDEN"


class UnauthorizedError(SpecError):
    """The request does not prove who sent it (401)."""

    code = "PS-UNAUTHORIZED"


class TooManyError(SpecError):
    """The client sends too much (429). ``retry_after_s``: whole seconds after which it may send again."""

    code = "PS-TOO-MANY"
    retry_after_s = 1


def too_many(what: str, wait_s: int) -> TooManyError:
    """The error for a client that must wait."""
    err = TooManyError(what, expected=f"the next one in {wait_s} s", remedy="wait, then send it again")
    err.retry_after_s = wait_s
    return err


def answer(data: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """``data`` as JSON."""
    return encoded_answer(msgspec.json.encode(data), status, headers)


def encoded_answer(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer whose JSON is there already."""
    return Response(body, status, headers, media_type="application/json")


def status_of(err: PenstockError) -> int:
    """The HTTP status of an error."""
    match err:
        case NotFoundError():
            return 404
        case TooLargeError():
            return 413
        case TooSlowError():
            return 408
        case UnauthorizedError():
            return 401
        case ForbiddenError():
            return 403
        case TooManyError():
            return 429
        case RefusedError():
            return 409
        case SnapshotError():  # a repetition would get the same answer
            return 400
    return {"user": 400, "external": 503}.get(err.domain, 500)


def error_answer(err: BaseException, accept: str = "") -> Response:
    """``{"errors": [text]}``: Flink's clients take an object for an error only if ``errors`` is its one key. A
    client whose ``accept`` header asks for ``REST_ERROR_TYPE`` gets the error as data too."""
    if not isinstance(err, PenstockError | RecursionError):
        _log.error("request_failed", exc_info=err)
    err = told(err)
    headers = _headers_of(err)
    body: dict[str, Any] = {"errors": [str(err)]}
    if REST_ERROR_TYPE in accept:
        body["error"] = err.to_dict()
    return answer(body, status_of(err), {"vary": "accept", **headers})


def _headers_of(err: PenstockError) -> dict[str, str]:
    match err:
        case TooSlowError():
            return {"connection": "close"}
        case UnauthorizedError():
            return {"www-authenticate": 'Bearer realm="penstock"'}
        case TooManyError():
            return {"retry-after": str(err.retry_after_s)}
    return {}


def guarded(handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """A handler whose errors become answers."""

    async def run(request: Request) -> Response:
        try:
            return await handler(request)
        except Exception as err:
            return error_answer(err, accepted(request.scope))

    return run


def accepted(scope: Scope) -> str:
    """The accept header, empty if there is none."""
    return b",".join(value for name, value in scope["headers"] if name.lower() == b"accept").decode("latin-1")


async def body_of(request: Request, limit: int = MAX_BODY_BYTES) -> bytes:
    """The body. Raises TooLargeError as soon as its size is known, TooSlowError if it does not arrive."""
    declared = request.headers.get("content-length", "0")
    if is_number(declared) and int(declared) > limit:
        raise _too_large(int(declared), limit)
    parts: list[bytes] = []
    size = 0
    stream = request.stream()
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                async with asyncio.timeout(BODY_PAUSE_S):
                    part = await anext(stream, None)
                if part is None:
                    return b"".join(parts)
                size += len(part)
                if size > limit:
                    raise _too_large(size, limit)
                parts.append(part)
    except TimeoutError:
        raise TooSlowError(
            "the request's body does not come",
            expected=f"a part of it every {BODY_PAUSE_S:g} s, and all of it within {BODY_S:g} s",
            got=f"{size} bytes",
            remedy="send the whole body",
        ) from None
    except ClientDisconnect:
        raise TooSlowError("the connection ended before the request's body", got=f"{size} bytes") from None


def is_number(text: str) -> bool:
    """Whether the text is a decimal number that fits into 64 bits."""
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


def number_of(request: Request, name: str, default: int) -> int:
    """A whole number in the query string. Raises SpecError if it is none."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not is_number(text):
        raise SpecError(
            "not a whole number",
            expected=f"e.g. 1000, of up to {_MAX_DIGITS} digits",
            got=repr(text[:80]),
            where=f"query '{name}'",
        )
    return int(text)


def _too_large(size: int, limit: int) -> TooLargeError:
    return TooLargeError(
        "the request's body is too large",
        expected=f"at most {limit} bytes",
        got=f"{size} bytes or more",
        remedy="put data into files that the job reads",
    )


class SameOrigin:
    """Refuses requests that a browser sends for a page of another site, because such a page must not submit
    jobs (which run code) to a dispatcher on this machine. With ``hosts`` (if bound to loopback) the Host
    header must also be one of them, against DNS rebinding."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None = None) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (problem := self._problem(scope)) is not None:
            await error_answer(problem, accepted(scope))(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _problem(self, scope: Scope) -> ForbiddenError | None:
        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}
        host = headers.get("host", "")
        name = urlsplit(f"//{host}").hostname or ""
        if self._hosts is not None and name not in self._hosts:
            return ForbiddenError(
                "the Host header does not name this server",
                expected=", ".join(sorted(self._hosts)),
                got=repr(host),
                remedy="use http://127.0.0.1; to serve others, set rest.bind-address (of the SQL gateway: "
                "sql-gateway.endpoint.rest.bind-address), or security.rest.allowed-hosts",
            )
        origin = headers.get("origin")
        foreign = origin is not None and urlsplit(origin).netloc.lower() != host.lower()
        if scope["method"] not in SAFE_METHODS and foreign:
            return ForbiddenError(
                "requests from other sites are refused", expected=f"an origin at {host}", got=repr(origin)
            )
        return None
