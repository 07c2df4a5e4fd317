"""Table aggregate functions, and pandas functions over whole rows."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import SpecError
from penstock.table import DataTypes, EnvironmentSettings, Row, TableEnvironment
from penstock.table.data_view import ListView
from penstock.table.expressions import col, lit
from penstock.table.udf import AggregateFunction, TableAggregateFunction, udaf, udf, udtaf
from penstock.table.windows import Tumble

ROWS = [(1, "a", 3), (2, "a", 9), (3, "b", 5), (4, "a", 7), (5, "c", 1)]


class Top(TableAggregateFunction):
    """The two largest values of a group, with their place; takes whole rows or a value."""

    def create_accumulator(self) -> Any:
        return Row(ListView())

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        accumulator[0].add(getattr(args[0], "n", args[0]))

    def retract(self, accumulator: Any, *args: Any) -> None:
        left = list(accumulator[0])
        left.remove(getattr(args[0], "n", args[0]))
        accumulator[0].clear()
        accumulator[0].add_all(left)

    def emit_value(self, accumulator: Any) -> Any:
        for place, value in enumerate(sorted(accumulator[0], reverse=True)[:2]):
            yield Row(place + 1, value)

    def get_result_type(self) -> Any:
        return DataTypes.ROW([
            DataTypes.FIELD("place", DataTypes.INT()), DataTypes.FIELD("value", DataTypes.BIGINT())
        ])  # fmt: skip


@udtaf(result_type=DataTypes.BIGINT())
class Each(TableAggregateFunction):
    """Every value of a group, negative, as the only column."""

    def create_accumulator(self) -> Any:
        return []

    def accumulate(self, accumulator: Any, *args: Any) -> Any:
        return [*accumulator, -args[0]]

    def emit_value(self, accumulator: Any) -> Any:
        return accumulator


def final(table: Any) -> list[list[Any]]:
    return sorted(table.to_pandas().values.tolist())


def test_a_table_aggregate_gives_rows_of_each_group(env: TableEnvironment) -> None:
    table = env.from_elements(ROWS, ["id", "g", "n"])
    top = udtaf(Top())
    called = table.group_by(col("g")).flat_aggregate(top(col("n")).alias("p", "v")).select(col("g"), col("*"))
    assert called._columns() == ["g", "g0", "p", "v"]
    expected = [["a", 1, 9], ["a", 2, 7], ["b", 1, 5], ["c", 1, 1]]
    rows = table.group_by(col("g")).flat_aggregate(top).select(col("g"), col("place"), col("value"))
    assert final(rows) == expected
    assert final(called.select(col("g"), col("p"), col("v"))) == expected
    assert final(table.flat_aggregate(Each(col("n")).alias("x")).select(col("x"))) == [
        [-9],
        [-7],
        [-5],
        [-3],
        [-1],
    ]
    # A function over rows that change takes them back.
    assert final(rows.flat_aggregate(top(col("value"))).select(col("value"))) == [[7], [9]]


def test_rows_of_no_group_are_none(env: TableEnvironment) -> None:
    table = env.from_elements(ROWS, ["id", "g", "n"]).where(col("n") > 100)
    assert final(table.flat_aggregate(udtaf(Top())(col("n"))).select(col("value"))) == []


def test_a_table_aggregate_of_a_window(env: TableEnvironment, tmp_path: Path) -> None:
    lines = [f"2026-01-01 00:0{i}:00,{n}" for i, n in enumerate([3, 9, 5, 7, 1, 8])]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    env.execute_sql(
        "CREATE TABLE readings (ts TIMESTAMP(3), n BIGINT, WATERMARK FOR ts AS ts) "
        f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/rows.csv', 'format' = 'csv')"
    )
    window = Tumble.over(lit(3).minutes).on(col("ts")).alias("w")
    windowed = env.from_path("readings").window(window).group_by(col("w"))
    made = windowed.flat_aggregate(udtaf(Top())(col("n"))).select(col("w").start, col("value"))
    assert [[row[0].minute, row[1]] for row in final(made)] == [[0, 5], [0, 9], [3, 7], [3, 8]]


def test_functions_of_another_kind_are_refused(env: TableEnvironment) -> None:
    table = env.from_elements(ROWS, ["id", "g", "n"])
    with pytest.raises(SpecError, match="flat_aggregate of"):
        table.flat_aggregate(udaf(lambda s: 1, result_type="INT", func_type="pandas")).select(col("*"))
    with pytest.raises(SpecError, match="aggregate of"):
        table.aggregate(udtaf(Top())).select(col("*"))
    with pytest.raises(SpecError, match="emit_value"):
        udtaf(object(), result_type="INT")


def test_pandas_functions_over_whole_rows(env: TableEnvironment) -> None:
    table = env.from_elements(ROWS, ["id", "g", "n"])
    doubled = udf(
        lambda frame: frame[["n", "id"]] * 2, result_type="ROW<n BIGINT, id BIGINT>", func_type="pandas"
    )
    assert final(table.map(doubled)) == [[2, 10], [6, 2], [10, 6], [14, 8], [18, 4]]
    shared = udaf(
        lambda f: (f.n.mean(), f.id.max()), result_type="ROW<m DOUBLE, i BIGINT>", func_type="pandas"
    )
    made = table.group_by(col("g")).aggregate(shared).select(col("g"), col("m"), col("i"))
    assert final(made) == [["a", 19 / 3, 4], ["b", 5.0, 3], ["c", 1.0, 5]]


class Scaled(AggregateFunction):
    """A sum times a factor, which only ``open`` knows."""

    factor = 1

    def open(self, context: Any) -> None:
        self.factor = int(context.get_job_parameter("factor", "0"))

    def create_accumulator(self) -> Any:
        return [0]

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        accumulator[0] += int(args[0].sum()) if hasattr(args[0], "sum") else args[0]

    def retract(self, accumulator: Any, *args: Any) -> None:
        accumulator[0] -= args[0]

    def get_value(self, accumulator: Any) -> Any:
        return accumulator[0] * self.factor


@pytest.mark.parametrize("kind", ["general", "pandas"])
@pytest.mark.parametrize("mode", ["BATCH", "STREAMING"])
def test_aggregate_functions_are_opened_before_their_first_row(mode: str, kind: str) -> None:
    env = TableEnvironment.create(EnvironmentSettings.new_instance().in_batch_mode().build()
                                  if mode == "BATCH" else EnvironmentSettings.in_streaming_mode())  # fmt: skip
    env.get_config().set("user.factor", "100")
    env.create_temporary_function("scaled", udaf(Scaled(), result_type="BIGINT", func_type=kind))
    env.create_temporary_view("t", env.from_elements(ROWS, ["id", "g", "n"]))
    grouped = env.sql_query("SELECT g, scaled(n) FROM t GROUP BY g")
    totals = {
        "a": sum(n for _, g, n in ROWS if g == "a") * 100,
        "b": sum(n for _, g, n in ROWS if g == "b") * 100,
    }
    found = dict(final(grouped))
    assert {g: found[g] for g in totals} == totals
    if mode == "BATCH":
        over = env.sql_query("SELECT id, scaled(n) OVER (PARTITION BY g ORDER BY id) FROM t WHERE g = 'a'")
        assert max(total for _, total in final(over)) == totals["a"]


def test_functions_take_maps_as_dictionaries_and_keep_milliseconds_of_times(env: TableEnvironment) -> None:
    at = dt.time(12, 0, 0, 123_456)
    element = ({"a": 1, "b": None}, [{"c": 2}], at)
    table = env.from_elements([element, (None, None, None)], DataTypes.ROW([
        DataTypes.FIELD("m", DataTypes.MAP(DataTypes.STRING(), DataTypes.INT())),
        DataTypes.FIELD("l", DataTypes.ARRAY(DataTypes.MAP(DataTypes.STRING(), DataTypes.INT()))),
        DataTypes.FIELD("t", DataTypes.TIME()),
    ]))  # fmt: skip
    taken = udf(lambda m, found: f"{m} {found}", result_type=DataTypes.STRING())
    later = udf(lambda at: at, result_type=DataTypes.TIME())
    pandas = udf(lambda maps: maps, result_type="MAP<STRING, INT>", func_type="pandas")
    made = table.select(taken(col("m"), col("l")), later(col("t")), pandas(col("m")))
    with made.execute().collect() as rows:
        assert [tuple(row) for row in rows] == [
            ("{'a': 1, 'b': None} [{'c': 2}]", dt.time(12, 0, 0, 123_000), {"a": 1, "b": None}),
            ("None None", None, None),
        ]
