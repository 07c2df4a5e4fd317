"""Sessions on the task manager's Spark that a killed driver has left.

A driver that ends of itself ends its session's Python processes (``workers``). One that is killed
cannot: its query would go on for a while, and its processes stay as long as Spark does. So every
driver writes its session down beside the server, in a file that it holds a lock on, which the
kernel gives up with the process. Whoever comes next ends what nobody holds, and whoever waits for
the next job does so now and then.
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
#: Of a server that has just died: its client would try for ten minutes.
_RETRIES = {"max_retries": 2}


class HeldSession(msgspec.Struct, frozen=True):
    """``session_id`` and ``user_id``: the client's; ``server_session_id``: Spark's own, which its
    Python processes are told apart by; ``server_pid``: of the server that knows them."""

    job_id: str
    session_id: str
    user_id: str | None
    server_session_id: str
    server_pid: int


class Hold:
    """This process's session, written down until ``release``."""

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
        partial.rename(self._path)  # seen by others only now that it is held

    def release(self) -> None:
        """The session has ended, with its Python processes; it is remembered for a while."""
        with contextlib.suppress(FileNotFoundError):
            self._path.rename(self._path.with_suffix(_OVER))
        os.utime(self._file)
        os.close(self._file)


def sweep(server_folder: Path, url: str, server_pid: int, note: Callable[[str], None]) -> list[int]:
    """End the queries and the Python processes of sessions whose driver is gone; the processes' ids.
    ``note``: is told of what could not be ended."""
    ended: list[int] = []
    for path in sorted((server_folder / _FOLDER).glob("*.json")):
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:  # or its driver is done with it
            if not _locked(file.fileno()) or not path.exists():
                continue
            held = msgspec.json.decode(file.read(), type=HeldSession)
            if held.server_pid == server_pid:  # else they have ended with their server
                interrupt(held, url, note)
                ended += end_workers_of(server_pid, {held.server_session_id})
            path.rename(path.with_suffix(_OVER))
            os.utime(path.with_suffix(_OVER))
    return ended + end_workers_of(server_pid, _over(server_folder, server_pid))


def _over(server_folder: Path, server_pid: int) -> set[str]:
    """Sessions that ended a while ago at most: a task that was being cancelled then may have had a
    daemon started after its session's were ended."""
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
    """All that are written down."""
    for path in (server_folder / _FOLDER).glob("*.json"):
        with contextlib.suppress(FileNotFoundError):
            yield msgspec.json.decode(path.read_bytes(), type=HeldSession)


def interrupt_others(
    server_folder: Path, url: str, server_pid: int, job_id: str, note: Callable[[str], None]
) -> None:
    """What drivers of the job's earlier attempts have Spark do, though they may not have ended yet."""
    for held in _held(server_folder):
        if (held.job_id, held.server_pid) == (job_id, server_pid):
            interrupt(held, url, note)


def interrupt(held: HeldSession, url: str, note: Callable[[str], None]) -> None:
    """Cancel what the session's driver has begun."""
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
    """Whether nobody else holds it; then this process does."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
