"""Job graph: chained vertices and the edges between them.

``plan`` builds it; the jobmanager expands it to subtasks; a slot instantiates its
operators. Everything in it is data: user functions are ``FunctionArtifact``s.
"""

from __future__ import annotations

from typing import Union

import msgspec

from penstock.jobgraph.identity import OperatorIdentity
from penstock.jobgraph.specs import OperatorSpec, SparkQuerySpec
from penstock.types.logical import Schema


class Forward(msgspec.Struct, frozen=True, tag="forward"):
    """Subtask i to subtask i; both sides have one parallelism."""


class Hash(msgspec.Struct, frozen=True, tag="hash"):
    """By key group of the key columns (indices into the edge's schema)."""

    keys: tuple[int, ...]


class Rebalance(msgspec.Struct, frozen=True, tag="rebalance"):
    """Round robin, batch by batch, over all subtasks."""


class Rescale(msgspec.Struct, frozen=True, tag="rescale"):
    """Round robin over the subtasks of one's own share (no all-to-all)."""


class Broadcast(msgspec.Struct, frozen=True, tag="broadcast"):
    """Every row to every subtask."""


class Global(msgspec.Struct, frozen=True, tag="global"):
    """Every row to subtask 0."""


Partitioning = Union[Forward, Hash, Rebalance, Rescale, Broadcast, Global]


class ChainInput(msgspec.Struct, frozen=True):
    """Where one input of an operator comes from, inside its vertex.

    ``gate``: index of the vertex's input gate (a job edge), or
    ``operator``: position in ``JobVertex.operators`` of the one before it.
    ``tag``: which output of that operator (None = main, else a side output).
    """

    gate: int | None = None
    operator: int | None = None
    tag: str | None = None


class OperatorNode(msgspec.Struct, frozen=True, kw_only=True):
    """One operator of a chain.

    ``uid``: the user's own, or the planner's; of a job that began from a savepoint it is the one
    that the operator has there. ``identity``: how it is found in a savepoint (``messages.matching``);
    ``inputs[i]`` may list several producers: they are unioned into input i.
    """

    uid: str
    name: str
    spec: OperatorSpec
    inputs: tuple[tuple[ChainInput, ...], ...] = ()
    output: Schema
    side_outputs: dict[str, Schema] = {}
    identity: OperatorIdentity = OperatorIdentity()


class JobVertex(msgspec.Struct, frozen=True, kw_only=True):
    """A chain (a small DAG in topological order) that runs as one task per subtask.

    ``slots``: so many a subtask holds, if possible of one task manager: what it has others
    do (Spark, on that machine) takes their share of it.
    """

    id: str
    name: str
    operators: tuple[OperatorNode, ...]
    parallelism: int
    max_parallelism: int
    slot_sharing_group: str = "default"
    slots: int = 1


class JobEdge(msgspec.Struct, frozen=True, kw_only=True):
    """Output ``tag`` of operator ``source_operator`` of vertex ``source`` into gate
    ``target_gate`` of vertex ``target``. Gates of a vertex are numbered 0 … n-1."""

    id: str
    source: str
    source_operator: int
    tag: str | None = None
    target: str
    target_gate: int
    partitioning: Partitioning
    schema: Schema


class FunctionArtifact(msgspec.Struct, frozen=True, kw_only=True):
    """A user's function or object. ``data`` is cloudpickle (small) or ``key`` an object
    key of it; ``module`` + ``qualname`` instead when it is importable by name. ``classes``: (module,
    qualified name) of the program's classes that occur in it, for ``types.pickling``."""

    data: bytes | None = None
    key: str | None = None
    module: str | None = None
    qualname: str | None = None
    classes: tuple[tuple[str, str], ...] = ()


#: The entry of the function table that holds the program's classes, as a dict by their names.
CLASSES = "classes"


class JobGraph(msgspec.Struct, frozen=True, kw_only=True):
    """A whole job, ready for scheduling.

    ``vertices`` are in topological order. ``python_path``: folders (or artifact keys of
    zips) put in front of ``sys.path`` in the slot, before any function is loaded.
    ``plan``: text of the plans, for EXPLAIN and the dashboard.
    ``backfill``: the same job as Spark reads its history before it starts, encoded as in a
    ``SparkQuerySpec``; empty: it starts at once.
    """

    name: str
    vertices: tuple[JobVertex, ...]
    edges: tuple[JobEdge, ...]
    config: dict[str, str] = {}
    functions: dict[str, FunctionArtifact] = {}
    python_path: tuple[str, ...] = ()
    bounded: bool = False
    plan: str = ""
    backfill: str = ""
    #: The savepoint whose uids the operators have: what of it is restored was decided.
    matched_to: str = ""

    def vertex(self, vertex_id: str) -> JobVertex:
        for vertex in self.vertices:
            if vertex.id == vertex_id:
                return vertex
        raise KeyError(vertex_id)

    def inputs_of(self, vertex_id: str) -> list[JobEdge]:
        """Edges into a vertex, ordered by gate."""
        found = [e for e in self.edges if e.target == vertex_id]
        return sorted(found, key=lambda e: e.target_gate)

    def outputs_of(self, vertex_id: str) -> list[JobEdge]:
        return [e for e in self.edges if e.source == vertex_id]


def runs_on_spark(graph: JobGraph) -> bool:
    """Whether its tasks have Spark do the work."""
    return any(
        isinstance(node.spec, SparkQuerySpec) for vertex in graph.vertices for node in vertex.operators
    )


def encode_job_graph(graph: JobGraph) -> bytes:
    return msgspec.json.encode(graph)


def decode_job_graph(data: bytes) -> JobGraph:
    return msgspec.json.decode(data, type=JobGraph)
