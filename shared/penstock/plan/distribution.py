"""By which columns the rows of an operator are spread over its subtasks, and by which they must be.

Both are derived from the operators' specs and edges alone: what the translation noted of its
own decisions (``PlannedOperator.hashed``) is not read, so that a mistake there is found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.functions.expr import InputRef
from penstock.jobgraph import specs as s
from penstock.jobgraph.graph import Forward, Hash
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.jobgraph.graph import Partitioning
    from penstock.plan.operator_graph import OperatorInput, PlannedOperator
    from penstock.types.logical import LogicalType, Schema

    PartitioningOf = Callable[[PlannedOperator, OperatorInput], Partitioning]

#: Each tuple: rows with equal values in these columns (hashed in this order) are in the subtask
#: that owns the values' key group.
Distribution = frozenset[tuple[int, ...]]

_NONE: Distribution = frozenset()
#: The output is the input's columns, in place, and perhaps more behind them.
_KEEPS_COLUMNS = (
    s.AssignWatermarksSpec, s.AsyncCalcSpec, s.DeduplicateSpec, s.LimitSpec, s.LocalTimeSpec, s.LookupJoinSpec,
    s.MaterializeSpec, s.NormalizeSpec, s.OverFinalSpec, s.OverSpec, s.SetOperationSpec, s.SinkSpec, s.SortSpec,
    s.TableFunctionSpec, s.TemporalJoinSpec, s.TemporalSortSpec, s.TopNSpec, s.UnionSpec, s.WindowMaximumSpec,
    s.WindowTableSpec,
)  # fmt: skip


def input_schema(inp: OperatorInput) -> Schema:
    """Of the rows that come over this edge."""
    return inp.source.output if inp.tag is None else inp.source.side_outputs[inp.tag]


class Distributions:
    """Of every operator of a plan, computed once each."""

    def __init__(self, partitioning_of: PartitioningOf) -> None:
        self._partitioning_of = partitioning_of
        self._memo: dict[int, Distribution] = {}

    def output(self, op: PlannedOperator) -> Distribution:
        found = self._memo.get(id(op))
        if found is None:
            found = self._memo[id(op)] = _moved(op, [self.port(op, i) for i in range(len(op.inputs))])
        return found

    def port(self, op: PlannedOperator, index: int) -> Distribution:
        """Of the rows that reach input ``index``: what is true of all its producers."""
        ways = [self._edge(op, inp) for inp in op.inputs[index]]
        return frozenset.intersection(*ways) if ways else _NONE

    def _edge(self, op: PlannedOperator, inp: OperatorInput) -> Distribution:
        partitioning = self._partitioning_of(op, inp)
        if isinstance(partitioning, Hash):
            return frozenset({partitioning.keys})
        if isinstance(partitioning, Forward) and inp.tag is None:
            return self.output(inp.source)
        return _NONE


def _moved(op: PlannedOperator, ports: list[Distribution]) -> Distribution:
    """The inputs' distributions in terms of the output's columns."""
    spec = op.spec
    match spec:
        case s.CalcSpec():
            if spec.projections is None:
                return ports[0]
            at: dict[int, int] = {}
            for i, e in enumerate(spec.projections):
                if isinstance(e, InputRef):
                    at.setdefault(e.index, i)
            return _mapped(ports[0], at)
        case s.GroupAggregateSpec() | s.WindowAggregateSpec():
            return _mapped(ports[0], {k: i for i, k in reversed(list(enumerate(spec.keys)))})
        case s.JoinSpec() | s.WindowJoinSpec():
            left = ports[0] if spec.kind in ("inner", "left", "semi", "anti") else _NONE
            if spec.kind not in ("inner", "right"):
                return left
            width = len(input_schema(op.inputs[0][0]))
            return left | frozenset(tuple(k + width for k in keys) for keys in ports[1])
    return ports[0] if isinstance(spec, _KEEPS_COLUMNS) else _NONE


def _mapped(known: Distribution, at: Mapping[int, int]) -> Distribution:
    return frozenset(tuple(at[k] for k in keys) for keys in known if all(k in at for k in keys))


def required_keys(spec: s.OperatorSpec) -> tuple[tuple[int, ...] | None, ...]:
    """Per input, the columns whose equal values must meet in one subtask: () = all rows must; None =
    any subtask will do. No entries: nothing is required of any input."""
    match spec:
        case s.GroupAggregateSpec():
            return () if spec.phase == "local" else (spec.keys,)
        case s.WindowAggregateSpec():
            return () if spec.phase == "local" else ((*spec.keys, *(spec.windowed_input or ())),)
        case s.JoinSpec() | s.TemporalJoinSpec():
            return (spec.left_keys, spec.right_keys)
        case s.WindowJoinSpec():
            return ((*spec.left_keys, *spec.left_window), (*spec.right_keys, *spec.right_window))
        case s.TopNSpec():
            return ((*spec.partition, *(spec.window or ())),)
        case s.DeduplicateSpec():
            return ((*spec.keys, *(spec.window or ())),)
        case s.OverSpec() | s.OverFinalSpec():
            return (spec.partition,)
        case s.SortSpec() | s.LimitSpec() | s.TemporalSortSpec():
            return ((),)
        case s.MaterializeSpec() | s.NormalizeSpec():
            return (spec.keys,)
        case s.WindowTableSpec():
            return (spec.keys,) if spec.window.kind == "session" else ()
        case s.KeyedWindowSpec():
            return (spec.keys,)
        case s.KeyedProcessSpec():
            return tuple(keys or None for keys in spec.keys)
    return ()


def meets(op: PlannedOperator, distributions: Distributions) -> bool:
    """Whether rows that ``op`` must see together reach one subtask of it."""
    if op.parallelism == 1:
        return True
    if isinstance(op.spec, s.SetOperationSpec):
        everything = tuple(range(len(op.output)))
        wanted: tuple[tuple[int, ...] | None, ...] = (everything, everything)
    else:
        wanted = required_keys(op.spec)
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
    """Equal for types whose equal values have equal hashes (``runtime.kernels.hashing``)."""
    if isinstance(type_, t.DecimalType):
        return ("decimal", type_.scale)
    if isinstance(type_, (t.FloatType, t.DoubleType)):
        return "float"
    if isinstance(type_, (t.CharType, t.VarCharType)):
        return "string"
    if isinstance(type_, (*t.INTEGERS, t.DateType, t.TimeType, *t.TIMESTAMPS)):
        return "int"
    return type(type_)
