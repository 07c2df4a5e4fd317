"""Says which subtasks an edge connects, seen from both ends. Only this module decides that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import SpecError
from penstock.jobgraph import Forward, Rescale

if TYPE_CHECKING:
    from penstock.jobgraph import JobEdge


def consumers_of(edge: JobEdge, subtask: int, p_source: int, p_target: int) -> list[int]:
    """Subtasks of the target that producer ``subtask`` has a channel to, ascending."""
    match edge.partitioning:
        case Forward():
            _check_forward(edge, p_source, p_target)
            return [subtask]
        case Rescale():
            return [j for j in range(p_target) if _shares(subtask, j, p_source, p_target)]
        case _:
            return list(range(p_target))


def producers_of(edge: JobEdge, subtask: int, p_source: int, p_target: int) -> list[int]:
    """Subtasks of the source that consumer ``subtask`` has a channel from, ascending."""
    match edge.partitioning:
        case Forward():
            _check_forward(edge, p_source, p_target)
            return [subtask]
        case Rescale():
            return [i for i in range(p_source) if _shares(i, subtask, p_source, p_target)]
        case _:
            return list(range(p_source))


def _shares(i: int, j: int, p_source: int, p_target: int) -> bool:
    """Whether producer i and consumer j overlap when both are spread over one line."""
    return i * p_target < (j + 1) * p_source and j * p_source < (i + 1) * p_target


def _check_forward(edge: JobEdge, p_source: int, p_target: int) -> None:
    if p_source != p_target:
        raise SpecError(
            f"forward edge {edge.id} connects vertices of different parallelism",
            expected="one parallelism on both sides",
            got=f"{edge.source}: {p_source}, {edge.target}: {p_target}",
            remedy="plan a rebalance between them",
        )
