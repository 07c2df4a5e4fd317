"""Small job graphs for the control plane's tests."""

from __future__ import annotations

from penstock.jobgraph import ChainInput, Forward, Hash, JobEdge, JobGraph, JobVertex, OperatorNode
from penstock.jobgraph.specs import SinkSpec, UnionSpec
from penstock.types.logical import BigIntType, Field, Schema

SCHEMA = Schema((Field("v", BigIntType()),))


def vertex(vertex_id: str, parallelism: int, *, group: str = "default", gates: int = 0, sink: bool = False):
    inputs = tuple((ChainInput(gate=g),) for g in range(gates))
    spec = SinkSpec(connector="collect", options={}, schema=SCHEMA) if sink else UnionSpec()
    node = OperatorNode(uid=f"uid-{vertex_id}", name=vertex_id, spec=spec, inputs=inputs, output=SCHEMA)
    return JobVertex(
        id=vertex_id,
        name=vertex_id,
        operators=(node,),
        parallelism=parallelism,
        max_parallelism=128,
        slot_sharing_group=group,
    )


def edge(source: str, target: str, partitioning=None, gate: int = 0):
    return JobEdge(
        id=f"{source}-{target}",
        source=source,
        source_operator=0,
        target=target,
        target_gate=gate,
        partitioning=partitioning or Hash((0,)),
        schema=SCHEMA,
    )


def pipeline(p: int = 2, **config: str) -> JobGraph:
    """enumerate(1) → read(p) → sum(p) → sink(1)"""
    from penstock.jobgraph import Broadcast, Global

    return JobGraph(
        name="pipeline",
        vertices=(
            vertex("enumerate", 1),
            vertex("read", p, gates=1),
            vertex("sum", p, gates=1),
            vertex("sink", 1, gates=1, sink=True),
        ),
        edges=(
            edge("enumerate", "read", Broadcast()),
            edge("read", "sum"),
            edge("sum", "sink", Global()),
        ),
        config=config,
    )


def diamond() -> JobGraph:
    """left(2) and right(3) → join(3), by forward and hash."""
    return JobGraph(
        name="diamond",
        vertices=(vertex("left", 2), vertex("right", 3), vertex("join", 3, gates=2)),
        edges=(edge("left", "join"), edge("right", "join", Forward(), gate=1)),
    )


def two_pipelines(p: int = 1, **config: str) -> JobGraph:
    """a-read(p) → a-sink(1) and, unconnected, b-read(p) → b-sink(1)"""
    from penstock.jobgraph import Global

    return JobGraph(
        name="two",
        vertices=(
            vertex("a-read", p),
            vertex("a-sink", 1, gates=1, sink=True),
            vertex("b-read", p),
            vertex("b-sink", 1, gates=1, sink=True),
        ),
        edges=(edge("a-read", "a-sink", Global()), edge("b-read", "b-sink", Global())),
        config=config,
    )
