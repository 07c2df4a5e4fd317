"""The same with a function over both streams. ``penstock run examples/dynamic_pricing/job.py``"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Iterator

from penstock.api import *

EPOCH = dt.datetime(1970, 1, 1)
MINUTE = 60_000
PRICE = Types.ROW_NAMED(
    ["zone", "asked", "free", "factor"], [Types.STRING(), Types.LONG(), Types.LONG(), Types.DOUBLE()]
)


class Price(CoGroupFunction):
    """Gets the requests and the drivers of a zone and a window."""

    def co_group(self, requests: Iterable[Row], drivers: Iterable[Row]) -> Iterator[Row]:
        asked = {(row.zone, row.passenger) for row in requests}
        free = {row.driver for row in drivers}
        if asked:
            (zone,) = {zone for zone, _ in asked}
            factor = min(3.0, max(1.0, len(asked) / max(len(free), 1)))
            yield Row(zone=zone, asked=len(asked), free=len(free), factor=math.floor(100 * factor) / 100)


class Timed(ProcessFunction):
    """A window's result has the window's last millisecond as its time."""

    def process_element(self, value: Row, ctx: ProcessFunction.Context) -> Iterator[Row]:
        end = EPOCH + dt.timedelta(milliseconds=ctx.timestamp() + 1)
        yield Row(value.zone, end, value.asked, value.free, value.factor)


env = StreamExecutionEnvironment.get_execution_environment()
env.execute_sql("""
    CREATE TABLE requests (
      `zone`    STRING,
      passenger BIGINT,
      `at`      TIMESTAMP(3),
      WATERMARK FOR `at` AS `at` - INTERVAL '10' SECOND
    ) WITH ('connector' = 'filesystem', 'path' = 'examples/dynamic_pricing/data/requests.json', 'format' = 'json');

    CREATE TABLE drivers (
      `zone` STRING,
      driver BIGINT,
      `at`   TIMESTAMP(3),
      WATERMARK FOR `at` AS `at` - INTERVAL '10' SECOND
    ) WITH ('connector' = 'filesystem', 'path' = 'examples/dynamic_pricing/data/drivers.json', 'format' = 'json');

    CREATE TABLE prices (`zone` STRING, `until` TIMESTAMP(3), asked BIGINT, free BIGINT, factor DOUBLE) WITH ('connector' = 'print');
""")
prices = (
    env.from_table("requests")
    .co_group(env.from_table("drivers"))
    .where(lambda row: row.zone, Types.STRING())
    .equal_to(lambda row: row.zone, Types.STRING())
    .window(TumblingEventTimeWindows.of(Time.minutes(5)))
    .apply(Price(), PRICE)
    .process(
        Timed(),
        Types.ROW_NAMED(
            ["zone", "until", "asked", "free", "factor"],
            [Types.STRING(), Types.SQL_TIMESTAMP(3), Types.LONG(), Types.LONG(), Types.DOUBLE()],
        ),
    )
)
prices.insert_into("prices")
env.execute("dynamic pricing")
