"""Where a task manager keeps its files: ``<io.tmp.dirs>/<task manager>/``

::

    slots/<allocation>-<n>/     private folder of slot process n, removed at its end
    local-state/<job>/…         copies of snapshots (state.backend.local-recovery), for restarts here
    log/<allocation>-<n>.log    its stdout and stderr
    data.sock                   the data port's Unix socket
    lock                        held while the process lives

What a task manager that was killed left behind, the next one in the same place removes.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from pathlib import Path

from penstock.errors import ExternalError
from penstock.messages.slot import LOCAL_STATE

#: Logs of ended slots that are kept.
LOGS_KEPT = 100


class Folders:
    """``root``: ``io.tmp.dirs``; empty = a temporary folder, wholly removed at the end."""

    def __init__(self, root: str, taskmanager_id: str) -> None:
        self._temporary = None if root else Path(tempfile.mkdtemp(prefix="penstock-tm-"))
        base = self._temporary or Path(root).absolute()
        self.path = base / taskmanager_id
        try:
            for name in ("slots", "log"):
                (self.path / name).mkdir(parents=True, exist_ok=True)
            # One at a time: a sweep must not meet a lock that is made but not held yet.
            with (base / ".taskmanagers").open("w") as gate:
                fcntl.flock(gate, fcntl.LOCK_EX)
                self._lock = (self.path / "lock").open("w")
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for lock in base.glob("*/lock"):
                    _sweep(lock)
        except BlockingIOError:
            self._lock.close()
            raise ExternalError(
                f"another process uses the folder {self.path}",
                where="taskmanager.resource-id",
                remedy="give each task manager a name of its own, or none",
            ) from None
        except OSError as err:
            raise ExternalError(
                f"cannot make the folder {self.path}: {err.strerror}",
                where="io.tmp.dirs",
                remedy="set it to a folder that this user may write to",
            ) from err

    def socket_path(self) -> Path:
        path = self.path / "data.sock"
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
        for name in ("slots", LOCAL_STATE):
            shutil.rmtree(self.path / name, ignore_errors=True)
        (self.path / "lock").unlink(missing_ok=True)
        self._lock.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


def _sweep(lock: Path) -> None:
    """Remove the slots' folders and the socket of a task manager that lives no more."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # it lives (or it is this one)
        for name in ("slots", LOCAL_STATE):
            shutil.rmtree(lock.parent / name, ignore_errors=True)
        (lock.parent / "data.sock").unlink(missing_ok=True)
        lock.unlink(missing_ok=True)
