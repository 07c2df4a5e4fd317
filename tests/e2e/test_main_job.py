"""The main job on the real cluster, against a batch recomputation by DuckDB."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from examples.flights.dataset import AIRPORTS, load
from examples.flights.replay import messages
from penstock.api.client import ClusterClient
from penstock.embedded import EmbeddedCluster

pytestmark = pytest.mark.cluster

BATCH = """
WITH f AS (
  SELECT origin, dep_delay,
         strptime(time_hour, '%Y-%m-%dT%H:%M:%SZ') + to_minutes("minute") AS t
  FROM flights
), w AS (
  SELECT origin, dep_delay, time_bucket(INTERVAL 15 MINUTE, t) - to_minutes(15 * k) AS window_start
  FROM f, range(4) AS r(k)
), a AS (
  SELECT origin, window_start, window_start + INTERVAL 1 HOUR AS window_end,
         count(*) AS departures, avg(dep_delay) AS mean_delay, max(dep_delay) AS worst_delay
  FROM w GROUP BY origin, window_start
)
SELECT a.origin, a.window_start, a.window_end, departures, mean_delay, worst_delay,
       temp, wind_speed, precip, visib
FROM a LEFT JOIN (SELECT *, strptime(time_hour, '%Y-%m-%dT%H:%M:%SZ') AS h FROM weather) o
  ON o.origin = a.origin AND o.h = date_trunc('hour', window_start)
ORDER BY a.origin, a.window_start
"""


#: Flights of the runs that need not read the whole year: three weeks.
LIMIT = 20_000
#: Fifteen flights of the next hours are late when all before them are read.
HOLD_AT = 11_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """For the jobs whose answers are files of their own; each replay makes the streams that they read anew."""
    with EmbeddedCluster(taskmanagers=2, slots=2) as cluster:
        yield cluster


def batch_answer(limit: int | None = None) -> pa.Table:
    data = load()
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("flights", data.flights if limit is None else data.flights.slice(0, limit))
    connection.register("weather", data.weather)
    return connection.sql(BATCH).to_arrow_table()


def assert_same(got: pa.Table, want: pa.Table) -> None:
    assert got.num_rows == want.num_rows
    for name in want.column_names:
        mine, theirs = got[name].to_pylist(), want[name].to_pylist()
        wrong = [(i, a, b) for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b]
        assert not wrong, f"{name}: {len(wrong)} of {len(mine)} differ, first {wrong[:3]}"


def write_parquet(folder: Path, limit: int | None) -> None:
    """The flights, all of the year's or the first, and the year's weather as they would lie in a data lake."""
    data = load()
    hours = {"flights": data.flights["time_hour"], "weather": data.weather["time_hour"]}
    columns = {
        "flights": ["origin", "dest", "carrier", "flight", "minute", "dep_delay"],
        "weather": ["origin", "temp", "wind_speed", "precip", "visib"],
    }
    for name, table in (("flights", data.flights), ("weather", data.weather)):
        instants = pc.strptime(hours[name], "%Y-%m-%dT%H:%M:%SZ", "us")
        rows = table.select(columns[name]).append_column("time_hour", instants)
        if name == "flights":
            rows = rows.set_column(4, "minute", rows["minute"].cast(pa.int32()))
        pq.write_table(rows.slice(0, limit) if name == "flights" else rows, folder / f"{name}.parquet")


def over_parquet(sql: str, folder: Path) -> str:
    """The job with its streams as Parquet files, and nothing published."""
    sources = {
        name: f"'connector' = 'filesystem', 'path' = '{folder}/{name}.parquet', 'format' = 'parquet'"
        for name in ("flights", "weather")
    }
    for name, options in {**sources, "board": "'connector' = 'blackhole'"}.items():
        table = re.compile(rf"(CREATE TABLE {name} \(.*?\n\) WITH \().*?(\n\);)", re.DOTALL)
        sql, changed = table.subn(rf"\g<1>{options}\g<2>", sql)
        assert changed == 1
    return sql


@pytest.mark.slow
@pytest.mark.parametrize("limit", [60_000, pytest.param(None, marks=pytest.mark.soak)])
def test_nothing_late_equals_batch_by_duckdb_and_on_spark(
    cluster, spark_cluster, flights_run, tmp_path: Path, limit: int | None
) -> None:
    """The streaming engine over the replay, Spark over Parquet, one job: two months of flights, or all."""
    pytest.importorskip("pyspark")
    run = flights_run(cluster, limit=limit)
    run.submit()
    run.replay()
    run.wait()
    assert run.replayed == (limit or 328_521)
    assert_same(run.board(), batch_answer(limit))
    assert not list((run.out / "late").glob("*.parquet"))

    write_parquet(tmp_path, limit)
    on_spark = flights_run(spark_cluster, name="spark", config={"execution.engine": "spark"})
    with ClusterClient(spark_cluster.rest_url) as client:
        sql = over_parquet(on_spark.spec["sql"], tmp_path)
        on_spark.job_id = client.submit({**on_spark.spec, "sql": sql})
    assert on_spark.wait()["plan"]["nodes"][0]["description"].startswith("Spark")
    assert_same(on_spark.board(), run.board())


def event_time_after(flights: int) -> int:
    """Milliseconds: how far all three airports' schedules have come when the replay holds."""
    sent, latest = 0, dict.fromkeys(AIRPORTS, datetime.min)
    for message in messages(load()):
        sent += message.flights
        for line in message.data.splitlines() if message.flights else ():
            flight = json.loads(line)
            scheduled = datetime.fromisoformat(flight["time_hour"]) + timedelta(minutes=flight["minute"])
            latest[flight["origin"]] = max(latest[flight["origin"]], scheduled)
        if sent >= flights:
            break
    return int(min(latest.values()).replace(tzinfo=UTC).timestamp() * 1000)


