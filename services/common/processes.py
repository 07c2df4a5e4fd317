"""The real spawner: child processes that die with this one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING

from penstock.errors import ExternalError
from penstock.processes import die_with_parent_after_exec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.ports import Spawner


class SystemSpawner:
    """Processes that die with this one. ``wait`` may be called once for each."""

    def __init__(self) -> None:
        self._processes: dict[int, asyncio.subprocess.Process] = {}

    async def spawn(
        self,
        argv: Sequence[str],
        env: dict[str, str],
        *,
        pass_fds: Sequence[int] = (),
        stderr: int | None = None,
        group: bool = False,
    ) -> int:
        """Starts a process, and returns its id. ``group``: it leads a process group, which ``kill_group``
        ends. Raises ExternalError if it cannot be started."""
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                env=env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                pass_fds=tuple(pass_fds),
                preexec_fn=die_with_parent_after_exec,
                process_group=0 if group else None,
            )
        except OSError as err:
            raise ExternalError(f"cannot start {argv[0]}: {err.strerror}", where=" ".join(argv)) from err
        self._processes[process.pid] = process
        return process.pid

    async def wait(self, pid: int) -> int:
        """See ``Spawner.wait``. May be called once for each process."""
        try:
            return await self._processes[pid].wait()
        finally:
            self._processes.pop(pid, None)

    def kill(self, pid: int, signal: int) -> None:
        """See ``Spawner.kill``. Does nothing if the process has ended."""
        with contextlib.suppress(ProcessLookupError):  # the process has ended meanwhile
            os.kill(pid, signal)

    def kill_group(self, pid: int) -> None:
        """Kills the processes that remain of a group after its leader has ended."""
        with contextlib.suppress(ProcessLookupError):  # none is left
            os.killpg(pid, signal.SIGKILL)


if TYPE_CHECKING:
    _port: type[Spawner] = SystemSpawner
