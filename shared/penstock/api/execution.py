"""Runs a planned job: on the configured cluster, else on an embedded cluster."""

from __future__ import annotations

import os
import uuid
import warnings
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.api.attached import Watching, withdraw
from penstock.api.client import ClusterClient, raise_if_cancelled
from penstock.api.job_status import CompletableFuture, JobID, JobStatus
from penstock.config import ENGINE, REST_ADDRESS, is_cluster_option
from penstock.errors import PenstockError, UnsupportedError
from penstock.jobgraph.plain_secrets import plain_secrets
from penstock.log_events import EventLog
from penstock.plan.engine import ENGINE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from contextlib import AbstractContextManager

    from penstock.jobgraph import JobGraph
    from penstock.types import Batch
    from penstock.types.logical import Schema

_log = EventLog("penstock.client")

#: Address of the cluster: this environment variable, or the key ``rest.address``.
CLUSTER_VARIABLE = "PENSTOCK_CLUSTER"


@dataclass
class JobExecutionResult:
    """A finished job.

    ``job_id``: its id; ``details``: what ``GET /jobs/{id}`` answered at the end; ``accumulators``: its accumulators and counters.
    """

    job_id: str
    details: dict[str, Any] = field(default_factory=dict)
    accumulators: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"Job with JobID {self.job_id} has finished.\nJob Runtime: {self.get_net_runtime()} ms"

    __repr__ = __str__

    def get_job_id(self) -> JobID:
        """The job's id: 32 hexadecimal digits; empty in a planner process."""
        return JobID(self.job_id)

    def get_all_accumulator_results(self) -> dict[str, Any]:
        """Name → sum over all subtasks: accumulators (``RuntimeContext.add_accumulator``), counters of ``get_metrics_group``,
        and the engine's own counters."""
        return dict(self.accumulators)

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """The sum ``accumulator_name``; None if there is none."""
        return self.get_all_accumulator_results().get(accumulator_name)

    def result(self) -> JobExecutionResult:
        """The result itself: PyFlink's client answers with a future of it."""
        return self

    def get_net_runtime(self) -> int:
        """How long the job ran, in ms."""
        return int(self.details.get("duration", 0))


class DetachedJobExecutionResult(JobExecutionResult):
    """A job that was submitted, and that the program does not wait for (``penstock run --detached``)."""

    def __str__(self) -> str:
        return f"Job with JobID {self.job_id} has been submitted."

    __repr__ = __str__

    def get_all_accumulator_results(self) -> dict[str, Any]:
        """Raises UnsupportedError: the job still runs."""
        raise self._runs("its accumulators")

    def get_net_runtime(self) -> int:
        """Raises UnsupportedError: the job still runs."""
        raise self._runs("its run time")

    def _runs(self, what: str) -> UnsupportedError:
        return UnsupportedError(
            f"{what}, of a job that was submitted with --detached",
            expected="a job that the program waits for",
            got=f"job {self.job_id}, which may still run",
            remedy="leave --detached out, or ask 'penstock info' for the job",
        )


