"""Starts the programs of users' code that are not forked from the template, Spark and its drivers, in the sandbox."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import msgspec

from penstock_services.common.processes import SystemSpawner

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.messages.sandbox import Sandbox

#: A Java process reserves far more address space than it uses: a limit that suits slots would not suit it.
_NOT_SPARKS = frozenset({"RLIMIT_AS"})


class SandboxedSpawner(SystemSpawner):
    """``folder``: the own folder of all its processes. ``slots``: the folder of the slots' folders, in which drivers leave
    what a query needs. Without a sandbox it is as ``SystemSpawner``."""

    def __init__(self, sandbox: Sandbox | None, folder: Path, slots: Path) -> None:
        super().__init__()
        self._sandbox = sandbox.at(str(folder), str(slots)) if sandbox is not None else None

    async def spawn(
        self,
        argv: Sequence[str],
        env: dict[str, str],
        *,
        pass_fds: Sequence[int] = (),
        stderr: int | None = None,
        group: bool = False,
    ) -> int:
        """See ``SystemSpawner.spawn``."""
        if self._sandbox is None:
            return await super().spawn(argv, env, pass_fds=pass_fds, stderr=stderr, group=group)
        limits = {name: limit for name, limit in self._sandbox.limits.items() if name not in _NOT_SPARKS}
        sandbox = msgspec.structs.replace(self._sandbox, limits=limits)
        # Not in a file: what runs in the sandbox could change it for the next process.
        descriptor = os.memfd_create("penstock-sandbox", 0)
        try:
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(msgspec.json.encode(sandbox))
            os.lseek(descriptor, 0, os.SEEK_SET)
            return await super().spawn(
                [sys.executable, "-P", "-m", "penstock.sandbox", str(descriptor), *argv],
                env,
                pass_fds=[*pass_fds, descriptor],
                stderr=stderr,
                group=group,
            )
        finally:
            os.close(descriptor)
