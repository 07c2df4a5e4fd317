from __future__ import annotations

import pytest

from penstock.messages import cluster as msg
from penstock.messages import slot as slot_msg
from penstock.messages.states import ExecutionState, JobStatus
from penstock_services.jobmanager import effects as fx
from penstock_services.jobmanager.stages import Inherited, Stage
from tests.services.jobmanager.graphs import diamond, pipeline
from tests.services.jobmanager.simulated import Cluster, Faults

FAST = {
    "execution.checkpointing.interval": "300 ms",
    "execution.checkpointing.tolerable-failed-checkpoints": "2",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "100000",
    "restart-strategy.fixed-delay.delay": "50 ms",
}


def running(cluster: Cluster) -> bool:
    return cluster.core.graph.count(ExecutionState.RUNNING) == len(cluster.core.graph)


def of(cluster: Cluster, kind: type) -> list:
    return [entry for entry in cluster.log if isinstance(entry, kind)]


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
    assert cluster.core.coordinator.counts | {"restored": 0} == {
        "completed": 1, "failed": 0, "in_progress": 0, "restored": 0, "total": 1,
    }  # fmt: skip


def test_a_task_manager_started_anew_of_which_nobody_told_us():
    """The resource manager that knew its slots died as well: the next command tells."""
    cluster = Cluster(pipeline(), seed=3, config=FAST)
    cluster.run(until=lambda: running(cluster))
    allocation_id, slot = next(iter(cluster.allocations.items()))
    cluster.end_slot(allocation_id)
    del cluster.allocations[allocation_id]
    cluster.free.append(slot)
    cluster.run()
    assert cluster.stopped.status is JobStatus.FINISHED
    assert cluster.core.job_attempt == 2
    assert "was started anew" in str(cluster.core.exceptions.latest)


def test_a_task_manager_that_dies_with_the_resource_manager_is_missed():
    """No checkpoint, so that no command goes to it, and no other task hears of its end."""
    config = FAST | {"execution.checkpointing.interval": "0"}
    cluster = Cluster(pipeline(p=1), seed=3, config=config, unbounded=True, taskmanagers=3, slots=1)
    cluster.free_forever = True
    cluster.run(until=lambda: running(cluster))
    cluster.lose_taskmanager(cluster.tasks["sum", 0].taskmanager_id, told=False)
    cluster.run(until=lambda: cluster.core.job_attempt == 2 and running(cluster), limit_ms=60_000)
    assert "and the resource manager of its time as well" in str(cluster.core.exceptions.latest)


def test_a_new_resource_manager_alone_costs_no_restart():
    cluster = Cluster(pipeline(), seed=3, config=FAST, unbounded=True)
    cluster.run(until=lambda: running(cluster))
    cluster.rm_epoch += 1
    end_ms = cluster.now_ms + 30_000
    cluster.run(until=lambda: cluster.now_ms > end_ms)
    assert cluster.core.job_attempt == 1


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


def test_a_lost_slot_restarts_the_job_from_its_last_checkpoint():
    cluster = Cluster(pipeline(), seed=5, config=FAST, unbounded=True)
    cluster.run(until=lambda: len(of(cluster, msg.CheckpointCompleted)) == 3)
    before = max(e.checkpoint_id for e in of(cluster, msg.CheckpointCompleted))
    cluster.lose(next(iter(cluster.allocations)))
    cluster.run(until=lambda: cluster.core.job_attempt == 2 and running(cluster))
    restored = of(cluster, msg.Restored)[-1]
    assert (restored.job_attempt, restored.checkpoint_id >= before) == (2, True)
    details = cluster.ask(msg.RequestJobDetails(job_id="job"))
    assert details.attempt == 2
    assert details.restored_checkpoint_id == restored.checkpoint_id
    assert "SIGKILL" in details.exceptions[0]["exception"]
    deploys = [c.message.deploy for c in cluster.sent if isinstance(c.message, msg.DeploySlot)]
    assert all(t.restore for t in deploys[-1].tasks)
    cluster.run(until=lambda: cluster.core.coordinator.counts["completed"] > 5)
    ids = [e.checkpoint_id for e in of(cluster, msg.CheckpointCompleted)]
    assert ids == sorted(set(ids)), "checkpoint ids only grow"


def test_a_slot_that_its_task_manager_ended_of_its_own_accord_restarts_the_job():
    """Its tasks say that they are being cancelled, which nobody had told them."""
    cluster = Cluster(pipeline(), seed=5, config=FAST, unbounded=True)
    cluster.run(until=lambda: running(cluster))
    allocation = next(iter(cluster.allocations))
    graph = cluster.core.graph
    graph.transition_all(list(graph.in_allocation(allocation)), ExecutionState.CANCELING, 0)
    cluster.lose(allocation)
    cluster.run(until=lambda: cluster.core.job_attempt == 2 and running(cluster))


