"""What a job master does with checkpoints and savepoints, and what it starts from."""

from __future__ import annotations

import pytest

from penstock.messages import cluster as msg
from penstock.messages import slot as slot_msg
from penstock.messages.states import ExecutionState, JobStatus
from penstock_services.jobmanager import effects as fx
from penstock_services.jobmanager.stages import Inherited, Stage
from tests.services.jobmanager.graphs import pipeline
from tests.services.jobmanager.looking import FAST, of, running
from tests.services.jobmanager.simulated import Cluster


def test_the_final_checkpoint_comes_without_periodic_ones():
    cluster = Cluster(pipeline(), seed=2, config={"execution.checkpointing.interval": "0"})
    cluster.run()
    assert cluster.stopped.status is JobStatus.FINISHED
    assert len(of(cluster, msg.CheckpointCompleted)) >= 1


@pytest.mark.parametrize("seed", range(100, 110))
def test_one_final_checkpoint_is_enough(seed):
    """While its tasks digest it no other one is begun, only to be given up at the end."""
    cluster = Cluster(pipeline(), seed=seed, config={"execution.checkpointing.interval": "0"})
    cluster.run()
    assert cluster.stopped.status is JobStatus.FINISHED
    assert cluster.core.coordinator.history.counts | {"restored": 0} == {
        "completed": 1, "failed": 0, "in_progress": 0, "restored": 0, "total": 1,
    }  # fmt: skip


def test_a_final_checkpoint_of_which_no_slot_heard_is_made_again():
    cluster = Cluster(pipeline(), seed=111, config={"execution.checkpointing.interval": "0"})
    hear, deaf = cluster.slot_command, []

    def hears(task, command):
        if isinstance(command, slot_msg.CheckpointComplete) and command.checkpoint_id == 1:
            deaf.append(command)
        else:
            hear(task, command)

    cluster.slot_command = hears
    cluster.run(until=lambda: deaf)
    lost = next(
        c for c in cluster.sent
        if isinstance(c.message, msg.SlotCommand) and c.message.command == deaf[0]
    )  # fmt: skip
    cluster.apply(fx.CommandLost(lost, "no answer"))
    cluster.run()
    assert cluster.stopped.status is JobStatus.FINISHED
    assert len(of(cluster, msg.CheckpointCompleted)) == 2


def test_only_plain_checkpoints_are_unaligned():
    unaligned = {
        "execution.checkpointing.unaligned.enabled": "true",
        "execution.checkpointing.aligned-checkpoint-timeout": "2 s",
    }
    cluster = Cluster(pipeline(), seed=14, unbounded=True, config=FAST | unaligned)
    cluster.run(until=lambda: running(cluster))
    cluster.ask(msg.TriggerSavepoint(command_id="s1", job_id="job", directory="backup"))
    cluster.run(until=lambda: len(of(cluster, msg.CheckpointCompleted)) == 3)
    triggers = [
        c.message.command
        for c in cluster.sent
        if isinstance(c.message, msg.SlotCommand)
        and isinstance(c.message.command, slot_msg.TriggerCheckpoint)
    ]
    said = {(t.kind, t.unaligned, t.aligned_timeout_ms) for t in triggers}
    assert said == {("checkpoint", True, 2000), ("savepoint", False, 0)}


def test_stop_with_savepoint_is_retained_and_named():
    cluster = Cluster(pipeline(), seed=13, unbounded=True, config=FAST)
    assert isinstance(cluster.ask(msg.TriggerSavepoint(command_id="early", job_id="job")), msg.Refused), (
        "not running yet"
    )
    cluster.run(until=lambda: running(cluster))
    reply = cluster.ask(msg.TriggerSavepoint(command_id="s1", job_id="job", directory="backup"))
    assert reply == msg.Ack()
    cluster.run(until=lambda: len(of(cluster, msg.CheckpointCompleted)) == 4)
    savepoint = next(e for e in of(cluster, msg.CheckpointCompleted) if e.kind == "savepoint")
    (folder,) = cluster.savepoints
    assert folder == f"backup/savepoint-job-{savepoint.checkpoint_id}-2"
    shown = cluster.ask(msg.RequestJobDetails(job_id="job")).checkpoints
    assert [(c.status, c.path) for c in shown if c.trigger_id == "s1"] == [("COMPLETED", folder)]
    # A repeat of the request is the same savepoint.
    again = msg.TriggerSavepoint(command_id="s1", job_id="job", directory="backup")
    assert cluster.ask(again) == msg.Ack()
    done = len(of(cluster, msg.CheckpointCompleted))
    cluster.run(until=lambda: len(of(cluster, msg.CheckpointCompleted)) == done + 2)
    assert len(cluster.savepoints) == 1
    # The job's own copy is a checkpoint like the others: later ones replace it.
    cluster.run(until=lambda: savepoint.manifest_key not in cluster.manifests)


def test_an_unreadable_checkpoint_is_never_started_from_nothing():
    inherited = Inherited(
        job_attempt=1, highest_checkpoint_id=1, checkpoints_completed=1, completed=((1, "k1", "checkpoint"),)
    )
    cluster = Cluster(pipeline(), seed=16, inherited=inherited)
    cluster.run()
    assert cluster.stopped.status is JobStatus.FAILED
    assert not cluster.archived.delete_prefixes, "it may be readable tomorrow"
    assert cluster.archived.details.exceptions[0]["error"]["message"] == "gone"
    assert not of(cluster, msg.Restored)


SEVERAL = FAST | {
    "execution.checkpointing.interval": "30 ms",
    "execution.checkpointing.max-concurrent-checkpoints": "3",
    "execution.checkpointing.tolerable-failed-checkpoints": "0",
}


