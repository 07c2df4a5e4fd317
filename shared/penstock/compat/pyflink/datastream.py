"""The names of ``pyflink.datastream`` and its modules, except connectors and formats."""

from __future__ import annotations

from penstock.compat.pyflink.absent import ABSENT
from penstock.compat.pyflink.names import finder

_WHERE = {
    "penstock.api": (
        "AggregateFunction", "AggregatingStateDescriptor", "BroadcastProcessFunction", "BroadcastStream",
        "CoMapFunction", "CoProcessFunction", "ConnectedStreams", "BroadcastConnectedStream=ConnectedStreams",
        "ContinuousEventTimeTrigger", "ContinuousProcessingTimeTrigger", "CountTrigger", "DataStream",
        "DataStreamSink", "EventTimeSessionWindows", "EventTimeTrigger", "FilterFunction", "FlatMapFunction",
        "GlobalWindows", "KeySelector", "KeyedBroadcastProcessFunction", "KeyedCoProcessFunction",
        "KeyedProcessFunction", "KeyedStream", "ListStateDescriptor", "MapFunction", "MapStateDescriptor",
        "NeverTrigger", "OutputTag", "ProcessFunction", "ProcessWindowFunction", "ProcessingTimeSessionWindows",
        "ProcessingTimeTrigger", "PurgingTrigger", "ReduceFunction", "ReducingStateDescriptor", "RuntimeContext",
        "RuntimeExecutionMode", "SlidingEventTimeWindows", "SlidingProcessingTimeWindows",
        "StreamExecutionEnvironment", "TimeDomain", "TimeWindow", "Trigger", "TriggerResult",
        "TumblingEventTimeWindows", "TumblingProcessingTimeWindows", "ValueStateDescriptor", "WindowFunction",
        "WindowedStream", "StateTtlConfig", "Types", "WatermarkStrategy", "Time",
    ),
    "penstock.api.async_data_stream": ("AsyncDataStream",),
    "penstock.api.async_functions": (
        "AsyncFunction", "AsyncRetryPredicate", "AsyncRetryStrategy", "ExponentialBackoffDelayRetryStrategy",
        "FixedDelayRetryStrategy", "NO_RETRY_STRATEGY", "NoRetryStrategy", "RetryPredicate", "empty_result_predicate",
        "exception_type_predicate", "has_exception_predicate",
    ),
    "penstock.api.checkpoint_config": (
        "CheckpointConfig", "CheckpointingMode", "ExternalizedCheckpointRetention",
    ),
    "penstock.api.functions": (
        "AllWindowFunction", "CoFlatMapFunction", "Function", "Partitioner", "ProcessAllWindowFunction",
    ),
    "penstock.api.all_windowed": ("AllWindowedStream",),
    "penstock.api.results": ("CloseableIterator",),
    "penstock.state.descriptors": ("StateDescriptor",),
    "penstock.state.states": (
        "AggregatingState", "ListState", "MapState", "MergingState", "ReducingState", "State", "ValueState",
    ),
    "penstock.api.windows": (
        "CountSlidingWindowAssigner", "CountTumblingWindowAssigner", "MergingWindowAssigner", "WindowAssigner",
    ),
    "penstock.api.slot_sharing_group": ("MemorySize", "SlotSharingGroup"),
    "penstock.operators.process_context": ("TimerService",),
    "penstock.operators.window_functions": ("CountWindow", "GlobalWindow", "SessionWindowTimeGapExtractor"),
}  # fmt: skip
__getattr__, __all__ = finder(__name__, _WHERE, ABSENT["datastream"])


def __dir__() -> list[str]:
    return __all__