def test_a_lost_task_manager_fails_all_its_slots_at_once():
    cluster = Cluster(pipeline(), seed=6, config=FAST, unbounded=True)
    cluster.run(until=lambda: running(cluster))
    lost = next(iter(cluster.allocations.values()))[0]
    cluster.lose_taskmanager(lost)
    cluster.run(until=lambda: cluster.core.stage is Stage.BACKING_OFF)
    assert not cluster.core.pool.of_taskmanager(lost)
    cluster.run(until=lambda: cluster.core.job_attempt == 2 and running(cluster))


def test_a_loss_that_is_heard_of_after_its_symptom_is_the_root():
    cluster = Cluster(pipeline(), seed=18, config=FAST, unbounded=True)
    cluster.run(until=lambda: running(cluster))
    allocations = list(cluster.allocations)
    task = next(t for t in cluster.tasks.values() if t.deploy.allocation_id == allocations[0])
    broken = {"type": "ExternalError", "message": "the data connection broke"}
    cluster.set_state(task, ExecutionState.FAILED, error=slot_msg.ErrorInfo(error=broken))
    cluster.run(until=lambda: cluster.core.stage is Stage.BACKING_OFF)
    cluster.lose(allocations[1])
    cluster.run(until=lambda: cluster.core.job_attempt == 2)
    (entry,) = cluster.core.exceptions.all()
    assert "SIGKILL" in entry["exception"]
    assert [e["error"]["message"] for e in entry["concurrent"]] == ["the data connection broke"]


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


def fail_a_task(cluster: Cluster, error: dict) -> None:
    task = next(t for t in cluster.tasks.values() if t.state is ExecutionState.RUNNING)
    info = slot_msg.ErrorInfo(error=error, traceback="Traceback of ours", operator="sum")
    cluster.set_state(task, ExecutionState.FAILED, error=info)


TRACEBACK = """Traceback (most recent call last):
  File "/app/job.py", line 7, in run
    double(row)
  File "/app/rows.py", line 12, in double
    return row["k"] * 2
           ~~~^^^^^
KeyError: 'k'"""


def test_the_log_says_why_a_job_restarts_and_why_it_gives_up():
    config = FAST | {"restart-strategy.fixed-delay.attempts": "1"}
    cluster = Cluster(pipeline(), seed=11, unbounded=True, config=config)
    for attempt in (1, 2):
        cluster.run(until=lambda a=attempt: cluster.core.job_attempt == a and running(cluster))
        fail_a_task(cluster, {"type": "FunctionError", "message": "raised", "user_traceback": TRACEBACK})
    cluster.run()
    lines = [line for line in cluster.said if line.event in ("job_restarting", "job_failed")]
    assert [(line.level, line.event) for line in lines] == [
        ("warning", "job_restarting"),
        ("error", "job_failed"),
    ]
    why = {
        "error": "[PS-FUNCTION] raised", "raised": "KeyError: 'k'", "at": "/app/rows.py:12 in double",
        "operator": "sum",
    }  # fmt: skip
    for attempt, line in enumerate(lines, start=1):
        assert line.fields["attempt"] == attempt
        assert line.fields["task"] == cluster.core.exceptions.all()[-attempt]["task"]
        assert why.items() <= line.fields.items()
    assert lines[0].fields["delay_ms"] == 50
    assert lines[1].fields["reason"] == "fixed-delay allows 1 restarts"
    deployed = [line.fields["attempt"] for line in cluster.said if line.event == "job_deploying"]
    assert deployed == [1, 2]


def test_the_log_says_which_slot_was_lost():
    cluster = Cluster(pipeline(), seed=5, unbounded=True, config=FAST)
    cluster.run(until=lambda: running(cluster))
    cluster.lose(next(iter(cluster.allocations)))
    cluster.run(until=lambda: cluster.core.job_attempt == 2)
    first = next(line for line in cluster.said if line.event == "job_restarting")
    assert "slot lost" in first.fields["error"]
    assert first.fields["at"].startswith("task manager ")


def test_an_error_of_the_data_is_not_retried():
    cluster = Cluster(pipeline(), seed=9, unbounded=True)
    cluster.run(until=lambda: running(cluster))
    fail_a_task(cluster, {"type": "RecordError", "message": "not JSON", "user_traceback": "user's line 3"})
    cluster.run()
    assert cluster.stopped.status is JobStatus.FAILED
    entry = cluster.archived.details.exceptions[0]
    assert entry["exception"].startswith("user's line 3\n[PS-RECORD] not JSON")
    assert entry["operator"] == "sum"
    assert "cannot help" in entry["not_restarted"]
    assert of(cluster, msg.Terminal)[0].error["message"] == "not JSON"


