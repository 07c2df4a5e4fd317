"""The life of a job under its master: from its start to what is left when it has ended."""

from __future__ import annotations

import pytest

from penstock.messages import cluster as msg
from penstock.messages.states import ExecutionState, JobStatus
from penstock_services.jobmanager import effects as fx
from penstock_services.jobmanager.stages import Inherited, Stage
from tests.services.jobmanager.graphs import pipeline
from tests.services.jobmanager.looking import FAST, of, running
from tests.services.jobmanager.simulated import Cluster


def test_a_bounded_job_runs_and_finishes():
    cluster = Cluster(pipeline(), seed=1, config=FAST)
    cluster.run()
    assert cluster.stopped == fx.Stop(JobStatus.FINISHED)
    assert next(type(e).__name__ for e in cluster.log) == "Restored"
    assert of(cluster, msg.Terminal)[0].status is JobStatus.FINISHED
    details = cluster.archived.details
    assert details.status is JobStatus.FINISHED
    assert details.attempt == 1
    assert {s.state for v in details.vertices for s in v.subtasks} == {ExecutionState.FINISHED}
    assert not cluster.allocations, "every slot was given back"
    assert details.result_schema["fields"][0]["name"] == "v"


def test_a_woken_master_replaces_no_manifest_of_its_successor():
    """Both may use an id: of a checkpoint in flight whose snapshots travelled inline nothing
    is found in the store."""
    zombie = Cluster(pipeline(), seed=112, unbounded=True, config=FAST)
    zombie.run(until=lambda: len(of(zombie, msg.CheckpointCompleted)) == 2)
    zombie.run(until=lambda: 3 in zombie.core.coordinator.in_flight)
    last = of(zombie, msg.CheckpointCompleted)[-1]
    inherited = Inherited(
        job_attempt=1,
        highest_checkpoint_id=last.checkpoint_id,
        completed=((last.checkpoint_id, last.manifest_key, "checkpoint"),),
    )
    heir = Cluster(
        pipeline(), seed=113, unbounded=True, config=FAST, inherited=inherited, after=zombie, epoch=9
    )
    heir.run(until=lambda: of(heir, msg.CheckpointCompleted))
    (mine,) = of(heir, msg.CheckpointCompleted)
    assert [mine.checkpoint_id] == list(zombie.core.coordinator.in_flight)
    written = heir.manifests[mine.manifest_key]
    assert written.job_attempt == 2
    before = len(zombie.manifests)
    zombie.run(until=lambda: len(zombie.manifests) > before)
    assert heir.manifests[mine.manifest_key] is written


def test_subtask_i_of_every_vertex_shares_slot_i():
    cluster = Cluster(pipeline(), seed=3, config=FAST, unbounded=True)
    cluster.run(until=lambda: running(cluster))
    deploys = [c.message.deploy for c in cluster.sent if isinstance(c.message, msg.DeploySlot)]
    placed = [{(t.vertex_id, t.subtask_index) for t in d.tasks} for d in deploys]
    assert {("enumerate", 0), ("read", 0), ("sum", 0), ("sink", 0)} in placed
    assert {("read", 1), ("sum", 1)} in placed
    assert len(deploys[0].locations) == 6
    assert set(deploys[0].slots) == {d.allocation_id for d in deploys}
    assert deploys[0].secret == deploys[1].secret
    assert bytes.fromhex(deploys[0].secret)


def test_it_waits_for_slots_and_says_for_what():
    cluster = Cluster(pipeline(p=3), seed=4, taskmanagers=1, slots=2)
    cluster.run(until=lambda: cluster.now_ms > 1_003_000)
    details = cluster.ask(msg.RequestJobDetails(job_id="job"))
    assert details.status is JobStatus.CREATED
    assert details.waiting_for.startswith("1 of 3 slot is missing; the cluster has 2, 0 of them free")
    cluster.free.append(("tm9", 0))
    cluster.total += 1
    cluster.run()
    assert cluster.stopped.status is JobStatus.FINISHED


def test_cancel_stops_the_tasks_and_gives_the_slots_back():
    cluster = Cluster(pipeline(), seed=7, config=FAST, unbounded=True)
    cluster.run(until=lambda: running(cluster))
    assert cluster.ask(msg.CancelJob(command_id="c", job_id="job")) == msg.Ack()
    assert cluster.ask(msg.CancelJob(command_id="c", job_id="job")) == msg.Ack(), "repeats are answered"
    assert cluster.core.status is JobStatus.CANCELLING
    cluster.run()
    assert cluster.stopped.status is JobStatus.CANCELED
    assert not cluster.allocations


