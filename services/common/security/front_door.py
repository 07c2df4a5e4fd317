"""What stands before every REST server: which hosts it answers to, who may enter, and how much.

A server that listens beyond loopback without authentication is refused at its start.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.middleware import Middleware

from penstock import config as conf
from penstock.errors import SpecError
from penstock_services.common.http import SameOrigin
from penstock_services.common.http_serving import LOOPBACK
from penstock_services.common.security.access import Access, Gate
from penstock_services.common.security.audit import Audit
from penstock_services.common.security.code_flow import CodeFlow
from penstock_services.common.security.limits import Limit
from penstock_services.common.security.login import Login
from penstock_services.common.security.oidc import Oidc
from penstock_services.common.security.roles import Role, role_of
from penstock_services.common.security.sessions import Sessions, session_key
from penstock_services.common.security.tls import ServerTls, server_tls
from penstock_services.common.security.tokens import TokenFile

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Requests without a valid proof that an address may send: a second, and at once.
FAILURES_PER_S, FAILURES_AT_ONCE = 2.0, 50.0


@dataclass(frozen=True)
class FrontDoor:
    """See the module. ``access`` None: everybody may do everything. ``hosts`` None: any."""

    requests: Limit
    failures: Limit
    audit: Audit
    access: Access | None = None
    login: Login | None = None
    hosts: frozenset[str] | None = None
    tls: ServerTls | None = None

    def middleware(self) -> list[Middleware]:
        """What each request passes before it reaches a handler, in this order."""
        return [
            Middleware(SameOrigin, hosts=self.hosts),
            Middleware(
                Gate,
                access=self.access,
                requests=self.requests,
                failures=self.failures,
                audit=self.audit,
            ),
        ]


def open_door(hosts: frozenset[str] | None = None) -> FrontDoor:
    """A door that lets everybody in."""
    return FrontDoor(Limit(0, 0), Limit(0, 0), Audit("", ""), hosts=hosts)


def front_door(config: Mapping[str, str], host: str, host_key: str) -> FrontDoor:
    """The door of a server that listens on ``host``, which the option ``host_key`` names.

    Raises:
        SpecError: The address is not loopback's and no authentication is configured, or a file that the
            configuration names cannot be read.
    """
    tls = server_tls(config)
    oidc = Oidc(config) if conf.OIDC_ISSUER.read(config) else None
    access = _access(config, oidc)
    beyond = not is_loopback(host)
    if beyond and access is None and not conf.REST_INSECURE.read(config):
        raise SpecError(
            "a REST server beyond loopback needs authentication: whoever reaches it could run code",
            expected=f"{conf.REST_TOKENS.key}, the file of the tokens that it accepts (or {conf.OIDC_ISSUER.key}, {conf.REST_CERTIFICATE_ROLES.key})",
            got=f"{host_key} = {host}, and no authentication",
            where=f"configuration key '{host_key}'",
            remedy=f"'penstock token ME --role admin' makes a token and its entry for the file; or listen on 127.0.0.1; or, "
            f"on a network that is closed, set {conf.REST_INSECURE.key}: true",
        )
    named = frozenset(
        part.strip().lower() for part in conf.REST_HOSTS.read(config).split(",") if part.strip()
    )
    # With authentication a page of another site gains nothing by another name of this server.
    local = None if beyond else LOOPBACK | {host}
    per_s = conf.REST_REQUESTS_PER_S.read(config)
    return FrontDoor(
        Limit(per_s, 2 * per_s),
        Limit(FAILURES_PER_S if access is not None else 0, FAILURES_AT_ONCE),
        Audit(conf.AUDIT_FILE.read(config), conf.AUDIT_FILE.key),
        access,
        _login(config, access, oidc, secure=tls is not None),
        named or local,
        tls,
    )


def _login(
    config: Mapping[str, str], access: Access | None, oidc: Oidc | None, *, secure: bool
) -> Login | None:
    client = conf.OIDC_CLIENT.read(config)
    if client and oidc is None:
        raise SpecError(
            "a login at an OpenID Connect provider needs the provider",
            expected=f"{conf.OIDC_ISSUER.key}",
            got=f"{conf.OIDC_CLIENT.key} alone",
            where=f"configuration key '{conf.OIDC_CLIENT.key}'",
        )
    if access is None:
        return None
    flow = (
        CodeFlow(oidc, access.sessions, config, now_s=access.now_s) if oidc is not None and client else None
    )
    return Login(access, secure=secure, flow=flow)


def authenticates(config: Mapping[str, str]) -> bool:
    """Whether servers of this configuration ask who sends a request."""
    return bool(conf.REST_TOKENS.read(config) or conf.OIDC_ISSUER.read(config) or _certificate_roles(config))


def _access(config: Mapping[str, str], oidc: Oidc | None) -> Access | None:
    if not authenticates(config):
        return None
    path, certificates = conf.REST_TOKENS.read(config), _certificate_roles(config)
    key = session_key(conf.REST_SESSION_KEY.read(config), conf.REST_SESSION_KEY.key)
    return Access(
        Sessions(key),
        conf.REST_SESSION_MS.read(config) / 1000,
        TokenFile(path) if path else None,
        verify=oidc.verify if oidc is not None else None,
        certificates=certificates,
    )


def _certificate_roles(config: Mapping[str, str]) -> dict[str, Role]:
    option = conf.REST_CERTIFICATE_ROLES
    found = pairs(option.read(config), option.key)
    return {name: role_of(role, f"configuration key '{option.key}'") for name, role in found.items()}


def pairs(text: str, key: str) -> dict[str, str]:
    """``a=b,c=d`` as a mapping. Raises SpecError, which names the option ``key``, for another form."""
    parts = [part.rpartition("=") for part in text.split(",") if part.strip()]
    if any(not name.strip() or not value.strip() for name, _, value in parts):
        raise SpecError("not a list of pairs", expected="name=role,…", got=repr(text)[:200], where=key)
    return {name.strip(): value.strip() for name, _, value in parts}


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens on ``host``."""
    if host in LOOPBACK:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
