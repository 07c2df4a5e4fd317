"""Views of the dispatcher that need no cluster."""

import re

import msgspec
import pytest

from penstock.errors import SpecError
from penstock.messages.cluster import (
    CheckpointDetails,
    ClusterOverview,
    JobDetails,
    SubtaskDetails,
    VertexDetails,
)
from penstock.messages.resource_manager import TaskManagerDetails
from penstock.messages.slot import OperatorMetrics, TaskMetrics
from penstock.messages.states import ExecutionState, JobStatus
from penstock.redaction import shown_options
from penstock_services.dispatcher.active_jobs import ActiveJobs
from penstock_services.dispatcher.metrics import render
from penstock_services.dispatcher.views.checkpoints import checkpoint_subtasks, checkpoints
from penstock_services.dispatcher.views.io_metrics import restoring
from penstock_services.dispatcher.views.metrics import aggregated, job_values, wanted_names
from penstock_services.dispatcher.views.statistics import Summary, percentile, summary
from penstock_services.dispatcher.views.vertices import status_durations


def test_redacted_hides_secrets_by_key_and_in_urls():
    config = {
        "nats.url": "nats://me:hidden@a:4222,nats://b:4222",
        "storage.options.secret_access_key": "hidden",
        "rest.port": "8081",
    }
    assert shown_options(config) == {
        "nats.url": "nats://******@a:4222,nats://b:4222",
        "storage.options.secret_access_key": "******",
        "rest.port": "8081",
    }


def test_how_far_a_vertex_is_restored():
    def subtask(index: int, state: ExecutionState, **metrics: int) -> SubtaskDetails:
        return SubtaskDetails(subtask_index=index, execution_id="e", attempt=1, state=state, metrics=metrics)

    busy = subtask(
        0, ExecutionState.INITIALIZING, restore_bytes=800, restored_bytes=300, restored_local_bytes=100
    )
    done = subtask(1, ExecutionState.RUNNING, restore_bytes=900, restored_bytes=900)
    assert msgspec.to_builtins(restoring([busy, done])) == {"bytes": 800, "read": 300, "local": 100}
    assert restoring([done]) is None


def job(status: JobStatus, **more) -> JobDetails:
    return JobDetails(job_id="j", name="n", status=status, attempt=2, epoch=1, start_ms=1_000, **more)


def test_uptime_is_counted_from_the_last_interruption():
    timestamps = {"RUNNING": 7_000}
    running = job(JobStatus.RUNNING, timestamps=timestamps)
    assert job_values(running, 9_000)["uptime"] == 2_000
    assert job_values(job(JobStatus.RESTARTING, timestamps=timestamps), 9_000)["uptime"] == 0
    assert job_values(job(JobStatus.FINISHED, end_ms=8_000), 9_000)["uptime"] == -1


def test_the_full_size_of_a_checkpoint_is_not_its_increments():
    last = CheckpointDetails(
        id=3,
        status="COMPLETED",
        kind="checkpoint",
        trigger_timestamp_ms=1,
        size_bytes=10,
        full_size_bytes=900,
    )
    values = job_values(job(JobStatus.RUNNING, checkpoints=[last]), 9_000)
    assert (values["lastCheckpointSize"], values["lastCheckpointFullSize"]) == (10, 900)


def test_counters_are_there_before_anything_is_counted():
    metrics = msgspec.to_builtins(
        TaskMetrics(
            execution_id="e", vertex_id="v", subtask_index=0, operators=(OperatorMetrics(uid="u", name="o"),)
        )
    )
    subtask = SubtaskDetails(
        subtask_index=0, execution_id="e", attempt=1, state=ExecutionState.RUNNING, metrics=metrics
    )
    vertex = VertexDetails(id="v", name="v", parallelism=1, max_parallelism=128, subtasks=[subtask])
    text = render(ActiveJobs([job(JobStatus.RUNNING, vertices=[vertex])]), None, 9_000, {}).decode()
    for name in ("task_numRecordsIn", "operator_numLateRecordsDropped", "operator_numRecordsInErrors"):
        assert re.search(rf"{name}{{.*}} 0\.0$", text, re.MULTILINE), name


def test_percentiles_are_flinks():
    assert [percentile([1, 2, 3, 4], share) for share in (0.0, 0.25, 0.5, 0.95)] == [1, 1.25, 2.5, 4]
    assert percentile([7], 0.5) == 7
    found = summary([30, 10, 20])
    assert (found.min, found.max, found.avg, found.p50, found.p999) == (10, 30, 20, 20, 30)
    assert summary([]) == Summary()


def test_the_state_size_of_checkpoints_is_their_full_size():
    kept = [
        CheckpointDetails(
            id=i, status="COMPLETED", trigger_timestamp_ms=1, size_bytes=10, full_size_bytes=size
        )
        for i, size in ((1, 100), (2, 300))
    ]
    found = checkpoints(job(JobStatus.RUNNING, checkpoints=kept)).summary
    assert (found.checkpointed_size.max, found.state_size.avg, found.state_size.max) == (10, 200, 300)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a,b", ["a", "b"]),
        ("0.Join(a, b).rows,a", ["0.Join(a, b).rows", "a"]),
        ("x,a,0.Join(a, b).rows", ["a", "0.Join(a, b).rows"]),
        ("", []),
    ],
)
def test_metrics_whose_names_have_commas_are_found(text, found):
    assert wanted_names(text, ["a", "b", "0.Join(a, b).rows"]) == found


