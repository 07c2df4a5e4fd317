"""SQL over the dispatcher's REST API: requests to a session are relayed to the SQL gateway, so that a page of the
dashboard, which may talk to its own server only, can run statements.

The dispatcher adds nothing of its own: the gateway asks who sent a request, too, and sees the proof that the sender gave.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import httpx
from starlette.responses import StreamingResponse

from penstock import config as conf
from penstock.credentials import credentials
from penstock.errors import ExternalError, PenstockError
from penstock_services.common.http import NotFoundError, accepted, body_of
from penstock_services.common.security.access import COOKIE, NEEDED, cookie_of, header_of
from penstock_services.common.security.front_door import authenticates
from penstock_services.common.security.roles import Role
from penstock_services.dispatcher.endpoint import Endpoint, get
from penstock_services.dispatcher.views.common import Shape

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

#: The gateway's API that is relayed.
VERSION = "v2"
#: As the gateway's own limit.
MAX_BODY_BYTES = 4 << 20
#: Seconds: the gateway says that it is there; it answers a request.
LOOK_S, ANSWER_S = 3.0, 60.0
_ID, _TOKEN = re.compile(r"[0-9a-zA-Z-]{1,64}"), re.compile(r"[0-9]{1,15}")
_START = "penstock sql-gateway"
#: method, path below /sql, query parameters, what it does
_RELAYED = (
    ("POST", "/sessions", (), "Opens a session."),
    ("GET", "/sessions/{session}", (), "The session's settings."),
    ("DELETE", "/sessions/{session}", (), "Ends the session and its queries."),
    ("POST", "/sessions/{session}/heartbeat", (), "The client is there."),
    ("GET", "/sessions/{session}/catalog", (), "What statements of the session may name."),
    ("GET", "/sessions/{session}/tables", ("catalog", "database"), "Tables and views of a database."),
    ("POST", "/sessions/{session}/statements", (), "Runs a statement."),
    ("GET", "/sessions/{session}/operations/{operation}/status", (), "How far the statement is."),
    ("GET", "/sessions/{session}/operations/{operation}/result/{token}", ("rowFormat",), "A page of rows."),
    ("POST", "/sessions/{session}/operations/{operation}/cancel", (), "Cancels a query's job."),
    ("DELETE", "/sessions/{session}/operations/{operation}/close", (), "Forgets the statement."),
)


class SqlGateway(Shape, frozen=True, kw_only=True):
    """``GET /sql``. ``problem``: why no statements can be run, and what to do; empty if they can."""

    address: str
    problem: str


class SqlApi:
    """The endpoints of SQL. ``transport``: how the gateway is reached; None: by HTTP."""

    def __init__(self, config: Mapping[str, str], transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._address = address_of(config)
        self._transport = transport
        self._http: httpx.AsyncClient | None = None

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        relayed = [
            Endpoint(
                method,
                f"/sql{path}",
                self._relay,
                dict[str, Any],
                takes=dict[str, Any] if method == "POST" else None,
                query=query,
                note=f"[SQL gateway](sql-gateway.md): {does}",
                ours=True,
                role=Role.SUBMIT,
            )
            for method, path, query, does in _RELAYED
        ]
        note = f"Whether the SQL gateway at `{conf.GATEWAY_ADDRESS.key}` answers."
        return [get("/sql", self._look, SqlGateway, note=note, ours=True), *relayed]

    async def close(self) -> None:
        """Closes the connections to the gateway."""
        if self._http is not None:
            await self._http.aclose()

    async def _look(self, request: Request) -> SqlGateway:
        try:
            answer = await self._send(request, "GET", "/info", timeout=LOOK_S)
            await answer.aclose()
        except PenstockError as err:
            return SqlGateway(
                address=self._address, problem="\n".join(filter(None, (err.message, err.remedy)))
            )
        return SqlGateway(address=self._address, problem="")

    async def _relay(self, request: Request) -> Response:
        for name, value in request.path_params.items():
            if not (_TOKEN if name == "token" else _ID).fullmatch(value):
                raise NotFoundError(f"this is the id of no {name}", got=repr(value[:80]))
        if request.method == "GET" or request.url.path.endswith("/heartbeat"):
            # The gateway has every request in its audit log, with the same name; here the fetches of rows would drown the rest.
            request.scope[NEEDED] = Role.READ
        path = request.url.path.partition("/sql")[2]
        body = await body_of(request, MAX_BODY_BYTES)
        query = request.url.query
        answer = await self._send(
            request, request.method, f"/{VERSION}{path}" + (f"?{query}" if query else ""), body
        )
        kind = answer.headers.get("content-type", "application/json")
        return StreamingResponse(_pieces(answer), answer.status_code, media_type=kind)

    async def _send(
        self, request: Request, method: str, path: str, body: bytes = b"", timeout: float = ANSWER_S
    ) -> httpx.Response:
        """The gateway's answer, whose body is not read yet. Raises ExternalError if it gives none, or does not accept the
        proof of who sent the request."""
        http = self._client()
        made = http.build_request(
            method, f"{self._address}{path}", content=body, headers=_proof(request), timeout=timeout
        )
        try:
            answer = await http.send(made, stream=True)
        except httpx.HTTPError as err:
            raise ExternalError(
                f"no SQL gateway answers at {self._address}",
                expected="a SQL gateway of this cluster",
                got=str(err) or type(err).__name__,
                where=f"configuration key '{conf.GATEWAY_ADDRESS.key}'",
                remedy=f"start one beside the dispatcher: {_START} -D {conf.REST_ADDRESS.key}="
                f"{str(request.base_url).rstrip('/').removesuffix('/v1')}",
            ) from None
        if answer.status_code == 401:
            await answer.aclose()
            raise ExternalError(
                f"the SQL gateway at {self._address} does not accept your login",
                expected=f"the same {conf.REST_TOKENS.key} and {conf.REST_SESSION_KEY.key} for dispatchers and gateway",
                got="401",
                remedy=f"give the gateway the dispatcher's {conf.REST_TOKENS.key}, and both one "
                f"{conf.REST_SESSION_KEY.key}; a client certificate is not relayed",
            )
        return answer

    def _client(self) -> httpx.AsyncClient:
        if not self._address:
            raise ExternalError(
                f"no SQL gateway is configured ({conf.GATEWAY_ADDRESS.key})",
                expected="the address of the cluster's gateway, because logins are sent to it",
                remedy=f"start a gateway ({_START}) with the dispatcher's configuration, and set "
                f"{conf.GATEWAY_ADDRESS.key} of the dispatcher to its address, such as http://127.0.0.1:8083",
            )
        if self._http is None:
            verify = credentials(self._address).tls(self._address)
            self._http = httpx.AsyncClient(transport=self._transport, verify=verify, trust_env=False)
        return self._http


def address_of(config: Mapping[str, str]) -> str:
    """The gateway's address. Without authentication, by default that of this machine; with authentication there is no
    default: proofs of who somebody is go to no port that another user of the machine may have taken. Empty: none."""
    named = conf.GATEWAY_ADDRESS.read(config).rstrip("/")
    if named or authenticates(config):
        return named
    return f"http://127.0.0.1:{conf.GATEWAY_PORT.read(config)}"


def _proof(request: Request) -> dict[str, str]:
    """The headers by which the gateway learns who sent the request."""
    headers = {"accept": accepted(request.scope) or "application/json", "content-type": "application/json"}
    bearer = header_of(request.scope, b"authorization")
    session = cookie_of(request.scope, COOKIE)
    if bearer is not None:
        headers["authorization"] = bearer
    elif session:
        # The dispatcher's gate has seen that our own page sent the request.
        headers |= {"cookie": f"{COOKIE}={session}", "sec-fetch-site": "same-origin"}
    return headers


async def _pieces(answer: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in answer.aiter_bytes():
            yield piece
    finally:
        await answer.aclose()
