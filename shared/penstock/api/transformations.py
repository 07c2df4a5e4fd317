"""The graph of transformations that a program builds; ``Compiler`` turns the graph into one logical plan.

Transformations are mutable while the program runs (``.name()``, ``.uid()``, a side output asked
for later); ``Compiler`` turns them into immutable plan nodes, each once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.columnar.record_classes import record_names
from penstock.errors import SpecError
from penstock.jobgraph.artifacts import make_artifact
from penstock.plan import nodes as n

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.jobgraph import FunctionArtifact, Partitioning
    from penstock.jobgraph.specs import OperatorSpec
    from penstock.types.logical import Schema
    from penstock.types.pickling import ClassName


@dataclass(eq=False)
class Transformation:
    """One step of a program. ``make(self, inputs, compiler)`` returns its plan node."""

    make: Callable[[Transformation, tuple[n.Node, ...], Compiler], n.Node]
    inputs: tuple[Transformation, ...]
    schema: Schema
    name: str
    uid: str | None = None
    parallelism: int | None = None
    slot_sharing_group: str | None = None
    chain: bool = True
    #: Side outputs that are read: tag → schema.
    tags: dict[str, Schema] = field(default_factory=dict)
    #: True if the plan takes ``uid``, ``parallelism`` and the other settings of the step.
    configurable: bool = True
    #: True if the plan takes ``uid`` although it does not take the other settings.
    takes_uid: bool = False
    #: The step to which a uid set on this step belongs.
    stands_for: Transformation | None = None
    #: True if side outputs of the step can be read.
    has_tags: bool = False
    #: Of a collection of ``Row``: makes the stream of its rows with their kinds in a last column.
    kinds: Callable[[], Any] | None = None
    #: True if the step runs in one subtask, whatever parallelism is set.
    alone: bool = False


class Compiler:
    """Compiles transformations into plan nodes. ``functions``: the job's function table, which compiling
    fills.

    Args:
        base: Steps that it has compiled are taken as they are: tables have been made of them.
        prefix: Begins the names of functions.
    """

    def __init__(self, base: Compiler | None = None, prefix: str = "") -> None:
        self.functions: dict[str, FunctionArtifact] = {}
        self._base = base
        self._prefix = prefix
        self._nodes: dict[int, n.Node] = {}
        #: The compiled steps, with their settings at that time.
        self._compiled: list[tuple[Transformation, tuple[Any, ...]]] = []
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []
        #: Names of the program's classes that occur in the job's data.
        self.classes: list[ClassName] = []

    def node(self, step: Transformation) -> n.Node:
        found = self._nodes.get(id(step))
        if found is None and self._base is not None:
            found = self._base._nodes.get(id(step))
        if found is None:
            inputs = tuple(self.node(i) for i in step.inputs)
            found = self._nodes[id(step)] = step.make(step, inputs, self)
            self._compiled.append((step, _settings(step)))
            self.classes += record_names(step.schema)
        return found

    def check_unchanged(self) -> None:
        """Raises SpecError if a step has got other settings or a side output since it was compiled."""
        for step, before in self._compiled:
            if _settings(step) != before:
                raise SpecError(
                    f"the step '{step.name}' was changed after a table had been made of its stream",
                    expected="name, uid, parallelism, slot sharing group, chaining and side outputs of a stream that "
                    "are set and asked for before from_data_stream",
                    got=f"{_settings(step)} after {before}",
                    remedy="move from_data_stream below these calls",
                )

    def function(self, function: Any, what: str) -> str:
        """The name of a function object in the function table. The same object always gets the same name."""
        name = self._names.get(id(function))
        if name is None:
            readable = getattr(function, "__name__", type(function).__name__).strip("<>")
            name = f"{self._prefix}{what}-{len(self.functions)}-{readable}"
            self.functions[name] = make_artifact(function, f"the function of '{what}'")
            self._names[id(function)] = name
            self._kept.append(function)
        return name


def _settings(step: Transformation) -> tuple[Any, ...]:
    tags = tuple(sorted(step.tags))
    return step.name, step.uid, step.parallelism, step.slot_sharing_group, step.chain, tags


def transform(
    spec: Callable[[Transformation, Compiler], OperatorSpec],
    inputs: tuple[Transformation, ...],
    schema: Schema,
    name: str,
    partitioning: tuple[Partitioning | None, ...] = (),
    **options: Any,
) -> Transformation:
    """A step whose plan node is an operator (``plan.nodes.Transform``)."""

    def make(step: Transformation, nodes: tuple[n.Node, ...], compiler: Compiler) -> n.Node:
        return n.Transform(
            inputs=nodes,
            spec=spec(step, compiler),
            name=step.name,
            uid=step.uid,
            partitioning=partitioning or (None,) * len(nodes),
            parallelism=step.parallelism,
            slot_sharing_group=step.slot_sharing_group,
            chain=step.chain,
            schema=step.schema,
            side_outputs=step.tags,
        )

    return Transformation(make, inputs, schema, name, **options)


def plain(
    make: Callable[[tuple[n.Node, ...], Compiler], n.Node],
    inputs: tuple[Transformation, ...],
    schema: Schema,
    name: str,
) -> Transformation:
    """A step whose plan node is relational: the planner names the node and decides where it runs."""
    return Transformation(
        lambda step, nodes, compiler: make(nodes, compiler), inputs, schema, name, configurable=False
    )


def side_output(of: Transformation, tag: str, schema: Schema) -> Transformation:
    if not of.has_tags:
        raise SpecError(
            f"'{of.name}' has no side outputs",
            expected="get_side_output right after process() or a window",
            got=f"side output '{tag}' of '{of.name}'",
        )
    known = of.tags.setdefault(tag, schema)
    if known != schema:
        raise SpecError(f"side output '{tag}' is read with two types", expected=str(known), got=str(schema))
    return plain(
        lambda nodes, compiler: n.SideOutput(input=nodes[0], tag=tag, schema=schema),
        (of,),
        schema,
        f"side output {tag}",
    )