def test_several_checkpoints_in_flight_complete_in_their_order():
    cluster = Cluster(pipeline(), seed=7, unbounded=True, config=SEVERAL)
    most = []
    cluster.run(
        until=lambda: (
            most.append(len(cluster.core.coordinator.in_flight))
            or len(of(cluster, msg.CheckpointCompleted)) == 20
        )
    )
    assert max(most) == 3
    completed = [e.checkpoint_id for e in of(cluster, msg.CheckpointCompleted)]
    assert completed == sorted(set(completed))
    details = cluster.ask(msg.RequestJobDetails(job_id="job"))
    assert [c.status for c in details.checkpoints].count("IN_PROGRESS") == len(
        cluster.core.coordinator.in_flight
    )
    failed = [c.failure for c in details.checkpoints if c.status == "FAILED"]
    assert all("subsumed by" in reason for reason in failed)
    assert cluster.core.job_attempt == 1, "what is subsumed counts as no failure"


def test_a_savepoint_is_not_subsumed_by_the_checkpoint_behind_it():
    cluster = Cluster(pipeline(), seed=8, unbounded=True, config=SEVERAL)
    cluster.run(until=lambda: running(cluster))
    slow, ack = [], cluster.report

    def report(task, *reports):
        """The savepoint's last acknowledgement comes after those of its successors."""
        (first, *_) = reports
        held = isinstance(first, slot_msg.CheckpointAcknowledged) and task.place == ("sink", 0)
        if held and cluster.core.coordinator.in_flight[first.checkpoint_id].kind == "savepoint":
            slow.append((task, reports))
        else:
            ack(task, *reports)

    cluster.report = report
    cluster.ask(msg.TriggerSavepoint(command_id="t", job_id="job"))
    in_flight = cluster.core.coordinator.in_flight
    cluster.run(until=lambda: len(in_flight) == 3 and [p.whole for p in in_flight.values()][1:] == [True] * 2)
    (first, *_) = in_flight.values()
    assert first.kind == "savepoint"
    ack(*slow[0][:1], *slow[0][1])
    cluster.run(until=lambda: not {first.checkpoint_id, first.checkpoint_id + 1} & set(in_flight))
    kinds = {e.checkpoint_id: e.kind for e in of(cluster, msg.CheckpointCompleted)}
    assert [kinds[first.checkpoint_id + n] for n in (0, 1)] == ["savepoint", "checkpoint"]


def restoring(cluster: Cluster, attempt: int) -> bool:
    task = cluster.tasks.get(("sum", 0))
    return task is not None and task.deploy.job_attempt == attempt and cluster.alive(task)


def damaged(cluster: Cluster) -> None:
    """Whoever restores the checkpoint that this attempt began from finds it damaged."""
    task = cluster.tasks["sum", 0]
    error = {"type": "SnapshotError", "message": "a snapshot object is damaged", "where": "object k"}
    cluster.set_state(task, ExecutionState.FAILED, error=slot_msg.ErrorInfo(error=error))


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used():
    config = FAST | {"execution.checkpointing.num-retained": "2"}
    cluster = Cluster(pipeline(), seed=40, unbounded=True, config=config)
    cluster.run(until=lambda: len(of(cluster, msg.CheckpointCompleted)) == 4)
    cluster.lose(next(iter(cluster.allocations)))
    cluster.run(until=lambda: restoring(cluster, 2))
    first = of(cluster, msg.Restored)[-1].checkpoint_id
    damaged(cluster)
    cluster.run(until=lambda: cluster.core.job_attempt == 3 and running(cluster))
    second = of(cluster, msg.Restored)[-1].checkpoint_id
    assert 0 < second < first
    entry = cluster.core.exceptions.latest
    assert entry["restored_instead"] == (
        f"checkpoint {first} cannot be read: checkpoint {second} is used instead"
    )
    assert "object k" in entry["exception"]
    cluster.run(until=lambda: of(cluster, msg.CheckpointCompleted)[-1].checkpoint_id > first + 1)


def test_when_no_checkpoint_can_be_read_the_job_fails_and_says_so():
    config = FAST | {"execution.checkpointing.num-retained": "1"}
    cluster = Cluster(pipeline(), seed=41, unbounded=True, config=config)
    cluster.run(until=lambda: len(of(cluster, msg.CheckpointCompleted)) == 4)
    cluster.lose(next(iter(cluster.allocations)))
    while cluster.core.status is not JobStatus.FAILING:  # a replaced one may be there still
        attempt = cluster.core.job_attempt + (cluster.core.stage is Stage.BACKING_OFF)
        cluster.run(until=lambda a=attempt: restoring(cluster, max(2, a)))
        damaged(cluster)
        cluster.run(until=lambda: cluster.core.stage is not Stage.DEPLOYED)
    cluster.run()
    assert cluster.stopped.status is JobStatus.FAILED
    assert "no other one is retained" in cluster.archived.details.exceptions[0]["not_restarted"]
    assert of(cluster, msg.CheckpointCompleted)[-1].manifest_key in cluster.archived.keep, "nor is it deleted"


def test_a_finished_job_that_waits_for_the_log_does_not_spin():
    """The last task may end at the moment at which another checkpoint was due: nothing is to be
    done about that any more, and the clock alone brings the log's answer no nearer."""
    for seed in range(50):
        cluster = Cluster(pipeline(), seed=seed, config=SEVERAL)
        core = cluster.core
        cluster.run(until=lambda c=core: c.graph.all_finished and not c.coordinator.in_flight.settled)
        if cluster.stopped is None:
            break
    core.due.coordinator_ms = cluster.now_ms
    (timer,) = core.step(fx.Wakeup(), cluster.now_ms)
    assert timer.delay_ms > 0
    cluster.run()
    assert cluster.stopped.status is JobStatus.FINISHED
