"""The flights job on the DataStream API: the same tables and results as ``job.sql``.

``penstock run examples/flights/job.py``, while the replay runs. Every quarter of an hour, for the
last hour of schedule: departures, mean and worst delay per airport, with that hour's weather.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from penstock.api import (
    DataStream,
    OutputTag,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    Time,
    Types,
    agg,
)

NAIVE = pa.timestamp("us")
DELAYS = Types.ROW_NAMED(
    ["origin", "hour", "window_start", "window_end", "departures", "mean_delay", "worst_delay"],
    [Types.STRING(), *[Types.SQL_TIMESTAMP(3)] * 3, Types.LONG(), Types.DOUBLE(), Types.DOUBLE()],
)
BOARD = Types.ROW_NAMED(
    ["origin", "window_start", "window_end", "departures", "mean_delay", "worst_delay", "temp",
     "wind_speed", "precip", "visib"],
    [Types.STRING(), *[Types.SQL_TIMESTAMP(3)] * 2, Types.LONG(), *[Types.DOUBLE()] * 6],
)  # fmt: skip
LATE = Types.ROW_NAMED(
    ["origin", "dest", "carrier", "flight", "scheduled", "dep_delay"],
    [*[Types.STRING()] * 3, Types.LONG(), Types.SQL_TIMESTAMP(3), Types.DOUBLE()],
)


def with_hour(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Windows as UTC timestamps without zone, and the hour whose weather counts."""
    start = rows.column("window_start").cast(NAIVE)
    hour = pc.floor_temporal(start, unit="hour")
    rest = [rows.column(c) for c in ("departures", "mean_delay", "worst_delay")]
    columns = [rows.column("origin"), hour, start, rows.column("window_end").cast(NAIVE), *rest]
    names = ["origin", "hour", "window_start", "window_end", "departures", "mean_delay", "worst_delay"]
    return pa.RecordBatch.from_arrays(columns, names=names)


def columns_of(*names: str):
    """A batch function that keeps these columns."""
    return lambda rows: rows.select(list(names))


def board(flights: DataStream, weather: DataStream) -> tuple[DataStream, DataStream]:
    """(the board's rows, the flights that came too late), from streams with event time."""
    late = OutputTag("late", flights.get_type())
    windows = (
        flights.key_by("origin")
        .window(SlidingEventTimeWindows.of(Time.hours(1), Time.minutes(15)))
        .side_output_late_data(late)
        .aggregate(
            agg.count("departures"),
            agg.avg("dep_delay").alias("mean_delay"),
            agg.max("dep_delay").alias("worst_delay"),
        )
    )
    joined = (
        windows.map(with_hour, DELAYS, batch=True)
        .key_by("origin", "hour")
        .interval_join(weather.key_by("origin", "time_hour"))
        .between(-Time.hours(2), Time.hours(0))
        .left()
    )
    wanted = ["origin", "window_start", "window_end", "departures", "mean_delay", "worst_delay", "temp",
              "wind_speed", "precip", "visib"]  # fmt: skip
    fields = ["origin", "dest", "carrier", "flight", "scheduled", "dep_delay"]
    rows = joined.map(columns_of(*wanted), BOARD, batch=True)
    return rows, windows.get_side_output(late).map(columns_of(*fields), LATE, batch=True)


def declarations(script: str) -> str:
    """The SET and CREATE TABLE statements of ``job.sql``: one declaration for both jobs."""
    return script[: script.index("CREATE TEMPORARY VIEW")]


def build(env: StreamExecutionEnvironment, script: str) -> None:
    """Add the job to ``env``, over the tables that ``script`` declares."""
    env.execute_sql(declarations(script))
    rows, late = board(env.from_table("flights"), env.from_table("weather"))
    rows.insert_into("board")
    rows.insert_into("board_files")
    late.insert_into("late_flights")


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    build(env, (Path(__file__).parent / "job.sql").read_text())
    env.execute("flights")


if __name__ == "__main__":
    main()
