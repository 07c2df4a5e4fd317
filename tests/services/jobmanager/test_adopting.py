"""A new master takes over what runs, and restarts only what does not."""

from __future__ import annotations

import pytest

from penstock.messages import cluster as msg
from penstock.messages import slot as slot_msg
from penstock.messages.states import ExecutionState, JobStatus
from penstock_services.jobmanager import effects as fx
from penstock_services.jobmanager.stages import Stage
from tests.services.jobmanager.graphs import pipeline, two_pipelines
from tests.services.jobmanager.looking import FAST, of, running
from tests.services.jobmanager.simulated import Cluster, Faults


def started(graph=None, seed: int = 1, completed: int = 2, **more) -> Cluster:
    cluster = Cluster(graph or pipeline(), seed=seed, config=FAST, unbounded=True, **more)
    cluster.run(until=lambda: running(cluster) and len(of(cluster, msg.CheckpointCompleted)) >= completed)
    return cluster


def adopted(cluster: Cluster) -> bool:
    return cluster.core.stage is Stage.DEPLOYED and running(cluster)


def commands(cluster: Cluster, kind: type) -> list:
    return [
        c.message.command
        for c in cluster.sent
        if isinstance(c.message, msg.SlotCommand) and isinstance(c.message.command, kind)
    ]


def test_what_runs_goes_on_in_the_same_attempt_and_process():
    cluster = started()
    tasks, completed = dict(cluster.tasks), of(cluster, msg.CheckpointCompleted)[-1].checkpoint_id
    cluster.sent.clear()
    cluster.take_over()
    cluster.run(until=lambda: adopted(cluster))
    assert cluster.tasks == tasks, "no task was started again"
    assert not [c for c in cluster.sent if isinstance(c.message, (msg.DeploySlot, msg.FreeSlot))]
    assert len(of(cluster, msg.Restored)) == 1
    assert cluster.core.job_attempt == 1
    assert {c.epoch for c in commands(cluster, slot_msg.MasterChanged)} == {cluster.epoch}
    confirmed = {c.checkpoint_id for c in commands(cluster, slot_msg.CheckpointComplete)}
    assert confirmed == {of(cluster, msg.CheckpointCompleted)[-1].checkpoint_id}
    before = len(of(cluster, msg.CheckpointCompleted))
    cluster.run(until=lambda: len(of(cluster, msg.CheckpointCompleted)) > before + 1)
    assert of(cluster, msg.CheckpointCompleted)[-1].checkpoint_id > completed


def test_while_it_finds_out_what_runs_the_job_is_reconciling():
    cluster = started()
    cluster.take_over()
    assert cluster.core.status is JobStatus.RECONCILING
    cluster.run(until=lambda: adopted(cluster))
    assert list(cluster.core.timestamps) == ["INITIALIZING", "RECONCILING", "CREATED", "RUNNING"]


def test_a_checkpoint_in_flight_is_aborted_and_its_id_not_used_again():
    cluster = started(seed=2)
    cluster.run(
        until=lambda: (
            (p := next(iter(cluster.core.coordinator.in_flight.values()), None)) is not None
            and p.checkpoint_id > of(cluster, msg.CheckpointCompleted)[-1].checkpoint_id
            and any(p.checkpoint_id in t.passed for t in cluster.tasks.values())
        )
    )
    (in_flight,) = cluster.core.coordinator.in_flight
    cluster.sent.clear()
    cluster.take_over()
    cluster.run(until=lambda: adopted(cluster))
    assert in_flight in {c.checkpoint_id for c in commands(cluster, slot_msg.CheckpointAborted)}
    assert cluster.core.coordinator.next_id > in_flight


def test_a_completion_that_was_logged_and_not_told_is_told_by_the_successor():
    cluster = started(seed=3)
    count = len(of(cluster, msg.CheckpointCompleted))
    cluster.run(until=lambda: len(of(cluster, msg.CheckpointCompleted)) > count)
    logged = of(cluster, msg.CheckpointCompleted)[-1].checkpoint_id
    cluster.sent.clear()
    cluster.take_over()
    cluster.run(until=lambda: adopted(cluster))
    assert logged in {c.checkpoint_id for c in commands(cluster, slot_msg.CheckpointComplete)}
    assert logged not in {c.checkpoint_id for c in commands(cluster, slot_msg.CheckpointAborted)}


