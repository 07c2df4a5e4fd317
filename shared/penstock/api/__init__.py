"""The DataStream API. Its names are PyFlink's; ``docs/datastream.md`` describes what Penstock adds.

Each name is imported on first use, so a slot that unpickles one function class loads neither the planner nor
the connectors. Type checkers and editors read the imports below.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.api import aggregates as agg
    from penstock.api.all_windowed import AllWindowedStream
    from penstock.api.async_data_stream import AsyncDataStream
    from penstock.api.async_functions import AsyncFunction, AsyncRetryPredicate, AsyncRetryStrategy
    from penstock.api.checkpoint_config import (
        CheckpointConfig,
        CheckpointingMode,
        ExternalizedCheckpointRetention,
    )
    from penstock.api.common import (
        Duration,
        Instant,
        Row,
        RuntimeExecutionMode,
        Time,
        TimestampAssigner,
        WatermarkStrategy,
    )
    from penstock.api.configuration import Configuration
    from penstock.api.connected import BroadcastStream, ConnectedStreams
    from penstock.api.connectors import HybridSource, NatsSink, NatsSource, Sink, Source
    from penstock.api.datastream import DataStream
    from penstock.api.environment import StreamExecutionEnvironment
    from penstock.api.execution import JobClient, JobExecutionResult
    from penstock.api.execution_config import ExecutionConfig
    from penstock.api.file_system import FileSink, FileSource, OutputFileConfig, RollingPolicy, StreamFormat
    from penstock.api.functions import (
        AggregateFunction,
        AllWindowFunction,
        BroadcastProcessFunction,
        CoFlatMapFunction,
        CoGroupFunction,
        CoMapFunction,
        CoProcessFunction,
        FilterFunction,
        FlatJoinFunction,
        FlatMapFunction,
        Function,
        JoinFunction,
        KeyedBroadcastProcessFunction,
        KeyedCoProcessFunction,
        KeyedProcessFunction,
        KeySelector,
        MapFunction,
        Partitioner,
        ProcessAllWindowFunction,
        ProcessFunction,
        ProcessWindowFunction,
        ReduceFunction,
        WindowFunction,
    )
    from penstock.api.keyed import KeyedStream
    from penstock.api.results import CloseableIterator
    from penstock.api.serialization import ByteArraySchema, Encoder, SimpleStringSchema
    from penstock.api.step_settings import DataStreamSink
    from penstock.api.typeinfo import Types
    from penstock.api.user_functions import ScalarFunction, TableFunction, udaf, udf, udtf
    from penstock.api.window_assigner import MergingWindowAssigner, WindowAssigner
    from penstock.api.windowed import WindowedStream
    from penstock.api.windows import (
        CumulativeEventTimeWindows,
        EventTimeSessionWindows,
        GlobalWindows,
        ProcessingTimeSessionWindows,
        SlidingEventTimeWindows,
        SlidingProcessingTimeWindows,
        TumblingEventTimeWindows,
        TumblingProcessingTimeWindows,
    )
    from penstock.operators.accumulators import IntCounter, LongCounter
    from penstock.operators.evictors import CountEvictor, DeltaEvictor, Evictor, TimeEvictor, TimestampedValue
    from penstock.operators.operator_state import (
        CheckpointedFunction,
        FunctionInitializationContext,
        FunctionSnapshotContext,
    )
    from penstock.operators.output_tag import OutputTag
    from penstock.operators.process_context import TimeDomain
    from penstock.operators.user_code import RuntimeContext
    from penstock.operators.watermark_generator import Watermark, WatermarkGenerator, WatermarkOutput
    from penstock.operators.window_functions import (
        ContinuousEventTimeTrigger,
        ContinuousProcessingTimeTrigger,
        CountTrigger,
        CountWindow,
        EventTimeTrigger,
        GlobalWindow,
        NeverTrigger,
        ProcessingTimeTrigger,
        PurgingTrigger,
        SessionWindowTimeGapExtractor,
        TimeWindow,
        Trigger,
        TriggerResult,
    )
    from penstock.state.descriptors import (
        AggregatingStateDescriptor,
        ListStateDescriptor,
        MapStateDescriptor,
        ReducingStateDescriptor,
        StateTtlConfig,
        ValueStateDescriptor,
    )
    from penstock.types.batch import RowKind

__all__ = [
    "AggregateFunction",
    "AggregatingStateDescriptor",
    "AllWindowFunction",
    "AllWindowedStream",
    "AsyncDataStream",
    "AsyncFunction",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BroadcastProcessFunction",
    "BroadcastStream",
    "ByteArraySchema",
    "CheckpointConfig",
    "CheckpointedFunction",
    "CheckpointingMode",
    "CloseableIterator",
    "CoFlatMapFunction",
    "CoGroupFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "Configuration",
    "ConnectedStreams",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountEvictor",
    "CountTrigger",
    "CountWindow",
    "CumulativeEventTimeWindows",
    "DataStream",
    "DataStreamSink",
    "DeltaEvictor",
    "Duration",
    "Encoder",
    "EventTimeSessionWindows",
    "EventTimeTrigger",
    "Evictor",
    "ExecutionConfig",
    "ExternalizedCheckpointRetention",
    "FileSink",
    "FileSource",
    "FilterFunction",
    "FlatJoinFunction",
    "FlatMapFunction",
    "Function",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "GlobalWindow",
    "GlobalWindows",
    "HybridSource",
    "Instant",
    "IntCounter",
    "JobClient",
    "JobExecutionResult",
    "JoinFunction",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStream",
    "ListStateDescriptor",
    "LongCounter",
    "MapFunction",
    "MapStateDescriptor",
    "MergingWindowAssigner",
    "NatsSink",
    "NatsSource",
    "NeverTrigger",
    "OutputFileConfig",
    "OutputTag",
    "Partitioner",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessWindowFunction",
    "ProcessingTimeSessionWindows",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "ReduceFunction",
    "ReducingStateDescriptor",
    "RollingPolicy",
    "Row",
    "RowKind",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "ScalarFunction",
    "SessionWindowTimeGapExtractor",
    "SimpleStringSchema",
    "Sink",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "Source",
    "StateTtlConfig",
    "StreamExecutionEnvironment",
    "StreamFormat",
    "TableFunction",
    "Time",
    "TimeDomain",
    "TimeEvictor",
    "TimeWindow",
    "TimestampAssigner",
    "TimestampedValue",
    "Trigger",
    "TriggerResult",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "Types",
    "ValueStateDescriptor",
    "Watermark",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
    "WindowAssigner",
    "WindowFunction",
    "WindowedStream",
    "agg",
    "udaf",
    "udf",
    "udtf",
]

#: Where each name is defined. A test checks that this table and the imports above agree.
_WHERE = {
    "penstock.operators.accumulators": ("IntCounter", "LongCounter"),
    "penstock.operators.watermark_generator": ("Watermark", "WatermarkGenerator", "WatermarkOutput"),
    "penstock.operators.operator_state": ("CheckpointedFunction", "FunctionInitializationContext", "FunctionSnapshotContext"),
    "penstock.operators.evictors": ("CountEvictor", "DeltaEvictor", "Evictor", "TimeEvictor", "TimestampedValue",),
    "penstock.api.window_assigner": ("MergingWindowAssigner", "WindowAssigner",),
    "penstock.api.common": ("Duration", "Instant", "Row", "RuntimeExecutionMode", "Time", "TimestampAssigner", "WatermarkStrategy"),
    "penstock.api.async_data_stream": ("AsyncDataStream",),
    "penstock.api.async_functions": ("AsyncFunction", "AsyncRetryPredicate", "AsyncRetryStrategy"),
    "penstock.api.connectors": ("HybridSource", "NatsSink", "NatsSource", "Sink", "Source"),
    "penstock.api.connected": ("BroadcastStream", "ConnectedStreams"),
    "penstock.api.checkpoint_config": ("CheckpointConfig", "CheckpointingMode", "ExternalizedCheckpointRetention",),
    "penstock.api.configuration": ("Configuration",),
    "penstock.api.execution_config": ("ExecutionConfig",),
    "penstock.api.file_system": ("FileSink", "FileSource", "OutputFileConfig", "RollingPolicy", "StreamFormat",),
    "penstock.api.results": ("CloseableIterator",),
    "penstock.api.serialization": ("ByteArraySchema", "Encoder", "SimpleStringSchema",),
    "penstock.types.batch": ("RowKind",),
    "penstock.api.datastream": ("DataStream",),
    "penstock.api.step_settings": ("DataStreamSink",),
    "penstock.api.all_windowed": ("AllWindowedStream",),
    "penstock.api.environment": ("StreamExecutionEnvironment",),
    "penstock.api.execution": ("JobClient", "JobExecutionResult"),
    "penstock.api.functions": ("CoGroupFunction", "FlatJoinFunction", "JoinFunction",
        "AggregateFunction", "AllWindowFunction", "CoFlatMapFunction", "Partitioner", "ProcessAllWindowFunction", "Function", "BroadcastProcessFunction", "CoMapFunction", "CoProcessFunction",
        "FilterFunction", "FlatMapFunction", "KeyedBroadcastProcessFunction", "KeyedCoProcessFunction",
        "KeyedProcessFunction", "KeySelector", "MapFunction", "ProcessFunction",
        "ProcessWindowFunction", "ReduceFunction", "WindowFunction",
    ),
    "penstock.api.keyed": ("KeyedStream",),
    "penstock.api.typeinfo": ("Types",),
    "penstock.api.user_functions": ("ScalarFunction", "TableFunction", "udaf", "udf", "udtf"),
    "penstock.api.windowed": ("WindowedStream",),
    "penstock.api.windows": (
        "CumulativeEventTimeWindows",
        "EventTimeSessionWindows", "GlobalWindows", "ProcessingTimeSessionWindows",
        "SlidingEventTimeWindows", "SlidingProcessingTimeWindows", "TumblingEventTimeWindows",
        "TumblingProcessingTimeWindows",
    ),
    "penstock.operators.output_tag": ("OutputTag",),
    "penstock.operators.process_context": ("TimeDomain",),
    "penstock.operators.user_code": ("RuntimeContext",),
    "penstock.operators.window_functions": ("GlobalWindow",
        "ContinuousEventTimeTrigger", "ContinuousProcessingTimeTrigger", "CountTrigger", "CountWindow", "EventTimeTrigger", "SessionWindowTimeGapExtractor",
        "NeverTrigger", "ProcessingTimeTrigger", "PurgingTrigger", "TimeWindow", "Trigger", "TriggerResult",
    ),
    "penstock.state.descriptors": (
        "AggregatingStateDescriptor", "ListStateDescriptor", "MapStateDescriptor",
        "ReducingStateDescriptor", "StateTtlConfig", "ValueStateDescriptor",
    ),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _WHERE.items() for name in names}


if not TYPE_CHECKING:  # a type checker that saw this would accept any name

    def __getattr__(name: str) -> object:
        if name == "agg":
            return importlib.import_module("penstock.api.aggregates")
        if name in _MODULE_OF:
            return getattr(importlib.import_module(_MODULE_OF[name]), name)
        raise AttributeError(f"module 'penstock.api' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return __all__
