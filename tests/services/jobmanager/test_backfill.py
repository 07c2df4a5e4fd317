"""A job whose history Spark reads first: its master's end is a checkpoint, not the job's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.jobgraph import JobGraph, JobVertex, OperatorNode
from penstock.jobgraph.specs import SparkQuerySpec
from penstock.messages import cluster as msg
from penstock.messages.layout import backfill_manifest_key
from penstock.messages.states import JobStatus
from penstock.snapshots.manifest import CheckpointManifest
from penstock_services.common.core import Asked
from penstock_services.jobmanager import effects as fx
from penstock_services.jobmanager.inheritance import read_logged_job
from penstock_services.jobmanager.stages import BACKFILLING, Stage
from tests.services.jobmanager.graphs import SCHEMA, pipeline
from tests.services.jobmanager.simulated import Cluster, Faults

NO_CHECKPOINTS = {"execution.checkpointing.interval": "0"}


def backfilling(seed: int = 1, **options: Any) -> Cluster:
    graph = pipeline()
    bare = replace_sink(graph)
    cluster = Cluster(bare, seed=seed, config=NO_CHECKPOINTS, **options)
    cluster.core.settings = replace(cluster.core.settings, phase=BACKFILLING)
    cluster.is_sink = lambda task: False  # type: ignore[method-assign]  # nothing waits for a commit
    for attempt in range(1, 100):  # what Spark's driver writes
        key = backfill_manifest_key(cluster.core.job_id, attempt)
        cluster.manifests[key] = CheckpointManifest(
            job_id=cluster.core.job_id, job_name="n", checkpoint_id=1, kind="backfill", timestamp_ms=1,
            job_attempt=attempt, epoch=0, vertices=(),
        )  # fmt: skip
    return cluster


def replace_sink(graph: Any) -> Any:
    """Without a sink, whose commit would want a final checkpoint."""
    import msgspec

    kept = [v for v in graph.vertices if v.id != "sink"]
    return msgspec.structs.replace(
        graph, vertices=tuple(kept), edges=tuple(e for e in graph.edges if e.target != "sink")
    )


def completed(cluster: Cluster) -> list[msg.CheckpointCompleted]:
    return [entry for entry in cluster.log if isinstance(entry, msg.CheckpointCompleted)]


def test_its_end_is_the_first_checkpoint_of_the_stream() -> None:
    cluster = backfilling()
    cluster.run()
    [entry] = completed(cluster)
    job_id = cluster.core.job_id
    assert (entry.kind, entry.checkpoint_id) == ("backfill", 1)
    assert entry.manifest_key == backfill_manifest_key(job_id, 1)
    assert cluster.stopped.status is JobStatus.RUNNING
    assert not [e for e in cluster.log if isinstance(e, msg.Terminal)]
    assert cluster.archived is None
    assert not cluster.allocations, "every slot was given back"


def test_a_failed_try_is_not_the_one_that_counts() -> None:
    cluster = backfilling(seed=5, faults=Faults(task_failure=0.05))
    cluster.run()
    [entry] = completed(cluster)
    assert entry.manifest_key == backfill_manifest_key(cluster.core.job_id, cluster.core.job_attempt)


def test_no_savepoint_of_a_backfill() -> None:
    cluster = backfilling()
    cluster.run(until=lambda: cluster.core.stage is Stage.DEPLOYED)
    trigger = msg.TriggerSavepoint(command_id="s", job_id=cluster.core.job_id, kind="savepoint")
    [answer] = [e for e in cluster.core.step(Asked(1, trigger), cluster.now_ms) if isinstance(e, fx.Answer)]
    assert "still backfilling on Spark" in answer.reply.reason


def test_no_savepoint_of_what_spark_does() -> None:
    """Stopped with one it would be over, and what it had to write would not be there."""
    query = OperatorNode(uid="q", name="Spark", spec=SparkQuerySpec(graph="", sinks=(0,)), output=SCHEMA)
    batch = JobVertex(id="q", name="Spark", operators=(query,), parallelism=1, max_parallelism=128)
    cluster = Cluster(JobGraph(name="s", vertices=(batch,), edges=()), seed=1, config=NO_CHECKPOINTS)
    cluster.run(until=lambda: cluster.core.stage is Stage.DEPLOYED)
    for kind in ("savepoint", "stop", "checkpoint"):
        trigger = msg.TriggerSavepoint(command_id=kind, job_id=cluster.core.job_id, kind=kind)
        [answer] = [
            e for e in cluster.core.step(Asked(1, trigger), cluster.now_ms) if isinstance(e, fx.Answer)
        ]
        assert "cancel it to end it" in answer.reply.reason


def test_who_asks_at_the_seam_asks_the_next_master() -> None:
    """A cancellation that this master took would be lost with it."""
    cluster = backfilling()
    cluster.run(until=lambda: cluster.core.stage is Stage.CLOSING)
    cancel = msg.CancelJob(command_id="c", job_id=cluster.core.job_id)
    assert not [e for e in cluster.core.step(Asked(1, cancel), cluster.now_ms) if isinstance(e, fx.Answer)]
    asked = msg.RequestJobDetails(job_id=cluster.core.job_id)
    assert [e for e in cluster.core.step(Asked(2, asked), cluster.now_ms) if isinstance(e, fx.Answer)]


@pytest.mark.parametrize("started", [False, True])
def test_the_next_master_begins_anew_and_the_one_after_it_adopts(started: bool) -> None:
    """What ran before the seam was of another graph: there is nothing to adopt of it."""
    accepted = msg.JobAccepted(
        job_id="j", name="n", timestamp_ms=1, job_graph_key="g", spec_key="s", max_parallelism={}
    )
    log: list[Any] = [
        accepted,
        msg.Restored(epoch=2, job_attempt=3, checkpoint_id=0, timestamp_ms=2, slots=4),
        msg.CheckpointCompleted(epoch=2, checkpoint_id=1, manifest_key="m", timestamp_ms=3, kind="backfill"),
    ]
    if started:
        log.append(msg.Restored(epoch=5, job_attempt=4, checkpoint_id=1, timestamp_ms=4, slots=2))
    inherited = read_logged_job(enumerate(log, 1), 1).inherited
    assert inherited.handed_over is not started
    assert inherited.slots == (2 if started else 0)
    assert inherited.completed == ((1, "m", "backfill"),)
    cluster = Cluster(pipeline(), seed=1, config=NO_CHECKPOINTS, inherited=inherited)
    assert (cluster.core.stage is Stage.ADOPTING) is started
