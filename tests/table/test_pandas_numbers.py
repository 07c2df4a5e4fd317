"""Integers beyond ±2⁵³ beside a NULL, which pandas would make doubles of."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from penstock.table import TableEnvironment
from penstock.table.expressions import col
from penstock.table.functions_over import PandasAggregate
from penstock.table.pandas_values import changes, series_of
from penstock.table.udf import udaf, udf

BIG = 9007199254740993
ROWS = [(1, BIG), (2, None), (3, -BIG), (4, None)]


@pytest.mark.parametrize(
    ("values", "kind", "wanted"),
    [
        ([1, None], pa.int64(), "float64"),
        ([BIG - 1, None, 1 - BIG], pa.int64(), "float64"),
        ([BIG, None], pa.int64(), "Int64"),
        ([None, -BIG], pa.int64(), "Int64"),
        ([None, None], pa.int64(), "float64"),
        ([BIG, 1], pa.int64(), "int64"),
        ([2**31 - 1, None], pa.int32(), "float64"),
        ([1.5, None], pa.float64(), "float64"),
    ],
)
def test_a_column_is_of_doubles_where_these_hold_its_numbers(
    values: list[Any], kind: Any, wanted: str
) -> None:
    series = series_of(pa.array(values, kind))
    assert str(series.dtype) == wanted
    assert pa.Array.from_pandas(series).to_pylist() == values
    assert changes(pa.array(values, kind)) == (wanted == "Int64")


def test_lists_maps_and_rows_keep_their_numbers() -> None:
    lists = series_of(pa.array([[BIG, None], [1, None], None, [2, 3]]))
    assert lists.iloc[0].tolist() == [BIG, None]
    assert lists.iloc[1].dtype == np.float64
    assert np.isnan(lists.iloc[1][1])
    assert lists.iloc[2] is None
    assert lists.iloc[3].tolist() == [2, 3]
    rows = series_of(pa.array([{"a": BIG, "x": [1]}, {"a": None, "x": [BIG, None]}]))
    assert rows.iloc[0]["a"] == BIG
    assert rows.iloc[1]["x"].tolist() == [BIG, None]
    maps = series_of(pa.array([[(1, BIG), (2, None)]], pa.map_(pa.int32(), pa.int64())))
    assert maps.tolist() == [[(1, BIG), (2, None)]]


def test_functions_and_frames_keep_the_numbers_of_a_column_with_nulls(env: TableEnvironment) -> None:
    table = env.from_elements(ROWS, "ROW<id INT, b BIGINT>")
    same = udf(lambda b: b, result_type="BIGINT", func_type="pandas")
    more = udf(lambda b: b + 2, result_type="BIGINT", func_type="pandas")
    frame = table.select(
        col("id"), col("b"), same(col("b")).alias("s"), more(col("b")).alias("m")
    ).to_pandas()
    assert [None if x is pd.NA else x for x in frame["b"]] == [BIG, None, -BIG, None]
    assert [None if x is pd.NA else x for x in frame["s"]] == [BIG, None, -BIG, None]
    assert [None if x is pd.NA else x for x in frame["m"]] == [BIG + 2, None, 2 - BIG, None]
    assert str(frame["id"].dtype) == "int32"
    rows = table.map(udf(lambda f: f, result_type="ROW<id INT, b BIGINT>", func_type="pandas"))
    assert sorted(tuple(row) for row in rows.execute().collect()) == ROWS


def test_aggregates_keep_the_numbers_of_groups_and_frames(env: TableEnvironment) -> None:
    env.create_temporary_function(
        "largest", udaf(lambda b: b.max(), result_type="BIGINT", func_type="pandas")
    )
    env.create_temporary_function(
        "first_of", udaf(lambda b: b.iloc[0], result_type="BIGINT", func_type="pandas")
    )
    env.create_temporary_view("t", env.from_elements(ROWS, "ROW<id INT, b BIGINT>"))
    env.create_temporary_view("n", env.sql_query("SELECT id, b, PROCTIME() AS p FROM t"))
    grouped = env.sql_query("SELECT largest(b) FROM t")
    assert grouped.to_arrow().to_pylist() == [{"EXPR$0": BIG}]
    over = env.sql_query(
        "SELECT id, largest(b) OVER w, first_of(b) OVER w FROM n "
        "WINDOW w AS (ORDER BY p ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"
    )
    assert sorted(tuple(row) for row in over.execute().collect()) == [
        (1, BIG, BIG), (2, BIG, BIG), (3, -BIG, None), (4, -BIG, -BIG),
    ]  # fmt: skip


def test_a_group_holds_its_rows_only_and_reads_what_older_versions_held() -> None:
    function = PandasAggregate(lambda b: list(b))
    state = function.create_accumulator()
    function.accumulate(state, pa.array(range(100_000)).slice(7, 2))
    assert len(pickle.dumps(state)) < 2_000
    function.accumulate(state, pa.array([BIG, None]))
    assert function.get_value(state) == [7, 8, BIG, pd.NA]
    older = [[pd.Series([1.0, np.nan])], [pa.array([2])]]
    assert function.get_value(older)[::2] == [1.0, 2.0]
