"""Making and changing job graphs for tests."""

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
    """Builds a graph vertex by vertex, one operator each; ``chain`` adds to the last.

    A test's shorthand: real graphs come from the planner.
    """

    def __init__(self, name: str = "test") -> None:
        self.name = name
        self._vertices: list[JobVertex] = []
        self._edges: list[JobEdge] = []
        self.functions: dict[str, FunctionArtifact] = {}
        self.config: dict[str, str] = {}

    def values(self, batch: Batch, *, watermark: WatermarkSpec | None = None) -> str:
        """A source of given rows; its vertex id."""
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
        """Enumerator and readers; the readers' vertex id."""
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
        """One operator with one gate per input. ``tags[i]``: side output input i reads."""
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
        """Append an operator to a vertex, reading its last operator (or ``after``)."""
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
        """A sink vertex behind ``source``, at its parallelism (``collect``: 1, global)."""
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
        schema = self._find(source).operators[-1].output
        return self.sink("collect", source, schema, None, **spec)

    def build(self, *, bounded: bool = True) -> JobGraph:
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
    """The graph at another parallelism. What must run alone stays at 1: enumerators,
    plan values, collect sinks, vertices behind a global edge, and those that only
    forward from such. Enumerators are told how many readers there are now."""
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
