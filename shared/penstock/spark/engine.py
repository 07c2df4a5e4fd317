"""Compiles a planned job to Spark DataFrames and runs it.

``SparkJob`` compiles a job graph operator by operator: to Spark's own operator where its meaning is the same,
otherwise to our operator over Spark's partitions (``universal``). Nothing runs until a sink asks for rows.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.errors import InternalError
from penstock.jobgraph import specs as s
from penstock.jobgraph.loading import loaded
from penstock.spark import sources, stateless, universal
from penstock.spark.coverage import check_batch
from penstock.spark.datasink import abandon
from penstock.spark.errors import translated
from penstock.spark.graph import flatten, sink_nodes
from penstock.spark.partition_program import JobContext
from penstock.spark.plan_text import own_sections, plan_text
from penstock.spark.session import apply_meaning, open_session
from penstock.spark.sinks import collected, stages, write
from penstock.spark.tables import TableWrite

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from penstock.jobgraph.graph import FunctionArtifact, JobGraph
    from penstock.plan.nodes import LogicalPlan
    from penstock.spark.frames import Frame
    from penstock.spark.graph import Node
    from penstock.types.batch import Batch
    from penstock.types.logical import Schema


@dataclass
class SparkResult:
    """The result of a job on Spark.

    ``batches``: rows of the collect sink in order, if the job has one; ``schema``: their columns.
    """

    schema: Schema | None = None
    batches: list[Batch] = field(default_factory=list)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """All rows as tuples of Python values."""
        return [row for batch in self.batches for row in batch.to_pylist()]


class SparkJob:
    """A bounded job on a Spark session.

    Args:
        graph: The job, planned for Spark.
        session: The session.
        job_id: Names the job's output files; None: a new id.
        checked: Whether ``coverage`` has accepted the graph already.
    """

    def __init__(
        self, graph: JobGraph, session: SparkSession, *, job_id: str | None = None, checked: bool = False
    ) -> None:
        if not checked:
            check_batch(graph)
        self.graph = graph
        self.session = session
        self.job_id = job_id or uuid.uuid4().hex
        self.nodes = flatten(graph)
        self.context = JobContext(
            graph.name, dict(graph.config), dict(graph.functions), tuple(graph.python_path)
        )
        self._frames: dict[int, dict[str | None, Frame]] = {}
        self._kept: list[Any] = []
        #: Tables that are being written and are not committed yet.
        self._begun: list[TableWrite] = []

    def run(self) -> SparkResult:
        """Runs every sink. Raises a ``PenstockError`` that says what failed."""
        result = SparkResult()
        try:
            apply_meaning(self.session, self.graph.config)
            for node in self.nodes:
                if isinstance(node.spec, s.SinkSpec):
                    self._sink(node, node.spec, result)
        except Exception as err:
            try:
                self.abandon()
            except Exception as left:  # It must not replace the error that failed the job
                err.add_note(f"what the job staged is left: {type(left).__name__}: {left}")
            raise translated(err) from err
        finally:
            self.close()
        return result

    def explain(self, *, cost: bool = False) -> str:
        """Spark's own plan of every sink. ``cost``: whether to show sizes and row counts, where Spark knows
        them."""
        sinks = sink_nodes(self.nodes)
        texts = []
        for node in sinks:
            text = own_sections(plan_text(self.input(node, 0), "cost" if cost else "extended"))
            texts.append(f"{node.name}:\n{text}" if len(sinks) > 1 else text)
        return "".join(texts)

    def close(self) -> None:
        """Lets Spark drop the results that it kept for several readers."""
        for frame in self._kept:
            frame.unpersist()
        self._kept.clear()

    def write(self, frame: Frame, table: TableWrite) -> None:
        """Write ``frame`` into ``table``. It is committed when the call returns; after a failure see ``abandon``."""
        if not stages(table.spec):
            write(frame, table)
            return
        self._begun.append(table)
        write(frame, table)
        self._begun.remove(table)

    def abandon(self) -> None:
        """Deletes the rows that Spark's tasks staged. For use after a failure or a cancel, when the tasks
        have ended."""
        for table in self._begun:
            asyncio.run(abandon(table))
        self._begun.clear()

    def _sink(self, node: Node, spec: s.SinkSpec, result: SparkResult) -> None:
        frame = self.input(node, 0)
        if spec.connector == "collect":
            result.schema = spec.schema
            result.batches = collected(frame.renamed(spec.schema))
            return
        self.write(frame, TableWrite(spec, node.node.uid, self.job_id, self.context))

    # -- compiling -----------------------------------------------------------------------------

    def input(self, node: Node, index: int) -> Frame:
        """All producers of input ``index`` of ``node`` as one frame."""
        edges = node.inputs[index]
        frames = [self.outputs(e.source)[e.tag] for e in edges]
        if len(frames) == 1:
            return frames[0]
        time, arrival = any(f.time for f in frames), any(f.arrival for f in frames)
        return stateless.union(frames, edges[0].schema, time=time, arrival=arrival)

    def outputs(self, node: Node) -> dict[str | None, Frame]:
        """The node's main and side outputs, compiled once."""
        found = self._frames.get(id(node))
        if found is None:
            found = self._compile(node)
            if len(node.consumers) > 1 and not node.spec.cheap:
                found = {tag: self._persisted(f) for tag, f in found.items()}
            self._frames[id(node)] = found
        return found

    def _persisted(self, frame: Frame) -> Frame:
        from dataclasses import replace

        kept = frame.df.persist()
        self._kept.append(kept)
        return replace(frame, df=kept)

    def _compile(self, node: Node) -> dict[str | None, Frame]:
        spec = node.spec
        made: Frame | None
        match spec:
            case s.SourceSpec():
                made = sources.scan(self.session, node, spec, self.context, self.job_id)
            case s.CollectionSourceSpec():
                made = sources.values(self.session, node, spec)
            case _:
                inputs = [self.input(node, i) for i in range(len(node.inputs))]
                made = self._native(node, spec, inputs)
                if made is None:
                    return self._universal(node, inputs)
        made = made.with_hidden(time=node.wants_time, arrival=node.wants_arrival)
        return {None: made, **self._empty_sides(node)}

    def _native(self, node: Node, spec: s.OperatorSpec, inputs: list[Frame]) -> Frame | None:
        """The operator as Spark's own; None if Spark has no equivalent."""
        match spec:
            case s.CalcSpec():
                return self._calc(node, spec, inputs[0])
            case s.UnionSpec():
                return stateless.union(inputs, node.output, time=node.wants_time, arrival=node.wants_arrival)
        native = spec.native()
        return loaded(native)(spec, *inputs, node.output) if native else None

    def _calc(self, node: Node, spec: s.CalcSpec, frame: Frame) -> Frame:
        made = stateless.calc(spec, frame, node.output)
        if made is not None:
            return made
        return sources.calc_in_python(frame, spec, node.output, node.node.uid, node.name, self.context)

    def _universal(self, node: Node, inputs: list[Frame]) -> dict[str | None, Frame]:
        if node.spec.alone_on_spark():
            if len(inputs) != 1:
                raise InternalError(f"'{node.name}' has {len(inputs)} inputs", expected="one")
            return universal.stateless(node, inputs[0], self.context, self._kept)
        return universal.keyed(node, inputs, self.context, self._kept)

    def _empty_sides(self, node: Node) -> dict[str | None, Frame]:
        """The side output of late rows, which is empty because in batch no row is late."""
        from penstock.types.batch import Batch

        return {
            tag: sources.of_batch(
                self.session, Batch.empty(schema), time=node.wants_time, arrival=node.wants_arrival
            )
            for tag, schema in node.node.side_outputs.items()
        }