@pytest.mark.parametrize("stage", [Stage.WAITING, Stage.ANNOUNCING, Stage.BACKING_OFF])
def test_cancel_at_any_stage(stage):
    cluster = Cluster(pipeline(), seed=8, config=FAST, unbounded=True)
    if stage is Stage.BACKING_OFF:
        cluster.run(until=lambda: running(cluster))
        cluster.lose(next(iter(cluster.allocations)))
    cluster.run(until=lambda: cluster.core.stage is stage)
    cluster.ask(msg.CancelJob(command_id="c", job_id="job"))
    cluster.run()
    assert cluster.stopped.status is JobStatus.CANCELED


def test_a_fenced_master_says_nothing_more():
    cluster = Cluster(pipeline(), seed=12, unbounded=True, config=FAST)
    cluster.run(until=lambda: running(cluster))
    cluster.apply(fx.Deposed("epoch 7 is newer than ours, 2"))
    assert cluster.stopped == fx.Stop(JobStatus.SUSPENDED, "epoch 7 is newer than ours, 2")
    sent = len(cluster.sent)
    assert isinstance(cluster.ask(msg.CancelJob(command_id="c", job_id="job")), msg.Refused)
    assert len(cluster.sent) == sent


def test_a_new_master_restores_what_the_log_says():
    first = Cluster(pipeline(), seed=14, unbounded=True, config=FAST)
    first.run(until=lambda: len(of(first, msg.CheckpointCompleted)) == 2)
    last = of(first, msg.CheckpointCompleted)[-1]
    inherited = Inherited(
        job_attempt=1,
        highest_checkpoint_id=last.checkpoint_id + 3,
        completed=((last.checkpoint_id, last.manifest_key, "checkpoint"),),
    )
    second = Cluster(pipeline(), seed=15, unbounded=True, config=FAST, inherited=inherited, after=first)
    assert second.core.stage is Stage.ADOPTING
    second.run(until=lambda: second.core.coordinator.history.counts["completed"] == 1)
    assert of(second, msg.Restored)[0].checkpoint_id == last.checkpoint_id
    assert of(second, msg.Restored)[0].job_attempt == 2
    assert of(second, msg.CheckpointCompleted)[0].checkpoint_id > last.checkpoint_id + 3
    second.run(until=lambda: last.manifest_key not in second.manifests)  # the newer one replaced it


def test_slots_that_count_as_ours_and_are_not_held_are_given_back():
    cluster = Cluster(pipeline(), seed=17, config=FAST)
    # A former master's: the resource manager counts them as the job's, nobody offers them.
    cluster.allocations = {"old1": ("tm0", 0), "old2": ("tm0", 1)}
    cluster.free = []
    cluster.run()
    assert cluster.stopped.status is JobStatus.FINISHED


@pytest.mark.parametrize(
    ("setting", "cancelled", "failed"),
    [
        ("RETAIN_ON_CANCELLATION", True, True),
        ("DELETE_ON_CANCELLATION", False, True),
        ("NO_EXTERNALIZED_CHECKPOINTS", False, False),
    ],
)
def test_what_stays_of_a_job_that_ended(setting, cancelled, failed):
    config = FAST | {
        "execution.checkpointing.externalized-checkpoint-retention": setting,
        "execution.checkpointing.num-retained": "1",
        "restart-strategy.type": "none",
    }
    for fails, stays in ((False, cancelled), (True, failed)):
        cluster = Cluster(pipeline(), seed=5, unbounded=True, config=config)
        cluster.run(until=lambda c=cluster: len(of(c, msg.CheckpointCompleted)) == 2)
        if fails:
            cluster.lose(next(iter(cluster.allocations)))
        else:
            cluster.ask(msg.CancelJob(command_id="c", job_id="job"))
        cluster.run()
        assert cluster.stopped.status is (JobStatus.FAILED if fails else JobStatus.CANCELED)
        last = of(cluster, msg.CheckpointCompleted)[-1]
        kept = cluster.archived.keep
        assert (last.manifest_key in kept) is stays
        assert (cluster.manifests[last.manifest_key].object_keys() <= kept) is stays
        assert "jobs/job/checkpoints/" in cluster.archived.delete_prefixes
        assert ("jobs/job/staged/" in cluster.archived.delete_prefixes) is not stays
    finished = Cluster(pipeline(), seed=5, config=config)
    finished.run()
    assert not finished.archived.keep, "nothing is left to go on with"
