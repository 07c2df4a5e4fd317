"""The DataStream API. Names are PyFlink's; what is ours beside them is in ``docs/datastream.md``.

Everything is loaded when first asked for: a slot that unpickles one function class loads
neither the planner nor the connectors.
"""

from __future__ import annotations

import importlib
from typing import Any

_WHERE = {
    "penstock.api.common": ("Duration", "Row", "RuntimeExecutionMode", "Time", "TimestampAssigner", "WatermarkStrategy"),
    "penstock.api.connectors": (
        "FileSink", "FileSource", "HybridSource", "NatsSink", "NatsSource", "Sink", "Source",
    ),
    "penstock.api.connected": ("BroadcastStream", "ConnectedStreams"),
    "penstock.api.datastream": ("DataStream", "DataStreamSink"),
    "penstock.api.environment": ("StreamExecutionEnvironment",),
    "penstock.api.execution": ("JobClient", "JobExecutionResult"),
    "penstock.api.functions": (
        "AggregateFunction", "BroadcastProcessFunction", "CoMapFunction", "CoProcessFunction",
        "FilterFunction", "FlatMapFunction", "KeyedBroadcastProcessFunction", "KeyedCoProcessFunction",
        "KeyedProcessFunction", "KeySelector", "MapFunction", "ProcessFunction",
        "ProcessWindowFunction", "ReduceFunction", "WindowFunction",
    ),
    "penstock.api.keyed": ("KeyedStream",),
    "penstock.api.typeinfo": ("Types",),
    "penstock.api.user_functions": ("ScalarFunction", "TableFunction", "udaf", "udf", "udtf"),
    "penstock.api.windowed": ("WindowedStream",),
    "penstock.api.windows": (
        "EventTimeSessionWindows", "GlobalWindows", "ProcessingTimeSessionWindows",
        "SlidingEventTimeWindows", "SlidingProcessingTimeWindows", "TumblingEventTimeWindows",
        "TumblingProcessingTimeWindows",
    ),
    "penstock.operators.output_tag": ("OutputTag",),
    "penstock.operators.process_context": ("TimeDomain",),
    "penstock.operators.user_code": ("RuntimeContext",),
    "penstock.operators.window_functions": (
        "ContinuousEventTimeTrigger", "ContinuousProcessingTimeTrigger", "CountTrigger", "EventTimeTrigger",
        "NeverTrigger", "ProcessingTimeTrigger", "PurgingTrigger", "TimeWindow", "Trigger", "TriggerResult",
    ),
    "penstock.state.descriptors": (
        "AggregatingStateDescriptor", "ListStateDescriptor", "MapStateDescriptor",
        "ReducingStateDescriptor", "StateTtlConfig", "ValueStateDescriptor",
    ),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _WHERE.items() for name in names}

__all__ = sorted((*_MODULE_OF, "agg"))


def __getattr__(name: str) -> Any:
    if name == "agg":
        return importlib.import_module("penstock.api.aggregates")
    if name in _MODULE_OF:
        return getattr(importlib.import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'penstock.api' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