def test_an_old_master_is_refused_once_the_new_one_was_announced():
    cluster = started(seed=4)
    old = next(c for c in cluster.sent if isinstance(c.message, msg.SlotCommand))
    cluster.take_over()
    cluster.run(until=lambda: adopted(cluster))
    answers = []
    cluster.later = lambda event, *_, **__: answers.append(event)
    cluster.command(old, cluster.core)
    assert answers[0].reply.fenced


def test_what_finished_before_is_not_lost():
    cluster = Cluster(pipeline(), seed=5, config=FAST)
    cluster.run(until=lambda: cluster.core.graph.count(ExecutionState.FINISHED) >= 1)
    finished = cluster.core.graph.count(ExecutionState.FINISHED)
    cluster.take_over()
    cluster.run(until=lambda: cluster.core.stage is Stage.DEPLOYED)
    assert cluster.core.graph.count(ExecutionState.FINISHED) >= finished
    cluster.run()
    assert cluster.stopped.status is JobStatus.FINISHED
    assert cluster.core.job_attempt == 1


@pytest.mark.parametrize("seed", range(6, 16))
def test_tasks_that_start_are_adopted_too(seed):
    cluster = Cluster(pipeline(), seed=seed, config=FAST, unbounded=True)
    cluster.run(until=lambda: cluster.core.graph.count(ExecutionState.INITIALIZING) >= 1)
    cluster.take_over()
    cluster.run(until=lambda: adopted(cluster))
    assert len(of(cluster, msg.Restored)) <= 2


def test_a_slot_that_died_meanwhile_restarts_the_job_from_its_checkpoint():
    cluster = started(seed=17)
    lost = next(iter(cluster.allocations))
    cluster.end_slot(lost)
    cluster.free.append(cluster.allocations.pop(lost))
    cluster.take_over()
    cluster.run(until=lambda: adopted(cluster))
    assert cluster.core.job_attempt == 2
    assert of(cluster, msg.Restored)[-1].checkpoint_id > 0
    assert "did not run any more" in cluster.core.exceptions.latest["exception"]


def test_a_failed_task_of_which_only_the_old_master_heard():
    cluster = started(seed=18)
    task = next(iter(cluster.tasks.values()))
    error = slot_msg.ErrorInfo(error={"type": "ExternalError", "message": "away"})
    cluster.set_state(task, ExecutionState.FAILED, error=error)
    cluster.take_over()
    cluster.run(until=lambda: cluster.core.job_attempt == 2 and adopted(cluster))


def test_nothing_runs_any_more():
    cluster = started(seed=19)
    for allocation_id in list(cluster.allocations):
        cluster.end_slot(allocation_id)
        cluster.free.append(cluster.allocations.pop(allocation_id))
    cluster.take_over()
    cluster.run(until=lambda: cluster.core.job_attempt == 2 and adopted(cluster))
    assert cluster.core.restarts == 0, "nothing failed under this master"


def test_cancelled_while_nobody_knows_what_runs():
    cluster = started(seed=20)
    cluster.take_over()
    cluster.ask(msg.CancelJob(command_id="c", job_id="job"))
    cluster.run()
    assert cluster.stopped.status is JobStatus.CANCELED
    cluster.now_ms += 1
    while cluster._queue:
        cluster.run_one()
    assert not cluster.allocations, "every slot is free"


def test_a_savepoint_asked_for_during_the_takeover_is_taken_after_it():
    cluster = started(seed=21)
    cluster.take_over()
    from penstock_services.common.core import Asked

    cluster.apply(Asked(99_999, msg.TriggerSavepoint(command_id="s", job_id="job")))
    assert 99_999 not in cluster.answers
    cluster.run(until=lambda: 99_999 in cluster.answers)
    assert cluster.answers[99_999] == msg.Ack()


@pytest.mark.parametrize("seed", range(40))
def test_masters_that_come_and_go_change_nothing(seed):
    """Without other faults the job ends in its first attempt, whoever leads when."""
    faults = Faults(master_lost=0.05, duplicate=0.2)
    cluster = Cluster(pipeline(), seed=seed, faults=faults, config=FAST)
    cluster.run(until=lambda: cluster.core.graph.count(ExecutionState.RUNNING) >= 1)
    cluster.run()
    assert cluster.stopped.status is JobStatus.FINISHED
    completed = [e.checkpoint_id for e in of(cluster, msg.CheckpointCompleted)]
    assert completed == sorted(set(completed))


# -- regions -----------------------------------------------------------------------------


