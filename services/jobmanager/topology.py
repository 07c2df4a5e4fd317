"""Which subtasks of a job are connected: the edges of the job graph, subtask by subtask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.jobgraph import Forward, Rescale

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.jobgraph import JobGraph, Partitioning


def upstream_subtasks(
    partitioning: Partitioning, target_index: int, source_parallelism: int, target_parallelism: int
) -> Sequence[int]:
    """The subtasks of an edge's source that have a channel to subtask ``target_index``."""
    match partitioning:
        case Forward():
            return (target_index,)
        case Rescale():
            # Flink's pointwise pattern. With fewer sources than targets several targets share a source;
            # otherwise every target has a range of sources of its own.
            if source_parallelism <= target_parallelism:
                return (target_index * source_parallelism // target_parallelism,)
            first = target_index * source_parallelism // target_parallelism
            last = (target_index + 1) * source_parallelism // target_parallelism
            return range(first, last)
        case _:
            return range(source_parallelism)


class Inputs:
    """A job graph's edges by target. A subtask is connected to a range of each source."""

    def __init__(self, graph: JobGraph) -> None:
        self._edges = {
            v.id: [
                (e.source, e.partitioning, graph.vertex(e.source).parallelism, v.parallelism)
                for e in graph.inputs_of(v.id)
            ]
            for v in graph.vertices
        }

    def of(self, vertex_id: str, subtask_index: int) -> Iterator[tuple[str, Sequence[int]]]:
        """(source vertex, indices of its subtasks with a channel to this subtask), by edge."""
        for source, partitioning, sources, targets in self._edges[vertex_id]:
            yield source, upstream_subtasks(partitioning, subtask_index, sources, targets)


def upstream_of(graph: JobGraph, vertex_id: str, subtask_index: int) -> list[tuple[str, int]]:
    """(vertex id, subtask index) of every subtask with a channel to this one."""
    inputs = Inputs(graph)
    return [(source, index) for source, indices in inputs.of(vertex_id, subtask_index) for index in indices]
