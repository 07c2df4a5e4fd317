"""The template of slots: a child process that has only imported modules, and from which slots are forked."""

from __future__ import annotations

import contextlib
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.log_events import EventLog
from penstock.messages.slot import ForkSlot
from penstock.messages.slot_output import MAX_BYTES, MAX_FILES
from penstock_services.common.template import TemplateProcess

if TYPE_CHECKING:
    from penstock.messages.sandbox import Sandbox
    from penstock_services.common.processes import SystemSpawner

_log = EventLog("penstock.taskmanager.template")


@dataclass(frozen=True)
class ForkedSlot:
    """A new slot process, and this process's ends of its two channels."""

    pid: int
    control: socket.socket
    fds: socket.socket


@dataclass(frozen=True)
class OutputBound:
    """The limit of a slot's output: the size of a file in bytes, and how many files are kept."""

    max_bytes: int = MAX_BYTES
    max_files: int = MAX_FILES


class Template(TemplateProcess):
    """The template process of a task manager. ``sandbox``: what slots enter, beside their own folders."""

    def __init__(
        self,
        spawner: SystemSpawner,
        argv: list[str] | None = None,
        *,
        bound: OutputBound = OutputBound(),
        sandbox: Sandbox | None = None,
    ) -> None:
        own = [sys.executable, "-P", "-m", "penstock.runtime.template"]
        super().__init__(spawner, argv or own, {"OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"})
        self._bound = bound
        self._sandbox = sandbox

    def unclaimed(self, order: str, pid: int) -> None:
        _log.warning("slot_unclaimed", allocation_id=order, slot_pid=pid)

    async def fork(self, allocation_id: str, local_dir: str, log_path: str) -> ForkedSlot:
        """Forks a slot process. Waits until the template is ready, also after it ended and is being
        restarted. Raises ExternalError if it is not ready in time or cannot fork."""
        order = ForkSlot(
            allocation_id=allocation_id,
            local_dir=local_dir,
            log_path=log_path,
            log_max_bytes=self._bound.max_bytes,
            log_max_files=self._bound.max_files,
            sandbox=self._sandbox.at(local_dir, str(Path(log_path).parent)) if self._sandbox else None,
        )
        with contextlib.ExitStack() as ends:
            control, control_theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            ends.enter_context(control_theirs)
            fds, fds_theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ends.enter_context(fds_theirs)
            control.setblocking(False)
            fds.setblocking(False)
            try:
                pid = await self.fork_order(
                    allocation_id, order, [control_theirs.fileno(), fds_theirs.fileno()]
                )
            except BaseException:
                control.close()
                fds.close()
                raise
            return ForkedSlot(pid, control, fds)
