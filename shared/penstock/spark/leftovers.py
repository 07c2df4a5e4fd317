"""Sessions on the task manager's Spark that a killed driver has left.

A driver that ends normally ends the Python processes of its session (``workers``). A killed driver cannot do
that: its query would go on for a while, and its processes would stay as long as Spark runs. So every driver
records its session in a file beside the server and keeps a lock on the file, which the kernel releases when
the driver ends. Every later driver ends the sessions whose file nobody locks, and repeats that while it waits
for a job.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.spark.workers import end_workers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

_FOLDER = "sessions"
_OVER = ".over"
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
        self._path = folder / f"{held.session_id}.json"
        partial = self._path.with_suffix(".partial")
        self._file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        os.write(self._file, msgspec.json.encode(held))
        partial.rename(self._path)  # Only now, with the lock held, can others see the file.

    def release(self) -> None:
        """Marks the session as ended, with its Python processes. The record stays for a while, see
        ``_over``."""
        with contextlib.suppress(FileNotFoundError):
            self._path.rename(self._path.with_suffix(_OVER))
        os.utime(self._file)
        os.close(self._file)


def sweep(server_folder: Path, url: str, server_pid: int, note: Callable[[str], None]) -> list[int]:
    """Ends the queries and the Python processes of sessions whose driver is gone, and returns the ids of the
    processes. ``note`` gets a line for each query that could not be ended."""
    ended: list[int] = []
    for path in sorted((server_folder / _FOLDER).glob("*.json")):
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:  # or its driver has ended
            if not _locked(file.fileno()) or not path.exists():
                continue
            held = msgspec.json.decode(file.read(), type=HeldSession)
            if held.server_pid == server_pid:  # otherwise they have ended with their server
                interrupt(held, url, note)
                ended += end_workers_of(server_pid, {held.server_session_id})
            path.rename(path.with_suffix(_OVER))
            os.utime(path.with_suffix(_OVER))
    return ended + end_workers_of(server_pid, _over(server_folder, server_pid))


def _over(server_folder: Path, server_pid: int) -> set[str]:
    """Sessions that have ended not long ago. Spark may have started another daemon for a task that was being
    cancelled after the session's daemons were ended."""
    found = set()
    for path in (server_folder / _FOLDER).glob(f"*{_OVER}"):
        with contextlib.suppress(FileNotFoundError):
            held = msgspec.json.decode(path.read_bytes(), type=HeldSession)
            if held.server_pid == server_pid and time.time() - path.stat().st_mtime < _REMEMBERED_S:
                found.add(held.server_session_id)
            else:
                path.unlink()
    return found


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
