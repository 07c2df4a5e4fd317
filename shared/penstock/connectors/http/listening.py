"""The HTTP server of a web hook: who may send, how much, and how a request is answered."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from penstock.log_events import EventLog
from penstock.redaction import hide

_log = EventLog("penstock.connectors")

#: Seconds that a sender has for a request's body.
_BODY_S = 60.0
#: Seconds that answers under way may take when the server ends.
_LAST_WORDS_S = 1
#: Connections beyond those of requests that wait: they are told that there is no room.
_SPARE_CONNECTIONS = 200

Message = dict[str, Any]


class Refusal(Exception):
    """An answer other than 200. ``again_s``: seconds after which the sender may try again."""

    def __init__(self, status: int, said: str, again_s: int | None = None) -> None:
        super().__init__(said)
        self.status, self.again_s = status, again_s


@dataclass(frozen=True, slots=True)
class Request:
    """A request that was read. ``headers``: by name, in small letters; ``target``: path and parameters."""

    target: str
    headers: Mapping[str, str]
    remote: str
    body: bytes


class Hook:
    """The ASGI application. ``take`` returns when a request may be answered with 200, or raises Refusal; ``room`` gets
    the number of requests without an answer, and raises Refusal before a body is read."""

    def __init__(
        self,
        options: Mapping[str, Any],
        take: Callable[[Request], Awaitable[None]],
        room: Callable[[int], None],
    ) -> None:
        self._path, self._most = options["path"], options["request.max-size"]
        self._token: str | None = options["token"]
        self._accepted = 200 if options["answer"] == "checkpoint" else 202
        self._take, self._room = take, room
        #: Requests whose body is read or whose answer waits.
        self.active = 0
        #: The requests that are being answered; they end with the server.
        self.running: set[asyncio.Task[None]] = set()
        if self._token:
            hide(self._token)

    async def __call__(self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Any) -> None:
        if scope["type"] != "http":
            return
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        try:
            self._check(scope, headers)
            self.active += 1
            try:
                await self._request(scope, headers, receive)
            finally:
                self.active -= 1
            await _answer(send, self._accepted, "taken")
        except Refusal as refusal:
            await _answer(send, refusal.status, str(refusal), refusal.again_s)

    async def _request(
        self, scope: Message, headers: Mapping[str, str], receive: Callable[[], Awaitable[Message]]
    ) -> None:
        body = await self._body(headers, receive)
        query = scope["query_string"].decode("latin-1")
        target = scope["path"] + (f"?{query}" if query else "")
        # What a table may show are not the credentials of its senders.
        shown = {name: value for name, value in headers.items() if name not in ("authorization", "cookie")}
        client = scope.get("client")
        work = asyncio.ensure_future(self._take(Request(target, shown, client[0] if client else "", body)))
        self.running.add(work)
        try:
            await work
        except asyncio.CancelledError:
            if work.cancelled():
                raise Refusal(503, "the reader has ended: send the request again", 1) from None
            work.cancel()
            raise
        finally:
            self.running.discard(work)

    def _check(self, scope: Message, headers: Mapping[str, str]) -> None:
        if self._token is not None:
            given = headers.get("authorization", "")
            scheme, _, token = given.partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(
                token.strip().encode(), self._token.encode()
            ):
                raise Refusal(401, "the token is missing or wrong")
        if unquote(scope["path"]) != self._path:
            raise Refusal(404, "no such path")
        if scope["method"] not in ("POST", "PUT"):
            raise Refusal(405, "send rows by POST or PUT")
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise Refusal(415, "send the body without compression")
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > self._most:
            raise Refusal(413, f"a body has at most {self._most} bytes")
        self._room(self.active)

    async def _body(self, headers: Mapping[str, str], receive: Callable[[], Awaitable[Message]]) -> bytes:
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(_BODY_S):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refusal(400, "the body was cut off")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self._most:
                        raise Refusal(413, f"a body has at most {self._most} bytes")
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            raise Refusal(408, "the body did not come") from None


async def _answer(send: Any, status: int, said: str, again_s: int | None = None) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    if again_s is not None:
        headers.append((b"retry-after", str(again_s).encode()))
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": said.encode()})


def listener(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError."""
    host = host.strip("[]")
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(512)
    except OSError:
        found.close()
        raise
    found.setblocking(False)
    return found


async def serve(
    options: Mapping[str, Any],
    take: Callable[[Request], Awaitable[None]],
    room: Callable[[int], None],
    on_started: Callable[[], None],
) -> None:
    """Serves a web hook until it is cancelled. Raises OSError if its port is taken."""
    import uvicorn

    class Server(uvicorn.Server):
        """Signals belong to the slot."""

        @contextlib.contextmanager
        def capture_signals(self) -> Any:
            yield

    host, _, port = options["listen"].rpartition(":")
    hook = Hook(options, take, room)
    bound = listener(host, int(port))
    try:
        server = Server(
            uvicorn.Config(
                hook, http="h11", log_config=None, access_log=False, lifespan="off", proxy_headers=False, server_header=False, ws="none",
                limit_concurrency=options["request.max-pending"] + _SPARE_CONNECTIONS,
                timeout_graceful_shutdown=_LAST_WORDS_S,
                ssl_certfile=options["tls.certificate"], ssl_keyfile=options["tls.key"],
            )
        )  # fmt: skip
        running = asyncio.ensure_future(server.serve(sockets=[bound]))
        on_started()
        _log.info("webhook_listening", address=options["listen"], path=options["path"])
        try:
            await asyncio.wait([running])
            running.result()
        finally:
            server.should_exit = True
            for work in list(hook.running):
                work.cancel()
            # The task may be cancelled again meanwhile. The server must end all the same: it would go on to listen on the
            # number of a closed socket, which the next one gets.
            while not running.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([running])
    finally:
        bound.close()
