"""Rows of programs of the Table API: functions, and the same rows on both engines."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow.compute as pc
import pytest

from penstock.api import AggregateFunction, ScalarFunction, TableFunction
from penstock.errors import PenstockError, SpecError, SqlError
from penstock.table import DataTypes, EnvironmentSettings, TableEnvironment
from penstock.table.expressions import call, col, lit
from penstock.table.table import Table
from penstock.table.udf import udaf, udf, udtaf, udtf
from tests.golden.engines import spark_graph

ROWS = [(1, "a", 1.5), (2, "b", 2.5), (3, "a", 3.5), (4, None, None)]


def source(env: TableEnvironment) -> Table:
    return env.from_elements(ROWS, ["i", "s", "d"])


def final(table: Table) -> Counter[tuple[Any, ...]]:
    """The rows that the changelog leaves."""
    left: Counter[tuple[Any, ...]] = Counter()
    with table.execute().collect() as rows:
        for row in rows:
            left[tuple(row)] += 1 if row.get_row_kind().short in ("+I", "+U") else -1
    return +left


@udf(result_type=DataTypes.BIGINT())
def plus(a: Any, b: Any) -> Any:
    return a + b


@udtf(result_types=[DataTypes.STRING(), DataTypes.INT()])
def letters(text: Any) -> Any:
    for i, letter in enumerate(text or ""):
        yield letter, i


class Mean(AggregateFunction):
    def create_accumulator(self) -> Any:
        return [0.0, 0]

    def accumulate(self, accumulator: Any, value: Any) -> None:
        if value is not None:
            accumulator[0] += value
            accumulator[1] += 1

    def get_value(self, accumulator: Any) -> Any:
        return accumulator[0] / accumulator[1] if accumulator[1] else None

    def get_result_type(self) -> Any:
        return DataTypes.DOUBLE()


def test_a_scalar_function(env: TableEnvironment) -> None:
    table = source(env).select(plus(col("i"), 10).alias("x"), plus(plus(col("i"), col("i")), 1).alias("y"))
    assert final(table) == Counter([(11, 3), (12, 5), (13, 7), (14, 9)])


def test_functions_of_every_kind_of_callable(env: TableEnvironment) -> None:
    class Twice(ScalarFunction):
        def eval(self, *args: Any) -> Any:
            return args[0] * 2

    class Same(TableFunction):
        def eval(self, *args: Any) -> Any:
            yield args

    twice = udf(Twice(), result_type=DataTypes.BIGINT())
    shout = udf(lambda s: None if s is None else s.upper(), result_type="STRING", name="shout")
    batch = udf(lambda a: pc.add(a, 1), result_type="BIGINT", per="batch")
    pandas = udf(lambda a, b: a + b, result_type=DataTypes.BIGINT(), func_type="pandas")
    table = (
        source(env)
        .select(twice(col("i")), shout(col("s")), batch(col("i")), pandas(col("i"), col("i")))
        .filter(col("_c0") < 3)
    )
    assert final(table) == Counter([(2, "A", 2, 2)])
    same = udtf(Same(), result_types=["BIGINT"])
    assert final(source(env).join_lateral(same(col("i")).alias("j")).select(col("j"))) == Counter(
        [(1,), (2,), (3,), (4,)]
    )


def test_a_registered_function_is_called_by_its_name(env: TableEnvironment) -> None:
    env.create_temporary_function("plus", plus)
    assert final(source(env).select(call("plus", col("i"), 1))) == Counter([(2,), (3,), (4,), (5,)])
    assert final(env.sql_query("SELECT plus(1, 2) AS x")) == Counter([(3,)])
    assert env.drop_temporary_function("plus")
    assert not env.drop_temporary_function("plus")
    with pytest.raises(PenstockError, match=r"plus|PLUS"):
        env.sql_query("SELECT plus(1, 2) AS x")


def test_an_inline_function_hides_no_function_of_sql(env: TableEnvironment) -> None:
    upper = udf(lambda s: "mine", result_type="STRING", name="UPPER")
    assert final(
        source(env).select(upper(col("s")), col("s").upper_case).filter(col("_c1") == "B")
    ) == Counter([("mine", "B")])
    other = udf(lambda s: "other", result_type="STRING", name="UPPER")
    assert final(source(env).select(upper(col("s")), other(col("s"))).distinct()) == Counter(
        [("mine", "other")]
    )


def test_table_functions(env: TableEnvironment) -> None:
    table = source(env).filter(col("i") > 2)
    inner = table.join_lateral(letters(col("s")).alias("l", "n")).select(col("i"), col("l"), col("n"))
    assert final(inner) == Counter([(3, "a", 0)])
    left = table.left_outer_join_lateral(letters(col("s")).alias("l", "n")).select(col("i"), col("l"))
    assert final(left) == Counter([(3, "a"), (4, None)])
    some = source(env).join_lateral(letters(col("s")).alias("l", "n"), col("l") == "b").select(col("i"))
    assert final(some) == Counter([(2,)])
    whole = udtf(lambda r: [(r.i, r.s)], result_types=["BIGINT", "STRING"])
    rows_of = table.join_lateral(whole.alias("x", "y")).select(table.i, col("x"), col("y"))
    assert final(rows_of) == Counter([(3, 3, "a"), (4, 4, None)])
    with pytest.raises(SpecError, match="has a column 's' already"):
        table.join_lateral(letters(col("s")).alias("s", "n"))


def test_map_flat_map_and_aggregate_take_whole_rows(env: TableEnvironment) -> None:
    pair = DataTypes.ROW([DataTypes.FIELD("x", DataTypes.BIGINT()), DataTypes.FIELD("y", DataTypes.STRING())])
    mapped = source(env).map(udf(lambda r: (r.i * 2, r.s), result_type=pair))
    assert mapped.get_schema().get_column_names() == ["x", "y"]
    assert final(mapped.filter(col("x") == 2)) == Counter([(2, "a")])
    named = source(env).map(udf(lambda i: (i, "n"), result_type=pair)(col("i")).alias("p", "q"))
    assert named.get_schema().get_column_names() == ["p", "q"]

    @udtf(result_types=[DataTypes.BIGINT(), DataTypes.STRING()])
    def twice(r: Any) -> Any:
        yield r.i, r.s
        yield -r.i, r.s

    assert final(source(env).flat_map(twice).filter(col("f1") == "b")) == Counter([(2, "b"), (-2, "b")])

    class Both(Mean):
        def accumulate(self, accumulator: Any, value: Any) -> None:
            super().accumulate(accumulator, value.d)

        def get_value(self, accumulator: Any) -> Any:
            return accumulator[0], accumulator[1]

        def get_result_type(self) -> Any:
            return DataTypes.ROW(
                [DataTypes.FIELD("a", DataTypes.DOUBLE()), DataTypes.FIELD("b", DataTypes.BIGINT())]
            )

    grouped = source(env).group_by(col("s")).aggregate(udaf(Both()).alias("total", "n"))
    assert final(grouped.select(col("s"), col("n"), col("total"))) == Counter(
        [("a", 2, 5.0), ("b", 1, 2.5), (None, 0, 0.0)]
    )


def test_aggregate_functions(env: TableEnvironment) -> None:
    mean = udaf(Mean())
    grouped = source(env).group_by(col("s")).select(col("s"), mean(col("d")).alias("m"))
    assert final(grouped) == Counter([("a", 2.5), ("b", 2.5), (None, None)])
    pandas = udaf(lambda v: v.max(), result_type=DataTypes.BIGINT(), func_type="pandas")
    assert final(source(env).select(pandas(col("i")).alias("m"))) == Counter([(4,)])


def test_what_is_refused_says_what_to_do(env: TableEnvironment) -> None:
    table = source(env)
    cases: list[tuple[Any, type[PenstockError], str]] = [
        (lambda: table.select("i"), SpecError, "write col\\('i'\\)"),
        (lambda: table.select(col("nope")), SqlError, "unknown column 'nope'"),
        (lambda: table.filter(col("i")), SqlError, "needs a condition"),
        (lambda: bool(col("i") > 1), SpecError, "no truth value"),
        (lambda: table.join(table, col("i") == 1), SpecError, "both tables have a column 'i'"),
        (lambda: table.add_columns(lit(1).alias("i")), SpecError, "is there already"),
        (lambda: table.rename_columns(col("i")), SpecError, "with a name"),
        (lambda: table.alias("a", "b", "c", "d"), SpecError, "more columns"),
        (lambda: table.group_by(col("s")).flat_aggregate(plus).select(col("s")), SpecError, "flat_aggregate"),
        (lambda: udtaf(object()), SpecError, "udtaf"),
        (lambda: table.select(col("i").bitmap_build()), PenstockError, "BITMAP_BUILD"),
        (lambda: table.fetch(-1), SpecError, "number of rows"),
        (lambda: table.select(col("i").alias("a", "b")), SpecError, "several names"),
        (lambda: table.union_all(source(TableEnvironment.create())), SpecError, "two environments"),
    ]
    for make, kind, said in cases:
        with pytest.raises(kind, match=said):
            make()


def test_an_error_names_the_call_and_its_line(env: TableEnvironment) -> None:
    with pytest.raises(SqlError) as caught:
        source(env).filter(col("i") > 1).select(col("i") + col("s").upper_case + 1, col("zz"))
    assert "select() in" in str(caught.value.where)
    assert "test_rows.py, line" in str(caught.value.where)


@pytest.mark.parametrize("engine", ["streaming", "spark"])
def test_both_engines_give_the_same_rows(engine: str, request: pytest.FixtureRequest) -> None:
    env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    env.get_config().set("execution.engine", engine)
    table = source(env)
    grouped = table.group_by(col("s")).select(
        col("s"), col("d").sum.alias("t"), col("i").count.distinct.alias("n")
    )
    joined = table.left_outer_join(
        grouped.alias("k", "t", "n"), (col("s") == col("k")) & (plus(col("i"), 0) > 1)
    ).select(col("i"), col("t"), plus(col("i"), 1).alias("p"))
    queries = {
        joined: [(1, None, 2), (2, 2.5, 3), (3, 5.0, 4), (4, None, 5)],
        table.join_lateral(letters(col("s")).alias("l", "x")).select(col("l")).distinct(): [("a",), ("b",)],
        table.order_by(col("i").desc).fetch(2).select(col("i")): [(4,), (3,)],
        table.select(col("s")).minus(table.filter(col("i") == 2).select(col("s"))): [("a",), (None,)],
    }
    for query, expected in queries.items():
        if engine == "streaming":
            found = final(query)
        else:
            from penstock.spark.engine import SparkJob

            graph = env._session.compile_job(env.query_of(query, "test")).job_graph
            found = Counter(SparkJob(spark_graph(graph), request.getfixturevalue("spark")).run().rows)
        assert found == Counter(expected)
