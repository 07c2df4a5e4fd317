"""The operator graph: one node an operator, before chaining."""

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


#: What was done for speed, for EXPLAIN: the verb, the words.
Note = tuple[str, str]


@dataclass(eq=False, slots=True)
class OperatorInput:
    """``partitioning`` None = forward when parallelism allows, else rebalance."""

    source: PlannedOperator
    partitioning: Partitioning | None = None
    tag: str | None = None


@dataclass(eq=False, slots=True)
class PlannedOperator:
    """``inputs[i]``: producers unioned into input i. ``hashed``: the columns (in order) by
    which the output is known to be partitioned. ``keeps``: what state it holds, in words.
    ``uid``: as it was before ``plan.identity``, until that sets it; ``given``: by the user.
    ``node``: what it does, ``kind``: which part of that. ``notes``: of EXPLAIN."""

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
    return [i for group in op.inputs for i in group]


def fetched_late(names: Sequence[str], used: Collection[int]) -> tuple[Note, ...]:
    """The note on columns (``names``, without those at ``used``) that an operator with rows in its state
    never looks at."""
    late = [name for i, name in enumerate(names) if i not in used]
    if not late:
        return ()
    return (("fetched late", f"{', '.join(late)}: kept beside the index, read only for rows that leave"),)
