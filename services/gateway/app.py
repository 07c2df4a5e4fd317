"""The HTTP side of the SQL gateway: Flink's paths, versions 1 to 4, with and without the version."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount, Route

from penstock import __version__
from penstock.config import MAX_SQL_CHARS
from penstock.errors import SpecError, UnsupportedError
from penstock_services.common.http import (
    NotFoundError,
    TooLargeError,
    accepted,
    body_of,
    error_answer,
    guarded,
    is_number,
)
from penstock_services.common.security.access import require
from penstock_services.common.security.front_door import open_door
from penstock_services.common.security.roles import Role
from penstock_services.gateway.sessions import session_options
from penstock_services.gateway.shapes import JSON, PLAIN_TEXT, columns_of, encoded, rows_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from penstock_services.common.security.front_door import FrontDoor
    from penstock_services.gateway.operations import Operation, Page
    from penstock_services.gateway.sessions import Session, Sessions

    Handler = Callable[[Request], Awaitable[Any]]

VERSIONS = ("v1", "v2", "v3", "v4")
#: What Flink's clients are told they speak with: its API. The version says what answers.
PRODUCT = "Apache Flink"
MAX_BODY_BYTES = 4 << 20
#: Threads in which clients wait for pages and statements are checked.
THREADS = 64
T = TypeVar("T")


class OpenSession(msgspec.Struct, rename="camel"):
    """Body of POST /sessions."""

    session_name: str | None = None
    properties: dict[str, str] | None = None


class Statement(msgspec.Struct, rename="camel"):
    """Body of a request with a statement. ``execution_timeout``: ms; the gateway knows no other than 0, none."""

    statement: str
    execution_timeout: int | None = None
    execution_config: dict[str, str] | None = None


class Completion(msgspec.Struct, rename="camel"):
    """Body of GET …/complete-statement. ``position``: characters before the cursor."""

    statement: str
    position: int


class Gateway:
    """Answers the requests of a gateway whose sessions are ``sessions``. ``longest``: characters of a statement."""

    def __init__(self, sessions: Sessions, longest: int = MAX_SQL_CHARS.default) -> None:
        self._sessions = sessions
        self._longest = longest
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="gateway")

    def app(self, door: FrontDoor | None = None) -> Starlette:
        """The application. ``door``: who may enter; None: everybody. Statements run code, so all but the gateway's
        description needs the role ``submit``."""
        door = door or open_door()
        session, operation = "/sessions/{session}", "/sessions/{session}/operations/{operation}"
        api = [
            _route("GET", "/info", self._info, role=Role.READ),
            _route("GET", "/api_versions", self._api_versions, role=Role.READ),
            _route("POST", "/sessions", self._open_session),
            _route("GET", session, self._session_properties, changes=False),
            _route("DELETE", session, self._close_session),
            _route("POST", f"{session}/heartbeat", self._heartbeat, changes=False),
            _route("POST", f"{session}/configure-session", self._configure),
            _route("GET", f"{session}/complete-statement", self._complete, changes=False),
            _route("GET", f"{session}/catalog", self._catalog, changes=False),
            _route("GET", f"{session}/tables", self._tables, changes=False),
            _route("POST", f"{session}/statements", self._execute),
            _route("POST", f"{session}/scripts", self._deploy),
            _route("POST", f"{session}/materialized-tables/{{table}}/refresh", self._refresh),
            _route("GET", f"{operation}/status", self._status, changes=False),
            _route("POST", f"{operation}/cancel", self._cancel),
            _route("DELETE", f"{operation}/close", self._close_operation),
            _route("GET", f"{operation}/result/{{token}}", self._result, changes=False),
        ]
        unknown = _route("GET", "/{rest:path}", _unknown, "POST", "PUT", "PATCH", "DELETE", role=Role.READ)
        mounts = [Mount(f"/{version}", routes=[*api, unknown]) for version in VERSIONS]
        return Starlette(
            routes=[*mounts, *api, unknown],
            middleware=door.middleware(),
            exception_handlers={Exception: lambda request, err: error_answer(err, accepted(request.scope))},
        )

    async def _in_thread(self, call: Callable[..., T], *given: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *given)

    # -- the gateway ---------------------------------------------------------------------------

    async def _info(self, _: Request) -> Any:
        return {"productName": PRODUCT, "version": f"2.3.0-penstock-{__version__}"}

    async def _api_versions(self, _: Request) -> Any:
        return {"versions": [version.upper() for version in VERSIONS]}

    # -- sessions ------------------------------------------------------------------------------

    async def _open_session(self, request: Request) -> Any:
        body = await _read(request, OpenSession)
        session = await self._in_thread(self._sessions.open, body.properties or {})
        return {"sessionHandle": session.handle}

    async def _session_properties(self, request: Request) -> Any:
        return {"properties": self._session(request).properties()}

    async def _close_session(self, request: Request) -> Any:
        await self._in_thread(self._sessions.close, request.path_params["session"])
        return {"status": "CLOSED"}

    async def _heartbeat(self, request: Request) -> Any:
        self._session(request)
        return {}

    async def _configure(self, request: Request) -> Any:
        session = self._session(request)
        body = await _read(request, Statement)
        _refuse_timeout(body.execution_timeout)
        await self._in_thread(session.configure, body.statement)
        return {}

    async def _complete(self, request: Request) -> Any:
        session = self._session(request)
        body = await _read(request, Completion)
        return {"candidates": await self._in_thread(session.complete, body.statement, body.position)}

    async def _catalog(self, request: Request) -> Any:
        return await self._in_thread(self._session(request).catalog)

    async def _tables(self, request: Request) -> Any:
        catalog, database = (request.query_params.get(name, "") for name in ("catalog", "database"))
        return await self._in_thread(self._session(request).tables, catalog, database)

    # -- statements ----------------------------------------------------------------------------

    async def _execute(self, request: Request) -> Any:
        self._session(request)
        body = await _read(request, Statement)
        _refuse_timeout(body.execution_timeout)
        if len(body.statement) > self._longest:
            raise TooLargeError(
                "the statement is too long",
                expected=f"at most {self._longest} characters",
                got=str(len(body.statement)),
            )
        config = session_options(body.execution_config or {})
        operation = self._sessions.start(request.path_params["session"], body.statement, config)
        return {"operationHandle": operation.handle}

    async def _status(self, request: Request) -> Any:
        return {"status": self._operation(request).status}

    async def _cancel(self, request: Request) -> Any:
        operation = self._operation(request)
        await self._in_thread(operation.end, "CANCELED")
        return {"status": operation.status}

    async def _close_operation(self, request: Request) -> Any:
        session = self._session(request)
        closed = await self._in_thread(session.close_operation, request.path_params["operation"])
        return {"status": closed.status}

    async def _result(self, request: Request) -> Any:
        operation = self._operation(request)
        row_format = request.query_params.get("rowFormat", JSON).upper()
        if row_format not in (JSON, PLAIN_TEXT):
            raise SpecError(
                "unknown row format",
                expected=f"{JSON} or {PLAIN_TEXT}",
                got=repr(row_format[:40]),
                where="query 'rowFormat'",
            )
        token = request.path_params["token"]
        if not is_number(token):
            raise SpecError("not a token", expected="0, or the token of nextResultUri", got=repr(token[:40]))
        path = request.url.path.rpartition("/")[0]
        return await self._in_thread(_page, operation, int(token), row_format, path)

    async def _deploy(self, _: Request) -> Any:
        raise UnsupportedError(
            "the deployment of a script as an application",
            expected="statements of a session",
            remedy="send its statements one after the other, or submit the script to the dispatcher (POST /jobs)",
        )

    async def _refresh(self, _: Request) -> Any:
        raise UnsupportedError(
            "materialized tables", expected="tables and views", remedy="run an INSERT that fills the table"
        )

    # -- what a path names ---------------------------------------------------------------------

    def _session(self, request: Request) -> Session:
        return self._sessions.get(request.path_params["session"])

    def _operation(self, request: Request) -> Operation:
        return self._session(request).operation(request.path_params["operation"])


def _page(operation: Operation, token: int, row_format: str, path: str) -> Response:
    """A page as Flink's clients read it. ``path``: that of the operation's results."""
    page = operation.fetch(token)
    return Response(encoded(_shape(page, row_format, path)), media_type="application/json")


def _shape(page: Page, row_format: str, path: str) -> dict[str, Any]:
    uri = None if page.next_token is None else f"{path}/{page.next_token}?rowFormat={row_format}"
    outcome = page.outcome
    if outcome is None:
        return {"resultType": "NOT_READY", "nextResultUri": uri}
    answer: dict[str, Any] = {
        "resultType": "EOS" if page.at_end else "PAYLOAD",
        "isQueryResult": outcome.is_query,
        "resultKind": outcome.kind,
        "results": {
            "columns": columns_of(outcome.schema),
            "rowFormat": row_format,
            "data": rows_of(outcome.schema, page.rows, row_format, outcome.zone),
        },
    }
    if outcome.job is not None:
        answer["jobID"] = str(outcome.job.get_job_id())
    if uri is not None:
        answer["nextResultUri"] = uri
    return answer


def _route(
    method: str,
    path: str,
    handler: Handler,
    *more: str,
    role: Role = Role.SUBMIT,
    changes: bool = True,
) -> Route:
    """``changes``: False for what only reads, which is not audited."""

    async def answered(request: Request) -> Response:
        require(request.scope, role, changes=changes)
        found = await handler(request)
        return (
            found if isinstance(found, Response) else Response(encoded(found), media_type="application/json")
        )

    return Route(path, guarded(answered), methods=[method, *more])


async def _read(request: Request, form: type[T]) -> T:
    """The body. SpecError if it is not of that form."""
    body = await body_of(request, MAX_BODY_BYTES)
    try:
        return msgspec.json.decode(body or b"{}", type=form)
    except (msgspec.DecodeError, RecursionError) as err:
        raise SpecError(
            "the request's body is not what this path takes",
            expected="JSON as Flink's SQL gateway takes it",
            got=str(err)[:200],
            where=request.url.path,
        ) from None


def _refuse_timeout(timeout_ms: int | None) -> None:
    if timeout_ms:
        raise UnsupportedError(
            "executionTimeout", expected="0: none", got=str(timeout_ms), remedy="cancel the operation instead"
        )


async def _unknown(request: Request) -> Any:
    raise NotFoundError(
        f"no such path: {request.method} {request.url.path}",
        expected="a path of docs/sql-gateway.md (Flink's SQL gateway, /v1 to /v4)",
    )
