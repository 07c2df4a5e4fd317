"""The Python processes of a session on the task manager's Spark.

For each session that calls Python, Spark starts a daemon and, forked from it, a worker for every task
that runs at once. Spark 4.3 keeps a session's daemon as long as the server lives (SPARK-54055), and its
idle workers for a minute or more: some 40 MB each. The session is over when its job is, so they end then.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from penstock.processes import children_with, end_processes, is_alive

if TYPE_CHECKING:
    from collections.abc import Collection

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
    return [] if held is None else end_workers_of(server_pid, {held})


def end_workers_of(server_pid: int, sessions: Collection[str]) -> list[int]:
    """The same, of sessions by the server's own ids."""
    ended = end_processes(pid for pid, session in workers(server_pid).items() if session in sessions)
    deadline = time.monotonic() + _END_S
    while any(is_alive(pid) for pid in ended) and time.monotonic() < deadline:
        time.sleep(0.005)
    return ended


def workers(server_pid: int) -> dict[int, str]:
    """Id of a daemon → its session, by the server's id."""
    return children_with(server_pid, _VARIABLE)
