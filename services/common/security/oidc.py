"""Bearer tokens of an OpenID Connect provider: JWTs whose signature, issuer, audience and times are checked.

Only the algorithms that the configuration names are taken, all of them asymmetric; what the token says of its own key
(``jwk``, ``jku``, ``x5u``) is never read. Keys come from the provider's JWKS. An unknown key id fetches them again, at
most every ``REFETCH_S`` seconds, so that a rotation needs no restart and a stranger cannot make this process flood the
provider.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import httpx

from penstock import config as conf
from penstock.errors import ExternalError, SpecError
from penstock.log_events import EventLog
from penstock_services.common.http import UnauthorizedError
from penstock_services.common.security.roles import Identity, Role, role_of

if TYPE_CHECKING:
    from jwt import PyJWK

#: What may be configured: a token that a public key signs cannot be forged with that key.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
REFETCH_S = 10.0
#: Keys are fetched again after so long even if none is missing, so that a key which was taken back ends.
LIFE_S = 600.0
_TIMEOUT_S = 5.0
_log = EventLog("penstock.security")

Fetch = Callable[[str], Any]


class Oidc:
    """Verifies tokens. Raises SpecError for options that contradict each other or a missing package."""

    def __init__(
        self,
        config: Mapping[str, str],
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        try:
            import jwt
        except ImportError:
            raise SpecError(
                "tokens of an OpenID Connect provider need a package that is not installed",
                where=conf.OIDC_ISSUER.key,
                remedy="pip install 'penstock[oidc]'",
            ) from None
        self._jwt = jwt
        self.issuer = conf.OIDC_ISSUER.read(config)
        self._audience = conf.OIDC_AUDIENCE.read(config)
        self._roles = _roles(conf.OIDC_ROLES.read(config))
        self._algorithms = _split(conf.OIDC_ALGORITHMS.read(config))
        self._claim = conf.OIDC_ROLES_CLAIM.read(config).split(".")
        self._name_claim = conf.OIDC_NAME_CLAIM.read(config)
        self._skew_s = conf.OIDC_SKEW_MS.read(config) / 1000
        self._jwks_url = conf.OIDC_JWKS.read(config)
        self._transport, self._now_s = transport, now_s
        self._keys: dict[str, PyJWK] = {}
        self._fetched_s = float("-inf")
        self._fetching = asyncio.Lock()
        #: What the provider tells of itself, and when it was asked.
        self._provider: dict[str, Any] = {}
        self._asked_s = float("-inf")
        if not self._audience or not self._roles:
            raise SpecError(
                "an OpenID Connect provider is configured in part",
                expected=f"{conf.OIDC_AUDIENCE.key} and {conf.OIDC_ROLES.key}: a token for another service must not pass",
                where=conf.OIDC_ISSUER.key,
            )
        if not set(self._algorithms) <= set(ALGORITHMS):
            raise SpecError(
                "an algorithm that tokens cannot be checked with",
                expected=", ".join(ALGORITHMS),
                got=", ".join(self._algorithms),
                where=conf.OIDC_ALGORITHMS.key,
            )

    async def verify(self, bearer: str) -> Identity | None:
        """Whose token it is; None if it is no JWT. Raises UnauthorizedError, with the reason, if it is not valid."""
        if bearer.count(".") != 2:
            return None
        return self.identity(await self.claims(bearer, self._audience))

    async def claims(self, token: str, audience: str) -> dict[str, Any]:
        """The claims of a token that this provider made for ``audience``. Raises UnauthorizedError, with the reason, if it
        is not valid."""
        try:
            header = self._jwt.get_unverified_header(token)
            key = await self._key(str(header.get("kid", "")))
            if header.get("alg") not in self._algorithms:
                raise self._jwt.InvalidAlgorithmError("the algorithm is not allowed")
            found: dict[str, Any] = self._jwt.decode(
                token,
                key=key,
                algorithms=list(self._algorithms),
                audience=audience,
                issuer=self.issuer,
                leeway=self._skew_s,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
        except (self._jwt.PyJWTError, ValueError) as err:
            raise UnauthorizedError(
                "the token of the OpenID Connect provider is not valid",
                expected=f"one of {self.issuer} for {audience}",
                got=f"{type(err).__name__}: {err}"[:200],
            ) from None
        return found

    def identity(self, claims: dict[str, Any]) -> Identity:
        """Whose claims they are. Raises UnauthorizedError if they give no role."""
        role = max((self._roles[r] for r in self.named(claims) if r in self._roles), default=None)
        if role is None:
            raise UnauthorizedError(
                "the token gives no role on this cluster",
                expected=f"one of {', '.join(self._roles)} in the claim {'.'.join(self._claim)}",
            )
        return Identity(
            str(claims.get(self._name_claim) or claims["sub"]), role, "oidc", float(claims["exp"])
        )

    def named(self, claims: dict[str, Any]) -> list[str]:
        """The roles or groups that the claims name."""
        found: Any = claims
        for part in self._claim:
            found = found.get(part) if isinstance(found, dict) else None
        if isinstance(found, str):
            return found.split()
        return [str(item) for item in found] if isinstance(found, list) else []

    async def _key(self, kid: str) -> PyJWK:
        async with self._fetching:
            age_s = self._now_s() - self._fetched_s
            if age_s > LIFE_S or (kid not in self._keys and kid and age_s > REFETCH_S):
                await self._fetch()
        # A provider that has one key need not name it.
        if not kid and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        if kid not in self._keys:
            raise self._jwt.InvalidKeyError("the provider has no such key")
        return self._keys[kid]

    async def _fetch(self) -> None:
        self._fetched_s = self._now_s()
        try:
            async with httpx.AsyncClient(transport=self._transport, timeout=_TIMEOUT_S) as client:
                url = self._jwks_url or str((await self._discovered(client))["jwks_uri"])
                answer = (await client.get(url)).raise_for_status().json()
            keys = self._jwt.PyJWKSet.from_dict(answer).keys
        except (httpx.HTTPError, ValueError, LookupError, AttributeError, self._jwt.PyJWTError) as err:
            _log.error("oidc_keys_not_read", issuer=self.issuer, error=f"{type(err).__name__}: {err}")
            if not self._keys:
                raise ExternalError(
                    "the keys of the OpenID Connect provider cannot be read",
                    got=f"{type(err).__name__}: {err}",
                    where=self.issuer,
                ) from None
            return
        self._keys = {key.key_id or "": key for key in keys if key.public_key_use in (None, "sig")}
        _log.info("oidc_keys_read", issuer=self.issuer, keys=len(self._keys))

    async def provider(self) -> dict[str, Any]:
        """What the provider tells of itself (OpenID Connect Discovery). Raises ExternalError if it cannot be asked."""
        if self._now_s() - self._asked_s > LIFE_S:
            try:
                async with httpx.AsyncClient(transport=self._transport, timeout=_TIMEOUT_S) as client:
                    self._provider = await self._discovered(client)
            except (httpx.HTTPError, ValueError, LookupError, TypeError) as err:
                raise ExternalError(
                    "the OpenID Connect provider cannot be asked for what a login needs",
                    got=f"{type(err).__name__}: {err}"[:200],
                    where=self.issuer,
                ) from None
            self._asked_s = self._now_s()
        return self._provider

    async def _discovered(self, client: httpx.AsyncClient) -> dict[str, Any]:
        address = f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"
        found = (await client.get(address)).raise_for_status().json()
        if found["issuer"] != self.issuer:
            raise ValueError(f"the provider calls itself {found['issuer']}")
        return dict(found)


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _roles(text: str) -> dict[str, Role]:
    parts = [part.rpartition("=") for part in _split(text)]
    where = f"configuration key '{conf.OIDC_ROLES.key}'"
    return {claim.strip(): role_of(role.strip(), where) for claim, _, role in parts}
