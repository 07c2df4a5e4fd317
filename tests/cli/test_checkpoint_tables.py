"""What ``penstock info JOB --checkpoints`` and ``--checkpoint`` print, and how far a restore is."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from penstock.cli import checkpoints, main
from penstock.errors import SpecError

DONE = {
    "id": 7,
    "kind": "checkpoint",
    "status": "COMPLETED",
    "trigger_timestamp": 0,
    "end_to_end_duration": 1_234,
    "num_acknowledged_subtasks": 4,
    "num_subtasks": 4,
    "checkpointed_size": 1_500,
    "state_size": 2_500_000,
    "failure_message": None,
    "slowest": {"operator": "Sum (2/4)", "phase": "writing its state", "ms": 840},
}


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (
            {},
            ["7", "COMPLETED", "1,234 ms", "4/4", "1.5 kB", "2.5 MB", "Sum (2/4) writing its state, 840 ms"],
        ),
        ({"status": "IN_PROGRESS", "end_to_end_duration": -1, "num_acknowledged_subtasks": 1}, ["1/4"]),
        ({"status": "FAILED", "failure_message": "expired after 10 ms"}, ["FAILED", "expired after 10 ms"]),
        ({"id": 0, "slowest": None}, [""]),
    ],
)
def test_history(more, says):
    row = [str(cell) for cell in checkpoints.history_row(DONE | more)]
    assert [word for word in says if word not in row] == []


def test_subtasks():
    known = {
        "index": 1,
        "ack_timestamp": 5,
        "end_to_end_duration": 1_200,
        "checkpointed_size": 2_000_000,
        "checkpoint": {"sync": 1.25, "async": 300.0},
        "alignment": {"duration": 40.0, "persisted": 0},
        "start_delay": 858.7,
        "unaligned_checkpoint": False,
    }
    assert checkpoints.subtask_row("Sum", known, "COMPLETED") == [
        "Sum #2", "aligned", "1,200 ms", "858.7 ms", "40.0 ms", "1.2 ms", "300.0 ms", "2.0 MB", "",
    ]  # fmt: skip
    overtaken = known | {"unaligned_checkpoint": True, "alignment": {"duration": 0.0, "persisted": 1_000_000}}
    assert checkpoints.subtask_row("Sum", overtaken, "IN_PROGRESS")[-1] == "1.0 MB"
    missing = {"index": 0, "status": "pending_or_failed"}
    assert checkpoints.subtask_row("Sum", missing, "FAILED")[:2] == ["Sum #1", "not acknowledged"]
    assert checkpoints.subtask_row("Sum", missing, "COMPLETED")[:2] == ["Sum #1", "finished"]


def test_how_far_a_restore_is():
    def vertex(**restore):
        return {"metrics": {"restore": restore or None}}

    assert checkpoints.restoring([vertex(), {"name": "no metrics yet"}]) is None
    one = vertex(bytes=800_000_000, read=120_000_000, local=0)
    assert checkpoints.restoring([one, vertex()]) == "restoring: 120.0 MB of 800.0 MB"
    two = vertex(bytes=200_000_000, read=80_000_000, local=80_000_000)
    assert checkpoints.restoring([one, two]) == (
        "restoring: 200.0 MB of 1,000.0 MB (80.0 MB of it from local disks)"
    )


def test_checkpoints_are_a_jobs():
    result = CliRunner().invoke(main.app, ["info", "--checkpoints"])
    assert isinstance(result.exception, SpecError)
