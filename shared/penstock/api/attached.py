"""A job that the cluster cancels when its client is gone: for example a SELECT whose rows nobody reads any
more.

The client sends heartbeats from a thread of its own. A client that is blocked by a pager or a full pipe
therefore still counts as alive; a client that was killed by a signal does not.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import msgspec

from penstock.api.client import TERMINAL, ClusterClient
from penstock.config import ATTACHED, CLIENT_HEARTBEAT_INTERVAL_MS, SHUTDOWN_ON_ATTACHED_EXIT
from penstock.errors import PenstockError
from penstock.log_events import EventLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.jobgraph import JobGraph

_log = EventLog("penstock.client")

#: A submission that a signal interrupted may still reach the cluster within this many seconds.
WITHDRAW_S = 10.0
_UNKNOWN = "PS-NO-JOB"


def ends_with_client(graph: JobGraph) -> JobGraph:
    """The job, configured so that the cluster cancels it when its client is gone."""
    return msgspec.structs.replace(
        graph, config={**graph.config, ATTACHED.key: "true", SHUTDOWN_ON_ATTACHED_EXIT.key: "true"}
    )


def outlives_client(graph: JobGraph) -> JobGraph:
    """The job, configured so that it keeps running when its client is gone."""
    return msgspec.structs.replace(graph, config={**graph.config, ATTACHED.key: "false"})


def withdraw(client: ClusterClient, job_id: str) -> str | None:
    """Cancel a job, even one whose submission was interrupted and may still be on its way. Returns the job's
    state before; None if the job did not reach the cluster within ``WITHDRAW_S``."""
    deadline = time.monotonic() + WITHDRAW_S
    while True:
        try:
            state = str(client.job(job_id)["state"])
        except PenstockError as err:
            if err.code != _UNKNOWN:
                raise
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.1)
            continue
        if state not in TERMINAL:
            client.cancel(job_id)
        return state


class Watching:
    """Sends heartbeats for one job while the block runs, if the job is to end with its client. ``config``:
    the job's configuration."""

    def __init__(self, client: ClusterClient, job_id: str, config: Mapping[str, str]) -> None:
        self._url = client.url
        self._job_id = job_id
        self._wanted = ATTACHED.read(config) and SHUTDOWN_ON_ATTACHED_EXIT.read(config)
        self._interval_s = CLIENT_HEARTBEAT_INTERVAL_MS.read(config) / 1000
        self._ended = threading.Event()

    def __enter__(self) -> Watching:
        if self._wanted:
            threading.Thread(target=self._run, name=f"heartbeats-{self._job_id[:8]}", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def _run(self) -> None:
        # The thread has a client of its own, because the other client may be waiting for a response.
        with ClusterClient(self._url, patience_s=0) as client:
            while not self._ended.wait(self._interval_s):
                try:
                    client.heartbeat(self._job_id)
                except PenstockError as err:  # the next heartbeat may succeed
                    _log.debug("client_heartbeat_failed", job_id=self._job_id, error=err.message)
