"""What runs on Spark, decided before anything starts. Needs no pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import UnsupportedError
from penstock.jobgraph import specs as s

if TYPE_CHECKING:
    from penstock.jobgraph.graph import JobGraph, OperatorNode


def check_batch(graph: JobGraph) -> None:
    """UnsupportedError with the reason when the job cannot run as a Spark batch job."""
    if not graph.bounded:
        raise UnsupportedError(
            "an unbounded job as a Spark batch job",
            expected="bounded sources",
            got="a source that does not end",
            remedy="bound the source (scan.bounded.mode), or run it with execution.engine = streaming",
        )
    for vertex in graph.vertices:
        for node in vertex.operators:
            _check(node)


def _check(node: OperatorNode) -> None:
    if getattr(node.spec, "on_error", "fail") == "dead-letter":
        raise UnsupportedError(
            "on-error = dead-letter on Spark",
            expected="on-error = fail or skip",
            got="dead-letter",
            where=f"operator '{node.name}'",
            remedy="choose skip (the records are in the executors' logs), or execution.engine = streaming",
        )
    if isinstance(node.spec, s.WindowAggregateSpec | s.GroupAggregateSpec) and node.spec.phase != "single":
        raise UnsupportedError(
            "a job planned for the streaming engine",
            expected="a plan made for Spark: aggregations of one phase",
            got=f"operator '{node.name}' of phase {node.spec.phase}",
            remedy="submit it again with execution.engine = spark",
        )
