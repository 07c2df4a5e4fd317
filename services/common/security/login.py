"""The login of browsers: a page that asks for a token, and cookies that only our own pages send back."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.responses import HTMLResponse, RedirectResponse
from starlette.routing import BaseRoute, Route

from penstock_services.common.http import UnauthorizedError, body_of, guarded
from penstock_services.common.security.access import COOKIE, about
from penstock_services.common.security.sessions import Session

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from penstock_services.common.security.access import Access
    from penstock_services.common.security.roles import Identity

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
}
_MAX_FORM = 20_000
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Penstock: log in</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<style>body{{font:16px system-ui;max-width:26rem;margin:15vh auto;padding:0 1rem}}input,button{{font:inherit;padding:.5rem;
width:100%;box-sizing:border-box;margin:.3rem 0}}[role=alert]{{color:#b3261e}}</style></head><body><main>
<h1>Penstock</h1>{problem}{token}</main></body></html>
"""
_TOKEN = """<form method="post" action="/login"><label for="t">Token</label>
<input id="t" name="token" type="password" autocomplete="current-password" required autofocus>
<button>Log in</button></form>"""


class Login:
    """The pages of the login. ``secure``: whether cookies travel
    over TLS alone."""

    def __init__(self, access: Access, *, secure: bool = False) -> None:
        self._access = access
        self._secure = secure

    def routes(self) -> list[BaseRoute]:
        """The routes, all of them public."""
        return [
            Route("/login", guarded(self._show), methods=["GET"]),
            Route("/login", guarded(self._enter), methods=["POST"]),
            Route("/logout", guarded(self._leave), methods=["POST"]),
        ]

    def page(self, problem: str = "", status: int = 200) -> Response:
        """The page that asks for a token."""
        text = _PAGE.format(
            problem=f'<p role="alert">{escape(problem)}</p>' if problem else "",
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
        response = RedirectResponse("/login", 303, {"cache-control": "no-store"})
        response.delete_cookie(COOKIE, path="/", httponly=True, secure=self._secure, samesite="strict")
        return response
