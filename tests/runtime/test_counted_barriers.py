"""Barriers of at-least-once checkpoints, as a table of what arrives."""

from __future__ import annotations

import itertools

import pytest

from penstock.runtime.counted_barriers import CountedBarriers
from penstock.runtime.elements import Barrier


@pytest.mark.parametrize(
    ("steps", "live", "complete"),
    [
        ("1a", 2, []),
        ("1a 1b", 2, [1]),
        ("1a 1a", 2, []),
        ("1a 2a 2b", 2, [2]),  # nothing brings the barrier 1 to b any more: it is dropped
        ("1a 2a 1b 2b", 2, [1, 2]),
        ("1a 1b -b", 1, [1]),
        ("1b -b", 1, []),
        ("1a !1 1b", 2, []),
    ],
)
def test_complete_when_it_came_on_all_live_channels(steps: str, live: int, complete: list[int]) -> None:
    clock = itertools.count()
    counted = CountedBarriers(lambda: float(next(clock)))
    for step in steps.split():
        if step[0] == "-":
            counted.ended(step[1])  # type: ignore[arg-type]
        elif step[0] == "!":
            counted.forget(int(step[1]))
        else:
            counted.arrived(Barrier(int(step[0]), 0), step[1])  # type: ignore[arg-type]
    found = list(counted.complete(live))
    assert [barrier.checkpoint_id for barrier, _ in found] == complete
    assert all(took_ms > 0 for _, took_ms in found)
    counted.arrived(Barrier(1, 0), "b")  # type: ignore[arg-type]
    assert 2 not in [barrier.checkpoint_id for barrier, _ in counted.complete(9)]