def fail(cluster: Cluster, vertex_id: str) -> None:
    error = slot_msg.ErrorInfo(error={"type": "ExternalError", "message": f"{vertex_id} failed"})
    cluster.set_state(cluster.tasks[vertex_id, 0], ExecutionState.FAILED, error=error)


def test_only_what_is_connected_restarts():
    cluster = started(two_pipelines(), seed=30)
    b = cluster.tasks["b-read", 0], cluster.tasks["b-sink", 0]
    fail(cluster, "a-read")
    cluster.run(until=lambda: cluster.core.job_attempt == 2 and running(cluster))
    assert (cluster.tasks["b-read", 0], cluster.tasks["b-sink", 0]) == b
    attempts = {e.vertex_id: e.attempt for e in cluster.core.graph}
    assert attempts == {"a-read": 2, "a-sink": 2, "b-read": 1, "b-sink": 1}
    restored = of(cluster, msg.Restored)[-1]
    assert restored.vertices == ("a-read", "a-sink")
    assert restored.checkpoint_id > 0
    before = len(of(cluster, msg.CheckpointCompleted))
    cluster.run(until=lambda: len(of(cluster, msg.CheckpointCompleted)) > before + 1)
    fail(cluster, "b-sink")
    cluster.run(until=lambda: cluster.core.job_attempt == 3 and running(cluster))
    assert {e.vertex_id: e.attempt for e in cluster.core.graph} == {
        "a-read": 2, "a-sink": 2, "b-read": 3, "b-sink": 3,
    }  # fmt: skip
    cluster.take_over()
    cluster.run(until=lambda: adopted(cluster))
    assert cluster.core.job_attempt == 3
    assert len(of(cluster, msg.Restored)) == 3, "attempts of two regions, both adopted"


def test_a_failure_elsewhere_during_a_restart_joins_it():
    cluster = started(two_pipelines(), seed=31)
    fail(cluster, "a-read")
    cluster.run(until=lambda: cluster.core.stage is Stage.BACKING_OFF)
    fail(cluster, "b-read")
    cluster.run(until=lambda: cluster.core.stage is Stage.DEPLOYED and running(cluster))
    assert {e.attempt for e in cluster.core.graph} == {2}
    assert of(cluster, msg.Restored)[-1].vertices == ()


def test_with_too_few_slots_regions_share_them_and_restart_together():
    cluster = started(two_pipelines(), seed=32, taskmanagers=1, slots=1)
    assert cluster.core.pool.needed == 1
    fail(cluster, "a-read")
    cluster.run(until=lambda: cluster.core.job_attempt == 2 and running(cluster))
    assert {e.attempt for e in cluster.core.graph} == {2}
    cluster.take_over()
    cluster.run(until=lambda: adopted(cluster))
    assert cluster.core.job_attempt == 2


def test_a_region_that_finds_no_slot_moves_in_with_the_other():
    cluster = started(two_pipelines(), seed=33, taskmanagers=2, slots=1)
    assert cluster.core.pool.needed == 2
    lost = cluster.core.graph.vertex("a-read")[0].taskmanager_id
    slots = len(cluster.allocations)
    cluster.lose_taskmanager(lost)
    cluster.free, cluster.total = [], slots - 1
    cluster.free_forever = True
    cluster.run(until=lambda: cluster.core.pool.needed == 1 and running(cluster))
    assert cluster.core.graph.count(ExecutionState.RUNNING) == 4


def test_the_whole_job_restarts_when_told_to():
    config = FAST | {"jobmanager.execution.failover-strategy": "full"}
    cluster = Cluster(two_pipelines(), seed=34, config=config, unbounded=True)
    cluster.run(until=lambda: running(cluster))
    fail(cluster, "a-read")
    cluster.run(until=lambda: cluster.core.job_attempt == 2 and running(cluster))
    assert {e.attempt for e in cluster.core.graph} == {2}


@pytest.mark.parametrize("seed", range(40))
def test_random_faults_in_regions(seed):
    faults = Faults(
        task_failure=0.02, slot_lost=0.01, taskmanager_lost=0.005, decline=0.03, duplicate=0.2,
        store=0.1, lost_command=0.05, master_lost=0.01,
    )  # fmt: skip
    cluster = Cluster(
        two_pipelines(1 + seed % 2), seed=seed, faults=faults, taskmanagers=3, slots=2, config=FAST
    )
    cluster.run()
    assert cluster.stopped.status is JobStatus.FINISHED
    assert cluster.stopped == fx.Stop(JobStatus.FINISHED)


