"""The result of a job: its accumulators and its outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.messages.states import JobStatus
from penstock_services.dispatcher.views.common import Kebab, Shape, accumulated
from penstock_services.dispatcher.views.throwable import Failure, failure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.messages.cluster import JobDetails, SubtaskDetails

_OUTCOME = {JobStatus.FINISHED: "SUCCEEDED", JobStatus.FAILED: "FAILED", JobStatus.CANCELED: "CANCELED"}


class Accumulator(Shape, frozen=True, kw_only=True):
    """An operator's counter."""

    name: str
    type: str
    value: str


class JobAccumulators(Kebab, frozen=True, kw_only=True):
    """``GET /jobs/{id}/accumulators``. There are no serialized ones, because these are Java objects."""

    job_accumulators: list[Accumulator] = []
    user_task_accumulators: list[Accumulator]
    serialized_user_task_accumulators: dict[str, str] = {}


class StatusId(Shape, frozen=True, kw_only=True):
    """``id``: IN_PROGRESS or COMPLETED."""

    id: str


IN_PROGRESS, COMPLETED = StatusId(id="IN_PROGRESS"), StatusId(id="COMPLETED")


class JobResult(Kebab, frozen=True, kw_only=True, omit_defaults=True):
    """``application-status``: SUCCEEDED, FAILED or CANCELED. ``net-runtime``: ms."""

    id: str
    application_status: str
    net_runtime: int
    accumulator_results: dict[str, str]
    failure_cause: Failure | None = None


class ExecutionResult(Kebab, frozen=True, kw_only=True, omit_defaults=True):
    """``GET /jobs/{id}/execution-result``"""

    status: StatusId
    job_execution_result: JobResult | None = None


def accumulators_of(subtasks: Iterable[SubtaskDetails]) -> list[Accumulator]:
    """The accumulators of subtasks, sorted by name."""
    return [
        Accumulator(name=name, type="LongCounter", value=str(value))
        for name, value in sorted(accumulated(subtasks).items())
    ]


def job_accumulators(details: JobDetails) -> JobAccumulators:
    """The accumulators of a job."""
    subtasks = (subtask for vertex in details.vertices for subtask in vertex.subtasks)
    return JobAccumulators(user_task_accumulators=accumulators_of(subtasks))


def execution_result(details: JobDetails) -> ExecutionResult:
    """The outcome of a job."""
    if not details.status.globally_terminal:
        return ExecutionResult(status=IN_PROGRESS)
    cause = None
    if details.status is JobStatus.FAILED:
        newest = details.exceptions[0] if details.exceptions else {}
        error = newest.get("error") or {}
        text = newest.get("exception") or "the job failed; its exceptions are not known any more"
        cause = failure(error.get("type", "JobFailed"), text)
    return ExecutionResult(
        status=COMPLETED,
        job_execution_result=JobResult(
            id=details.job_id,
            application_status=_OUTCOME[details.status],
            net_runtime=(details.end_ms or details.start_ms) - details.start_ms,
            accumulator_results={},
            failure_cause=cause,
        ),
    )
