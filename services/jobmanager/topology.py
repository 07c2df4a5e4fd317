"""Which subtasks of a job are connected: the job graph's edges, subtask by subtask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.jobgraph import Forward, Rescale

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.jobgraph import JobGraph, Partitioning


def upstream_subtasks(
    partitioning: Partitioning, target_index: int, source_parallelism: int, target_parallelism: int
) -> Sequence[int]:
    """Subtasks of the edge's source that have a channel to subtask ``target_index``."""
    match partitioning:
        case Forward():
            return (target_index,)
        case Rescale():
            # Flink's pointwise pattern: with fewer sources than targets several targets
            # share one source, else every target has a run of sources to itself.
            if source_parallelism <= target_parallelism:
                return (target_index * source_parallelism // target_parallelism,)
            first = target_index * source_parallelism // target_parallelism
            last = (target_index + 1) * source_parallelism // target_parallelism
            return range(first, last)
        case _:
            return range(source_parallelism)


def upstream_of(graph: JobGraph, vertex_id: str, subtask_index: int) -> list[tuple[str, int]]:
    """(vertex id, subtask index) of every subtask with a channel to this one."""
    target = graph.vertex(vertex_id)
    return [
        (edge.source, index)
        for edge in graph.inputs_of(vertex_id)
        for index in upstream_subtasks(
            edge.partitioning, subtask_index, graph.vertex(edge.source).parallelism, target.parallelism
        )
    ]
