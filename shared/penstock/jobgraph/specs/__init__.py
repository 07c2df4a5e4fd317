"""Specs: what each operator does, as data, and the properties that it declares (``base.Spec``).

``penstock.operators.factory`` makes an operator of a spec. Indices always refer to columns of the
operator's input. Durations are in milliseconds (``…_ms``) or microseconds (``…_us``). Fields are only
added, with defaults.
"""

from __future__ import annotations

from typing import Union, get_args

from penstock.jobgraph.specs.aggregates import (
    GroupAggregateSpec,
    WindowAggregateSpec,
)
from penstock.jobgraph.specs.base import Spec
from penstock.jobgraph.specs.changes import (
    FinalRowsSpec,
    MaterializeSpec,
    NormalizeSpec,
    SetOperationSpec,
)
from penstock.jobgraph.specs.joins import (
    JoinSpec,
    LookupJoinSpec,
    TemporalJoinSpec,
    WindowJoinSpec,
)
from penstock.jobgraph.specs.on_spark import (
    SparkProgramSpec,
    SparkQuerySpec,
)
from penstock.jobgraph.specs.ordering import (
    DeduplicateSpec,
    LimitSpec,
    OverFinalSpec,
    OverSpec,
    SortSpec,
    TemporalSortSpec,
    TopNSpec,
)
from penstock.jobgraph.specs.parts import (
    SortKey,
    WatermarkSpec,
    WindowSpec,
)
from penstock.jobgraph.specs.registered import RegisteredSpec, registered
from penstock.jobgraph.specs.rows import (
    AssignWatermarksSpec,
    AsyncCalcSpec,
    CalcSpec,
    ExpandSpec,
    LocalTimeSpec,
    UnionSpec,
    WindowMaximumSpec,
    WindowTableSpec,
)
from penstock.jobgraph.specs.tables import (
    CollectionSourceSpec,
    EnumeratorSpec,
    SinkSpec,
    SourceSpec,
)
from penstock.jobgraph.specs.user import (
    AsyncWaitSpec,
    FunctionSourceSpec,
    KeyedProcessSpec,
    KeyedWindowSpec,
    PythonSpec,
    RecordTimeSpec,
    RowKindSpec,
    TableFunctionSpec,
)

__all__ = [
    "AssignWatermarksSpec",
    "AsyncCalcSpec",
    "AsyncWaitSpec",
    "CalcSpec",
    "CollectionSourceSpec",
    "DeduplicateSpec",
    "EnumeratorSpec",
    "ExpandSpec",
    "FinalRowsSpec",
    "FunctionSourceSpec",
    "GroupAggregateSpec",
    "JoinSpec",
    "KeyedProcessSpec",
    "KeyedWindowSpec",
    "LimitSpec",
    "LocalTimeSpec",
    "LookupJoinSpec",
    "MaterializeSpec",
    "NormalizeSpec",
    "OperatorSpec",
    "OverFinalSpec",
    "OverSpec",
    "PythonSpec",
    "RecordTimeSpec",
    "RegisteredSpec",
    "RowKindSpec",
    "SetOperationSpec",
    "SinkSpec",
    "SortKey",
    "SortSpec",
    "SourceSpec",
    "SparkProgramSpec",
    "SparkQuerySpec",
    "Spec",
    "TableFunctionSpec",
    "TemporalJoinSpec",
    "TemporalSortSpec",
    "TopNSpec",
    "UnionSpec",
    "WatermarkSpec",
    "WindowAggregateSpec",
    "WindowJoinSpec",
    "WindowMaximumSpec",
    "WindowSpec",
    "WindowTableSpec",
    "as_sent",
]

OperatorSpec = Union[
    SparkQuerySpec, SparkProgramSpec, EnumeratorSpec, SourceSpec, CollectionSourceSpec, SinkSpec, CalcSpec, AsyncCalcSpec, UnionSpec,
    AssignWatermarksSpec, WindowMaximumSpec, LocalTimeSpec, WindowTableSpec, ExpandSpec, WindowAggregateSpec,
    GroupAggregateSpec, JoinSpec, WindowJoinSpec, TemporalJoinSpec, LookupJoinSpec,
    TopNSpec, DeduplicateSpec, OverSpec, OverFinalSpec, SortSpec, LimitSpec, TemporalSortSpec,
    FinalRowsSpec, MaterializeSpec, NormalizeSpec, SetOperationSpec, PythonSpec, AsyncWaitSpec, FunctionSourceSpec, RecordTimeSpec, RowKindSpec, TableFunctionSpec,
    KeyedProcessSpec, KeyedWindowSpec, RegisteredSpec,
]  # fmt: skip

_BROUGHT_ALONG = frozenset(get_args(OperatorSpec))


def as_sent(spec: Spec) -> OperatorSpec:
    """``spec`` as a job graph holds it: itself, or a ``RegisteredSpec`` if its class comes from another
    package.

    Raises SpecError as ``registered`` does.
    """
    return spec if type(spec) in _BROUGHT_ALONG else registered(spec)  # type: ignore[return-value]
