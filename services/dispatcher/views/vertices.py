"""One vertex of a job, its subtasks, and where they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock_services.dispatcher.views.common import (
    UNASSIGNED,
    Kebab,
    Shape,
    Times,
    attempt_number,
    backpressure_level,
    end_ms,
    first_ms,
    last_ms,
    ratio,
    state_of,
    state_times,
    states_of,
    times,
    vertex_id,
)
from penstock_services.dispatcher.views.io_metrics import IOMetrics, io_metrics
from penstock_services.dispatcher.views.results import Accumulator, accumulators_of
from penstock_services.dispatcher.views.statistics import Spread, spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.messages.cluster import SubtaskDetails, VertexDetails

#: The states of an execution before its end, in their order.
_LASTING = ("CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING", "CANCELING")
_TOTALS = ("read_bytes", "write_bytes", "read_records", "write_records")


class Aggregated(Kebab, frozen=True, kw_only=True):
    """Statistics over the subtasks, for each metric and for the ms spent in each state."""

    metrics: dict[str, Spread]
    status_duration: dict[str, Spread]


class Subtask(Times, frozen=True, kw_only=True):
    """One subtask. ``attempt``: counted from 0. ``status-duration``: ms spent in each state; -1: never in it."""

    subtask: int
    status: str
    attempt: int
    endpoint: str
    start_time_: int = msgspec.field(name="start_time")
    metrics: IOMetrics
    taskmanager_id: str
    status_duration: dict[str, int]
    other_concurrent_attempts: list[Subtask] = []
    # Of ours.
    host: str
    allocation_id: str | None
    execution_id: str


class Vertex(Shape, frozen=True, kw_only=True):
    """``GET /jobs/{id}/vertices/{vertex}``"""

    id: str
    name: str
    parallelism: int
    max_parallelism: int = msgspec.field(name="maxParallelism")
    now: int
    subtasks: list[Subtask]
    aggregated: Aggregated
    # Of ours.
    operators: list[dict[str, Any]]
    metrics: IOMetrics


class SubtaskTimes(Shape, frozen=True, kw_only=True):
    """The times of one subtask. ``timestamps``: every state → when the subtask entered it, in ms; 0: it has
    not."""

    subtask: int
    endpoint: str
    duration: int
    timestamps: dict[str, int]
    # Of ours.
    host: str


class VertexTimes(Shape, frozen=True, kw_only=True):
    """``GET …/subtasktimes``"""

    id: str
    name: str
    now: int
    subtasks: list[SubtaskTimes]


class VertexOnTaskManager(Times, frozen=True, kw_only=True):
    """The subtasks of a vertex on one task manager."""

    endpoint: str
    status: str
    metrics: IOMetrics
    status_counts: dict[str, int]
    taskmanager_id: str
    aggregated: Aggregated
    # Of ours.
    host: str


class VertexTaskManagers(Shape, frozen=True, kw_only=True):
    """``GET …/taskmanagers``"""

    id: str
    name: str
    now: int
    taskmanagers: list[VertexOnTaskManager]


class SubtaskBackPressure(Kebab, frozen=True, kw_only=True):
    """Shares (0 to 1) of the last interval."""

    subtask: int
    attempt_number: int
    backpressure_level: str
    backpressure_level_: str = msgspec.field(name="backpressureLevel")
    ratio: float
    idle_ratio: float = msgspec.field(name="idleRatio")
    busy_ratio: float = msgspec.field(name="busyRatio")
    other_concurrent_attempts: list[SubtaskBackPressure] = []


class VertexBackPressure(Kebab, frozen=True, kw_only=True):
    """``GET …/backpressure``"""

    status: str = "ok"
    backpressure_level: str
    backpressure_level_: str = msgspec.field(name="backpressureLevel")
    end_timestamp: int
    subtasks: list[SubtaskBackPressure]


class VertexAccumulators(Kebab, frozen=True, kw_only=True):
    """``GET …/accumulators``"""

    id: str
    user_accumulators: list[Accumulator]


class SubtaskAccumulators(Kebab, frozen=True, kw_only=True):
    """The accumulators of one subtask of a vertex."""

    subtask: int
    attempt: int
    endpoint: str
    user_accumulators: list[Accumulator]


class SubtasksAccumulators(Shape, frozen=True, kw_only=True):
    """``GET …/subtasks/accumulators``"""

    id: str
    parallelism: int
    subtasks: list[SubtaskAccumulators]


class AttemptAccumulators(Kebab, frozen=True, kw_only=True):
    """``GET …/subtasks/{index}/attempts/{attempt}/accumulators``. ``id``: that of the execution."""

    subtask: int
    attempt: int
    id: str
    user_accumulators: list[Accumulator]


def _place(subtask: SubtaskDetails) -> str:
    return subtask.taskmanager_id or UNASSIGNED


def status_durations(subtask: SubtaskDetails, now_ms: int) -> dict[str, int]:
    """State → ms spent in it so far; -1: never in it."""
    entered = sorted((at, state) for state, at in subtask.timestamps.items() if at)
    found = dict.fromkeys(_LASTING, -1)
    for i, (at, state) in enumerate(entered):
        if state in found:
            found[state] = max(0, (entered[i + 1][0] if i + 1 < len(entered) else now_ms) - at)
    return found


def _aggregated(subtasks: Sequence[SubtaskDetails], now_ms: int) -> Aggregated:
    each = [io_metrics([s]) for s in subtasks]
    durations = [status_durations(s, now_ms) for s in subtasks]
    return Aggregated(
        metrics={
            name.replace("_", "-"): spread([getattr(metrics, name) for metrics in each]) for name in _TOTALS
        },
        status_duration={state: spread([d[state] for d in durations if d[state] >= 0]) for state in _LASTING},
    )


def subtask(details: SubtaskDetails, now_ms: int) -> Subtask:
    """One subtask."""
    began = first_ms([details])
    return Subtask(
        subtask=details.subtask_index,
        status=details.state.value,
        attempt=attempt_number(details.attempt),
        endpoint=_place(details),
        **times(began, end_ms(details), now_ms),
        start_time_=began if began is not None else -1,
        metrics=io_metrics([details]),
        taskmanager_id=_place(details),
        status_duration=status_durations(details, now_ms),
        host=_place(details),
        allocation_id=details.allocation_id,
        execution_id=details.execution_id,
    )


def vertex(details: VertexDetails, now_ms: int) -> Vertex:
    """One vertex with its subtasks."""
    return Vertex(
        id=vertex_id(details.id),
        name=details.name,
        parallelism=details.parallelism,
        max_parallelism=details.max_parallelism,
        now=now_ms,
        subtasks=[subtask(s, now_ms) for s in details.subtasks],
        aggregated=_aggregated(details.subtasks, now_ms),
        operators=details.operators,
        metrics=io_metrics(details.subtasks),
    )


def subtask_times(details: VertexDetails, now_ms: int) -> VertexTimes:
    """The times of a vertex's subtasks."""
    return VertexTimes(
        id=vertex_id(details.id),
        name=details.name,
        now=now_ms,
        subtasks=[
            SubtaskTimes(
                subtask=s.subtask_index,
                endpoint=_place(s),
                duration=times(first_ms([s]), end_ms(s), now_ms)["duration"],
                timestamps=state_times(s),
                host=_place(s),
            )
            for s in details.subtasks
        ],
    )


