"""The dispatcher's own process over REST, in the place of Flink's job manager, and the threads of task
managers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from penstock.bus import NobodyServesError
from penstock.messages.task_manager import LogFile
from penstock_services.common.http import NotFoundError
from penstock_services.common.stacks import thread_stacks
from penstock_services.dispatcher.endpoint import Endpoint, get, no_task_manager
from penstock_services.dispatcher.log_api import TEXT_HEADERS
from penstock_services.dispatcher.views import cluster

if TYPE_CHECKING:
    from starlette.requests import Request

    from penstock_services.common.kept_lines import KeptLines
    from penstock_services.dispatcher.directory import JobDirectory

#: The name of the dispatcher's own log, as in Flink.
LOG = "jobmanager.log"
_TEXT = "text/plain; charset=utf-8"


class ProcessApi:
    """The endpoints of processes."""

    def __init__(self, directory: JobDirectory, own_log: KeptLines) -> None:
        self._directory = directory
        self._own_log = own_log

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        process = "/jobmanager"
        python = "Python's version and folders in place of Java's."
        own = "Of the dispatcher that answers."
        kept = f"{own} The last MiB is kept."
        slots = "Of the task manager itself; its slots are processes of their own."
        return [
            get(f"{process}/environment", self._environment, cluster.Environment, note=python),
            get("/jobs/{job}/jobmanager/environment", self._of_job, cluster.Environment, note=python),
            get(f"{process}/thread-dump", self._threads, cluster.ThreadDump, note=own),
            get(f"{process}/logs", self._logs, cluster.Logs, note=kept),
            get(f"{process}/logs/{{name}}", self._file, None, note=kept),
            get(f"{process}/log", self._log, None, note=kept),
            get(f"{process}/stdout", self._stdout, None, note="Empty: the dispatcher prints nothing."),
            get("/jobs/{job}/jobmanager/log-url", self._log_url, cluster.LogUrl),
            get("/jobs/{job}/taskmanagers/{manager}/log-url", self._manager_log_url, cluster.LogUrl),
            get("/taskmanagers/{manager}/thread-dump", self._manager_threads, cluster.ThreadDump, note=slots),
        ]

    async def _environment(self, _: Request) -> cluster.Environment:
        return cluster.environment()

    async def _of_job(self, request: Request) -> cluster.Environment:
        await self._directory.details(request.path_params["job"])  # or it raises that there is no such job
        return cluster.environment()

    async def _threads(self, _: Request) -> cluster.ThreadDump:
        return cluster.thread_dump(thread_stacks())

    async def _logs(self, _: Request) -> cluster.Logs:
        log = self._own_log
        return cluster.logs([LogFile(name=LOG, size=log.size, mtime_ms=log.written_ms)])

    async def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name != LOG:
            raise NotFoundError(f"the dispatcher has no log file {name[:255]!r}", expected=LOG)
        return await self._log(request)

    async def _log(self, _: Request) -> Response:
        return Response(self._own_log.text(), media_type=_TEXT, headers=TEXT_HEADERS)

    async def _stdout(self, _: Request) -> Response:
        return Response(b"", media_type=_TEXT, headers=TEXT_HEADERS)

    async def _log_url(self, request: Request) -> cluster.LogUrl:
        await self._directory.details(request.path_params["job"])
        return cluster.LogUrl(url=f"{request.base_url}jobmanager/log")

    async def _manager_log_url(self, request: Request) -> cluster.LogUrl:
        await self._directory.details(request.path_params["job"])
        return cluster.LogUrl(url=f"{request.base_url}taskmanagers/{request.path_params['manager']}/log")

    async def _manager_threads(self, request: Request) -> cluster.ThreadDump:
        wanted = request.path_params["manager"]
        try:
            found = await self._directory.thread_stacks(wanted)
        except NobodyServesError:
            overview = await self._directory.cluster()
            known = [m.id for m in overview.taskmanagers] if overview else []
            if overview is None or wanted in known:
                raise
            raise no_task_manager(wanted, known) from None
        return cluster.thread_dump(found.stacks)
