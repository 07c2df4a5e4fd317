"""Who held a checkpoint up."""

from __future__ import annotations

import pytest

from penstock.messages.slot import CheckpointAcknowledged, CheckpointMetrics, StateHandle, TaskMetrics
from penstock_services.jobmanager.checkpoints import Pending
from penstock_services.jobmanager.culprit import MISSING, PHASES, slowest
from penstock_services.jobmanager.execution_graph import ExecutionGraph, execution_id
from tests.services.jobmanager.graphs import pipeline

GRAPH = ExecutionGraph("j", pipeline())
GRAPH.new_attempt(1, 0)
PLACES = [("enumerate", 0), ("read", 0), ("read", 1), ("sum", 0), ("sum", 1), ("sink", 0)]


def pending(**acks: tuple[int, dict[str, float]]) -> Pending:
    """``acks``: execution → (ms when, metrics)."""
    found = Pending(3, "checkpoint", 1_000)
    found.expected = {f"{v}{i}": (v, i) for v, i in PLACES}
    for name, (ack_ms, took) in acks.items():
        vertex_id, index = found.expected[name]
        handle = StateHandle(vertex_id=vertex_id, subtask_index=index, checkpoint_id=3)
        found.take(
            CheckpointAcknowledged(
                job_id="j", job_attempt=1, execution_id=name, vertex_id=vertex_id,
                subtask_index=index, checkpoint_id=3, handle=handle, metrics=CheckpointMetrics(**took),
            ),
            ack_ms,
        )  # fmt: skip
    return found


@pytest.mark.parametrize("phase", PHASES)
def test_of_a_complete_one_the_last_subtask_and_its_longest_phase(phase):
    quick = {f"{v}{i}": (1_010, {"sync_ms": 9.0}) for v, i in PLACES}
    found = slowest(
        pending(**quick | {"sum1": (1_500, {phase: 400.0, "sync_ms": 10.0} | {phase: 400.0})}), GRAPH, 2_000
    )
    assert found == {
        "operator": "sum (2/2)", "vertex_id": "sum", "subtask_index": 1, "phase": PHASES[phase], "ms": 400,
    }  # fmt: skip


def metrics(vertex_id: str, index: int, **times: float) -> TaskMetrics:
    return TaskMetrics(
        execution_id=execution_id("j", vertex_id, index, 1), vertex_id=vertex_id, subtask_index=index, **times
    )


BUSY = {"busy_ms_per_second": 990.0}
BLOCKED = {"back_pressured_ms_per_second": 950.0}


@pytest.mark.parametrize(
    ("known", "culprit", "phase"),
    [
        pytest.param({}, "read (2/2)", MISSING, id="nothing known: the first along the stream"),
        pytest.param(
            {("read", 1): {}, ("sum", 0): BUSY, ("sum", 1): {"busy_ms_per_second": 600.0}},
            "sum (1/2)",
            f"{MISSING}; busy 99% of the time",
            id="the busiest, though an idle one before it is missing too",
        ),
        pytest.param(
            {("read", 1): BLOCKED, ("sum", 0): {"busy_ms_per_second": 1_010.0}},
            "sum (1/2)",
            f"{MISSING}; busy 100% of the time",
            id="not the one that is back-pressured",
        ),
        pytest.param(
            {("read", 1): BLOCKED, ("sum", 0): BLOCKED},
            "sum (2/2)",
            MISSING,
            id="nobody busy: the first that is not back-pressured",
        ),
        pytest.param(
            {("read", 1): BLOCKED, ("sum", 0): BLOCKED, ("sum", 1): BLOCKED},
            "read (2/2)",
            MISSING,
            id="all back-pressured: the first",
        ),
        pytest.param(
            {("read", 0): BUSY}, "read (2/2)", MISSING, id="who has acknowledged does not hold it up"
        ),
    ],
)
def test_of_one_that_waits_who_the_others_wait_for(known, culprit, phase):
    graph = ExecutionGraph("j", pipeline())
    graph.new_attempt(1, 0)
    waiting = Pending(3, "checkpoint", 1_000)
    waiting.expected = {e.execution_id: (e.vertex_id, e.subtask_index) for e in graph}
    for execution in graph:
        place = (execution.vertex_id, execution.subtask_index)
        if place in known:
            execution.metrics = metrics(*place, **known[place])
        if place in {("enumerate", 0), ("read", 0), ("sink", 0)}:
            handle = StateHandle(vertex_id=place[0], subtask_index=place[1], checkpoint_id=3)
            waiting.handles[execution.execution_id] = handle
    found = slowest(waiting, graph, 61_000)
    assert found is not None
    assert (found["operator"], found["phase"], found["ms"]) == (culprit, phase, 60_000)


def test_of_one_whose_executions_are_gone_the_first_along_the_stream():
    acks = {"enumerate0": (1_005, {}), "read0": (1_010, {}), "sink0": (1_020, {})}
    found = slowest(pending(**acks), GRAPH, 61_000)
    assert found is not None
    assert (found["operator"], found["phase"], found["ms"]) == ("read (2/2)", MISSING, 60_000)


def test_nothing_is_known_of_one_without_subtasks():
    assert slowest(Pending(1, "checkpoint", 0), GRAPH, 5) is None
