"""Who the sender of a request is, as the server sees it: the dashboard shows what somebody may do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_services.common.security.access import identity_of
from penstock_services.common.security.roles import Role
from penstock_services.dispatcher.endpoint import Endpoint, get
from penstock_services.dispatcher.views.common import Kebab

if TYPE_CHECKING:
    from starlette.requests import Request


class Sender(Kebab, frozen=True, kw_only=True):
    """``GET /whoami``. ``via``: how that was proven: token, session, oidc, certificate; open: no authentication is
    configured. ``may_submit``: whether the role suffices to run code."""

    name: str
    role: str
    via: str
    may_submit: bool


class IdentityApi:
    """The endpoint of identities."""

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        return [
            get("/whoami", self._sender, Sender, note="Who sends the request, and their role.", ours=True)
        ]

    async def _sender(self, request: Request) -> Sender:
        found = identity_of(request.scope)
        return Sender(
            name=found.name, role=found.role.word, via=found.via, may_submit=found.role >= Role.SUBMIT
        )
