"""Which checkpoints in flight may be stored, and which are replaced."""

from __future__ import annotations

import pytest

from penstock_services.jobmanager.checkpoints import Pending, Phase
from penstock_services.jobmanager.checkpoints_in_flight import InFlight


def pending(n: int, text: str) -> Pending:
    """``text``: phase (a, s, l), then ``.`` if a subtask is missing, then ``!`` for a savepoint."""
    phase = {"a": Phase.ACKNOWLEDGING, "s": Phase.STORING, "l": Phase.LOGGING}[text[0]]
    found = Pending(n, "savepoint" if "!" in text else "checkpoint", 0, phase)
    found.expected = {"x": ("v", 0)}
    found.handles = {} if "." in text else {"x": None}
    return found


@pytest.mark.parametrize(
    ("checkpoints", "to_store", "replaced", "settled"),
    [
        ("", None, [], True),
        ("a.", None, [], True),
        ("a", 1, [], True),
        ("a. a", None, [1], True),
        ("a.! a", None, [], True),
        ("s a", None, [], True),
        ("l a", None, [], False),
        ("a a", 1, [], True),
    ],
)
def test_in_order(checkpoints: str, to_store: int | None, replaced: list[int], settled: bool) -> None:
    flight = InFlight({n: pending(n, text) for n, text in enumerate(checkpoints.split(), 1)})
    found = flight.to_store()
    assert (found and found.checkpoint_id) == to_store
    assert flight.settled is settled
    if flight:
        assert [p.checkpoint_id for p in flight.replaced_by(flight[max(flight)])] == replaced
    assert flight.problems(9, len(flight)) == []


def test_what_is_broken_is_named() -> None:
    flight = InFlight({2: pending(2, "s"), 1: pending(1, "s.")})
    flight[1].handles = {"y": None, "z": None}
    assert flight.problems(2, 3) == [
        "3 are counted, 2 in flight",
        "checkpoints in flight are out of order: [2, 1]",
        "a checkpoint in flight has an id not yet given",
        "a snapshot of an execution that does not take part",
        "stored before every subtask acknowledged",
        "stored while an older one is in flight",
    ]
