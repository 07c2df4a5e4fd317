"""Workloads written on the DataStream API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from penstock.api import (
    KeyedProcessFunction,
    ListStateDescriptor,
    Sink,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from penstock.jobgraph import JobGraph

if TYPE_CHECKING:
    from tests.simulation.workloads import Workload


class Sessions(KeyedProcessFunction):
    """Every row with its number within its key; and, by an event-time timer, what a key
    saw in each span of two seconds."""

    SPAN_MS = 2_000

    def open(self, context: Any) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.seen = context.get_list_state(ListStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[str, int, int]]:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        self.seen.add(ctx.timestamp())
        end_ms = (ctx.timestamp() // self.SPAN_MS + 1) * self.SPAN_MS
        ctx.timer_service().register_event_time_timer(end_ms)
        yield value.k, value.id, 1

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[tuple[str, int, int]]:
        # What lies behind the span may be here already: how much is chance.
        seen = list(self.seen.get())
        self.seen.update([at for at in seen if at >= timestamp])
        yield ctx.get_current_key(), timestamp, sum(at < timestamp for at in seen)


def sessions(workload: Workload, config: Mapping[str, str]) -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment()
    for key, value in config.items():
        env.configuration[key] = value
    env.execute_sql(
        "CREATE TABLE events (id BIGINT, k STRING, t TIMESTAMP(3), WATERMARK FOR t AS t - INTERVAL '0.3' SECOND) "
        "WITH ('connector' = 'simulated', 'name' = 'events')"
    )
    rows = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
    stream = env.from_table("events").key_by("k").process(Sessions(), rows)
    stream.sink_to(Sink.connector("simulated", {"name": "spans"})).uid("spans")
    return env.job_graph("sessions")
