"""What a job master does when slots, task managers and tasks fail."""

from __future__ import annotations

import pytest

from penstock.messages import cluster as msg
from penstock.messages import slot as slot_msg
from penstock.messages.states import ExecutionState, JobStatus
from penstock_services.jobmanager.stages import Stage
from tests.services.jobmanager.graphs import diamond, pipeline
from tests.services.jobmanager.looking import FAST, of, running
from tests.services.jobmanager.simulated import Cluster, Faults


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
    cluster.run(until=lambda: cluster.core.coordinator.history.counts["completed"] > 5)
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


@pytest.mark.parametrize(
    "seed", [*range(20), *(pytest.param(i, marks=pytest.mark.soak) for i in range(20, 60))]
)
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
