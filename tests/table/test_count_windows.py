"""Group windows of a number of rows, as Flink counts them: a window that is not full gives no row."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import PenstockError, SpecError
from penstock.table import DataTypes, TableEnvironment
from penstock.table.expressions import call, col, lit, row_interval
from penstock.table.table import Table
from penstock.table.udf import udaf
from penstock.table.windows import GroupWindow, Session, Slide, Tumble

#: (key, value), in the order of the rows.
ROWS = [(1, 2), (3, 2), (2, 1), (1, 3), (1, 8), (2, 3), (3, 3), (1, 4)]


def rows(table: Table) -> list[tuple[Any, ...]]:
    with table.execute().collect() as found:
        made = list(found)
    assert {row.get_row_kind().short for row in made} <= {"+I"}  # rows are only ever added
    return sorted(tuple(row) for row in made)


def source(env: TableEnvironment) -> Table:
    env.get_config().set("parallelism.default", "1")
    env.create_temporary_view("v", env.from_elements(ROWS, ["k", "v"]))
    return env.sql_query("SELECT k, v, PROCTIME() AS p FROM v")


def of(window: Any) -> GroupWindow:
    return window.on(col("p")).alias("w")  # type: ignore[no-any-return]


def test_windows_of_a_key_close_when_they_are_full(env: TableEnvironment) -> None:
    total = udaf(lambda v: v.sum(), result_type=DataTypes.BIGINT(), func_type="pandas")
    cases = {
        (2, 2): [(1, 5), (1, 12), (2, 4), (3, 5)],
        (2, 1): [(1, 5), (1, 11), (1, 12), (2, 4), (3, 5)],
        (2, 3): [(1, 5), (2, 4), (3, 5)],
        (3, 1): [(1, 13), (1, 15)],
        (5, 5): [],
    }
    table = source(env)
    for (size, slide), expected in cases.items():
        over: Any = row_interval(size)
        window = of(Tumble.over(over) if size == slide else Slide.over(over).every(row_interval(slide)))
        grouped = table.window(window).group_by(col("k"), col("w"))
        for sum_ in (col("v").sum, total(col("v")), call("SUM", col("v"))):
            assert rows(grouped.select(col("k"), sum_.alias("s"))) == expected, (size, slide)


def test_windows_of_all_rows_and_aggregates_within_expressions(env: TableEnvironment) -> None:
    grouped = source(env).window(of(Tumble.over(row_interval(4)))).group_by(col("w"))
    made = grouped.select((col("v").max - col("v").min + 1).alias("range"), col("v").count.alias("n"))
    assert rows(made) == [(3, 4), (6, 4)]


def test_what_has_no_meaning_is_refused(env: TableEnvironment) -> None:
    grouped = source(env).window(of(Tumble.over(row_interval(2)))).group_by(col("k"), col("w"))
    cases: list[tuple[Any, type[PenstockError], str]] = [
        (lambda: grouped.select(col("w").start), SpecError, "has no times"),
        (lambda: Session.with_gap(row_interval(2)), SpecError, "session's gap"),
        (lambda: Slide.over(row_interval(2)).every(lit(1).minutes), SpecError, "two kinds"),
        (lambda: Tumble.over(row_interval(0)), SpecError, "at least one row"),
    ]
    for make, kind, said in cases:
        with pytest.raises(kind, match=said):
            make()
