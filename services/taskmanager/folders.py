"""Where a task manager keeps its files: ``<io.tmp.dirs>/<task manager>/``

::

    slots/<allocation>-<n>/     private folder of slot process n, removed at its end
    log/<allocation>-<n>.log    its stdout and stderr
    data.sock                   the data port's Unix socket
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from penstock.errors import ExternalError

#: Longest path that a Unix socket's address holds, with some room.
_MAX_SOCKET_PATH = 100
#: Logs of ended slots that are kept.
LOGS_KEPT = 100


class Folders:
    """``root``: ``io.tmp.dirs``; empty = a temporary folder, wholly removed at the end."""

    def __init__(self, root: str, taskmanager_id: str) -> None:
        self._temporary = None if root else Path(tempfile.mkdtemp(prefix="penstock-tm-"))
        base = self._temporary or Path(root).absolute()
        self.path = base / taskmanager_id
        self._socket_folder: Path | None = None
        try:
            for name in ("slots", "log"):
                (self.path / name).mkdir(parents=True, exist_ok=True)
        except OSError as err:
            raise ExternalError(
                f"cannot make the folder {self.path}: {err.strerror}",
                where="io.tmp.dirs",
                remedy="set it to a folder that this user may write to",
            ) from err

    def socket_path(self) -> Path:
        path = self.path / "data.sock"
        if len(str(path)) > _MAX_SOCKET_PATH:
            self._socket_folder = Path(tempfile.mkdtemp(prefix="penstock-"))
            path = self._socket_folder / "data.sock"
        path.unlink(missing_ok=True)  # left by a process that was killed
        return path

    def slot(self, allocation_id: str, number: int) -> tuple[Path, Path]:
        """(private folder, log file) of a slot process."""
        logs = sorted((self.path / "log").iterdir(), key=lambda p: p.stat().st_mtime)
        for old in logs[:-LOGS_KEPT]:
            old.unlink(missing_ok=True)
        name = f"{allocation_id}-{number}"
        return self.path / "slots" / name, self.path / "log" / f"{name}.log"

    def remove_slot(self, local_dir: Path) -> None:
        shutil.rmtree(local_dir, ignore_errors=True)

    def remove(self) -> None:
        """At the end: all but the logs, and those too when the folder is a temporary one."""
        shutil.rmtree(self.path / "slots", ignore_errors=True)
        for folder in (self._socket_folder, self._temporary):
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
