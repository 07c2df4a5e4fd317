"""Which subtasks are connected: both ends must say the same."""

import pytest

from penstock.errors import SpecError
from penstock.jobgraph import Broadcast, Forward, Hash, JobEdge, Rescale
from penstock.runtime.topology import consumers_of, producers_of
from penstock.types import Schema


def edge(partitioning: object) -> JobEdge:
    return JobEdge(
        id="e",
        source="a",
        source_operator=0,
        target="b",
        target_gate=0,
        partitioning=partitioning,
        schema=Schema(()),
    )


@pytest.mark.parametrize("partitioning", [Hash(keys=(0,)), Rescale(), Broadcast()])
@pytest.mark.parametrize(("p", "q"), [(1, 1), (1, 4), (4, 1), (2, 4), (4, 2), (3, 2), (2, 3), (5, 7)])
def test_both_ends_agree(partitioning: object, p: int, q: int) -> None:
    e = edge(partitioning)
    down = {(i, j) for i in range(p) for j in consumers_of(e, i, p, q)}
    up = {(i, j) for j in range(q) for i in producers_of(e, j, p, q)}
    assert down == up
    assert {i for i, _ in down} == set(range(p))
    assert {j for _, j in down} == set(range(q))


def test_rescale_connects_shares() -> None:
    e = edge(Rescale())
    assert [consumers_of(e, i, 2, 4) for i in range(2)] == [[0, 1], [2, 3]]
    assert [consumers_of(e, i, 4, 2) for i in range(4)] == [[0], [0], [1], [1]]


def test_forward_needs_one_parallelism() -> None:
    assert consumers_of(edge(Forward()), 2, 3, 3) == [2]
    with pytest.raises(SpecError, match="different parallelism"):
        consumers_of(edge(Forward()), 0, 2, 3)
