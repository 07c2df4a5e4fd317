"""By which columns an operator's rows are spread over its subtasks, and by which columns they have to be.

Both are derived only from edges and from the declarations of the operators' specs. The translation's own
notes (``PlannedOperator.hashed``) are not read, so that a mistake in these notes is found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.jobgraph.graph import Forward, Hash
from penstock.jobgraph.specs.base import NOWHERE, Keys, Spread
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.jobgraph.graph import Partitioning
    from penstock.plan.operator_graph import OperatorInput, PlannedOperator
    from penstock.types.logical import LogicalType, Schema

    PartitioningOf = Callable[[PlannedOperator, OperatorInput], Partitioning]


def input_schema(inp: OperatorInput) -> Schema:
    """The columns of the rows that come over this edge."""
    return inp.source.output if inp.tag is None else inp.source.side_outputs[inp.tag]


class Distributions:
    """How the rows of every operator of a plan are spread, each computed once."""

    def __init__(self, partitioning_of: PartitioningOf) -> None:
        self._partitioning_of = partitioning_of
        self._memo: dict[int, Spread] = {}

    def output(self, op: PlannedOperator) -> Spread:
        """How the rows of the operator's output are spread over its subtasks."""
        found = self._memo.get(id(op))
        if found is None:
            ports = [self.port(op, i) for i in range(len(op.inputs))]
            left_width = len(input_schema(op.inputs[0][0])) if ports and op.inputs[0] else 0
            found = self._memo[id(op)] = op.spec.spread(ports, left_width) if ports else NOWHERE
        return found

    def port(self, op: PlannedOperator, index: int) -> Spread:
        """How the rows that reach input ``index`` are spread: what holds for all its producers."""
        ways = [self._edge(op, inp) for inp in op.inputs[index]]
        return frozenset.intersection(*ways) if ways else NOWHERE

    def _edge(self, op: PlannedOperator, inp: OperatorInput) -> Spread:
        partitioning = self._partitioning_of(op, inp)
        if isinstance(partitioning, Hash):
            return frozenset({partitioning.keys})
        if isinstance(partitioning, Forward) and inp.tag is None:
            return self.output(inp.source)
        return NOWHERE


def required_keys(op: PlannedOperator) -> Keys:
    """For each input of the operator, the columns whose equal values must meet in one subtask."""
    return op.spec.required_keys(len(op.output))


def meets(op: PlannedOperator, distributions: Distributions) -> bool:
    """Whether rows that ``op`` must see together reach one subtask of it."""
    if op.parallelism == 1:
        return True
    wanted = required_keys(op)
    keyed = [i for i, keys in enumerate(wanted) if keys is not None]
    if len(keyed) == 2:
        first, second = wanted[0], wanted[1]
        assert first is not None
        assert second is not None
        types = [input_schema(port[0]).types for port in op.inputs]
        pairs = {
            (a, b)
            for a, b in zip(first, second, strict=True)
            if _hashed_as(types[0][a]) == _hashed_as(types[1][b])
        }
        return any(
            len(left) == len(right) and all(pair in pairs for pair in zip(left, right, strict=True))
            for left in distributions.port(op, 0)
            for right in distributions.port(op, 1)
        )
    return all(any(set(known) <= set(wanted[i] or ()) for known in distributions.port(op, i)) for i in keyed)


def _hashed_as(type_: LogicalType) -> object:
    """A value that is the same for two types if equal values of these types have equal hashes
    (``columnar.hashing``)."""
    if isinstance(type_, t.DecimalType):
        return ("decimal", type_.scale)
    if isinstance(type_, (t.FloatType, t.DoubleType)):
        return "float"
    if isinstance(type_, (t.CharType, t.VarCharType)):
        return "string"
    if isinstance(type_, (*t.INTEGERS, t.DateType, t.TimeType, *t.TIMESTAMPS)):
        return "int"
    return type(type_)
