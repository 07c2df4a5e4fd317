"""Where a task manager keeps its files: ``<io.tmp.dirs>/<task manager>/``

::

    slots/<allocation>-<n>/     private folder of slot process n, removed at its end
    local-state/<job>/…         copies of snapshots (state.backend.local-recovery), for restarts here
    spark/                      Spark's scratch files and its logs
    log/<job>.<allocation>-<n>.log    its stdout and stderr; the following files are ….1.log, ….2.log …
    log/taskmanager.log         the task manager's own log
    data.sock                   the data port's Unix socket
    lock                        held while the process lives; the file itself stays

Without ``io.tmp.dirs`` the same files are in ``<TMPDIR>/penstock-tm-<random>/<task manager>/``.

A task manager that starts removes the files of those that were killed. A lock that nobody holds shows that its owner is
dead; the age of a file shows nothing. Under ``io.tmp.dirs`` the logs of the last ``DEAD_KEPT`` task managers stay, so
that the cause can be found; in TMPDIR nothing stays.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from penstock.errors import ExternalError
from penstock.messages.slot import LOCAL_STATE
from penstock_services.taskmanager.log_files import forget_outputs

#: How many ended task managers' logs are kept.
DEAD_KEPT = 10
#: Prefix of folders in TMPDIR.
TEMPORARY = "penstock-tm-"
#: All names that a task manager makes in its folder.
_NAMES = frozenset({"slots", "log", "spark", "data.sock", "lock", LOCAL_STATE})


class Folders:
    """The folders of one task manager. ``root``: ``io.tmp.dirs``; empty: a temporary folder, which is removed
    at the end.

    Raises ExternalError if the folder is in use or cannot be made.
    """

    def __init__(self, root: str, taskmanager_id: str) -> None:
        self._temporary: Path | None = None
        #: Private folder → stem of the output files, for running processes.
        self._running: dict[Path, str] = {}
        base = Path(root).absolute() if root else Path(tempfile.gettempdir())
        try:
            if root:
                self.path = base / taskmanager_id
                self._lock = _held_in(base, self.path)
            else:
                self._temporary, self._lock = _made_in(base, taskmanager_id)
                self.path = self._temporary / taskmanager_id
                _sweep_temporary(base)
            (self.path / "slots").mkdir(exist_ok=True)
        except BlockingIOError:
            raise ExternalError(
                f"another process uses the folder {self.path}",
                where="taskmanager.resource-id",
                remedy="give each task manager a name of its own, or none",
            ) from None
        except OSError as err:
            raise ExternalError(
                f"cannot make the folder {err.filename or base}: {err.strerror}",
                where="io.tmp.dirs" if root else "TMPDIR",
                remedy="set it to a folder that this user may write to",
            ) from err

    def socket_path(self) -> Path:
        """The path of the data port's Unix socket. A socket that a killed process left is removed."""
        path = self.path / "data.sock"
        path.unlink(missing_ok=True)
        return path

    @property
    def logs(self) -> Path:
        """The folder of the log files."""
        return self.path / "log"

    @property
    def local_state(self) -> Path:
        """The folder of copies of snapshots; it exists."""
        folder = self.path / LOCAL_STATE
        folder.mkdir(exist_ok=True)
        return folder

    def slot(self, job_id: str, allocation_id: str, number: int) -> tuple[Path, Path]:
        """(private folder, first file of the output) of a slot process."""
        forget_outputs(self.logs, frozenset(self._running.values()))
        name = f"{allocation_id}-{number}"
        log_path = self.logs / f"{job_id}.{name}.log"
        self._running[self.path / "slots" / name] = log_path.stem
        return self.path / "slots" / name, log_path

    def remove_slot(self, local_dir: Path) -> None:
        """Removes the folder of a process that has ended; its output stays."""
        self._running.pop(local_dir, None)
        shutil.rmtree(local_dir, ignore_errors=True)

    def remove(self) -> None:
        """At the end: removes all but the logs, and those too if the folder is a temporary one."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
        else:
            _leave_logs(self.path)
        self._lock.close()


def _held_in(base: Path, path: Path) -> IO[bytes]:
    """The held lock of ``path``, a folder below ``base``. First the files of dead task managers in ``base``
    are removed. Raises BlockingIOError if another process holds the lock."""
    base.mkdir(parents=True, exist_ok=True)
    # One at a time: a sweep must not meet a lock that exists but is not held yet.
    with (base / ".taskmanagers").open("w") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        (path / "log").mkdir(parents=True, exist_ok=True)
        held = _locked(path / "lock", "ab")
        ended: list[tuple[float, Path]] = []
        for lock in base.glob("*/lock"):
            with _dead(lock) as dead:
                if dead:
                    _leave_logs(lock.parent)
                    ended.append(((lock.parent / "log").stat().st_mtime, lock.parent))
        for _, folder in sorted(ended, reverse=True)[DEAD_KEPT:]:
            shutil.rmtree(folder, ignore_errors=True)
    return held


def _made_in(base: Path, name: str) -> tuple[Path, IO[bytes]]:
    """(a new folder in ``base``, the lock of the folder ``name`` in it). A sweep that finds the lock before
    it is held removes the folder: then another is made."""
    while True:
        made = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=base))
        (made / name / "log").mkdir(parents=True)
        try:
            lock = _locked(made / name / "lock", "xb")
        except BlockingIOError:
            continue
        if (made / name / "lock").exists():
            return made, lock
        lock.close()


def _locked(path: Path, mode: str) -> IO[bytes]:
    file: IO[bytes] = path.open(mode)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise
    return file


@contextmanager
def _dead(lock: Path) -> Iterator[bool]:
    """Whether the folder of ``lock`` belongs to a task manager that is dead. The lock is held meanwhile, so
    that no other process sweeps the same folder."""
    try:
        found = {entry.name for entry in lock.parent.iterdir()}
        file = _locked(lock, "r+b") if "log" in found and found <= _NAMES else None
    except OSError:  # its owner lives, or is another user, or another sweep has taken it
        file = None
    try:
        yield file is not None
    finally:
        if file is not None:
            file.close()


def _leave_logs(folder: Path) -> None:
    for name in ("slots", LOCAL_STATE):
        shutil.rmtree(folder / name, ignore_errors=True)
    if (folder / "spark").is_dir():
        for entry in (folder / "spark").iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.suffix != ".log":
                entry.unlink(missing_ok=True)
    (folder / "data.sock").unlink(missing_ok=True)


def _sweep_temporary(base: Path) -> None:
    """Removes the temporary folders of this user's dead task managers."""
    for lock in base.glob(f"{TEMPORARY}*/*/lock"):
        made = lock.parent.parent
        try:
            mine = made.lstat().st_uid == os.getuid()
        except FileNotFoundError:
            continue  # removed meanwhile
        if mine:
            with _dead(lock) as dead:
                if dead:
                    shutil.rmtree(made, ignore_errors=True)
