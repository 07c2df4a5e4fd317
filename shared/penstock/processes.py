"""Processes that others have started, told apart by what is in their environment."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def children_with(parent: int, variable: str) -> dict[int, str]:
    """Id → value of ``variable``, of each child of ``parent`` whose environment has it. Processes
    that end meanwhile, or are not ours to look into, are passed over."""
    begin, found = f"{variable}=".encode(), {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The name, in parentheses, may hold anything; the parent is the second field behind it.
            if int((folder / "stat").read_bytes().rpartition(b")")[2].split()[1]) != parent:
                continue
            environment = (folder / "environ").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        values = [entry.removeprefix(begin) for entry in environment if entry.startswith(begin)]
        if values:
            found[int(folder.name)] = os.fsdecode(values[0])
    return found


def end_processes(pids: Iterable[int]) -> list[int]:
    """SIGTERM to each that is still there. Their ids."""
    ended = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
            ended.append(pid)
    return ended
