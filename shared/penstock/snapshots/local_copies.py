"""Copies of snapshot objects on the task manager's disk, for restarts on the same machine.

A task keeps copies of the objects of its last confirmed snapshot and of snapshots that wait for their
confirmation. The object store decides: nothing waits for a copy, a copy is not synced, and it is used only
if its checksums are right.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection

    from penstock.log_events import Log

#: Seconds without a new copy after which the copies of another job are removed.
_STALE_S = 6 * 3600


class LocalCopies:
    """The copies of one job below ``root``, in files ``<job>/<vertex>-<subtask>/<key>``. The methods block,
    so they are called on the helper thread."""

    def __init__(self, root: Path, job_id: str, log: Log) -> None:
        self._root = root
        self._folder = root / job_id
        self._log = log

    def path(self, key: str) -> Path:
        """The path of an object's copy, whether it exists or not."""
        subtask = key.rpartition("/")[2].rpartition("-")[0]
        return self._folder / subtask / key.replace("/", "~")

    def find(self, key: str, size_bytes: int) -> Path | None:
        """The path of the copy if it exists with the full length; otherwise None."""
        path = self.path(key)
        try:
            return path if path.stat().st_size == size_bytes else None
        except OSError:
            return None

    def save(self, key: str, data: bytes) -> None:
        """Keeps a copy. A failure, such as a full disk, is only logged."""
        path = self.path(key)
        part = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(data)
            part.replace(path)
        except OSError as err:
            part.unlink(missing_ok=True)
            self._log("warning", "local_copy_not_written", key=key, error=err)

    def keep_only(self, keys: Collection[str], of: str) -> None:
        """Removes the copies of subtask ``of`` (``<vertex>-<subtask>``) except those of ``keys``."""
        kept = {self.path(key).name for key in keys}
        for path in self._files(self._folder / of):
            if path.name not in kept:
                path.unlink(missing_ok=True)

    def sweep(self) -> None:
        """Removes the copies of jobs that have written none for some hours."""
        for folder in self._files(self._root):
            if folder != self._folder and time.time() - _newest(folder) > _STALE_S:
                shutil.rmtree(folder, ignore_errors=True)

    def read(self, path: Path, start: int, length: int) -> memoryview:
        """``length`` bytes from ``start``; fewer if the file is shorter. Raises OSError if it cannot be read."""
        data = np.empty(length, np.uint8).data  # NumPy allocates long arrays in huge pages
        with path.open("rb") as file:
            return data[: os.preadv(file.fileno(), [data], start)]

    @staticmethod
    def _files(folder: Path) -> list[Path]:
        try:
            return list(folder.iterdir())
        except OSError:
            return []


def _newest(folder: Path) -> float:
    """When a file in a job's folder was last written, in seconds since 1970."""
    try:
        return max(p.stat().st_mtime for p in [folder, *folder.iterdir()])
    except OSError:
        return time.time()
