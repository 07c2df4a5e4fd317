"""Makes and changes job graphs for tests."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from penstock.jobgraph import (
    Broadcast,
    ChainInput,
    Forward,
    FunctionArtifact,
    Global,
    JobEdge,
    JobGraph,
    JobVertex,
    OperatorNode,
)
from penstock.jobgraph.assignments import ASSIGNMENT_SCHEMA
from penstock.jobgraph.specs import (
    CollectionSourceSpec,
    EnumeratorSpec,
    SinkSpec,
    SourceSpec,
    WatermarkSpec,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.jobgraph import Partitioning
    from penstock.jobgraph.specs import OperatorSpec
    from penstock.types.batch import Batch
    from penstock.types.logical import Schema

MAX_PARALLELISM = 128


def encode_rows(batch: Batch) -> str:
    """``CollectionSourceSpec.data`` of a batch."""
    rb = batch.to_arrow()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rb.schema) as writer:
        writer.write_batch(rb)
    return base64.b64encode(sink.getvalue()).decode()


class GraphBuilder:
    """Builds a job graph vertex by vertex, one operator each; ``chain`` adds an operator to a vertex.

    A shorthand for tests: real graphs come from the planner. ``name``: the job's name.
    """

    def __init__(self, name: str = "test") -> None:
        self.name = name
        self._vertices: list[JobVertex] = []
        self._edges: list[JobEdge] = []
        self.functions: dict[str, FunctionArtifact] = {}
        self.config: dict[str, str] = {}

    def values(self, batch: Batch, *, watermark: WatermarkSpec | None = None) -> str:
        """Add a source that gives the rows of ``batch``; returns its vertex id. ``watermark``: how watermarks
        are made; None: there are none."""
        spec = CollectionSourceSpec(data=encode_rows(batch), watermark=watermark)
        return self.vertex(spec, batch.schema, parallelism=1)

    def source(
        self,
        connector: str,
        schema: Schema,
        options: Mapping[str, str],
        *,
        parallelism: int = 1,
        watermark: WatermarkSpec | None = None,
        **spec: object,
    ) -> str:
        """Add the enumerator and the readers of a connector; returns the readers' vertex id.

        Args:
            connector: Name of the connector.
            schema: Physical columns, all of which are read.
            options: The table's options.
            parallelism: Number of readers.
            watermark: How watermarks are made; None: there are none.
            spec: Further fields of ``SourceSpec``.
        """
        options = {"connector": connector, **options}
        enumerator = self.vertex(
            EnumeratorSpec(
                connector=connector, options=options, schema=schema, reader_parallelism=parallelism
            ),
            ASSIGNMENT_SCHEMA,
        )
        projection = tuple(range(len(schema)))
        reader = SourceSpec(
            connector=connector,
            options=options,
            schema=schema,
            projection=projection,
            watermark=watermark,
            **spec,  # type: ignore[arg-type]
        )
        return self.vertex(reader, schema, inputs=[(enumerator, Broadcast())], parallelism=parallelism)

    def vertex(
        self,
        spec: OperatorSpec,
        output: Schema,
        *,
        inputs: Sequence[tuple[str, Partitioning]] = (),
        parallelism: int = 1,
        uid: str | None = None,
        side_outputs: Mapping[str, Schema] | None = None,
        tags: Sequence[str | None] = (),
    ) -> str:
        """Add a vertex of one operator, with one gate for each input; returns its id.

        Args:
            spec: The operator.
            output: Its columns.
            inputs: Vertex id and partitioning of each input.
            parallelism: Number of subtasks.
            uid: The operator's uid; None: made from its class and number.
            side_outputs: Tag → columns.
            tags: ``tags[i]``: the side output that input i reads; None: the main output.
        """
        vertex_id = f"v{len(self._vertices)}"
        node = OperatorNode(
            uid=uid or f"{type(spec).__name__}-{len(self._vertices)}",
            name=type(spec).__name__.removesuffix("Spec"),
            spec=spec,
            inputs=tuple((ChainInput(gate=g),) for g in range(len(inputs))),
            output=output,
            side_outputs=dict(side_outputs or {}),
        )
        self._vertices.append(
            JobVertex(
                id=vertex_id,
                name=node.name,
                operators=(node,),
                parallelism=parallelism,
                max_parallelism=MAX_PARALLELISM,
            )
        )
        for gate, (source, partitioning) in enumerate(inputs):
            tag = tags[gate] if tags else None
            last = self._find(source).operators[-1]
            self._edges.append(
                JobEdge(
                    id=f"{source}-{vertex_id}-{gate}",
                    source=source,
                    source_operator=len(self._find(source).operators) - 1,
                    tag=tag,
                    target=vertex_id,
                    target_gate=gate,
                    partitioning=partitioning,
                    schema=last.output if tag is None else last.side_outputs[tag],
                )
            )
        return vertex_id

    def chain(
        self,
        vertex: str,
        spec: OperatorSpec,
        output: Schema,
        *,
        uid: str | None = None,
        side_outputs: Mapping[str, Schema] | None = None,
        after: int | None = None,
        tag: str | None = None,
    ) -> str:
        """Append an operator to a vertex; returns the vertex's id.

        Args:
            vertex: Id of the vertex.
            spec: The operator.
            output: Its columns.
            uid: Its uid; None: made from its class and number.
            side_outputs: Tag → columns.
            after: Number of the operator in the vertex that it reads; None: the last.
            tag: The side output of that operator that it reads; None: the main output.
        """
        old = self._find(vertex)
        at = len(old.operators) - 1 if after is None else after
        node = OperatorNode(
            uid=uid or f"{type(spec).__name__}-{vertex}-{len(old.operators)}",
            name=type(spec).__name__.removesuffix("Spec"),
            spec=spec,
            inputs=((ChainInput(operator=at, tag=tag),),),
            output=output,
            side_outputs=dict(side_outputs or {}),
        )
        index = self._vertices.index(old)
        name = f"{old.name} -> {node.name}"
        self._vertices[index] = msgspec.structs.replace(old, operators=(*old.operators, node), name=name)
        return vertex

    def sink(
        self,
        connector: str,
        source: str,
        schema: Schema,
        options: Mapping[str, str] | None = None,
        **spec: object,
    ) -> str:
        """Add a sink vertex that reads another vertex, at that vertex's parallelism (``collect``: at 1);
        returns its id.

        Args:
            connector: Name of the connector.
            source: Id of the vertex whose rows are written.
            schema: Columns of the table.
            options: The table's options.
            spec: Further fields of ``SinkSpec``.
        """
        p = 1 if connector == "collect" else self._find(source).parallelism
        sink = SinkSpec(
            connector=connector,
            options={"connector": connector, **(options or {})},
            schema=schema,
            **spec,  # type: ignore[arg-type]
        )
        partitioning = Forward() if p == self._find(source).parallelism else Global()
        return self.vertex(sink, schema, inputs=[(source, partitioning)], parallelism=p)

    def collect(self, source: str, **spec: object) -> str:
        """A sink that holds the rows of the vertex ``source`` for ``RunResult.rows``; ``spec``: fields of ``SinkSpec``."""
        schema = self._find(source).operators[-1].output
        return self.sink("collect", source, schema, None, **spec)

    def build(self, *, bounded: bool = True) -> JobGraph:
        """The job graph; ``bounded``: whether all its sources end."""
        return JobGraph(
            name=self.name,
            vertices=tuple(self._vertices),
            edges=tuple(self._edges),
            functions=self.functions,
            config=self.config,
            bounded=bounded,
        )

    def _find(self, vertex_id: str) -> JobVertex:
        return next(v for v in self._vertices if v.id == vertex_id)


def with_parallelism(graph: JobGraph, parallelism: int) -> JobGraph:
    """``graph`` at another ``parallelism``.

    Vertices that must have one subtask keep parallelism 1: enumerators, plan values, collect sinks, targets
    of a global edge, and vertices that only such vertices forward to. Enumerators are told the new number of
    readers.
    """
    alone: set[str] = set()
    for vertex in graph.vertices:
        inputs = graph.inputs_of(vertex.id)
        fixed = any(_runs_alone(node.spec) for node in vertex.operators)
        fixed = fixed or any(isinstance(e.partitioning, Global) for e in inputs)
        forwards = [e for e in inputs if isinstance(e.partitioning, Forward)]
        if fixed or any(e.source in alone for e in forwards):
            alone.add(vertex.id)
    vertices = []
    for vertex in graph.vertices:
        operators = tuple(_with_readers(node, parallelism) for node in vertex.operators)
        p = 1 if vertex.id in alone else parallelism
        vertices.append(msgspec.structs.replace(vertex, operators=operators, parallelism=p))
    return msgspec.structs.replace(graph, vertices=tuple(vertices))


def _runs_alone(spec: OperatorSpec) -> bool:
    match spec:
        case EnumeratorSpec() | CollectionSourceSpec() | SinkSpec(connector="collect"):
            return True
    return False


def _with_readers(node: OperatorNode, parallelism: int) -> OperatorNode:
    if not isinstance(node.spec, EnumeratorSpec):
        return node
    spec = msgspec.structs.replace(node.spec, reader_parallelism=parallelism)
    return msgspec.structs.replace(node, spec=spec)
