"""Finds the cluster for a job: the configured one, or an embedded one for
all environments of this process."""

from __future__ import annotations

import atexit
import os
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.api import execution
from penstock.api.client import TERMINAL, ClusterClient
from penstock.config import REST_ADDRESS, is_cluster_option
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.embedded import EmbeddedCluster
    from penstock.jobgraph import JobGraph

#: Slots of the process's embedded cluster. A job that needs more slots gets a cluster of its own.
SLOTS = 8

_own: EmbeddedCluster | None = None
_own_config: dict[str, Any] = {}
#: The jobs that were submitted to the process's embedded cluster: (client, name).
_left: list[tuple[execution.JobClient, str]] = []


def submit(graph: JobGraph, config: Mapping[str, str]) -> execution.JobClient:
    """Send a job to the configured cluster, else to the process's embedded cluster, which the
    first job starts. A job that needs more slots or other cluster settings than the embedded
    cluster has gets one of its own."""
    if REST_ADDRESS.read(config) or os.environ.get(execution.CLUSTER_VARIABLE):
        return execution.submit(graph, config, warned=True)
    address = shared_cluster(graph, config)
    if address is None:
        return execution.submit(graph, config, warned=True)
    of_job = {key: value for key, value in graph.config.items() if not is_cluster_option(key)}
    graph = msgspec.structs.replace(graph, config=of_job)
    client = execution.submit(graph, {**config, REST_ADDRESS.key: address}, warned=True)
    _left.append((client, graph.name))
    return client


def shared_cluster(graph: JobGraph, config: Mapping[str, str]) -> str | None:
    """The address of the process's embedded cluster, which is started if there is none yet. None: the job needs more
    slots or other cluster settings than it has."""
    slots = max((v.parallelism for v in graph.vertices), default=1)
    slots *= len({v.slot_sharing_group for v in graph.vertices})
    of_cluster = {key: value for key, value in config.items() if is_cluster_option(key)}
    if slots > SLOTS or (_own is not None and of_cluster != _own_config):
        return None
    return _cluster(of_cluster).rest_url


def jobs_of(config: Mapping[str, str]) -> ClusterClient | None:
    """A client of the configured cluster, else of the process's embedded one; None if there is none yet. The
    caller closes it."""
    address = REST_ADDRESS.read(config) or os.environ.get(execution.CLUSTER_VARIABLE)
    if not address and _own is not None:
        address = _own.rest_url
    return ClusterClient(address) if address else None


def catch_up_output() -> None:
    """Show what jobs on the process's embedded cluster have printed before this call."""
    if _own is not None:
        _own.catch_up_output()


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
    """Ends the embedded cluster with the process, and prints which jobs end with it."""
    if _own is None:
        return
    for client, name in _left:
        try:
            state = client.get_job_status()
        except (PenstockError, RuntimeError):
            continue  # the client is closed: the program has seen the job's end
        if state not in TERMINAL:
            sys.stderr.write(
                f"job {client.get_job_id()} ({name}) was {state} when the program ended, and ends with it; "
                "wait() for it, or run it on a cluster (rest.address)\n"
            )
    _own.stop()
