"""Decides whether Spark reads a job's history before the streaming job starts, and makes the graph for Spark.

A job with a hybrid table (history, then live) may be *backfilled*: the vertices of the same
plan run as Spark stages over the history, and the streaming job starts from the state that these
stages leave. So the backfill runs the streaming job's graph, with more subtasks if the user wants:
operators have the same uids at any parallelism.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.config import (
    BACKFILL_EMIT,
    BACKFILL_ENGINE,
    BACKFILL_PARALLELISM,
    CHECKPOINT_INTERVAL_MS,
    RECOVERY_PATH,
)
from penstock.errors import UnsupportedError
from penstock.jobgraph.graph import Custom, JobGraph, JobVertex, OperatorNode
from penstock.jobgraph.specs import (
    CollectionSourceSpec,
    EnumeratorSpec,
    SinkSpec,
    SourceSpec,
    SparkQuerySpec,
)
from penstock.plan.engine import encode_content, holding
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.plan.engine import SparkSupport

HYBRID = "hybrid"
#: Sinks that write in their slot's process, which rows made on one of Spark's executors cannot reach.
_IN_SLOT = {
    "collect": "the rows of a SELECT go from its slot to whoever asked",
    "print": "it prints where the job's slot runs, not on Spark's executors",
}
#: uid of the one operator of a job that is being backfilled.
BACKFILL_UID = "backfill"


def with_backfill(
    graph: JobGraph, graph_of: Callable[[int, bool], JobGraph], spark: SparkSupport | None
) -> JobGraph:
    """Adds a backfill to ``graph`` if the configuration and the sources call for one. If Spark cannot read
    the history, the plan's text says why.

    ``graph_of(parallelism, chained)`` plans the same job at another parallelism, with or without chains.
    Raises UnsupportedError if the configuration asks for a backfill that is impossible.
    """
    wanted = BACKFILL_ENGINE.read(graph.config)
    if wanted == "none" or (wanted == "auto" and (spark is None or not has_history(graph))):
        return graph
    try:
        check(graph, spark)
    except UnsupportedError as err:
        if wanted == "spark":
            raise
        return _saying(graph, f"streaming: Spark cannot read the history: {err.message}")
    parallelism = BACKFILL_PARALLELISM.read(graph.config)
    if parallelism <= 0:
        parallelism = max(2, max(v.parallelism for v in graph.vertices))
    groups = max(v.max_parallelism for v in graph.vertices)
    parallelism = min(parallelism, groups)
    content = graph_of(parallelism, True)
    if any(_mixed(content, vertex) for vertex in content.vertices):
        content = graph_of(parallelism, False)
    content = msgspec.structs.replace(
        content, vertices=tuple(msgspec.structs.replace(v, max_parallelism=groups) for v in content.vertices)
    )
    reason = f"{BACKFILL_ENGINE.key} = spark" if wanted == "spark" else "history, then live"
    made = msgspec.structs.replace(graph, backfill=encode_content(content))
    return _saying(made, f"spark: {reason}; the stream goes on from the state at the seam")


def check(graph: JobGraph, spark: SparkSupport | None) -> None:
    """Raises UnsupportedError with the reason if Spark cannot read the job's history."""
    if not has_history(graph):
        raise UnsupportedError(
            "a backfill of a job without history",
            expected="a table of history then live ('connector' = 'hybrid')",
            got="sources of one part",
            where=f"configuration key '{BACKFILL_ENGINE.key}'",
            remedy="declare the table as hybrid, or leave the key out",
        )
    missing = "whoever plans the job knows no Spark" if spark is None else spark.missing
    if missing is not None:
        raise UnsupportedError(
            "a backfill on Spark",
            expected="a Penstock with Spark",
            got=missing,
            where=f"configuration key '{BACKFILL_ENGINE.key}'",
            remedy="pip install 'penstock[spark]', or leave the history to the streaming engine",
        )
    for node in _nodes(graph):
        if isinstance(node.spec, SourceSpec) and node.spec.changelog != "append":
            raise UnsupportedError(
                "a backfill on Spark of a job that reads a changelog",
                expected="tables of inserts alone",
                got=f"'{node.name}', whose rows are updated and deleted",
                where=f"operator '{node.name}'",
                remedy=f"set {BACKFILL_ENGINE.key} = none",
            )
    for edge in graph.edges:
        if isinstance(edge.partitioning, Custom):
            raise UnsupportedError(
                "a backfill on Spark of a job with partition_custom",
                expected="a job whose records go to subtasks by key, in turn or all to one",
                got="a function of the program that names the subtask of a record",
                where=f"operator '{graph.vertex(edge.source).operators[edge.source_operator].name}'",
                remedy=f"set {BACKFILL_ENGINE.key} = none, or use key_by or rebalance in its place",
            )
    if not BACKFILL_EMIT.read(graph.config):
        return
    for node in _nodes(graph):
        if isinstance(node.spec, SinkSpec) and node.spec.connector in _IN_SLOT:
            raise UnsupportedError(
                f"a backfill into the sink '{node.spec.connector}'",
                expected="a sink that executors can write (filesystem, nats, jdbc …)",
                got=_IN_SLOT[node.spec.connector],
                where=f"operator '{node.name}'",
                remedy=f"insert into a table, or set {BACKFILL_EMIT.key} = false, or "
                f"{BACKFILL_ENGINE.key} = none",
            )


def has_history(graph: JobGraph) -> bool:
    """Whether a source of the job has a history (connector hybrid)."""
    return any(isinstance(n.spec, SourceSpec) and n.spec.connector == HYBRID for n in _nodes(graph))


def is_backfilled(graph: JobGraph) -> bool:
    """Whether Spark reads the job's history first. A job that begins from a savepoint has read its history
    already."""
    return bool(graph.backfill) and not RECOVERY_PATH.read(graph.config)


def backfill_graph(graph: JobGraph) -> JobGraph:
    """The graph that runs first: one task that lets Spark read the history. After a failure the task begins
    again."""
    spec = SparkQuerySpec(graph=graph.backfill, sinks=(), backfill=True)
    node = OperatorNode(uid=BACKFILL_UID, name="Spark: backfill", spec=spec, output=Schema(()))
    vertex = JobVertex(id=BACKFILL_UID, name=node.name, operators=(node,), parallelism=1, max_parallelism=128)
    return msgspec.structs.replace(
        graph,
        vertices=holding([vertex], graph.config),
        edges=(),
        config={**graph.config, CHECKPOINT_INTERVAL_MS.key: "0"},
        backfill="",
    )


def _mixed(graph: JobGraph, vertex: JobVertex) -> bool:
    """Whether the vertex reads a table and also receives rows from other vertices, enumerators apart."""
    reads = any(isinstance(node.spec, SourceSpec | CollectionSourceSpec) for node in vertex.operators)
    return reads and any(
        not isinstance(graph.vertex(edge.source).operators[edge.source_operator].spec, EnumeratorSpec)
        for edge in graph.inputs_of(vertex.id)
    )


def _nodes(graph: JobGraph) -> list[OperatorNode]:
    return [node for vertex in graph.vertices for node in vertex.operators]


def _saying(graph: JobGraph, text: str) -> JobGraph:
    return msgspec.structs.replace(graph, plan=f"== Backfill ==\n{text}\n{graph.plan}")
