"""Processes that others have started, told apart by what is in their environment."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def end_children(parent: int, variable: str, value: str) -> list[int]:
    """SIGTERM to each child of ``parent`` whose environment has ``variable`` as ``value``. Their ids.
    Processes that end meanwhile, or are not ours to look into, are passed over."""
    wanted = f"{variable}={value}".encode()
    ended = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The name, in parentheses, may hold anything; the parent is the second field behind it.
            if int((folder / "stat").read_bytes().rpartition(b")")[2].split()[1]) != parent:
                continue
            environment = (folder / "environ").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if wanted in environment:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(folder.name), signal.SIGTERM)
                ended.append(int(folder.name))
    return ended
