"""A web server in this process: it takes rows, answers look-ups, and gives pages. Tests can break it."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


def free_port() -> int:
    """A port on which nobody listens now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class WebServer:
    """``taken``: (path, key, body) of each request that was taken, once a key. ``fails``: statuses of the next requests;
    with 599 the request is taken, and its answer is an error. ``rows``: table name → rows, for look-ups and pages."""

    def __init__(self) -> None:
        self.port = free_port()
        self.taken: list[tuple[str, str | None, bytes]] = []
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.repeated = 0
        self.fails: list[int] = []
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self._keys: set[tuple[str, str]] = set()
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._app = Starlette(
            routes=[
                Route("/take/{name:path}", self._take, methods=["POST", "PUT", "PATCH"]),
                Route("/find/{name}", self._find, methods=["GET", "POST"]),
                Route("/one/{name}/{id}", self._one),
                Route("/pages/{name}", self._pages),
            ]
        )

    @property
    def url(self) -> str:
        """``http://127.0.0.1:port``."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts, on the same port as before."""
        config = uvicorn.Config(self._app, port=self.port, log_config=None, access_log=False, lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        for _ in range(1200):
            if self._server.started:
                return
            time.sleep(0.05)
        raise AssertionError("the web server did not start")

    def stop(self) -> None:
        """Stops; its state stays."""
        assert self._server is not None
        assert self._thread is not None
        self._server.force_exit = self._server.should_exit = True
        self._thread.join(60)

    def _failure(self) -> Response | None:
        if self.fails and self.fails[0] != 599:
            status = self.fails.pop(0)
            return Response(f"no: {status}", status, {"Retry-After": "0"} if status in (429, 503) else {})
        return None

    async def _take(self, request: Request) -> Response:
        if (failure := self._failure()) is not None:
            return failure
        name = request.path_params["name"]
        key = request.headers.get("Idempotency-Key")
        body = await request.body()
        if (name, key) not in self._keys:
            self.taken.append((name, key, body))
        else:
            self.repeated += 1
        if key is not None:
            self._keys.add((name, key))
        if self.fails:  # 599
            self.fails.pop(0)
            return Response("taken, but the answer is lost", 503)
        return Response("taken")

    async def _find(self, request: Request) -> Response:
        self.asked.append((str(request.url), dict(request.headers)))
        if (failure := self._failure()) is not None:
            return failure
        wanted = dict(request.query_params) if request.method == "GET" else json.loads(await request.body())
        found = [
            row for row in self.rows[request.path_params["name"]]
            if all(row[k] is not None and str(row[k]) == str(v) for k, v in wanted.items())
        ]  # fmt: skip
        return JSONResponse(found) if found else Response("nothing", 404)

    async def _one(self, request: Request) -> Response:
        self.asked.append((str(request.url), dict(request.headers)))
        for row in self.rows[request.path_params["name"]]:
            if str(row["id"]) == request.path_params["id"]:
                return JSONResponse({k: v for k, v in row.items() if k != "id"})
        return Response("nothing", 404)

    async def _pages(self, request: Request) -> Response:
        """``?size=`` rows a page from ``?cursor=`` on; ``data``, ``next`` (address), ``cursor`` and a header Link."""
        self.asked.append((str(request.url), dict(request.headers)))
        if (failure := self._failure()) is not None:
            return failure
        rows = self.rows[request.path_params["name"]]
        size, first = int(request.query_params.get("size", 10**6)), int(request.query_params.get("cursor", 0))
        more = first + size < len(rows)
        following = str(request.url.include_query_params(cursor=first + size))
        body = {"data": rows[first : first + size], "next": following if more else None,
                "cursor": str(first + size) if more else "", "since": str(min(len(rows), first + size))}  # fmt: skip
        etag = '"' + hashlib.sha256(json.dumps(body).encode()).hexdigest() + '"'
        if request.headers.get("If-None-Match") == etag:
            return Response(status_code=304)
        links = {"Link": f'<{following}>; rel="next"'} if more else {}
        return JSONResponse(body, headers={"ETag": etag, **links})
