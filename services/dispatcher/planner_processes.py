"""Planner processes, forked from a template that is started with the first program."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.errors import ExternalError
from penstock.log_events import EventLog
from penstock.messages.forking import ForkPlanner
from penstock_services.common.pipes import read_all, write_all
from penstock_services.common.processes import SystemSpawner
from penstock_services.common.template import StaleTemplate, TemplateProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.messages.sandbox import Sandbox

_log = EventLog("penstock.dispatcher.planners")
_ARGV = [sys.executable, "-P", "-m", "penstock.api.planner_template"]
#: How often a planner is tried to be forked, when templates end or are stale.
_ATTEMPTS = 3
#: How long a template may import what a kind of program needs: against hanging only.
_FORK_TIMEOUT_S = 60.0
#: How long a killed planner may take to end: against hanging only.
_END_TIMEOUT_S = 10.0


@dataclass(eq=False)
class _Running:
    """A template, its supervising task, and how many planners of it run."""

    template: TemplateProcess
    task: asyncio.Task[None]
    #: The environment that it was started with.
    environment: dict[str, str]
    planners: int = 0
    #: Whether another template takes its place: it ends with its last planner.
    retired: bool = False


@dataclass(eq=False)
class PlannerProcesses:
    """Runs planners, in a sandbox if there is one. The template starts with the first of them, and again when it has ended, when code has
    changed since, or when the environment of this process has changed."""

    sandbox: Sandbox | None = None
    _current: _Running | None = None
    _all: list[_Running] = field(default_factory=list)

    async def run(
        self, data: bytes, *, module: str, program: str, variables: dict[str, str], limit_s: float
    ) -> tuple[int, bytes, bytes]:
        """Runs ``main()`` of ``module`` in a process of its own with ``data`` as its standard input. Returns its
        exit code (negative: the number of the signal that ended it), its standard output and its standard error.
        Raises TimeoutError when ``limit_s`` passes (the process and all that it has started are killed),
        ExternalError when no process can be forked."""
        with contextlib.ExitStack() as pipes, self._own_folder() as folder:
            (their_in, to), (out, their_out), (err, their_err) = os.pipe(), os.pipe(), os.pipe()
            for fd in (to, out, err):
                pipes.callback(os.close, fd)
            try:
                order = ForkPlanner(
                    order=uuid.uuid4().hex,
                    module=module,
                    program=program,
                    variables={**variables, **({"TMPDIR": f"{folder}/tmp"} if folder else {})},
                    sandbox=self.sandbox.at(folder) if self.sandbox is not None else None,
                )
                running, pid = await self._fork(order, [their_in, their_out, their_err])
            finally:
                for fd in (their_in, their_out, their_err):
                    os.close(fd)
            pipes.pop_all()  # from here on the transports close them
            try:
                async with asyncio.timeout(limit_s):
                    _, output, errors, code = await asyncio.gather(
                        write_all(to, data),
                        read_all(out),
                        read_all(err),
                        running.template.exit_status(pid, None),
                    )
                pid = 0
            finally:
                if pid:
                    await self._end(running, pid)
                running.planners -= 1
                await self._end_retired()
        return -signal.SIGKILL if code is None else code, output, errors

    @contextlib.contextmanager
    def _own_folder(self) -> Iterator[str]:
        """The folder in which a confined planner may write; empty for one that is not."""
        if self.sandbox is None:
            yield ""
            return
        with tempfile.TemporaryDirectory(prefix="penstock-planner-", ignore_cleanup_errors=True) as folder:
            yield folder

    async def _fork(self, order: ForkPlanner, fds: list[int]) -> tuple[_Running, int]:
        error: ExternalError | None = None
        for _ in range(_ATTEMPTS):
            running = self._usable()
            running.planners += 1
            try:
                return running, await _forked(running, order, fds)
            except StaleTemplate as err:
                _log.info("planner_template_stale", template_pid=running.template.pid, reason=str(err))
                running.retired, error = True, err
            except ExternalError as err:
                if not running.task.done():
                    running.planners -= 1
                    raise
                error = err
            except BaseException:
                running.planners -= 1
                raise
            running.planners -= 1
            await self._end_retired()
        assert error is not None
        raise error

    def _usable(self) -> _Running:
        now, environment = self._current, dict(os.environ)
        if now is not None and not (now.task.done() or now.retired) and now.environment == environment:
            return now
        if now is not None:
            now.retired = True
        template = TemplateProcess(SystemSpawner(), _ARGV)
        task = asyncio.get_running_loop().create_task(template.run(), name="planner-template")
        task.add_done_callback(_report)
        self._current = _Running(template, task, environment)
        self._all.append(self._current)
        return self._current

    async def _end(self, running: _Running, pid: int) -> None:
        """Kills a planner with every process that the user's code has started."""
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        await running.template.exit_status(pid, _END_TIMEOUT_S)

    async def _end_retired(self) -> None:
        for running in [r for r in self._all if r.task.done() or (r.retired and not r.planners)]:
            self._all.remove(running)
            running.task.cancel()
            await asyncio.wait([running.task])

    async def close(self) -> None:
        """Ends all templates, and with them all planners."""
        for running in self._all:
            running.retired, running.planners = True, 0
        await self._end_retired()


async def _forked(running: _Running, order: ForkPlanner, fds: list[int]) -> int:
    forking = asyncio.ensure_future(running.template.fork_order(order.order, order, fds, _FORK_TIMEOUT_S))
    try:
        await asyncio.wait([forking, running.task], return_when=asyncio.FIRST_COMPLETED)
        if not forking.done():
            raise ExternalError("the planners' template ended before it had forked a planner")
        return forking.result()
    finally:
        forking.cancel()


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("planner_template_ended", error=str(error))
