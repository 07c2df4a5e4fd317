"""The Python processes of a session on the task manager's Spark.

For each session that calls Python, Spark starts a daemon and, forked from it, a worker for every task that
runs at once. Spark 4.3 keeps a session's daemon as long as the server lives (SPARK-54055), and its idle
workers for a minute or more: some 40 MB each. A session ends with its job, so its processes are ended then.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from penstock.processes import children_with, end_processes, is_alive

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import SparkSession

#: The environment variable of a session's daemons in which Spark puts its own id of the session.
_VARIABLE = "SPARK_JOB_ARTIFACT_UUID"
#: Seconds to wait for daemons to end. A daemon passes the signal on to its workers and ends at once.
_END_S = 2.0


def end_workers(server_pid: int, session: SparkSession) -> list[int]:
    """Ends the daemons of a Connect session, with their workers, waits for their end, and returns the ids of
    the daemons. The session must not be used for Python afterwards: Spark would look for the ended daemons
    and fail."""
    client: Any = session.client
    held: str | None = client._server_session_id  # set by the server's first answer
    return [] if held is None else end_workers_of(server_pid, {held})


def end_workers_of(server_pid: int, sessions: Collection[str]) -> list[int]:
    """Ends the daemons of these sessions, given by the server's own ids; see ``end_workers``."""
    ended = end_processes(pid for pid, session in workers(server_pid).items() if session in sessions)
    deadline = time.monotonic() + _END_S
    while any(is_alive(pid) for pid in ended) and time.monotonic() < deadline:
        time.sleep(0.005)
    return ended


def workers(server_pid: int) -> dict[int, str]:
    """Process id of each daemon → the server's own id of its session."""
    return children_with(server_pid, _VARIABLE)
