"""The operator graph: one node an operator, before chaining."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.jobgraph.graph import Partitioning
from penstock.jobgraph.identity import OperatorIdentity

if TYPE_CHECKING:
    from penstock.jobgraph.specs import OperatorSpec
    from penstock.plan import nodes as n
    from penstock.types.logical import Schema


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
    ``node``: what it does, ``kind``: which part of that."""

    uid: str
    name: str
    spec: OperatorSpec
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
    node: n.Node | None = None
    kind: str = ""
    given: bool = False
    identity: OperatorIdentity = field(default_factory=OperatorIdentity)


def all_inputs(op: PlannedOperator) -> list[OperatorInput]:
    return [i for group in op.inputs for i in group]
