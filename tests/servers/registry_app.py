"""A Confluent-compatible schema registry in this process, which tests can break."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from penstock.formats.schema_registry import client
from penstock.formats.schema_registry.client import SchemaRegistry
from penstock.formats.schema_registry.settings import RegistrySettings


class RegistryApp:
    """``schemas``: by id; ``subjects``: ids by name. ``install`` makes the process ask it for a URL.

    ``login``: ``user:password`` that it asks for. ``breaks``: how it fails the next requests: a status, or
    ``None`` for a connection that is refused. ``incompatible``: subjects that take nothing new.
    """

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.breaks: list[int | None] = []
        self.login: str | None = None
        self.token: str | None = None
        self.incompatible: set[str] = set()
        self.pauses: list[float] = []
        self._kept: list[SchemaRegistry] = []
        self._app = Starlette(
            routes=[
                Route("/schemas/ids/{id:int}", self._by_id),
                Route("/subjects/{subject}", self._look_up, methods=["POST"]),
                Route("/subjects/{subject}/versions", self._register, methods=["POST"]),
                Route("/subjects/{subject}/versions/{version:int}", self._version),
            ]
        )

    def install(self, settings: RegistrySettings) -> SchemaRegistry:
        """Every format of this process with these settings now asks this app, and nobody waits."""
        made = SchemaRegistry(settings, _Transport(self, httpx.ASGITransport(self._app)))

        async def sleep(pause_s: float) -> None:
            self.pauses.append(pause_s)

        made._sleep = sleep
        client._REGISTRIES[settings] = made
        self._kept.append(made)
        return made

    def add(self, subject: str, schema: Any, **more: Any) -> int:
        """A schema that some other writer has registered; gives its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        found = next((i for i, s in self.schemas.items() if s == {"schema": text, **more}), None)
        schema_id = len(self.schemas) + 1 if found is None else found
        self.schemas[schema_id] = {"schema": text, **more}
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    # -- what it answers ----------------------------------------------------------------

    def _refusal(self, request: Request) -> Response | None:
        want = None if self.login is None else "Basic " + base64.b64encode(self.login.encode()).decode()
        if self.token is not None:
            want = f"Bearer {self.token}"
        if want is not None and request.headers.get("authorization") != want:
            return JSONResponse({"error_code": 401, "message": "Unauthorized"}, 401)
        return None

    async def _by_id(self, request: Request) -> Response:
        found = self.schemas.get(request.path_params["id"])
        if found is None:
            return JSONResponse({"error_code": 40403, "message": "Schema not found"}, 404)
        return self._refusal(request) or JSONResponse(found)

    async def _version(self, request: Request) -> Response:
        ids = self.subjects.get(request.path_params["subject"], [])
        version = request.path_params["version"]
        if not 0 < version <= len(ids):
            return JSONResponse({"error_code": 40402, "message": "Version not found"}, 404)
        return self._refusal(request) or JSONResponse(
            {"id": ids[version - 1], **self.schemas[ids[version - 1]]}
        )

    async def _look_up(self, request: Request) -> Response:
        sent = await request.json()
        for schema_id in self.subjects.get(request.path_params["subject"], []):
            if json.loads(self.schemas[schema_id]["schema"]) == json.loads(sent["schema"]):
                return JSONResponse({"id": schema_id, **self.schemas[schema_id]})
        return JSONResponse({"error_code": 40403, "message": "Schema not found"}, 404)

    async def _register(self, request: Request) -> Response:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        subject = request.path_params["subject"]
        if subject in self.incompatible:
            return JSONResponse(
                {"error_code": 409, "message": "Schema being registered is incompatible"}, 409
            )
        return JSONResponse({"id": self.add(subject, (await request.json())["schema"])})


class _Transport(httpx.AsyncBaseTransport):
    def __init__(self, app: RegistryApp, inner: httpx.ASGITransport) -> None:
        self._app = app
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._app.asked.append(f"{request.method} {request.url.raw_path.decode()}")
        if self._app.breaks:
            status = self._app.breaks.pop(0)
            if status is None:
                raise httpx.ConnectError("All connection attempts failed")
            return httpx.Response(status, text="not now")
        return await self._inner.handle_async_request(request)