def watermark(job: dict[str, Any]) -> int:
    """Milliseconds: of the flights' source, as it is reported."""
    return next(v["metrics"]["watermark"] for v in job["vertices"] if v["name"].startswith("Source: flights"))


def test_on_time_and_late_make_all(cluster, flights_run, until) -> None:
    # Rows are late when event time has passed them, so the replay waits for the first part's watermark: a job that
    # started after the replay's end would read all of it as one batch, with no watermark in between.
    run = flights_run(cluster, delay="'0' SECOND", limit=LIMIT, hold_at=HOLD_AT)
    run.submit()
    thread = threading.Thread(target=run.replay_stubbornly, daemon=True)
    thread.start()
    wanted = event_time_after(HOLD_AT) - 1
    with ClusterClient(cluster.rest_url) as client:
        until(lambda: watermark(client.job(run.job_id)) == wanted, f"a watermark of {wanted}")
    run.go.set()
    thread.join()
    run.wait()
    late = ds.dataset(run.out / "late", format="parquet").to_table()
    with ClusterClient(cluster.rest_url) as client:
        counters = client.accumulators(run.job_id)
    on_time = counters["numRecordsAccepted"]
    assert counters["numLateRecordsDropped"] == late.num_rows
    assert late.num_rows > 0
    assert on_time + late.num_rows == run.replayed
    # A late row is a whole input row, as it came.
    assert set(late["origin"].to_pylist()) <= {"EWR", "JFK", "LGA"}
    assert late["scheduled"].null_count == 0


def test_the_same_job_in_python_gives_the_same(cluster, flights_run) -> None:
    import msgspec

    from examples.flights import job
    from examples.flights.demo import job_sql
    from penstock.api import StreamExecutionEnvironment

    run = flights_run(cluster, limit=LIMIT)
    env = StreamExecutionEnvironment(run.spec["config"])
    job.build(env, job_sql(run.out, "'22' HOUR"))
    run.spec = {"name": "flights in Python", "job_graph": msgspec.to_builtins(env.job_graph("flights"))}
    run.submit()
    run.replay()
    run.wait()
    assert_same(run.board(), batch_answer(LIMIT))


def test_stream_and_files_hold_the_same(make_cluster, flights_run, tmp_path: Path) -> None:
    import asyncio

    import msgspec
    import nats

    cluster = make_cluster(taskmanagers=1, slots=2)
    run = flights_run(cluster, limit=LIMIT)
    run.submit()
    run.replay()
    run.wait()

    async def read() -> list[dict]:
        client = await nats.connect(cluster.nats_url)
        try:
            stream = client.jetstream()
            count = (await stream.stream_info("BOARD")).state.messages
            subscription = await stream.subscribe("board.*", ordered_consumer=True)
            return [msgspec.json.decode((await subscription.next_msg(60)).data) for _ in range(count)]
        finally:
            await client.close()

    rows = asyncio.run(read())
    table = run.board()
    assert len(rows) == table.num_rows
    streamed = {(r["origin"], r["window_start"]): r["departures"] for r in rows}
    filed = {
        (o, s.isoformat(" ", "milliseconds")): d
        for o, s, d in zip(
            table["origin"].to_pylist(),
            table["window_start"].to_pylist(),
            table["departures"].to_pylist(),
            strict=True,
        )
    }
    # The stream prints no more digits than it needs.
    assert {(o, s[:19]): d for (o, s), d in streamed.items()} == {
        (o, s[:19]): d for (o, s), d in filed.items()
    }
