"""The cluster that statements run on: the configured one, else one of this process for all its environments."""

from __future__ import annotations

import atexit
import os
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.api import execution
from penstock.api.client import TERMINAL
from penstock.config import REST_ADDRESS, is_cluster_option
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.embedded import EmbeddedCluster
    from penstock.jobgraph import JobGraph

#: Slots of the process's own cluster; a job that needs more gets a cluster of its own.
SLOTS = 8

_own: EmbeddedCluster | None = None
_own_config: dict[str, Any] = {}
#: Jobs on it that nobody reads: (client, name).
_left: list[tuple[execution.JobClient, str]] = []


def submit(graph: JobGraph, config: Mapping[str, str]) -> execution.JobClient:
    """Send a job to the configured cluster, else to the one of this process, which the first job starts."""
    if REST_ADDRESS.read(config) or os.environ.get(execution.CLUSTER_VARIABLE):
        return execution.submit(graph, config)
    slots = max((v.parallelism for v in graph.vertices), default=1)
    slots *= len({v.slot_sharing_group for v in graph.vertices})
    of_cluster = {key: value for key, value in config.items() if is_cluster_option(key)}
    if slots > SLOTS or (_own is not None and of_cluster != _own_config):
        return execution.submit(graph, config)
    of_job = {key: value for key, value in graph.config.items() if not is_cluster_option(key)}
    graph = msgspec.structs.replace(graph, config=of_job)
    client = execution.submit(graph, {**config, REST_ADDRESS.key: _cluster(of_cluster).rest_url})
    _left.append((client, graph.name))
    return client


def _cluster(config: dict[str, str]) -> EmbeddedCluster:
    global _own
    if _own is None:
        from penstock.embedded import EmbeddedCluster

        made = EmbeddedCluster(slots=SLOTS, config=config, slot_output=sys.stdout)
        made.start()
        _own = made
        _own_config.update(config)
        atexit.register(_stop)
    return _own


def _stop() -> None:
    """Ends the cluster with the process, and says which jobs end with it."""
    if _own is None:
        return
    for client, name in _left:
        try:
            state = client.get_job_status()
        except (PenstockError, RuntimeError):
            continue  # its connection is closed: somebody has seen its end
        if state not in TERMINAL:
            sys.stderr.write(
                f"job {client.get_job_id()} ({name}) was {state} when the program ended, and ends with it; "
                "wait() for it, or run it on a cluster (rest.address)\n"
            )
    _own.stop()
