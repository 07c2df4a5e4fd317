"""Makes operators from their specs. Each class is called as ``Cls(spec)`` and imported when it is first needed."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from penstock.errors import UnsupportedError

if TYPE_CHECKING:
    from penstock.jobgraph.specs import Spec
    from penstock.operators.operator import Operator

_OPERATORS = "penstock.operators."
_FACTORIES: dict[str, str] = {
    "EnumeratorSpec": "penstock.operators.enumerator:EnumeratorOperator",
    "SourceSpec": "penstock.operators.sources:SourceOperator",
    "CollectionSourceSpec": "penstock.operators.collection_source:CollectionSourceOperator",
    "SparkQuerySpec": "penstock.runtime.spark_query:SparkQueryOperator",
    "SinkSpec": "penstock.operators.sinks:SinkOperator",
    "AssignWatermarksSpec": "penstock.operators.assigners:AssignWatermarksOperator",
    "CalcSpec": _OPERATORS + "calc:CalcOperator",
    "AsyncCalcSpec": _OPERATORS + "async_calc:AsyncCalcOperator",
    "UnionSpec": _OPERATORS + "calc:UnionOperator",
    "ExpandSpec": _OPERATORS + "calc:ExpandOperator",
    "WindowMaximumSpec": _OPERATORS + "window_maximum:WindowMaximumOperator",
    "LocalTimeSpec": _OPERATORS + "local_time:LocalTimeOperator",
    "WindowTableSpec": _OPERATORS + "window_table:make_window_table",
    "WindowAggregateSpec": _OPERATORS + "window_aggregate:make_window_aggregate",
    "GroupAggregateSpec": _OPERATORS + "group_aggregate:make_group_aggregate",
    "JoinSpec": _OPERATORS + "join:make_join",
    "WindowJoinSpec": _OPERATORS + "window_join:WindowJoinOperator",
    "TemporalJoinSpec": _OPERATORS + "temporal_join:TemporalJoinOperator",
    "LookupJoinSpec": _OPERATORS + "lookup_join:LookupJoinOperator",
    "TopNSpec": _OPERATORS + "top_n:make_top_n",
    "DeduplicateSpec": _OPERATORS + "deduplicate:DeduplicateOperator",
    "OverSpec": _OPERATORS + "over:OverOperator",
    "OverFinalSpec": _OPERATORS + "over_final:OverFinalOperator",
    "SortSpec": _OPERATORS + "sort:SortOperator",
    "FinalRowsSpec": _OPERATORS + "final_rows:FinalRowsOperator",
    "LimitSpec": _OPERATORS + "sort:LimitOperator",
    "TemporalSortSpec": _OPERATORS + "sort:TemporalSortOperator",
    "MaterializeSpec": _OPERATORS + "changelog:MaterializeOperator",
    "NormalizeSpec": _OPERATORS + "changelog:NormalizeOperator",
    "SetOperationSpec": _OPERATORS + "set_operation:SetOperationOperator",
    "FunctionSourceSpec": _OPERATORS + "function_source:FunctionSourceOperator",
    "AsyncWaitSpec": _OPERATORS + "async_wait:AsyncWaitOperator",
    "PythonSpec": _OPERATORS + "python:PythonOperator",
    "RecordTimeSpec": _OPERATORS + "python:RecordTimeOperator",
    "RowKindSpec": _OPERATORS + "row_kinds:RowKindOperator",
    "TableFunctionSpec": _OPERATORS + "table_function:make_table_function",
    "KeyedProcessSpec": _OPERATORS + "keyed_process:KeyedProcessOperator",
    "KeyedWindowSpec": _OPERATORS + "keyed_window:KeyedWindowOperator",
}


def registered_specs() -> tuple[str, ...]:
    """The names of the spec classes whose operators Penstock brings. A spec of another package names its operator itself."""
    return tuple(_FACTORIES)


def operator_factory(spec_type: type[Spec]) -> Any:
    """The callable that makes the operators of a spec class. Raises UnsupportedError if this build has none."""
    target = spec_type.operator or _FACTORIES.get(spec_type.__name__)
    if not target:
        raise _unsupported(spec_type, "no operator is registered for it")
    module_name, attribute = target.split(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as err:
        if err.name != module_name:
            raise
        raise _unsupported(spec_type, f"the module {module_name} does not exist") from None
    found = getattr(module, attribute, None)
    if found is None:
        raise _unsupported(spec_type, f"{module_name} has no {attribute}")
    return found


def make_operator(spec: Spec) -> Operator:
    """The operator that runs ``spec``. Raises UnsupportedError if this build has none."""
    own = spec.own()
    return operator_factory(type(own))(own)


def _unsupported(spec_type: type, got: str) -> UnsupportedError:
    return UnsupportedError(
        f"the streaming runtime cannot run {spec_type.__name__}",
        expected="an operator of penstock.operators",
        got=got,
        remedy="rewrite the query without this operation, or run the job on Spark if it is bounded",
    )
