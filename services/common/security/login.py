"""The login of browsers: a page that asks for a token or leads to a provider, and cookies that only our own pages send back."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.responses import HTMLResponse, RedirectResponse
from starlette.routing import BaseRoute, Route

from penstock.errors import ExternalError
from penstock_services.common.http import UnauthorizedError, body_of, guarded
from penstock_services.common.security.access import COOKIE, about, cookie_of
from penstock_services.common.security.sessions import Session

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from penstock_services.common.security.access import Access
    from penstock_services.common.security.code_flow import CodeFlow
    from penstock_services.common.security.roles import Identity

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    # With no-referrer a browser says that the form comes from the origin "null", which is refused as a foreign page's.
    "referrer-policy": "same-origin",
}
_MAX_FORM = 20_000
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Penstock: log in</title>
<link rel="icon" href="data:,"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<style>body{{font:16px system-ui;max-width:26rem;margin:15vh auto;padding:0 1rem}}input,button{{font:inherit;padding:.5rem;
width:100%;box-sizing:border-box;margin:.3rem 0}}[role=alert]{{color:#b3261e}}</style></head><body><main>
<h1>Penstock</h1>{problem}{provider}{token}</main></body></html>
"""
_TOKEN = """<form method="post" action="/login"><label for="t">Token</label>
<input id="t" name="token" type="password" autocomplete="current-password" required autofocus>
<button>Log in</button></form>"""

_PROVIDER = '<p><a href="/auth/login">Log in with your organisation\'s account</a></p>'
#: The browser goes on by a page of ours, not by a redirect: a redirect would belong to the provider's page, which the
#: browser came from, and then it keeps a strict cookie back.
_ENTERED = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Penstock</title><meta http-equiv="refresh" content="0;url=/"></head>
<body><p><a href="/">You are logged in.</a></p></body></html>
"""
#: The cookie of a login that has begun at the provider.
BEGUN = "penstock_login"


class Login:
    """The pages of the login. ``secure``: whether cookies travel over TLS alone. ``flow``: the login at a provider; None:
    there is none."""

    def __init__(self, access: Access, *, secure: bool = False, flow: CodeFlow | None = None) -> None:
        self._access = access
        self._flow = flow
        self._secure = secure or (flow is not None and flow.redirect_url.startswith("https:"))

    def routes(self) -> list[BaseRoute]:
        """The routes, all of them public."""
        return [
            Route("/login", guarded(self._show), methods=["GET"]),
            Route("/login", guarded(self._enter), methods=["POST"]),
            Route("/logout", guarded(self._leave), methods=["POST"]),
            *(() if self._flow is None else self._provider_routes(self._flow)),
        ]

    def page(self, problem: str = "", status: int = 200) -> Response:
        """The page that asks for a token."""
        text = _PAGE.format(
            problem=f'<p role="alert">{escape(problem)}</p>' if problem else "",
            provider=_PROVIDER if self._flow is not None else "",
            token=_TOKEN,
        )
        return HTMLResponse(text, status, HEADERS)

    def admit(self, response: Response, identity: Identity, proof: str = "") -> None:
        """Gives the browser its session."""
        expires_s = self._access.now_s() + self._access.session_s
        if identity.expires_s is not None:
            expires_s = min(expires_s, identity.expires_s)
        session = Session(
            kind="session", name=identity.name, role=identity.role, expires_s=expires_s, proof=proof
        )
        self.set(response, COOKIE, self._access.sessions.cookie(session), "strict")

    def set(self, response: Response, name: str, value: str, same_site: str) -> None:
        """Sets a cookie that no script reads."""
        response.set_cookie(
            name, value, path="/", httponly=True, secure=self._secure, samesite=same_site  # type: ignore[arg-type]
        )  # fmt: skip

    async def _show(self, _: Request) -> Response:
        return self.page()

    async def _enter(self, request: Request) -> Response:
        body = (await body_of(request, _MAX_FORM)).decode("latin-1")
        token = parse_qs(body).get("token", [""])[0].strip()
        try:
            found = await self._access.of_bearer(token)
        except UnauthorizedError:
            about(request.scope, login="refused")
            return self.page("This is no token of this cluster, or it has expired.", 401)
        about(request.scope, login=found.name)
        response = RedirectResponse("/", 303, {"cache-control": "no-store"})
        self.admit(response, found, self._access.proof_of(token) if found.via == "token" else "")
        return response

    async def _leave(self, _: Request) -> Response:
        return self._left("/login")

    def _left(self, address: str) -> Response:
        response = RedirectResponse(address, 303, {"cache-control": "no-store"})
        self._forget(response)
        return response

    def _forget(self, response: Response) -> None:
        response.delete_cookie(COOKIE, path="/", httponly=True, secure=self._secure, samesite="strict")

    # -- at a provider ------------------------------------------------------------------

    def _provider_routes(self, flow: CodeFlow) -> list[BaseRoute]:
        async def begin(_: Request) -> Response:
            try:
                address, cookie = await flow.begin()
            except ExternalError as err:
                return self.page(err.message, 502)
            response = RedirectResponse(address, 303, {"cache-control": "no-store"})
            # Lax: the provider's page leads back, and a strict cookie would stay behind.
            self.set(response, BEGUN, cookie, "lax")
            return response

        async def finish(request: Request) -> Response:
            try:
                found = await flow.finish(request.query_params, cookie_of(request.scope, BEGUN))
            except (UnauthorizedError, ExternalError) as err:
                refused = isinstance(err, UnauthorizedError)
                about(request.scope, login="refused")
                response = self.page(
                    err.message + (f": {err.got}" if err.got else ""), 401 if refused else 502
                )
            else:
                about(request.scope, login=found.name)
                response = HTMLResponse(_ENTERED, headers=HEADERS)
                # The token proves only who logged in: its few minutes are not those of the session.
                self.admit(response, replace(found, expires_s=None))
            response.delete_cookie(BEGUN, path="/", httponly=True, secure=self._secure, samesite="lax")
            return response

        async def leave(_: Request) -> Response:
            try:
                return self._left(await flow.end_address() or "/login")
            except ExternalError as err:
                response = self.page(f"You are logged out here, but not at the provider: {err.message}", 502)
                self._forget(response)
                return response

        return [
            Route("/auth/login", guarded(begin), methods=["GET"]),
            Route("/auth/callback", guarded(finish), methods=["GET"]),
            Route("/auth/logout", guarded(leave), methods=["POST"]),
        ]
