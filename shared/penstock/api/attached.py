"""A job that ends with the client that watches it: a SELECT whose rows nobody takes any more.

The client says that it is there from a thread of its own, so that a pager or a full pipe in
front of it does not count as its end; a signal that it cannot handle does.
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

#: A submission that a signal interrupted may reach the cluster up to so long after it.
WITHDRAW_S = 10.0
_UNKNOWN = "PS-NO-JOB"


def ends_with_client(graph: JobGraph) -> JobGraph:
    """The job, to be cancelled when its client is gone."""
    return msgspec.structs.replace(
        graph, config={**graph.config, ATTACHED.key: "true", SHUTDOWN_ON_ATTACHED_EXIT.key: "true"}
    )


def outlives_client(graph: JobGraph) -> JobGraph:
    """The job, to run on whoever goes."""
    return msgspec.structs.replace(graph, config={**graph.config, ATTACHED.key: "false"})


def withdraw(client: ClusterClient, job_id: str) -> str | None:
    """Cancel a job, also one whose submission was interrupted and is perhaps on its way still. The state
    that it had; None: the cluster has not come to know it."""
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
    """Heartbeats for one job while the block runs; none when it is not to end with its client.
    ``config``: the job's."""

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
        # A client of its own: the other one may wait for an answer.
        with ClusterClient(self._url, patience_s=0) as client:
            while not self._ended.wait(self._interval_s):
                try:
                    client.heartbeat(self._job_id)
                except PenstockError as err:  # the next one may arrive
                    _log.debug("client_heartbeat_failed", job_id=self._job_id, error=err.message)
