"""The operator graph: one node for each operator, before chaining."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.jobgraph.graph import Partitioning
from penstock.jobgraph.identity import OperatorIdentity

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from penstock.jobgraph.specs import Spec
    from penstock.plan.node import Node
    from penstock.types.logical import Schema


#: A note for EXPLAIN on a decision of the optimizer: (what was done, such as "pushed down"; to what).
Note = tuple[str, str]


@dataclass(eq=False, slots=True)
class OperatorInput:
    """One producer of an input. ``partitioning`` None: forward if both ends have the same parallelism,
    otherwise rebalance."""

    source: PlannedOperator
    partitioning: Partitioning | None = None
    tag: str | None = None


@dataclass(eq=False, slots=True)
class PlannedOperator:
    """An operator of the physical plan.

    Args:
        uid: The name by which the operator's state is found. Until ``plan.identity`` sets it, the uid of the
        version
            before.
        name: As plans and the dashboard show it.
        spec: What the operator does, as data.
        inputs: ``inputs[i]``: the producers whose rows together are input i.
        output: Columns of the rows.
        parallelism: Number of subtasks.
        side_outputs: Tag → columns.
        hashed: The columns, in order, by which the output is known to be partitioned.
        slot_sharing_group: The group in whose slots the operator runs.
        chain: Whether the operator may be chained with its inputs.
        mode: Changelog mode of the output.
        keeps: The operator's state, in words.
        guarantee: The guarantee of a source or sink, in words.
        node: The plan node that the operator belongs to.
        kind: Which part of the node the operator does.
        given: Whether the user gave the uid.
        notes: Notes for EXPLAIN.
        identity: The names by which the operator's state is found in a savepoint of a changed program.
    """

    uid: str
    name: str
    spec: Spec
    inputs: list[list[OperatorInput]]
    output: Schema
    parallelism: int
    side_outputs: dict[str, Schema] = field(default_factory=dict)
    hashed: tuple[int, ...] | None = None
    slot_sharing_group: str = "default"
    chain: bool = True
    mode: str = "append"
    keeps: str = ""
    guarantee: str = ""
    node: Node | None = None
    kind: str = ""
    given: bool = False
    notes: tuple[Note, ...] = ()
    identity: OperatorIdentity = field(default_factory=OperatorIdentity)


def all_inputs(op: PlannedOperator) -> list[OperatorInput]:
    """The inputs of all ports of an operator."""
    return [i for group in op.inputs for i in group]


def fetched_late(names: Sequence[str], used: Collection[int]) -> tuple[Note, ...]:
    """The note on columns that an operator keeps in its state and reads only for rows that leave the state:
    ``names`` without those at the positions ``used``."""
    late = [name for i, name in enumerate(names) if i not in used]
    if not late:
        return ()
    return (("fetched late", f"{', '.join(late)}: kept beside the index, read only for rows that leave"),)
