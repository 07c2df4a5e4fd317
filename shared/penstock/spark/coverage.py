"""Decides, before anything starts, whether a job can run on Spark. This module needs no pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.base import TableInfo
from penstock.connectors.registry import get_connector
from penstock.errors import UnsupportedError
from penstock.jobgraph.specs import FunctionSourceSpec, SinkSpec
from penstock.plan.engine import SPARK_CHECKPOINTS, check_stream_folder

if TYPE_CHECKING:
    from penstock.jobgraph.graph import JobGraph, OperatorNode


def check(graph: JobGraph) -> None:
    """Raises UnsupportedError with the reason if the job cannot run on Spark."""
    if graph.bounded:
        check_batch(graph)
        return
    check_streaming(graph)


def check_batch(graph: JobGraph) -> None:
    """Raises UnsupportedError with the reason if the job cannot run as a Spark batch job."""
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


def check_streaming(graph: JobGraph) -> None:
    """Raises UnsupportedError with the reason if the job cannot run as Structured Streaming, and SpecError if
    the job names a folder for its checkpoints that Spark cannot write."""
    check_stream_folder(graph.config.get(SPARK_CHECKPOINTS, ""))
    depth: dict[tuple[str, int], int] = {}
    for vertex in graph.vertices:
        edges = {e.target_gate: e for e in graph.inputs_of(vertex.id)}
        for index, node in enumerate(vertex.operators):
            _check(node)
            if isinstance(node.spec, SinkSpec):
                _check_micro_batches(node.spec, node.name)
            reason = node.spec.not_streamed()
            if reason is not None:
                raise UnsupportedError(
                    f"{node.name} in Structured Streaming",
                    expected="operators whose rows are final when they come out",
                    got=reason,
                    where=f"operator '{node.name}'",
                    remedy="run the job with execution.engine = streaming, or bound its sources",
                )
            before = [0]
            for port in node.inputs:
                for producer in port:
                    if producer.operator is not None:
                        before.append(depth[vertex.id, producer.operator])
                    elif producer.gate in edges:
                        edge = edges[producer.gate]
                        before.append(depth[edge.source, edge.source_operator])
            depth[vertex.id, index] = max(before) + (not node.spec.alone_on_spark())
            if depth[vertex.id, index] > 1:
                raise UnsupportedError(
                    "several stateful operators behind one another in Structured Streaming",
                    expected="one operator with state on every way from a source to a sink",
                    got=f"'{node.name}' behind another",
                    where=f"operator '{node.name}'",
                    remedy="write the first result into a table and read it in a second job, or run the job "
                    "with execution.engine = streaming",
                )


def _check_micro_batches(spec: SinkSpec, name: str) -> None:
    refused = get_connector(spec.connector).sink_not_in_micro_batches(TableInfo(spec.physical, spec.options))
    if refused:
        raise UnsupportedError(
            f"option '{refused[0]}' in Structured Streaming, where every micro-batch is written and committed by itself",
            expected="a table without " + ", ".join(f"'{key}'" for key in refused),
            got=f"'{refused[0]}' = '{spec.options[refused[0]]}'",
            where=f"operator '{name}'",
            remedy="remove these options, or run the job with execution.engine = streaming",
        )


def _check(node: OperatorNode) -> None:
    if isinstance(node.spec, FunctionSourceSpec):
        raise UnsupportedError(
            "a source that is a function of the program, on Spark",
            expected="a connector's table, or from_collection",
            got=f"'{node.name}'",
            where=f"operator '{node.name}'",
            remedy="run the job with execution.engine = streaming",
        )
    if getattr(node.spec, "on_error", "fail") == "dead-letter":
        raise UnsupportedError(
            "on-error = dead-letter on Spark",
            expected="on-error = fail or skip",
            got="dead-letter",
            where=f"operator '{node.name}'",
            remedy="choose skip (the records are in the executors' logs), or execution.engine = streaming",
        )
    if getattr(node.spec, "changelog", "append") != "append":
        raise UnsupportedError(
            "a table that is read as a changelog, on Spark",
            expected="tables of inserts alone",
            got=f"'{node.name}', whose rows are updated and deleted",
            where=f"operator '{node.name}'",
            remedy="run the job with execution.engine = streaming",
        )
    phase = getattr(node.spec, "phase", "single")
    if phase != "single":
        raise UnsupportedError(
            "a job planned for the streaming engine",
            expected="a plan made for Spark: aggregations of one phase",
            got=f"operator '{node.name}' of phase {phase}",
            remedy="submit it again with execution.engine = spark",
        )
