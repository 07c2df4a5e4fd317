"""Who held a checkpoint up."""

from __future__ import annotations

import pytest

from penstock.messages.slot import CheckpointAcknowledged, CheckpointMetrics, StateHandle
from services.jobmanager.checkpoints import Pending
from services.jobmanager.culprit import MISSING, PHASES, slowest
from tests.services.jobmanager.graphs import pipeline

GRAPH = pipeline()
PLACES = [("enumerate", 0), ("read", 0), ("read", 1), ("sum", 0), ("sum", 1), ("sink", 0)]


def pending(**acks: tuple[int, dict[str, float]]) -> Pending:
    """``acks``: execution → (ms when, metrics)."""
    found = Pending(3, "checkpoint", 1_000)
    found.expected = {f"{v}{i}": (v, i) for v, i in PLACES}
    for execution_id, (ack_ms, metrics) in acks.items():
        vertex_id, index = found.expected[execution_id]
        handle = StateHandle(vertex_id=vertex_id, subtask_index=index, checkpoint_id=3)
        found.take(
            CheckpointAcknowledged(
                job_id="j", job_attempt=1, execution_id=execution_id, vertex_id=vertex_id,
                subtask_index=index, checkpoint_id=3, handle=handle, metrics=CheckpointMetrics(**metrics),
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


def test_of_one_that_waits_the_first_along_the_stream():
    acks = {"enumerate0": (1_005, {}), "read0": (1_010, {}), "sink0": (1_020, {})}
    found = slowest(pending(**acks), GRAPH, 61_000)
    assert found is not None
    assert (found["operator"], found["phase"], found["ms"]) == ("read (2/2)", MISSING, 60_000)


def test_nothing_is_known_of_one_without_subtasks():
    assert slowest(Pending(1, "checkpoint", 0), GRAPH, 5) is None
