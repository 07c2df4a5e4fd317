"""Delivers a job's results to a slot, and runs the sinks that Spark writes itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.jobgraph.specs import SinkSpec, SparkProgramSpec
from penstock.spark.errors import translated
from penstock.spark.graph import sink_nodes
from penstock.spark.program import run_program
from penstock.spark.session import apply_meaning, is_connect
from penstock.spark.sinks import batch_of, collected
from penstock.spark.tables import TableWrite

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.spark.engine import SparkJob
    from penstock.types.batch import Batch


def run_sinks(job: SparkJob, sinks: Sequence[int]) -> None:
    """Writes the sinks with these numbers (in topological order), one after the other. If the job is a Python
    step, calls its function."""
    apply_meaning(job.session, job.graph.config)
    for node in job.nodes:
        if isinstance(node.spec, SparkProgramSpec):
            return run_program(job, node, node.spec)
    nodes = sink_nodes(job.nodes)
    try:
        for node in (nodes[i] for i in sinks):
            assert isinstance(node.spec, SinkSpec)
            job.write(job.input(node, 0), TableWrite(node.spec, node.node.uid, job.job_id, job.context))
    except Exception as err:
        raise translated(err) from err


def rows_of(job: SparkJob, sink: int) -> Iterator[Batch]:
    """The rows that a sink would get, batch by batch. With Spark Connect they need not all fit into the
    memory of this process."""
    apply_meaning(job.session, job.graph.config)
    node = sink_nodes(job.nodes)[sink]
    assert isinstance(node.spec, SinkSpec)
    try:
        frame = job.input(node, 0).renamed(node.spec.schema)
        if not is_connect(job.session) or not len(frame.schema):
            yield from collected(frame)
            return
        client: Any = job.session.client
        rows: Any = frame.df.select(*frame.columns())
        for part in client.to_table_as_iterator(rows._plan.to_proto(client), rows._plan.observations):
            if hasattr(part, "to_batches"):
                yield from (batch_of(frame, rb) for rb in part.to_batches() if rb.num_rows)
    except Exception as err:
        raise translated(err) from err
