import inspect

import msgspec
import pytest

from penstock.jobgraph import graph, specs
from penstock.types import Schema
from penstock.types import logical as t

SCHEMA = Schema.of(("a", t.BigIntType()))


def two_vertices() -> graph.JobGraph:
    def vertex(name: str, gate: bool) -> graph.JobVertex:
        inputs = ((graph.ChainInput(gate=0),),) if gate else ()
        node = graph.OperatorNode(
            uid=f"u-{name}", name=name, spec=specs.UnionSpec(), inputs=inputs, output=SCHEMA
        )
        return graph.JobVertex(id=name, name=name, operators=(node,), parallelism=2, max_parallelism=128)

    edge = graph.JobEdge(
        id="e",
        source="v1",
        source_operator=0,
        target="v2",
        target_gate=0,
        partitioning=graph.Hash((0,)),
        schema=SCHEMA,
    )
    return graph.JobGraph(name="job", vertices=(vertex("v1", False), vertex("v2", True)), edges=(edge,))


def test_a_job_graph_is_json() -> None:
    job = two_vertices()
    assert graph.decode_job_graph(graph.encode_job_graph(job)) == job
    assert [e.id for e in job.inputs_of("v2")] == ["e"]
    assert [e.id for e in job.outputs_of("v1")] == ["e"]
    assert job.vertex("v1").name == "v1"
    with pytest.raises(KeyError):
        job.vertex("v3")


def test_every_spec_is_in_the_union_under_its_own_tag() -> None:
    members = specs.OperatorSpec.__args__
    declared = [
        c for _, c in inspect.getmembers(specs, inspect.isclass)
        if issubclass(c, specs.Spec) and c is not specs.Spec
    ]  # fmt: skip
    assert set(members) == set(declared)
    assert len({m.__struct_config__.tag for m in members}) == len(members)
    msgspec.json.Decoder(specs.OperatorSpec)
