"""The dashboard's files, built from ``web/`` into ``static/``. They load nothing from other sites."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from starlette.responses import FileResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from penstock_services.common.http import guarded
from penstock_services.common.security.access import IDENTITY

if TYPE_CHECKING:
    from os import PathLike, stat_result

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Scope

    from penstock_services.common.security.login import Login

STATIC = Path(__file__).parent / "static"
#: Styles are also set by scripts (charts, the editor), scripts come from files alone.
POLICY = (
    "default-src 'none'; connect-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "script-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {"content-security-policy": POLICY, "x-content-type-options": "nosniff"}


class _Assets(StaticFiles):
    """Files whose names have a digest of their content, so that a browser may keep them for ever."""

    def file_response(
        self, full_path: str | PathLike[str], stat_result: stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        found = super().file_response(full_path, stat_result, scope, status_code)
        found.headers["cache-control"] = "public, max-age=31536000, immutable"
        found.headers["x-content-type-options"] = "nosniff"
        return found


def pages(login: Login | None = None) -> list[BaseRoute]:
    """The routes of the dashboard. ``login``: what somebody sees whom the gate does not know."""

    async def page(request: Request) -> Response:
        if login is not None and IDENTITY not in request.scope:
            return login.page()
        headers = {"cache-control": "no-cache", **_HEADERS}
        return FileResponse(STATIC / "index.html", media_type="text/html", headers=headers)

    assets = Mount("/assets", _Assets(directory=STATIC / "assets", check_dir=False))
    return [Route("/", guarded(page)), assets, *(login.routes() if login is not None else ())]