def taskmanagers(details: VertexDetails, now_ms: int) -> VertexTaskManagers:
    """The subtasks of a vertex by task manager."""
    by_manager: dict[str, list[SubtaskDetails]] = {}
    for one in details.subtasks:
        by_manager.setdefault(_place(one), []).append(one)
    return VertexTaskManagers(
        id=vertex_id(details.id),
        name=details.name,
        now=now_ms,
        taskmanagers=[
            VertexOnTaskManager(
                endpoint=manager,
                status=state_of(subtasks),
                **times(first_ms(subtasks), last_ms(subtasks), now_ms),
                metrics=io_metrics(subtasks),
                status_counts=states_of(subtasks),
                taskmanager_id=manager,
                aggregated=_aggregated(subtasks, now_ms),
                host=manager,
            )
            for manager, subtasks in by_manager.items()
        ],
    )


def backpressure(details: VertexDetails, now_ms: int) -> VertexBackPressure:
    """The back-pressure of a vertex's subtasks."""
    ratios = [ratio(s, "back_pressured") for s in details.subtasks]
    level = backpressure_level(max(ratios, default=0.0))
    return VertexBackPressure(
        backpressure_level=level,
        backpressure_level_=level,
        end_timestamp=now_ms,
        subtasks=[
            SubtaskBackPressure(
                subtask=s.subtask_index,
                attempt_number=attempt_number(s.attempt),
                backpressure_level=backpressure_level(share),
                backpressure_level_=backpressure_level(share),
                ratio=share,
                idle_ratio=ratio(s, "idle"),
                busy_ratio=ratio(s, "busy"),
            )
            for s, share in zip(details.subtasks, ratios, strict=True)
        ],
    )


def vertex_accumulators(details: VertexDetails) -> VertexAccumulators:
    """The accumulators of a vertex."""
    return VertexAccumulators(id=vertex_id(details.id), user_accumulators=accumulators_of(details.subtasks))


def subtasks_accumulators(details: VertexDetails) -> SubtasksAccumulators:
    """The accumulators of a vertex by subtask."""
    return SubtasksAccumulators(
        id=vertex_id(details.id),
        parallelism=details.parallelism,
        subtasks=[
            SubtaskAccumulators(
                subtask=s.subtask_index,
                attempt=attempt_number(s.attempt),
                endpoint=_place(s),
                user_accumulators=accumulators_of([s]),
            )
            for s in details.subtasks
        ],
    )


def attempt_accumulators(details: SubtaskDetails) -> AttemptAccumulators:
    """The accumulators of one attempt of a subtask."""
    return AttemptAccumulators(
        subtask=details.subtask_index,
        attempt=attempt_number(details.attempt),
        id=details.execution_id,
        user_accumulators=accumulators_of([details]),
    )
