"""Who sent a request, and whether the request may pass: the one gate of all REST servers.

A request is authenticated before any handler sees it; its endpoint then asks for a role (``require``). What no
endpoint declares needs ``read``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any

from penstock.errors import InternalError, PenstockError
from penstock_services.common.http import (
    SAFE_METHODS,
    ForbiddenError,
    UnauthorizedError,
    accepted,
    error_answer,
    too_many,
)
from penstock_services.common.security.roles import ANYONE, Identity, Role
from penstock_services.common.security.tokens import TokenFile, digest

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from penstock_services.common.security.audit import Audit
    from penstock_services.common.security.limits import Limit
    from penstock_services.common.security.sessions import Sessions

#: Keys of the ASGI scope.
IDENTITY, NEEDED, SUBJECT = "penstock.identity", "penstock.role", "penstock.subject"
COOKIE = "penstock_session"
#: Paths that tell nothing about the cluster: the dashboard's own files, and the login.
PUBLIC = ("/", "/login", "/logout", "/auth/login", "/auth/callback", "/auth/logout")
PUBLIC_BELOW = "/assets/"
#: A bearer token that is longer is no token of anybody's.
_LONGEST = 16_384

#: Whose bearer token it is; None if it is not of this kind. Raises UnauthorizedError if it is, but invalid.
Verify = Callable[[str], Awaitable[Identity | None]]


@dataclass(frozen=True)
class Access:
    """How requests are authenticated. ``tokens``: static ones; None: there are none. ``verify``: of other bearer
    tokens (OIDC). ``certificates``: name in a client's certificate → role."""

    sessions: Sessions
    session_s: float
    tokens: TokenFile | None = None
    verify: Verify | None = None
    certificates: Mapping[str, Role] | None = None
    now_s: Callable[[], float] = time.time

    async def identify(self, scope: Scope) -> Identity | None:
        """Who sent the request; None if it says nothing about that. Raises UnauthorizedError for a proof that is
        not valid, ForbiddenError for a browser's request that another site may have caused."""
        bearer = bearer_of(scope)
        if bearer is not None:
            return await self.of_bearer(bearer)
        found = self.of_session(scope)
        if found is not None:
            if scope["method"] not in SAFE_METHODS:
                _same_origin(scope)
            return found
        return self._of_certificate(scope)

    async def of_bearer(self, bearer: str) -> Identity:
        """Whose bearer token it is. Raises UnauthorizedError if it is nobody's."""
        found = self.tokens.find(bearer, self.now_s()) if self.tokens is not None else None
        if found is None and self.verify is not None:
            found = await self.verify(bearer)
        if found is None:
            raise UnauthorizedError(
                "the bearer token is nobody's, or has expired",
                expected="a token of this cluster",
                remedy="penstock --token-file FILE, or PENSTOCK_TOKEN; ask whoever runs the cluster for a token",
            )
        return found

    def of_session(self, scope: Scope) -> Identity | None:
        """Who logged in with the browser of the request; None if nobody did, or the proof is no longer valid."""
        cookie = cookie_of(scope, COOKIE)
        session = self.sessions.read(cookie, "session", self.now_s()) if cookie else None
        if session is None:
            return None
        if session.proof:
            # A token that was taken back, or lost its role, ends the sessions that it opened.
            known = self.tokens.by_digest(session.proof, self.now_s()) if self.tokens is not None else None
            return known and Identity(known.name, known.role, "session", session.expires_s)
        return Identity(session.name, Role(session.role), "session", session.expires_s)

    def proof_of(self, bearer: str) -> str:
        """What a session of this token is bound to."""
        return digest(bearer)

    def _of_certificate(self, scope: Scope) -> Identity | None:
        name = (scope.get("state") or {}).get("certificate_name")
        role = self.certificates.get(name) if name and self.certificates else None
        return Identity(name, role, "certificate") if name and role is not None else None


def require(scope: Scope, role: Role, *, changes: bool = True) -> None:
    """Raises ForbiddenError if the sender of the request has a lesser role. What asks for more than ``read`` is
    written to the audit log, unless it ``changes`` nothing: then only its refusals are."""
    identity = scope.get(IDENTITY)
    if not isinstance(identity, Identity):
        raise InternalError("a request reached its handler without passing the gate")
    scope[NEEDED] = role if changes else Role.READ
    if identity.role < role:
        raise ForbiddenError(
            f"the role '{role.word}' is needed",
            expected=f"a token of the role {role.word} or above",
            got=f"{identity.name}, of the role {identity.role.word}",
        )