class JobClient:
    """A submitted job. ``close`` ends the embedded cluster, if one was started for the job.

    Args:
        client: The REST client.
        job_id: The job's id.
        cluster: The embedded cluster that was started for the job, or None.
        config: The job's configuration.
    """

    def __init__(
        self,
        client: ClusterClient,
        job_id: str,
        cluster: AbstractContextManager[Any] | None,
        config: Mapping[str, str],
    ) -> None:
        self._client = client
        self._config = config
        self._job_id = job_id
        self._cluster = cluster

    def get_job_id(self) -> JobID:
        """The job's id: 32 hexadecimal digits."""
        return JobID(self._job_id)

    def get_job_status(self) -> JobStatus:
        """The job's ``JobStatus``: ``CREATED``, ``RUNNING``, ``FINISHED``, ``FAILED``, ``CANCELED`` …"""
        return JobStatus(self._client.job(self._job_id)["state"])

    def cancel(self) -> CompletableFuture:
        """Ask the cluster to cancel the job. Returns at once."""
        self._client.cancel(self._job_id)
        return CompletableFuture.of(None)

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture:
        """Ask for a savepoint. Returns at once, with the future of its location.

        Args:
            savepoint_directory: Where it goes; None: the configured folder.
        """
        trigger_id = self._client.savepoint(self._job_id, savepoint_directory)
        return CompletableFuture(lambda: self._client.location(self._job_id, trigger_id, "savepoint"))

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture:
        """Stop the job with a savepoint. Returns at once, with the future of the savepoint's location.

        Args:
            advance_to_end_of_event_time: Emit what windows and timers still hold first.
            savepoint_directory: Where the savepoint goes; None: the configured folder.
        """
        trigger_id = self._client.stop(self._job_id, savepoint_directory, drain=advance_to_end_of_event_time)
        return CompletableFuture(lambda: self._client.location(self._job_id, trigger_id, "savepoint"))

    def get_accumulators(self) -> CompletableFuture:
        """The future of the accumulators and counters so far, as in ``JobExecutionResult.get_all_accumulator_results``."""
        return CompletableFuture(lambda: self._client.accumulators(self._job_id))

    def get_job_execution_result(self) -> JobExecutionResult:
        """Wait for the job's end.

        Raises:
            PenstockError: The job failed, with its own error; ExternalError if it was cancelled.
        """
        try:
            with Watching(self._client, self._job_id, self._config):
                job = _wait(self._client, self._job_id)
            raise_if_cancelled(job, self._job_id, job.get("name", ""))
            return JobExecutionResult(self._job_id, job, self._client.accumulators(self._job_id))
        finally:
            self.close()

    result = get_job_execution_result

    def executed(self) -> JobExecutionResult:
        """What ``execute`` returns: the finished job, or at once the submitted one if jobs are detached."""
        if _detached is None or self._cluster is not None:
            return self.get_job_execution_result()
        self.close()
        return DetachedJobExecutionResult(self._job_id)

    def rows(self, schema: Schema) -> Generator[Any]:
        """The records of the job's collect sink as they come; ``schema``: their columns."""
        from penstock.columnar.python_values import records

        with closing(self.batches(schema)) as batches:
            for batch in batches:
                yield from records(batch)

    def batches(self, schema: Schema) -> Generator[Batch]:
        """The rows of the job's collect sink as they come, with their kinds; ``schema``: their columns."""
        from penstock.api.results import read_batches

        try:
            with Watching(self._client, self._job_id, self._config):
                yield from read_batches(self._client, self._job_id, schema)
                job = self._client.wait(self._job_id)
            self._client.raise_if_failed(self._job_id, job)
            raise_if_cancelled(job, self._job_id, job.get("name", ""))
        except (GeneratorExit, KeyboardInterrupt, SystemExit):
            withdraw(self._client, self._job_id)
            raise
        finally:
            self.close()

    def abandon(self) -> None:
        """Cancel the job, unless it has ended, and close."""
        try:
            withdraw(self._client, self._job_id)
        finally:
            self.close()

    def close(self) -> None:
        """Close the connection, and end the embedded cluster if one was started for the job."""
        self._client.close()
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.__exit__(None, None, None)


#: Waits for the end of a job: (client, job id) → the job's details. The command line installs one that shows
#: progress.
_wait: Callable[[ClusterClient, str], dict[str, Any]] = ClusterClient.wait


def wait_with(wait: Callable[[ClusterClient, str], dict[str, Any]]) -> None:
    """Wait for jobs with ``wait`` from now on, in this process."""
    global _wait
    _wait = wait


#: Told the id of each job that this process submits and does not wait for; None: ``execute`` waits.
_detached: Callable[[str], None] | None = None


def detach(told: Callable[[str], None]) -> None:
    """From now on ``execute`` returns as soon as a cluster has the job. ``told(job_id)`` is called for each job."""
    global _detached
    _detached = told


#: Jobs that this process has sent to a cluster.
_submitted = 0


def submitted() -> int:
    """How many jobs this process has sent to a cluster so far."""
    return _submitted