def test_before_the_first_checkpoint_a_restart_begins_again_from_the_savepoint_of_the_start():
    """Also under a master that took the tasks over (found by simulation, seed 140)."""
    first = started(seed=8)
    path = of(first, msg.CheckpointCompleted)[-1].manifest_key
    config = {**FAST, "execution.checkpointing.interval": "1 h", "execution.state-recovery.path": path}
    cluster = Cluster(pipeline(), seed=9, config=config, unbounded=True, after=first)
    cluster.run(until=lambda: adopted(cluster))
    cluster.take_over()
    cluster.run(until=lambda: adopted(cluster))
    cluster.sent.clear()
    cluster.lose(next(iter(cluster.allocations)))
    cluster.run(until=lambda: cluster.core.job_attempt == 2 and running(cluster))
    deploys = [c.message.deploy for c in cluster.sent if isinstance(c.message, msg.DeploySlot)]
    assert deploys
    assert all(t.restore for deploy in deploys for t in deploy.tasks)
    assert not of(cluster, msg.CheckpointCompleted)


def taken_over_while_unreadable(*, own: bool) -> tuple[Cluster, str]:
    """A job with state whose new master could not read what a restart would begin from: the
    savepoint of its start, or (``own``) its checkpoints. Also what it is."""
    first = started(seed=8)
    path = of(first, msg.CheckpointCompleted)[-1].manifest_key
    config = {**FAST, "execution.checkpointing.interval": "1 h"}
    if own:
        cluster = first
        cluster.config |= config
    else:
        config["execution.state-recovery.path"] = path
        cluster = Cluster(pipeline(), seed=9, config=config, unbounded=True, after=first)
        cluster.run(until=lambda: adopted(cluster))
    kept = dict(cluster.manifests)
    cluster.manifests.clear()
    cluster.take_over()
    cluster.run(until=lambda: adopted(cluster))
    assert cluster.core.job_attempt == 1, "what runs goes on"
    cluster.manifests.update(kept)
    return cluster, path


@pytest.mark.parametrize("own", [False, True])
def test_what_could_not_be_read_at_the_takeover_is_read_again_at_a_restart(own):
    """A store that was away for a moment; an empty state would be the worst answer."""
    cluster, _ = taken_over_while_unreadable(own=own)
    cluster.sent.clear()
    cluster.lose(next(iter(cluster.allocations)))
    cluster.run(until=lambda: cluster.core.job_attempt == 2 and running(cluster))
    deploys = [c.message.deploy for c in cluster.sent if isinstance(c.message, msg.DeploySlot)]
    assert deploys
    assert all(t.restore for deploy in deploys for t in deploy.tasks)
    assert of(cluster, msg.Restored)[-1].checkpoint_id > 0


@pytest.mark.parametrize("own", [False, True])
def test_what_can_be_read_no_more_is_not_restarted_from_nothing(own):
    cluster, path = taken_over_while_unreadable(own=own)
    cluster.manifests.clear()
    cluster.lose(next(iter(cluster.allocations)))
    cluster.run()
    assert cluster.stopped.status is JobStatus.FAILED
    assert cluster.core.job_attempt == 1
    newest = cluster.archived.details.exceptions[0]
    assert "begin from nothing" in newest["not_restarted"]
    if not own:
        assert path in str(cluster.archived.details.exceptions)


def test_a_failure_elsewhere_while_what_to_restore_is_read_joins_the_restart():
    cluster, _ = taken_over_while_unreadable(own=True)
    reads = []
    perform = cluster.perform

    def watched(effect):
        if isinstance(effect, fx.LoadManifest):
            reads.append(effect)
            cluster.lose(next(iter(cluster.allocations)))
        perform(effect)

    cluster.perform = watched
    cluster.lose(next(iter(cluster.allocations)))
    cluster.run(until=lambda: cluster.core.job_attempt == 2 and running(cluster))
    assert reads
    assert of(cluster, msg.Restored)[-1].checkpoint_id > 0


def test_the_next_master_shows_what_went_wrong_before():
    cluster = Cluster(pipeline(), seed=5, config=FAST, unbounded=True, faults=Faults(task_failure=0.2))
    cluster.run(until=lambda: len(cluster.core.exceptions.all()) >= 2)
    cluster.faults = Faults()
    before = cluster.core.exceptions.all()
    cluster.take_over()
    assert [e["timestamp_ms"] for e in cluster.core.exceptions.all()] == [e["timestamp_ms"] for e in before]
    assert cluster.core.exceptions.all()[-1]["exception"] == before[-1]["exception"]
