"""The login of a browser at an OpenID Connect provider: the authorization code flow with PKCE.

Between the redirect and the callback nothing is kept here: state, nonce and verifier lie in a signed cookie of the
browser, so any dispatcher with the same key takes the callback. A code is exchanged only for the browser that began.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

import httpx

from penstock import config as conf
from penstock.errors import ExternalError, SpecError
from penstock_services.common.http import UnauthorizedError
from penstock_services.common.security.sessions import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock_services.common.security.oidc import Oidc
    from penstock_services.common.security.roles import Identity
    from penstock_services.common.security.sessions import Sessions

CALLBACK = "/auth/callback"
#: How long somebody may take to log in at the provider.
PATIENCE_S = 600.0
_KIND = "login"
_TIMEOUT_S = 10.0


class CodeFlow:
    """Begins logins at the provider and ends them. Raises SpecError for options that are missing or cannot be read."""

    def __init__(
        self,
        oidc: Oidc,
        sessions: Sessions,
        config: Mapping[str, str],
        *,
        now_s: Callable[[], float],
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._oidc, self._sessions, self._now_s, self._transport = oidc, sessions, now_s, transport
        self._client = conf.OIDC_CLIENT.read(config)
        self._secret = _secret(conf.OIDC_CLIENT_SECRET.read(config))
        self._scopes = " ".join(dict.fromkeys(["openid", *conf.OIDC_SCOPES.read(config).split()]))
        self.redirect_url = conf.OIDC_REDIRECT.read(config)
        parts = urlsplit(self.redirect_url)
        if parts.scheme not in ("http", "https") or not parts.netloc or not parts.path.endswith(CALLBACK):
            raise SpecError(
                "the provider must know to which address of this cluster it sends browsers back",
                expected=f"https://HOST:PORT{CALLBACK}, as browsers reach a dispatcher and as it is registered at the provider",
                got=repr(self.redirect_url),
                where=f"configuration key '{conf.OIDC_REDIRECT.key}'",
            )

    async def begin(self) -> tuple[str, str]:
        """(the provider's address for the browser, the value of the cookie that it brings back). Raises ExternalError if
        the provider cannot be asked."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        address = await self._endpoint("authorization_endpoint")
        query = {
            "response_type": "code",
            "client_id": self._client,
            "redirect_uri": self.redirect_url,
            "scope": self._scopes,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge_of(verifier),
            "code_challenge_method": "S256",
        }
        expires_s = self._now_s() + PATIENCE_S
        cookie = Session(kind=_KIND, name=f"{state} {nonce} {verifier}", expires_s=expires_s)
        return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}", self._sessions.cookie(cookie)

    async def finish(self, answer: Mapping[str, str], cookie: str) -> Identity:
        """Who logged in. ``answer``: the parameters of the callback; ``cookie``: what ``begin`` gave the browser.

        Raises:
            UnauthorizedError: The browser did not begin this login, somebody refused it at the provider, or the
                tokens are not valid or give no role.
            ExternalError: The provider cannot be asked.
        """
        begun = self._sessions.read(cookie, _KIND, self._now_s()) if cookie else None
        if begun is None:
            raise UnauthorizedError(
                "this login was not begun in this browser, or took too long", remedy="begin again"
            )
        state, nonce, verifier = begun.name.split(" ")
        if not hmac.compare_digest(answer.get("state", "").encode(), state.encode()):
            raise UnauthorizedError(
                "the answer of the provider belongs to another login", remedy="begin again"
            )
        if "iss" in answer and answer["iss"] != self._oidc.issuer:
            raise UnauthorizedError("the answer comes from another provider", remedy="begin again")
        if "error" in answer or not answer.get("code"):
            raise UnauthorizedError(
                "the provider did not log you in",
                got=answer.get("error", "no code")[:100],
                remedy="begin again",
            )
        tokens = await self._exchange(answer["code"], verifier)
        claims = await self._oidc.claims(str(tokens.get("id_token", "")), self._client)
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise UnauthorizedError(
                "the token of the provider belongs to another login", remedy="begin again"
            )
        if claims.get("azp", self._client) != self._client:
            raise UnauthorizedError("the token of the provider was made for another service")
        return self._oidc.identity({**await self._more(tokens, claims), **claims})

    async def end_address(self) -> str | None:
        """Where the browser ends its session at the provider, too; None if the provider has no such address."""
        address = (await self._oidc.provider()).get("end_session_endpoint")
        if not isinstance(address, str):
            return None
        back = self.redirect_url.removesuffix(CALLBACK) + "/login"
        query = urlencode({"client_id": self._client, "post_logout_redirect_uri": back})
        return f"{address}{'&' if '?' in address else '?'}{query}"

    async def _exchange(self, code: str, verifier: str) -> dict[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect_url,
            "code_verifier": verifier,
        }
        provider = await self._oidc.provider()
        methods = provider.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        auth: httpx.BasicAuth | None = None
        if self._secret and "client_secret_basic" in methods:
            auth = httpx.BasicAuth(quote(self._client, safe=""), quote(self._secret, safe=""))
        else:
            form["client_id"] = self._client
            if self._secret:
                form["client_secret"] = self._secret
        address = await self._endpoint("token_endpoint")
        try:
            async with self._http() as client:
                answer = await client.post(
                    address,
                    data=form,
                    auth=auth or httpx.USE_CLIENT_DEFAULT,
                    headers={"accept": "application/json"},
                )
            found = answer.json()
        except (httpx.HTTPError, ValueError) as err:
            raise self._unreachable(err, address) from None
        if not isinstance(found, dict) or answer.status_code != httpx.codes.OK:
            said = found.get("error") if isinstance(found, dict) else None
            raise UnauthorizedError(
                "the provider does not take the code of this login",
                got=f"{answer.status_code} {said or ''}".strip()[:100],
                remedy="begin again; if it stays, compare client id, secret and redirect URL with the provider's",
            )
        return found

    async def _more(self, tokens: dict[str, Any], claims: dict[str, Any]) -> dict[str, Any]:
        """What the provider tells of the user beside the token: some put roles there alone."""
        address, bearer = (await self._oidc.provider()).get("userinfo_endpoint"), tokens.get("access_token")
        if self._oidc.named(claims) or not isinstance(address, str) or not isinstance(bearer, str):
            return {}
        try:
            async with self._http() as client:
                answer = await client.get(address, headers={"authorization": f"Bearer {bearer}"})
                found = answer.raise_for_status().json()
        except (httpx.HTTPError, ValueError) as err:
            raise self._unreachable(err, address) from None
        # Told of another user, it must not be mixed with this one's token.
        return found if isinstance(found, dict) and found.get("sub") == claims["sub"] else {}

    async def _endpoint(self, name: str) -> str:
        address = (await self._oidc.provider()).get(name)
        if not isinstance(address, str):
            raise ExternalError(
                "the OpenID Connect provider does not tell what a login needs",
                expected=f"'{name}' in its .well-known/openid-configuration",
                where=self._oidc.issuer,
            )
        return address

    def _http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=self._transport, timeout=_TIMEOUT_S)

    @staticmethod
    def _unreachable(err: Exception, address: str) -> ExternalError:
        return ExternalError(
            "the OpenID Connect provider does not answer",
            got=f"{type(err).__name__}: {err}"[:200],
            where=address,
        )


def challenge_of(verifier: str) -> str:
    """PKCE's challenge, by S256."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def _secret(path: str) -> str:
    if not path:
        return ""
    try:
        return Path(path).read_text().strip()
    except OSError as err:
        raise SpecError(
            "the secret of the OpenID Connect client cannot be read",
            got=err.strerror or str(err),
            where=f"configuration key '{conf.OIDC_CLIENT_SECRET.key}': {path}",
        ) from None