def identity_of(scope: Scope) -> Identity:
    """Who sent the request, which has passed the gate."""
    found = scope[IDENTITY]
    assert isinstance(found, Identity)
    return found


def about(scope: Scope, **fields: Any) -> None:
    """Adds what a handler knows of the request, such as the id of a new job, to the line of the audit log."""
    scope.setdefault(SUBJECT, {}).update(fields)


class Gate:
    """The middleware: limits, authentication, audit. ``access`` None: everybody may do everything."""

    def __init__(
        self, app: ASGIApp, access: Access | None, requests: Limit, failures: Limit, audit: Audit
    ) -> None:
        self._app = app
        self._access = access
        self._requests = requests
        self._failures = failures
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._admit(scope)
        except PenstockError as err:
            await error_answer(err, accepted(scope))(scope, receive, noting)
        else:
            await self._run(scope, receive, noting)
        self._record(scope, status)

    async def _admit(self, scope: Scope) -> None:
        address, now_s = client_of(scope), time.monotonic()
        if wait_s := self._failures.exhausted(address, now_s):
            raise too_many("too many requests failed to authenticate", wait_s)
        identity: Identity | None = ANYONE
        if self._access is not None:
            try:
                identity = await self._access.identify(scope)
                if identity is None and not public(scope["path"]):
                    raise UnauthorizedError(
                        "this cluster asks who you are",
                        expected="a bearer token, or the login of a browser",
                        remedy="penstock --token-file FILE, or PENSTOCK_TOKEN; in a browser, log in at /login",
                    )
            except UnauthorizedError:
                self._failures.take(address, now_s)
                raise
        if identity is not None:
            scope[IDENTITY] = identity
        named = identity is not None and identity.via != "open"
        client = f"{identity.via}:{identity.name}" if identity is not None and named else address
        if wait_s := self._requests.take(client, now_s):
            raise too_many("too many requests", wait_s)

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        identity = scope.get(IDENTITY)
        if self._access is None or identity is None or identity.expires_s is None:
            await self._app(scope, receive, send)
            return
        # A stream of events must not outlive the proof of who reads it.
        try:
            async with asyncio.timeout(max(0.0, identity.expires_s - self._access.now_s())) as limit:
                await self._app(scope, receive, send)
        except TimeoutError:
            if not limit.expired():
                raise
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _record(self, scope: Scope, status: int) -> None:
        needed, identity = scope.get(NEEDED, Role.READ), scope.get(IDENTITY)
        refused = status in (401, 403, 429)
        if needed <= Role.READ and not refused:
            return
        who = identity if isinstance(identity, Identity) else None
        self._audit.write(
            refused=refused,
            who=who.name if who else "",
            via=who.via if who else "",
            role=who.role.word if who else "",
            client=client_of(scope),
            method=scope["method"],
            path=scope["path"][:256],
            status=status,
            **scope.get(SUBJECT, {}),
        )


def public(path: str) -> bool:
    """Whether everybody may read the path."""
    path = path.removeprefix("/v1") or "/"
    return path in PUBLIC or path.startswith(PUBLIC_BELOW)


def client_of(scope: Scope) -> str:
    """The address from which the request came."""
    client = scope.get("client")
    return str(client[0]) if client else "local"


def header_of(scope: Scope, wanted: bytes) -> str | None:
    """The value of a header; None if it is not there."""
    for name, value in scope["headers"]:
        if name.lower() == wanted:
            return bytes(value).decode("latin-1")
    return None


def bearer_of(scope: Scope) -> str | None:
    """The bearer token of the request. Raises UnauthorizedError for another kind of credentials."""
    text = header_of(scope, b"authorization")
    if text is None:
        return None
    scheme, _, token = text.partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or len(token) > _LONGEST:
        raise UnauthorizedError(
            "the Authorization header cannot be read", expected="Authorization: Bearer TOKEN"
        )
    return token


def cookie_of(scope: Scope, name: str) -> str:
    """The cookie's value; empty if there is none."""
    text = header_of(scope, b"cookie")
    if not text:
        return ""
    try:
        found = SimpleCookie(text).get(name)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def _same_origin(scope: Scope) -> None:
    """A browser adds cookies by itself, so a request that changes something must prove that our own page sent it.
    ``SameOrigin`` has refused foreign origins already; here a missing one is refused, too."""
    site = header_of(scope, b"sec-fetch-site")
    if header_of(scope, b"origin") is None and site != "same-origin":
        raise ForbiddenError(
            "a request with a browser's cookie does not say which page sent it",
            expected="the header Origin, or Sec-Fetch-Site: same-origin",
            remedy="programs send a bearer token instead of a cookie",
        )