def test_a_function_that_always_raises_fails_the_job_after_three_tries():
    cluster = Cluster(pipeline(), seed=10, unbounded=True, config={"execution.checkpointing.interval": "0"})
    for attempt in (1, 2, 3):
        cluster.run(until=lambda a=attempt: cluster.core.job_attempt == a and running(cluster))
        fail_a_task(cluster, {"type": "FunctionError", "message": "boom"})
    cluster.run()
    assert cluster.stopped.status is JobStatus.FAILED
    assert cluster.core.job_attempt == 3


def test_the_restart_strategy_is_kept():
    config = FAST | {"restart-strategy.fixed-delay.attempts": "1"}
    cluster = Cluster(pipeline(), seed=11, unbounded=True, config=config)
    for attempt in (1, 2):
        cluster.run(until=lambda a=attempt: cluster.core.job_attempt == a and running(cluster))
        fail_a_task(cluster, {"type": "FunctionError", "message": f"boom {attempt}"})
    cluster.run()
    assert cluster.stopped.status is JobStatus.FAILED
    assert cluster.core.job_attempt == 2
    messages = [e["error"]["message"] for e in cluster.archived.details.exceptions]
    assert messages == ["boom 2", "boom 1"]


def test_a_fenced_master_says_nothing_more():
    cluster = Cluster(pipeline(), seed=12, unbounded=True, config=FAST)
    cluster.run(until=lambda: running(cluster))
    cluster.apply(fx.Deposed("epoch 7 is newer than ours, 2"))
    assert cluster.stopped == fx.Stop(JobStatus.SUSPENDED, "epoch 7 is newer than ours, 2")
    sent = len(cluster.sent)
    assert isinstance(cluster.ask(msg.CancelJob(command_id="c", job_id="job")), msg.Refused)
    assert len(cluster.sent) == sent


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
    second.run(until=lambda: second.core.coordinator.counts["completed"] == 1)
    assert of(second, msg.Restored)[0].checkpoint_id == last.checkpoint_id
    assert of(second, msg.Restored)[0].job_attempt == 2
    assert of(second, msg.CheckpointCompleted)[0].checkpoint_id > last.checkpoint_id + 3
    second.run(until=lambda: last.manifest_key not in second.manifests)  # the newer one replaced it


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


def test_slots_that_count_as_ours_and_are_not_held_are_given_back():
    cluster = Cluster(pipeline(), seed=17, config=FAST)
    # A former master's: the resource manager counts them as the job's, nobody offers them.
    cluster.allocations = {"old1": ("tm0", 0), "old2": ("tm0", 1)}
    cluster.free = []
    cluster.run()
    assert cluster.stopped.status is JobStatus.FINISHED


@pytest.mark.parametrize("seed", range(60))
def test_random_faults(seed):
    """Whatever happens, every invariant holds after each step, and once the faults end the
    job does."""
    faults = Faults(
        task_failure=0.02,
        slot_lost=0.01,
        taskmanager_lost=0.005,
        decline=0.03,
        duplicate=0.2,
        store=0.1,
        lost_command=0.05,
        master_lost=0.01,
    )
    graph = [pipeline(), diamond(), pipeline(p=4)][seed % 3]
    config = FAST | {
        "execution.checkpointing.num-retained": str(1 + seed % 3),
        "execution.checkpointing.interval": "40 ms" if seed % 4 == 3 else "300 ms",
        "execution.checkpointing.max-concurrent-checkpoints": str(1 + seed % 4),
    }
    cluster = Cluster(graph, seed=seed, faults=faults, taskmanagers=3, slots=2, config=config)
    cluster.run()
    assert cluster.stopped.status is JobStatus.FINISHED
    restored = [e.checkpoint_id for e in of(cluster, msg.Restored)]
    completed = [e.checkpoint_id for e in of(cluster, msg.CheckpointCompleted)]
    assert set(restored) <= set(completed) | {0}
    assert restored == sorted(restored)
    assert completed == sorted(set(completed))


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


def test_a_finished_job_that_waits_for_the_log_does_not_spin():
    """The last task may end at the moment at which another checkpoint was due: nothing is to be
    done about that any more, and the clock alone brings the log's answer no nearer."""
    for seed in range(50):
        cluster = Cluster(pipeline(), seed=seed, config=SEVERAL)
        core = cluster.core
        cluster.run(until=lambda c=core: c.graph.all_finished and not c.coordinator.settled)
        if cluster.stopped is None:
            break
    core.due.coordinator_ms = cluster.now_ms
    (timer,) = core.step(fx.Wakeup(), cluster.now_ms)
    assert timer.delay_ms > 0
    cluster.run()
    assert cluster.stopped.status is JobStatus.FINISHED


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
