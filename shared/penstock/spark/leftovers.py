"""Sessions on the task manager's Spark that a killed driver has left.

A driver that ends normally ends the Python processes of its session (``workers``). A killed driver cannot do
that: its query would go on for a while, and its processes would stay as long as Spark runs. So every driver
records its session in a file beside the server and keeps a lock on the file, which the kernel releases when
the driver ends. Every later driver ends the sessions whose file nobody locks, and repeats that while it waits
for a job.

Some processes carry the id of no driver's session. Spark runs a streaming query in a clone of its session, whose
id the query's writer notes beside the file; and it has processes that all sessions share. What is not known is
ended when no session is live.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.spark.workers import end_workers_of, workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

_FOLDER = "sessions"
_OVER = ".over"
_CLONES = ".clones"
#: Locked while a session is put on record, and while processes that no session owns are ended.
_LOCK = ".lock"
_REMEMBERED_S = 600.0
#: Retries of Spark's client, few because a server that has just died would otherwise be tried for ten
#: minutes.
_RETRIES = {"max_retries": 2}


class HeldSession(msgspec.Struct, frozen=True):
    """A session on record. ``session_id`` and ``user_id``: those of the client; ``server_session_id``:
    Spark's own id, which its Python processes carry; ``server_pid``: the process id of the server."""

    job_id: str
    session_id: str
    user_id: str | None
    server_session_id: str
    server_pid: int


class Hold:
    """Keeps this process's session on record until ``release``."""

    def __init__(self, server_folder: Path, job_id: str, server_pid: int, session: SparkSession) -> None:
        client: Any = session.client
        held = HeldSession(
            job_id, client._session_id, client._user_id, client._server_session_id, server_pid
        )  # fmt: skip
        folder = server_folder / _FOLDER
        folder.mkdir(exist_ok=True)
        self._held = held
        self._path = folder / f"{held.session_id}.json"
        partial = self._path.with_suffix(".partial")
        self._file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        os.write(self._file, msgspec.json.encode(held))
        with _locking(folder):
            partial.rename(self._path)  # Only now, with the lock held, can others see the file.

    @property
    def clones(self) -> Path:
        """The file for ``note_clone``."""
        return self._path.with_suffix(_CLONES)

    def sessions(self) -> set[str]:
        """Spark's own ids of the session and of its clones."""
        return _sessions(self._held, self._path)

    def release(self) -> None:
        """Marks the session as ended, with its Python processes. The record stays for a while, see
        ``_over``."""
        with contextlib.suppress(FileNotFoundError):
            self._path.rename(self._path.with_suffix(_OVER))
        os.utime(self._file)
        os.close(self._file)


def note_clone(clones: Path, server_session_id: str) -> None:
    """Notes a session that Spark has cloned from one on record, by Spark's own id. ``clones``: that of its hold."""
    if server_session_id not in _noted(clones):
        with clones.open("a") as file:
            file.write(f"{server_session_id}\n")


def sweep(server_folder: Path, url: str, server_pid: int, note: Callable[[str], None]) -> list[int]:
    """Ends the queries and the Python processes of sessions whose driver is gone, and returns the ids of the
    processes. While no session is live it ends all. ``note`` gets a line for each query that could not be ended."""
    ended: list[int] = []
    folder = server_folder / _FOLDER
    for path in sorted(folder.glob("*.json")):
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:  # or its driver has ended
            if not _locked(file.fileno()) or not path.exists():
                continue
            held = msgspec.json.decode(file.read(), type=HeldSession)
            if held.server_pid == server_pid:  # otherwise they have ended with their server
                interrupt(held, url, note)
                ended += end_workers_of(server_pid, _sessions(held, path))
            path.rename(path.with_suffix(_OVER))
            os.utime(path.with_suffix(_OVER))
    ended += end_workers_of(server_pid, _over(server_folder, server_pid))
    return ended + _end_unowned(folder, server_pid)


def _end_unowned(folder: Path, server_pid: int) -> list[int]:
    """Ends all Python processes if no session is on record: none can be of use then. No session is put on record
    meanwhile, and a session calls Python only after that."""
    if not workers(server_pid):
        return []
    with _locking(folder):
        if any(folder.glob("*.json")):
            return []
        return end_workers_of(server_pid, set(workers(server_pid).values()))


def _over(server_folder: Path, server_pid: int) -> set[str]:
    """Sessions that have ended not long ago. Spark may have started another daemon for a task that was being
    cancelled after the session's daemons were ended."""
    found: set[str] = set()
    for path in (server_folder / _FOLDER).glob(f"*{_OVER}"):
        with contextlib.suppress(FileNotFoundError):
            held = msgspec.json.decode(path.read_bytes(), type=HeldSession)
            if held.server_pid == server_pid and time.time() - path.stat().st_mtime < _REMEMBERED_S:
                found |= _sessions(held, path)
            else:
                path.unlink()
                path.with_suffix(_CLONES).unlink(missing_ok=True)
    return found


def _sessions(held: HeldSession, path: Path) -> set[str]:
    return {held.server_session_id, *_noted(path.with_suffix(_CLONES))}


def _noted(clones: Path) -> list[str]:
    try:
        return clones.read_text().splitlines()
    except FileNotFoundError:
        return []


def _held(server_folder: Path) -> Iterator[HeldSession]:
    """All sessions on record that have not ended."""
    for path in (server_folder / _FOLDER).glob("*.json"):
        with contextlib.suppress(FileNotFoundError):
            yield msgspec.json.decode(path.read_bytes(), type=HeldSession)


def interrupt_others(
    server_folder: Path, url: str, server_pid: int, job_id: str, note: Callable[[str], None]
) -> None:
    """Cancels the queries of drivers of the job's earlier attempts, even if these drivers still run."""
    for held in _held(server_folder):
        if (held.job_id, held.server_pid) == (job_id, server_pid):
            interrupt(held, url, note)


def interrupt(held: HeldSession, url: str, note: Callable[[str], None]) -> None:
    """Cancels the queries of a session."""
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.client import SparkConnectClient

    client = SparkConnectClient(
        f"{url}/;session_id={held.session_id}", user_id=held.user_id, retry_policy=_RETRIES
    )
    try:
        client.interrupt_all()
    except PySparkException as err:  # the session has ended, or its server has
        note(f"session {held.session_id} of job {held.job_id}: {str(err).splitlines()[0]}")
    finally:
        client.close()


def _locked(file: int) -> bool:
    """Tries to lock the file. Returns False if another process holds the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _locking(folder: Path) -> Iterator[None]:
    """Holds the folder's lock, for which others wait."""
    with folder.with_suffix(_LOCK).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
