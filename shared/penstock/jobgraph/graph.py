"""The job graph: vertices, which are chains of operators, and the edges between them.

The planner builds it, the job manager expands it to subtasks, and a slot makes its operators. It contains
only data: user functions are ``FunctionArtifact``s.
"""

from __future__ import annotations

from typing import Union

import msgspec

from penstock.jobgraph.guarantees import ChainGuarantee
from penstock.jobgraph.identity import OperatorIdentity
from penstock.jobgraph.specs import OperatorSpec, SparkQuerySpec
from penstock.types.logical import Schema


class Forward(msgspec.Struct, frozen=True, tag="forward"):
    """Subtask i sends to subtask i; both vertices have the same parallelism."""


class Hash(msgspec.Struct, frozen=True, tag="hash"):
    """A row goes to the subtask that owns the key group of its key columns (indices into the edge's schema)."""

    keys: tuple[int, ...]


class Rebalance(msgspec.Struct, frozen=True, tag="rebalance"):
    """Batches go to all subtasks in turn."""


class Rescale(msgspec.Struct, frozen=True, tag="rescale"):
    """Batches go in turn to those subtasks that are the sender's share, so that not every pair is connected."""


class Broadcast(msgspec.Struct, frozen=True, tag="broadcast"):
    """Every row goes to every subtask."""


class Global(msgspec.Struct, frozen=True, tag="global"):
    """Every row goes to subtask 0."""


class Custom(msgspec.Struct, frozen=True, tag="custom"):
    """A row goes to the subtask that a user's function names: ``function`` in ``JobGraph.functions`` takes (record, number
    of subtasks)."""

    function: str


Partitioning = Union[Forward, Hash, Rebalance, Rescale, Broadcast, Global, Custom]


class ChainInput(msgspec.Struct, frozen=True):
    """The origin of one input of an operator, within its vertex.

    ``gate``: the index of the vertex's input gate (a job edge); or ``operator``: the position in
    ``JobVertex.operators`` of the operator before it. ``tag``: which output of that operator (None: the
    main output, otherwise a side output).
    """

    gate: int | None = None
    operator: int | None = None
    tag: str | None = None


class OperatorNode(msgspec.Struct, frozen=True, kw_only=True):
    """One operator of a chain. ``inputs[i]`` may name several producers, whose rows are unioned into input i.

    ``uid``: the user's or the planner's; for a job that began from a savepoint, the uid that the operator
    has there. ``identity``: how its state is found in a savepoint (``snapshots.matching``).
    """

    uid: str
    name: str
    spec: OperatorSpec
    inputs: tuple[tuple[ChainInput, ...], ...] = ()
    output: Schema
    side_outputs: dict[str, Schema] = {}
    identity: OperatorIdentity = OperatorIdentity()


class JobVertex(msgspec.Struct, frozen=True, kw_only=True):
    """A chain of operators (a small DAG in topological order). Each subtask runs as one task.

    ``slots``: the number of slots that a subtask occupies, on one task manager if possible. An operator
    that leaves its work to Spark on the same machine occupies several, because Spark uses their share of
    the machine.
    """

    id: str
    name: str
    operators: tuple[OperatorNode, ...]
    parallelism: int
    max_parallelism: int
    slot_sharing_group: str = "default"
    slots: int = 1


class JobEdge(msgspec.Struct, frozen=True, kw_only=True):
    """Connects output ``tag`` of operator ``source_operator`` of vertex ``source`` to gate ``target_gate`` of
    vertex ``target``. The gates of a vertex are numbered from 0."""

    id: str
    source: str
    source_operator: int
    tag: str | None = None
    target: str
    target_gate: int
    partitioning: Partitioning
    schema: Schema


class FunctionArtifact(msgspec.Struct, frozen=True, kw_only=True):
    """A user's function or object: ``data`` is cloudpickle, ``key`` the object key of larger cloudpickle; or
    ``module`` and ``qualname`` name what can be imported.

    ``classes``: (module, qualified name) of the program's own classes that occur in it, for
    ``types.pickling``.
    """

    data: bytes | None = None
    key: str | None = None
    module: str | None = None
    qualname: str | None = None
    classes: tuple[tuple[str, str], ...] = ()


#: The name of the entry in the function table that holds the program's own classes, as a dict by their names.
CLASSES = "classes"


class JobGraph(msgspec.Struct, frozen=True, kw_only=True):
    """A whole job, ready to be scheduled. ``vertices`` are in topological order.

    ``python_path``: folders (or artifact keys of zips) put in front of ``sys.path`` in the slot before any
    function is loaded. ``bounded``: all sources end. ``plan``: the text of the plans, for EXPLAIN and the
    dashboard. ``backfill``: the same job as Spark runs it over the history before the job starts, encoded
    as in a ``SparkQuerySpec``; empty if the job starts at once.
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
    #: What holds from the sources to each sink.
    guarantees: tuple[ChainGuarantee, ...] = ()
    #: The path of the savepoint whose uids the dispatcher has given to the operators; empty: none.
    matched_to: str = ""

    def vertex(self, vertex_id: str) -> JobVertex:
        """The vertex with this id. Raises KeyError if there is none."""
        for vertex in self.vertices:
            if vertex.id == vertex_id:
                return vertex
        raise KeyError(vertex_id)

    def inputs_of(self, vertex_id: str) -> list[JobEdge]:
        """The edges into a vertex, ordered by gate."""
        found = [e for e in self.edges if e.target == vertex_id]
        return sorted(found, key=lambda e: e.target_gate)

    def outputs_of(self, vertex_id: str) -> list[JobEdge]:
        """The edges out of a vertex."""
        return [e for e in self.edges if e.source == vertex_id]


def runs_on_spark(graph: JobGraph) -> bool:
    """Whether a task of this job leaves its work to Spark."""
    return any(
        isinstance(node.spec, SparkQuerySpec) for vertex in graph.vertices for node in vertex.operators
    )


def encode_job_graph(graph: JobGraph) -> bytes:
    """The graph as JSON."""
    return msgspec.json.encode(graph)


def prepare_types() -> None:
    """Let msgspec look at the types of job graphs now. It does so at the first use of a type, and a process in which two
    threads do so at once dies of a segmentation fault (msgspec 0.22). A process whose threads read job graphs calls
    this while it has one thread."""
    msgspec.json.Decoder(JobGraph)


def decode_job_graph(data: bytes) -> JobGraph:
    """The graph that ``encode_job_graph`` encoded. Raises msgspec.DecodeError if ``data`` is no job graph."""
    return msgspec.json.decode(data, type=JobGraph)
