"""Process functions with state and timers: their history on Spark, by the same functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from penstock.api import (
    Duration,
    FileSource,
    HybridSource,
    KeyedProcessFunction,
    MapStateDescriptor,
    Sink,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    Types,
    WatermarkStrategy,
)
from penstock.errors import ConnectorError, UnsupportedError
from penstock.plan.engine import decode_content
from penstock.spark.support import spark_support
from tests.spark.test_backfill import CONFIG, SEAM, backfilled, folder, resumed, streamed

__all__ = ["folder"]
ROW = Types.ROW_NAMED(
    ["id", "k", "v", "ts"], [Types.LONG(), Types.STRING(), Types.INT(), Types.SQL_TIMESTAMP()]
)


def parquet(path: Path) -> Any:
    return FileSource.builder().set_path(str(path)).set_format("parquet").set_schema(ROW).build()


def orders(data: Path) -> Any:
    made = HybridSource.builder(parquet(data / "history")).add_source(parquet(data / "live"))
    return made.set_switch("id", SEAM).build()


def environment(**config: str) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment()
    for key, value in {**CONFIG, **config}.items():
        env.configuration[key] = value
    return env


def times() -> WatermarkStrategy:
    return WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(10)).with_timestamp_column("ts")


def keyed_sums(stream: Any) -> Any:
    class Sums(KeyedProcessFunction):
        """Windows by hand: sums by the minute in a map, told by a timer at the minute's end."""

        def open(self, context: Any) -> None:
            self.sums = context.get_map_state(MapStateDescriptor("sums", Types.LONG(), Types.LONG()))

        def process_element(self, value: Any, ctx: Any) -> Any:
            end = ctx.timestamp() // 60_000 * 60_000 + 59_999
            self.sums.put(end, (self.sums.get(end) or 0) + value.id)
            ctx.timer_service().register_event_time_timer(end)

        def on_timer(self, timestamp: int, ctx: Any) -> Any:
            yield f"{ctx.get_current_key()} {timestamp} {self.sums.get(timestamp)}"
            self.sums.remove(timestamp)

    return stream.key_by(lambda r: r.k, key_type=Types.STRING()).process(Sums(), output_type=Types.STRING())


def window_sums(stream: Any) -> Any:
    return (
        stream.map(lambda r: (r.k, r.id), output_type=Types.TUPLE([Types.STRING(), Types.LONG()]))
        .key_by(lambda r: r[0], key_type=Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.minutes(3)))
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
        .map(lambda r: f"{r[0]} {r[1]}", output_type=Types.STRING())
    )


def graph_of(make: Any, data: Path, out: Path, **config: str) -> Any:
    env = environment(**config)
    stream = make(env.from_source(orders(data), times(), "orders"))
    stream.sink_to(Sink.connector("filesystem", {"path": str(out), "format": "parquet"}))
    return env._plan(env._sinks, "test", spark_support())


def written(out: Path) -> list[str]:
    return sorted(next(iter(r.values())) for r in ds.dataset(out, format="parquet").to_table().to_pylist())


@pytest.mark.parametrize("make", [keyed_sums, window_sums])
def test_the_functions_go_on_with_their_state(make: Any, folder: Path, spark: Any, tmp_path: Path) -> None:
    graph = graph_of(make, folder, tmp_path / "a")
    result = backfilled(graph, spark, tmp_path)
    assert result.rows == SEAM
    resumed(graph, result, tmp_path)
    streamed(graph_of(make, folder, tmp_path / "b", **{"execution.backfill.engine": "none"}))
    want = written(tmp_path / "b")
    assert len(want) > 10
    assert written(tmp_path / "a") == want


def test_the_plan_says_that_spark_begins(folder: Path, tmp_path: Path) -> None:
    graph = graph_of(keyed_sums, folder, tmp_path / "a")
    assert graph.plan.startswith("== Backfill ==\nspark")
    assert decode_content(graph.backfill).vertices


def dealt_out(stream: Any) -> Any:
    text = Types.STRING()
    return (
        stream.map(lambda r: r.k, output_type=text)
        .partition_custom(lambda key, n: len(key) % n, lambda k: k)
        .map(lambda k: k, output_type=text)
    )


def test_partitions_by_a_function_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UnsupportedError, match="a backfill on Spark of a job with partition_custom"
    ) as refused:
        graph_of(dealt_out, folder, tmp_path / "a")
    assert "execution.backfill.engine = none" in str(refused.value.remedy)
    graph = graph_of(dealt_out, folder, tmp_path / "a", **{"execution.backfill.engine": "auto"})
    assert not graph.backfill
    assert graph.plan.startswith(
        "== Backfill ==\nstreaming: Spark cannot read the history: a backfill on Spark of a job"
    )


def test_what_a_hybrid_source_must_be(folder: Path) -> None:
    files = parquet(folder / "history")
    with pytest.raises(ConnectorError, match="without a live part"):
        HybridSource.builder(files).build()
    with pytest.raises(UnsupportedError, match="more than two"):
        HybridSource.builder(files).add_source(files).add_source(files)
    other = FileSource.builder().set_path("x").set_format("csv").set_schema(Types.LONG()).build()
    with pytest.raises(ConnectorError, match="differ"):
        HybridSource.builder(files).add_source(other).build()