def test_aggregated_metrics_of_subtasks():
    each = [{"in": 10, "name": "x"}, {"in": 30, "out": None}]
    [all_of] = aggregated(each, "in", None)
    assert msgspec.to_builtins(all_of) == {
        "id": "in", "min": 10.0, "max": 30.0, "avg": 20.0, "sum": 40.0, "skew": 50.0,
    }  # fmt: skip
    assert msgspec.to_builtins(aggregated(each, "in,out", "max")) == [{"id": "in", "max": 30.0}]
    assert msgspec.to_builtins(aggregated(each, None, None)) == [{"id": "in"}]
    with pytest.raises(SpecError, match="unknown aggregation"):
        aggregated(each, "in", "mean")


def test_how_long_a_subtask_was_in_its_states():
    entered = {"CREATED": 1_000, "DEPLOYING": 1_500, "RUNNING": 2_000}
    running = SubtaskDetails(
        subtask_index=0, execution_id="e", attempt=1, state=ExecutionState.RUNNING, timestamps=entered
    )
    assert status_durations(running, 9_000) == {
        "CREATED": 500, "SCHEDULED": -1, "DEPLOYING": 500, "INITIALIZING": -1, "RUNNING": 7_000, "CANCELING": -1,
    }  # fmt: skip


def test_a_subtask_that_has_not_acknowledged_is_pending():
    one = VertexDetails(id="v", name="v", parallelism=1, max_parallelism=128)
    found = CheckpointDetails(id=1, status="IN_PROGRESS", trigger_timestamp_ms=1)
    subtasks = msgspec.to_builtins(checkpoint_subtasks(one, found))["subtasks"]
    assert subtasks == [{"className": "pending", "index": 0, "status": "pending_or_failed"}]


def test_flinks_metrics_of_a_task_with_its_labels():
    def subtask(i: int, **metrics: float) -> SubtaskDetails:
        return SubtaskDetails(
            subtask_index=i, execution_id=f"e{i}", attempt=2, state=ExecutionState.RUNNING, taskmanager_id="tm-1",
            metrics={"bytes_out_per_second": 7.5, "in_pool_usage": 0.25, **metrics},
        )  # fmt: skip

    vertex = VertexDetails(
        id="v", name="sum", parallelism=2, max_parallelism=128,
        subtasks=[subtask(0, back_pressured_ms_per_second=900.0), subtask(1)],
    )  # fmt: skip
    barriers = [
        {"vertex_id": "v", "subtask_index": 0, "alignment_ms": 1.5, "start_delay_ms": 4.0},
        {"vertex_id": "v", "subtask_index": 1, "alignment_ms": 0.0, "start_delay_ms": 2.0},
    ]
    last = CheckpointDetails(
        id=3, status="COMPLETED", trigger_timestamp_ms=1, end_timestamp_ms=9, subtasks=barriers
    )
    manager = TaskManagerDetails(id="tm-1", host="worker.example", pid=1, data_port=2, last_heartbeat_ms=3)
    cluster = ClusterOverview(
        taskmanagers=[manager], slots_total=4, slots_free=1, resourcemanager_id="rm", epoch=1
    )
    running = job(JobStatus.RUNNING, vertices=[vertex], checkpoints=[last])
    text = render(ActiveJobs([running]), cluster, 9_000, {"metrics.flink-names": "true"}).decode()

    def value(name: str, index: int) -> float:
        [line] = [
            x for x in text.splitlines() if x.startswith(f"{name}{{") and f'subtask_index="{index}"' in x
        ]
        assert 'host="worker.example"' in line
        assert f'task_attempt_id="e{index}"' in line
        assert 'task_attempt_num="1"' in line
        return float(line.rpartition(" ")[2])

    for prefix in ("penstock", "flink"):
        task = f"{prefix}_taskmanager_job_task"
        assert [value(f"{task}_checkpointAlignmentTime", i) for i in (0, 1)] == [1_500_000, 0]
        assert value(f"{task}_checkpointStartDelayNanos", 0) == 4_000_000
        assert [value(f"{task}_isBackPressured", i) for i in (0, 1)] == [1, 0]
        assert value(f"{task}_numBytesOutPerSecond", 1) == 7.5
        assert value(f"{task}_inPoolUsage", 1) == 0.25
        assert f'{prefix}_taskmanager_Status_Slots_Total{{host="worker.example",tm_id="tm-1"}} 0.0' in text
        assert f"{prefix}_jobmanager_taskSlotsAvailable 1.0" in text


@pytest.mark.parametrize(
    ("status", "times"),
    [
        (JobStatus.RUNNING, {"runningTime": 4_000, "restartingTime": 0}),
        (JobStatus.RESTARTING, {"runningTime": 0, "restartingTime": 1_000}),
    ],
)
def test_how_long_a_job_has_been_in_its_state(status, times):
    entered = {"RUNNING": 5_000, "RESTARTING": 8_000}
    found = job_values(
        job(status, timestamps=entered, checkpoint_counts={"completed": 2, "failed": 1}), 9_000
    )
    assert {name: found[name] for name in times} == times
    assert (found["totalNumberOfCheckpoints"], found["lastCompletedCheckpointId"]) == (3, -1)