def plan_for_spark(
    plan: LogicalPlan,
    functions: Mapping[str, FunctionArtifact] | None = None,
    *,
    push_down: Any = None,
    python_path: tuple[str, ...] = (),
) -> JobGraph:
    """The job graph that Spark runs. Aggregations have one phase, and Spark decides the parallelism.

    Args:
        plan: The logical plan.
        functions: The job's Python functions by id.
        push_down: Offers conditions to connectors; None: the planner's own.
        python_path: Folders for ``sys.path`` of the functions.
    """
    import msgspec

    from penstock.config import ENGINE, PARALLELISM
    from penstock.plan.physical import plan_job

    config = {**plan.config, PARALLELISM.key: "1", ENGINE.key: "streaming"}
    graph = plan_job(
        msgspec.structs.replace(plan, config=config), functions, push_down=push_down, python_path=python_path
    )
    return msgspec.structs.replace(graph, config={**plan.config, ENGINE.key: "spark"})


def run_graph(
    graph: JobGraph, session: SparkSession | str = "local[2]", *, job_id: str | None = None
) -> SparkResult:
    """Run a planned bounded job to its end.

    Args:
        graph: The job, planned for Spark.
        session: A session, or the URL of one.
        job_id: Names the job's output files; None: a new id.
    """
    if isinstance(session, str):
        session = open_session(session, graph.config, name=graph.name)
    return SparkJob(graph, session, job_id=job_id).run()


def run_plan(
    plan: LogicalPlan,
    session: SparkSession | str = "local[2]",
    *,
    functions: Mapping[str, FunctionArtifact] | None = None,
    config: Mapping[str, str] | None = None,
    push_down: Callable[..., Any] | None = None,
) -> SparkResult:
    """Plan and run a bounded job.

    Args:
        plan: The logical plan.
        session: A session, or the URL of one.
        functions: The job's Python functions by id.
        config: Configuration that overrides the plan's own.
        push_down: Offers conditions to connectors; None: the planner's own.
    """
    import msgspec

    if config:
        plan = msgspec.structs.replace(plan, config={**plan.config, **config})
    return run_graph(plan_for_spark(plan, functions, push_down=push_down), session)
