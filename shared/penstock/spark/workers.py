"""The Python processes of a session on the task manager's Spark.

For each session that calls Python, Spark starts a daemon and, forked from it, a worker for every task
that runs at once. Spark 4.3 keeps a session's daemon as long as the server lives (SPARK-54055), and its
idle workers for a minute or more: some 40 MB each. The session is over when its job is, so they end then.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.processes import children_with, end_processes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from pyspark.sql import SparkSession

#: Spark gives it to a session's daemons: the server's own id of the session.
_VARIABLE = "SPARK_JOB_ARTIFACT_UUID"
#: A daemon passes the signal on to its workers and ends at once; Java then takes notice.
_END_S = 2.0


def end_workers(server_pid: int, session: SparkSession) -> list[int]:
    """End the daemons of a Connect session, and with each its workers; they have ended when this
    returns. Their ids. The session is done: Spark fails what is asked of it next, looking for them."""
    client: Any = session.client
    held: str | None = client._server_session_id  # with the server's first answer
    return [] if held is None else end_workers_of(server_pid, held)


def end_workers_of(server_pid: int, server_session_id: str) -> list[int]:
    """The same, of a session by the server's own id."""
    return _end([pid for pid, session in workers(server_pid).items() if session == server_session_id])


def end_strays(server_pid: int, held: Callable[[], Collection[str]]) -> list[int]:
    """The same, of sessions that are not ``held`` (ids by the server). A task that was being cancelled
    may have had a daemon started after its session's had ended."""
    found = workers(server_pid)  # first: who has some by now is held by now, too
    if not found:
        return []
    ids = held()
    return _end(pid for pid, session in found.items() if session not in ids)


def workers(server_pid: int) -> dict[int, str]:
    """Id of a daemon → its session, by the server's id."""
    return children_with(server_pid, _VARIABLE)


def _end(pids: Iterable[int]) -> list[int]:
    ended = end_processes(pids)
    deadline = time.monotonic() + _END_S
    while any(Path(f"/proc/{pid}").exists() for pid in ended) and time.monotonic() < deadline:
        time.sleep(0.005)
    return ended
