"""What aggregate functions keep, and how Table API programs call them, as PyFlink spells it."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal
from typing import Any

import pytest

from penstock.api import Configuration
from penstock.columnar.accumulator_rows import AccumulatorRow
from penstock.errors import SpecError
from penstock.table import AggregateFunction, DataTypes, EnvironmentSettings, Row, TableEnvironment
from penstock.table.data_view import ListView, MapView
from penstock.table.expressions import call, col
from penstock.table.settings import TableConfig
from penstock.table.types import RowType, UserDefinedType
from penstock.table.udf import udaf, udf


class Words(AggregateFunction):
    """The words of a group, joined by the second argument."""

    def create_accumulator(self) -> Any:
        return Row(words=ListView(), separator="", counts=MapView())

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        accumulator.words.add(args[0])
        accumulator[1] = args[1]
        accumulator["counts"].put(args[0], (accumulator[2].get(args[0]) or 0) + 1)

    def get_value(self, accumulator: Any) -> str:
        most = max(accumulator.counts.values(), default=0)
        return f"{accumulator.separator.join(sorted(accumulator.words))} {most}"

    def get_result_type(self) -> str:
        return "STRING"


class Mean(AggregateFunction):
    """Gives its accumulator as a whole."""

    def create_accumulator(self) -> Any:
        return Row(0, 0)

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        accumulator[0] += args[0]
        accumulator[1] += 1

    def get_value(self, accumulator: Any) -> Any:
        return accumulator

    def get_result_type(self) -> str:
        return "ROW<total BIGINT, rows BIGINT>"


ROWS = [("a", 1), ("b", 1), ("a", 1), ("c", 2)]


def test_an_accumulator_of_a_row_changes_in_place(env: TableEnvironment) -> None:
    env.create_temporary_function("words", Words())
    table = env.from_elements(ROWS, ["word", "k"])
    made = table.group_by(col("k")).select(col("k"), call("words", col("word"), ",")).to_pandas()
    assert sorted(made.values.tolist()) == [[1, "a,a,b 2"], [2, "c 1"]]
    mean = table.select(udaf(Mean())(col("k")).alias("m")).select(col("m").get(0), col("m").get(1))
    assert mean.to_pandas().values.tolist() == [[5, 4]]
    with pytest.raises(SpecError, match="no such field"):
        table.select(udaf(Mean())(col("k")).alias("m")).select(col("m").get(2))


def test_distinct_goes_before_a_function_of_the_program(env: TableEnvironment) -> None:
    env.create_temporary_function("words", Words())
    env.create_temporary_view("t", env.from_elements(ROWS, ["word", "k"]))
    query = "SELECT k, words(DISTINCT word, ','), words(word, ','), COUNT(*) FROM t GROUP BY k"
    made = env.sql_query(query).to_pandas()
    assert sorted(made.values.tolist()) == [[1, "a,b 1", "a,a,b 2", 3], [2, "c 1", "c 1", 1]]


def test_sum0_is_known_by_its_name(env: TableEnvironment) -> None:
    table = env.from_elements(
        [(None, 1), (2, 2)], DataTypes.ROW([("a", DataTypes.INT()), ("b", DataTypes.INT())])
    )
    made = table.group_by(col("b")).select(col("b"), call("sum0", col("a"))).to_pandas()
    assert sorted(made.values.tolist()) == [[1, 0], [2, 2]]


def test_an_accumulator_row_is_pickled_and_knows_its_fields() -> None:
    accumulator = AccumulatorRow(("n",), [1])
    accumulator.n += 1
    again = pickle.loads(pickle.dumps(accumulator))
    assert (again.n, again["n"], again[0], again.row()) == (2, 2, 2, Row(n=2))
    with pytest.raises(AttributeError, match="no field 'm'"):
        accumulator.m = 1
    with pytest.raises(AttributeError, match="no field 'm'"):
        accumulator.m  # noqa: B018


def test_a_map_view_removes_while_it_goes_over_its_keys() -> None:
    view: MapView[str, int] = MapView()
    view.put_all({"a": 1, "b": 2})
    view["c"] = 3
    keys = view.keys()
    for key in keys:
        if key == "b":
            keys.remove()
    assert (list(view), list(view.items())) == (["a", "c"], [("a", 1), ("c", 3)])
    del view["a"]
    assert ("a" in view, view["a"], view.contains("c"), view.is_empty()) == (False, None, True, False)
    view.clear()
    assert view.is_empty()
    one, other = ListView[int](), ListView[int]()
    one.add_all([1, 2])
    other.add(1)
    other.add(2)
    assert one == other
    one.clear()
    assert list(one.get()) == []


class Point:
    def __init__(self, x: float, y: float) -> None:
        self.x, self.y = x, y


class PointType(UserDefinedType):
    @classmethod
    def sql_type(cls) -> Any:
        return DataTypes.ARRAY(DataTypes.DOUBLE())

    def serialize(self, obj: Any) -> Any:
        return [obj.x, obj.y]


Point.__UDT__ = PointType()  # type: ignore[attr-defined]


def test_values_of_a_type_of_the_program_are_stored(env: TableEnvironment) -> None:
    schema = RowType().add("id", DataTypes.INT()).add("at", PointType())
    table = env.from_elements([(1, Point(1.0, 2.0))], schema)
    assert [f.name for f in schema.fields] == ["id", "at"]
    assert table.get_schema().get_field_data_type("at") == DataTypes.ARRAY(DataTypes.DOUBLE())
    assert next(iter(table.execute().collect()))[1] == [1.0, 2.0]


def test_decimals_of_elements_are_rounded_to_the_scale(env: TableEnvironment) -> None:
    schema = DataTypes.ROW([DataTypes.FIELD("d", DataTypes.DECIMAL(10, 2))])
    table = env.from_elements([(Decimal("1.005"),), (Decimal("-1.005"),), (None,)], schema)
    assert [row[0] for row in table.execute().collect()] == [Decimal("1.01"), Decimal("-1.01"), None]


def test_the_configuration_is_flinks() -> None:
    config = TableConfig.get_default()
    config.set_idle_state_retention(dt.timedelta(days=1))
    assert config.get_idle_state_retention() == dt.timedelta(days=1)
    config.get_configuration().set_string("parallelism.default", "3")
    assert config.get("parallelism.default", "") == "3"
    config.set("pipeline.time-characteristic", "EventTime")
    config.set("pipeline.global-job-parameters", "a:1,b:2")
    assert (config.get("user.a", ""), config.get("user.b", "")) == ("1", "2")
    with pytest.raises(SpecError, match="name:value"):
        config.set("pipeline.global-job-parameters", "a")
    batch = EnvironmentSettings.new_instance().with_configuration(
        Configuration({"execution.runtime-mode": "batch"})
    )
    assert not batch.build().is_streaming_mode()


class Added:
    def open(self, context: Any) -> None:
        self.number = int(context.get_job_parameter("number", "0"))

    def eval(self, value: int) -> int:
        return value + self.number


def test_a_scalar_function_reads_a_job_parameter(env: TableEnvironment) -> None:
    env.get_config().set("pipeline.global-job-parameters", "number:5")
    added = udf(Added(), result_type=DataTypes.BIGINT())
    made = env.from_elements([(1,)], ["a"]).select(added(col("a"))).to_pandas()
    assert made.values.tolist() == [[6]]
