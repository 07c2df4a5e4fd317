"""The logical plan: one tree (a DAG by sharing) for SQL and DataStream, for both engines.

This module collects the nodes that Penstock brings, for code that builds plans and for rules about certain
nodes. Each node and its traits are in its folder below ``penstock.plan.operators``; ``penstock.plan.node``
lists the traits.
"""

from __future__ import annotations

import msgspec

from penstock.functions.expr import AggregateCall
from penstock.jobgraph.specs import WatermarkSpec, WindowSpec
from penstock.plan.node import Node, inputs_of, with_inputs
from penstock.plan.operators.aggregate.node import Aggregate
from penstock.plan.operators.async_calc.node import AsyncCalc
from penstock.plan.operators.correlate.node import Correlate
from penstock.plan.operators.dead_letters.node import DeadLetters
from penstock.plan.operators.expand.node import Expand
from penstock.plan.operators.filter.node import Filter
from penstock.plan.operators.join.node import Join
from penstock.plan.operators.limit.node import Limit
from penstock.plan.operators.local_time.node import LocalTime
from penstock.plan.operators.normalize.node import Normalize
from penstock.plan.operators.over.node import Over
from penstock.plan.operators.project.node import Project
from penstock.plan.operators.row_kinds.node import RowKinds, StreamTime
from penstock.plan.operators.scan.node import Scan
from penstock.plan.operators.set_operation.node import SetOperation
from penstock.plan.operators.side_output.node import SideOutput
from penstock.plan.operators.sink.node import Sink
from penstock.plan.operators.sort.node import Sort
from penstock.plan.operators.temporal_join.node import TemporalJoin
from penstock.plan.operators.top_n.node import TopN
from penstock.plan.operators.transform.node import Transform
from penstock.plan.operators.union.node import Union_
from penstock.plan.operators.values.node import Values
from penstock.plan.operators.watermark.node import AssignWatermarks
from penstock.plan.operators.window_aggregate.node import WindowAggregate
from penstock.plan.operators.window_table.node import WindowTable
from penstock.plan.tables import MetadataColumn, TableRef
from penstock.types.logical import Schema

__all__ = [
    "Aggregate", "AggregateCall", "AssignWatermarks", "AsyncCalc", "Correlate", "DeadLetters", "Expand", "Filter", "Join", "Limit",
    "LocalTime", "LogicalPlan", "MetadataColumn", "Node", "Normalize", "Over", "Project", "RowKinds", "Scan", "Schema", "SetOperation",
    "SideOutput", "Sink", "Sort", "StreamTime", "TableRef", "TemporalJoin", "TopN", "Transform", "Union_", "Values",
    "WatermarkSpec", "WindowAggregate", "WindowSpec", "WindowTable", "inputs_of", "with_inputs",
]  # fmt: skip


class LogicalPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A job: its sinks (sharing sub-plans by value), settings and user functions."""

    name: str
    sinks: tuple[Sink, ...]
    config: dict[str, str] = {}
