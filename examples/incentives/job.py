"""The same with windows of the DataStream API. ``penstock run examples/incentives/job.py``"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator

from penstock.api import *

EPOCH = dt.datetime(1970, 1, 1)
HOUR = TumblingEventTimeWindows.of(Time.hours(1))
BONUS = Types.ROW_NAMED(
    ["hour", "place", "driver", "trips", "taken"],
    [Types.SQL_TIMESTAMP(3), Types.LONG(), Types.STRING(), Types.LONG(), Types.DOUBLE()],
)


class Best(ProcessAllWindowFunction):
    """Gets what each driver did in an hour."""

    def process(self, context: ProcessAllWindowFunction.Context, elements: Iterable[Row]) -> Iterator[Row]:
        best = sorted(elements, key=lambda row: (-row.trips, -row.taken))[:2]
        hour = EPOCH + dt.timedelta(milliseconds=context.window().start)
        for place, row in enumerate(best, start=1):
            yield Row(hour, place, row.driver, row.trips, round(row.taken, 2))


env = StreamExecutionEnvironment.get_execution_environment()
env.execute_sql("""
    CREATE TABLE trips (
      driver STRING,
      fare   DOUBLE,
      `at`   TIMESTAMP(3),
      WATERMARK FOR `at` AS `at` - INTERVAL '30' SECOND
    ) WITH ('connector' = 'filesystem', 'path' = 'examples/incentives/data/trips.json', 'format' = 'json');

    CREATE TABLE bonuses (`hour` TIMESTAMP(3), place BIGINT, driver STRING, trips BIGINT, taken DOUBLE) WITH ('connector' = 'print');
""")
bonuses = (
    env.from_table("trips")
    .key_by("driver")
    .window(HOUR)
    .aggregate(agg.count("trips"), agg.sum("fare").alias("taken"))
    .window_all(HOUR)
    .process(Best(), BONUS)
)
bonuses.insert_into("bonuses")
env.execute("incentives")
