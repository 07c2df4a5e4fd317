"""The same with NumPy over a window's rows. ``penstock run examples/quality_of_service/job.py``"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator

import numpy as np

from penstock.api import *

EPOCH = dt.datetime(1970, 1, 1)
BAD = Types.ROW_NAMED(
    ["cell", "minute", "p95_ms", "lost"],
    [Types.STRING(), Types.SQL_TIMESTAMP(3), Types.DOUBLE(), Types.DOUBLE()],
)


class BadMinutes(ProcessWindowFunction):
    def process(
        self, key: str, context: ProcessWindowFunction.Context, elements: Iterable[Row]
    ) -> Iterator[Row]:
        pings = list(elements)
        p95 = float(np.percentile([ping.latency_ms for ping in pings], 95))
        lost = sum(ping.lost for ping in pings) / len(pings)
        if p95 > 200 or lost > 0.1:
            minute = EPOCH + dt.timedelta(milliseconds=context.window().start)
            yield Row(key, minute, round(p95, 1), round(lost, 3))


env = StreamExecutionEnvironment.get_execution_environment()
env.execute_sql("""
    CREATE TABLE pings (
      cell       STRING,
      latency_ms DOUBLE,
      lost       BOOLEAN,
      `at`       TIMESTAMP(3),
      WATERMARK FOR `at` AS `at` - INTERVAL '10' SECOND
    ) WITH ('connector' = 'filesystem', 'path' = 'examples/quality_of_service/data/pings.json', 'format' = 'json');

    CREATE TABLE bad_minutes (cell STRING, `minute` TIMESTAMP(3), p95_ms DOUBLE, lost DOUBLE) WITH ('connector' = 'print');
""")
bad = (
    env.from_table("pings")
    .key_by("cell")
    .window(TumblingEventTimeWindows.of(Time.minutes(1)))
    .process(BadMinutes(), BAD)
)
bad.insert_into("bad_minutes")
env.execute("quality of service")
