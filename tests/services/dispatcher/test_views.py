"""Views of the dispatcher that need no cluster."""

import re

import msgspec

from penstock.messages.cluster import CheckpointDetails, JobDetails, SubtaskDetails, VertexDetails
from penstock.messages.slot import OperatorMetrics, TaskMetrics
from penstock.messages.states import ExecutionState, JobStatus
from penstock_services.dispatcher import views
from penstock_services.dispatcher.metrics import render
from penstock_services.dispatcher.vertex_views import job_metric_values


def test_redacted_hides_secrets_by_key_and_in_urls():
    config = {
        "nats.url": "nats://me:hidden@a:4222,nats://b:4222",
        "storage.options.secret_access_key": "hidden",
        "rest.port": "8081",
    }
    assert views.redacted(config) == {
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
    vertex = VertexDetails(id="v", name="v", parallelism=2, max_parallelism=128, subtasks=[busy, done])
    assert views.vertex_metrics(vertex)["restore"] == {"bytes": 800, "read": 300, "local": 100}
    vertex.subtasks = [done]
    assert views.vertex_metrics(vertex)["restore"] is None


def job(status: JobStatus, **more) -> JobDetails:
    return JobDetails(job_id="j", name="n", status=status, attempt=2, epoch=1, start_ms=1_000, **more)


def test_uptime_is_counted_from_the_last_interruption():
    timestamps = {"RUNNING": 7_000}
    running = job(JobStatus.RUNNING, timestamps=timestamps)
    assert job_metric_values(running, 9_000)["uptime"] == 2_000
    assert job_metric_values(job(JobStatus.RESTARTING, timestamps=timestamps), 9_000)["uptime"] == 0
    assert job_metric_values(job(JobStatus.FINISHED, end_ms=8_000), 9_000)["uptime"] == -1


def test_the_full_size_of_a_checkpoint_is_not_its_increments():
    last = CheckpointDetails(
        id=3,
        status="COMPLETED",
        kind="checkpoint",
        trigger_timestamp_ms=1,
        size_bytes=10,
        full_size_bytes=900,
    )
    values = job_metric_values(job(JobStatus.RUNNING, checkpoints=[last]), 9_000)
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
    text = render([job(JobStatus.RUNNING, vertices=[vertex])], None, 9_000, {}).decode()
    for name in ("task_numRecordsIn", "operator_numLateRecordsDropped", "operator_numRecordsInErrors"):
        assert re.search(rf"{name}{{.*}} 0\.0$", text, re.MULTILINE), name
