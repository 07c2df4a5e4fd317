"""Logs of task managers, and of the output of their slots, on Flink's paths. They are fetched from the task
managers piece by piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response, StreamingResponse

from penstock.bus import NobodyServesError
from penstock.errors import SpecError
from penstock.messages.slot_output import numbered
from penstock_services.common.http import NotFoundError, number_of
from penstock_services.dispatcher.endpoint import Endpoint, get, no_task_manager
from penstock_services.dispatcher.views import cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from penstock.messages.task_manager import LogFile, LogPiece
    from penstock_services.dispatcher.directory import JobDirectory

#: The task manager's own log.
LOG = "taskmanager.log"
#: A browser must show a log as text, whatever it contains.
TEXT_HEADERS = {"x-content-type-options": "nosniff", "cache-control": "no-cache"}


class LogApi:
    """The endpoints of logs."""

    def __init__(self, directory: JobDirectory) -> None:
        self._directory = directory

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        base = "/taskmanagers/{manager}"
        return [
            get(f"{base}/logs", self._list, cluster.Logs),
            get(f"{base}/logs/{{name}}", self._file, None, query=("offset",)),
            get(f"{base}/log", self._log, None),
            get(f"{base}/stdout", self._stdout, None),
        ]

    async def _files(self, manager: str) -> tuple[LogFile, ...]:
        try:
            return (await self._directory.log_files(manager)).files
        except NobodyServesError:
            overview = await self._directory.cluster()
            known = [m.id for m in overview.taskmanagers] if overview else []
            if overview is None or manager in known:
                raise
            raise no_task_manager(manager, known) from None

    async def _list(self, request: Request) -> cluster.Logs:
        return cluster.logs(await self._files(request.path_params["manager"]))

    async def _file(self, request: Request) -> Response:
        """One file, from the byte ``offset``."""
        return await self._text(request, [request.path_params["name"]], number_of(request, "offset", 0))

    async def _log(self, request: Request) -> Response:
        return await self._text(request, [LOG])

    async def _stdout(self, request: Request) -> Response:
        """The kept output of all slots of a task manager, the file that changed last at the end."""
        files = await self._files(request.path_params["manager"])
        return await self._text(request, [f.name for f in files if numbered(f.name) is not None])

    async def _text(self, request: Request, names: list[str], offset: int = 0) -> Response:
        manager = request.path_params["manager"]
        known = {file.name for file in await self._files(manager)}
        if len(names) == 1 and names[0] not in known:
            raise NotFoundError(
                f"task manager '{manager}' has no log file {names[0][:255]!r}",
                expected=f"a name of GET /taskmanagers/{manager}/logs",
                remedy="it may have been removed: of what slots print, the newest files are kept",
            )
        pieces = self._pieces(manager, names, offset)
        # The first piece is read before the answer begins, because an error can have a status only then.
        first = await anext(pieces, b"")

        async def body() -> AsyncIterator[bytes]:
            yield first
            async for piece in pieces:
                yield piece

        return StreamingResponse(body(), media_type="text/plain; charset=utf-8", headers=TEXT_HEADERS)

    async def _pieces(self, manager: str, names: list[str], offset: int) -> AsyncIterator[bytes]:
        """The files one after another, each up to the size that it had when it was begun."""
        for name in names:
            end: int | None = None
            while end is None or offset < end:
                try:
                    piece: LogPiece = await self._directory.log_piece(manager, name, offset)
                except SpecError:
                    break  # the file was removed meanwhile to make room for newer ones
                end = piece.size if end is None else end
                if not piece.data:
                    break
                yield piece.data
                offset += len(piece.data)
            offset = 0
