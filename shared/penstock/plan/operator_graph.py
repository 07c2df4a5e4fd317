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


#: A note for EXPLAIN on a decision of the optimizer: the verb, the words.
Note = tuple[str, str]


@dataclass(eq=False, slots=True)
class OperatorInput:
    """``partitioning`` None = forward when parallelism allows, else rebalance."""

    source: PlannedOperator
    partitioning: Partitioning | None = None
    tag: str | None = None


@dataclass(eq=False, slots=True)
class PlannedOperator:
    """An operator of the physical plan.

    Args:
        uid: By which its state is found; until ``plan.identity`` sets it, as in the version before.
        name: As plans and the dashboard show it.
        spec: What runs.
        inputs: ``inputs[i]``: the producers whose rows together are input i.
        output: Columns of the rows.
        parallelism: Number of subtasks.
        side_outputs: Tag → columns.
        hashed: The columns, in order, by which the output is known to be partitioned.
        slot_sharing_group: The group whose slots it runs in.
        chain: Whether it may be chained with its input.
        mode: Changelog mode of the output.
        keeps: What state it holds, in words.
        guarantee: Of a source or sink, in words.
        node: The plan node that it belongs to.
        kind: Which part of the node it does.
        given: Whether the user gave the uid.
        notes: Notes for EXPLAIN.
        identity: By which its state is found in a savepoint of a changed program.
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
    """The note on columns (``names`` without those at ``used``) that an operator keeps in its state and
    never reads."""
    late = [name for i, name in enumerate(names) if i not in used]
    if not late:
        return ()
    return (("fetched late", f"{', '.join(late)}: kept beside the index, read only for rows that leave"),)
