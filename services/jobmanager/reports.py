"""Handles the reports of slots. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from penstock.errors import InternalError
from penstock.messages import cluster as msg
from penstock.messages import slot as slot_msg
from penstock.messages.stack_samples import StacksSampled
from penstock.messages.states import ExecutionState
from penstock.messages.taps import EdgeTapped
from penstock_services.jobmanager.execution_graph import Update
from penstock_services.jobmanager.stages import Step

if TYPE_CHECKING:
    from penstock_services.jobmanager.execution_graph import Execution
    from penstock_services.jobmanager.failover import Failover
    from penstock_services.jobmanager.job_state import JobState

_E = ExecutionState


class Reports:
    """The handler of one job's reports."""

    def __init__(self, job: JobState, failover: Failover) -> None:
        self._job = job
        self._failover = failover

    def take(self, report: slot_msg.FromSlot, relay: msg.SlotReport, now_ms: int) -> Step:
        """Handles one report."""
        job = self._job
        match report:
            case slot_msg.TaskStateChanged():
                return self._task_state(report, now_ms)
            case slot_msg.FinalCheckpointWanted():
                execution = job.graph.get(report.execution_id)
                if execution is not None:
                    job.graph.wants_final_checkpoint(execution)
                return Step()
            case slot_msg.CheckpointAcknowledged():
                return Step(job.coordinator.acknowledge(report, now_ms)[1])
            case slot_msg.CheckpointDeclined():
                return Step(job.coordinator.decline(report, now_ms))
            case slot_msg.TaskMetricsReport():
                for metrics in report.tasks:
                    execution = job.graph.get(metrics.execution_id)
                    if execution is not None:
                        execution.metrics = metrics
                return Step()
            case slot_msg.SlotStalled():
                self._slot_stalled(report, relay.taskmanager_id, now_ms)
                return Step()
            case slot_msg.SlotReady() | slot_msg.SlotLog() | StacksSampled() | EdgeTapped():
                return Step()
            case _:
                assert_never(report)

    def _slot_stalled(self, report: slot_msg.SlotStalled, taskmanager_id: str, now_ms: int) -> None:
        job = self._job
        if not report.stalled:
            job.stalled.pop(report.allocation_id, None)
            return
        tasks = [job.task_name(e) for e in job.graph.in_allocation(report.allocation_id)]
        before = job.stalled.get(report.allocation_id, {})
        job.stalled[report.allocation_id] = {
            "allocation_id": report.allocation_id,
            "taskmanager_id": taskmanager_id,
            "tasks": tasks,
            "frame": report.frame,
            "since_ms": before.get("since_ms", now_ms),
        }

    def _task_state(self, report: slot_msg.TaskStateChanged, now_ms: int) -> Step:
        job = self._job
        answer = job.graph.report(report)
        if answer is Update.ILLEGAL:
            execution = job.graph.get(report.execution_id)
            assert execution is not None
            return self._inconsistent(execution, report, now_ms)
        if answer is not Update.APPLIED:
            return Step()
        execution = job.graph.get(report.execution_id)
        assert execution is not None
        if report.state is _E.FINISHED:
            return Step(job.coordinator.task_finished(execution, now_ms))
        if report.state in (_E.FAILED, _E.CANCELED) and not job.told_to_end(execution):
            info = report.error
            if info is None:
                error = InternalError(f"a task became {report.state.value} without a command to stop")
                info = slot_msg.ErrorInfo(error=error.to_dict())
            return self._failover.fail(
                info,
                now_ms,
                vertices=(execution.vertex_id,),
                task=job.task_name(execution),
                location=execution.taskmanager_id,
            )
        if report.error is not None and report.state is _E.FAILED:
            task, location = job.task_name(execution), execution.taskmanager_id
            return Step(job.failed_as_well(report.error, now_ms, task=task, location=location))
        return Step()

    def _inconsistent(self, execution: Execution, report: slot_msg.TaskStateChanged, now_ms: int) -> Step:
        job = self._job
        error = InternalError(
            "a task reports a state that it cannot be in",
            expected=f"a state that follows {execution.state.value}",
            got=report.state.value,
            where=report.execution_id,
        )
        job.graph.transition(execution, _E.FAILED, now_ms)
        return self._failover.fail(
            slot_msg.ErrorInfo(error=error.to_dict()),
            now_ms,
            vertices=(execution.vertex_id,),
            task=job.task_name(execution),
        )