#: Gives the address of a cluster for a job of a program that names none; None: the job gets a cluster of its own.
_kept: Callable[[JobGraph, Mapping[str, str]], str | None] | None = None


def keep_cluster(find: Callable[[JobGraph, Mapping[str, str]], str | None] | None) -> None:
    """Send the jobs of this process that name no cluster to the address that ``find(graph, config)`` gives. None:
    each starts a cluster of its own again."""
    global _kept
    _kept = find


def defaults_of(address: str) -> dict[str, str]:
    """The cluster's defaults for a job that this process plans. An engine that ``PENSTOCK_ENGINE`` names here takes
    precedence over the cluster's. ExternalError if the cluster does not answer."""
    with ClusterClient(address) as client:
        return own_engine_first(client.job_defaults())


def own_engine_first(defaults: Mapping[str, str]) -> dict[str, str]:
    """The defaults, without the engine if this process's environment names one."""
    return {k: v for k, v in defaults.items() if k != ENGINE.key or ENGINE_VARIABLE not in os.environ}


def _of_job(graph: JobGraph) -> JobGraph:
    """The job without the options of clusters, which a job must not carry."""
    of_job = {key: value for key, value in graph.config.items() if not is_cluster_option(key)}
    return msgspec.structs.replace(graph, config=of_job)


def _of_cluster(config: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in config.items() if is_cluster_option(key)}


def submit(graph: JobGraph, config: Mapping[str, str], *, warned: bool = False) -> JobClient:
    """Send the job to the configured cluster; without one, start an embedded cluster that has
    enough slots and ends with the job. ``warned``: a SQL session has warned of the job's plain secrets."""
    global _submitted
    for words in () if warned else plain_secrets(graph):
        warnings.warn(words, stacklevel=3)
    address = REST_ADDRESS.read(config) or os.environ.get(CLUSTER_VARIABLE)
    cluster: Any = None
    if not address and _kept is not None:
        address = _kept(graph, config)
        if address:
            graph = _of_job(graph)
    if not address:
        from penstock.embedded import EmbeddedCluster

        slots = max((v.parallelism for v in graph.vertices), default=1)
        groups = len({v.slot_sharing_group for v in graph.vertices})
        cluster = EmbeddedCluster(slots=max(2, slots * groups), config=_of_cluster(config))
        cluster.__enter__()
        address = cluster.rest_url
        # The embedded cluster has taken the options of clusters.
        graph = _of_job(graph)
    client = ClusterClient(address)
    job_id = uuid.uuid4().hex
    try:
        client.submit({"name": graph.name, "job_id": job_id, "job_graph": msgspec.to_builtins(graph)})
    except BaseException as err:
        if cluster is None and isinstance(err, KeyboardInterrupt | SystemExit):
            try:
                withdraw(client, job_id)  # nobody else knows the job's id, so nobody else could cancel it
            except PenstockError as unreachable:
                _log.warning("job_cancel_failed", job_id=job_id, error=unreachable.message)
        client.close()
        if cluster is not None:
            cluster.__exit__(None, None, None)
        raise
    _submitted += 1
    if _detached is not None:
        _detached(job_id)
    return JobClient(client, job_id, cluster, graph.config)


# -- the planner's recorder ------------------------------------------------------------------------

_recorder: Callable[[JobGraph], None] | None = None


def record_with(recorder: Callable[[JobGraph], None] | None) -> None:
    """In a planner process ``execute`` gives the plan to ``recorder`` instead of running it."""
    global _recorder
    _recorder = recorder


def recorded(graph: JobGraph) -> bool:
    """Hands the job to the planner's recorder, if there is one; whether there was one."""
    if _recorder is None:
        return False
    _recorder(graph)
    return True


def refuse_when_planning(what: str) -> None:
    if _recorder is not None:
        raise UnsupportedError(
            f"{what} in a program that is submitted to a cluster",
            expected="execute() with sinks",
            got=what,
            remedy="use a sink (print, nats, filesystem), or run the program where you are",
        )
