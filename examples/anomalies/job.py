"""The same with NumPy over the last readings of a machine. ``penstock run examples/anomalies/job.py``"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from penstock.api import *

BEFORE = 20
ANOMALY = Types.ROW_NAMED(
    ["machine", "celsius", "usual", "at"],
    [Types.STRING(), Types.DOUBLE(), Types.DOUBLE(), Types.SQL_TIMESTAMP(3)],
)


class Anomalies(KeyedProcessFunction):
    """Keeps the readings of a machine in state until their order is known, and then the last twenty."""

    def open(self, runtime_context: RuntimeContext) -> None:
        reading = Types.TUPLE([Types.LONG(), Types.DOUBLE(), Types.SQL_TIMESTAMP(3)])
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting", reading))
        self.last = runtime_context.get_list_state(ListStateDescriptor("last", Types.DOUBLE()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        self.waiting.add((ctx.timestamp(), value.celsius, value["at"]))
        ctx.timer_service().register_event_time_timer(ctx.timestamp())
        yield from ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Row]:
        # When the watermark has passed a reading, no earlier one can come any more.
        waiting = sorted(self.waiting.get())
        last = list(self.last.get())
        for _, celsius, at in (reading for reading in waiting if reading[0] <= timestamp):
            last = [*last, celsius][-BEFORE - 1 :]
            if len(last) > BEFORE and celsius > np.mean(last) + 4 * np.std(last):
                yield Row(
                    machine=ctx.get_current_key(),
                    celsius=celsius,
                    usual=round(float(np.mean(last)), 2),
                    at=at,
                )
        self.last.update(last)
        self.waiting.update([reading for reading in waiting if reading[0] > timestamp])


env = StreamExecutionEnvironment.get_execution_environment()
env.execute_sql("""
    CREATE TABLE readings (
      machine STRING,
      celsius DOUBLE,
      `at`    TIMESTAMP(3),
      WATERMARK FOR `at` AS `at` - INTERVAL '1' MINUTE
    ) WITH ('connector' = 'filesystem', 'path' = 'examples/anomalies/data/readings.json', 'format' = 'json');

    CREATE TABLE anomalies (machine STRING, celsius DOUBLE, usual DOUBLE, `at` TIMESTAMP(3)) WITH ('connector' = 'print');
""")
anomalies = env.from_table("readings").key_by("machine").process(Anomalies(), ANOMALY)
anomalies.insert_into("anomalies")
env.execute("anomalies")
