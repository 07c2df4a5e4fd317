"""What functions of queries see of their task: ``open``, metrics, ``close``, and whether they are deterministic."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from penstock.api import AggregateFunction, ScalarFunction
from penstock.errors import SpecError, SpecValueError
from penstock.table import DataTypes, TableEnvironment
from penstock.table.expressions import col
from penstock.table.udf import udaf, udf

#: What the functions have done, in this process.
DONE: list[str] = []


def done(what: str) -> None:
    # The classes travel by value, with globals of their own.
    from tests.table import test_function_lives

    test_function_lives.DONE.append(what)


class Told(ScalarFunction):
    def open(self, context: Any) -> None:
        self.task = f"{context.get_index_of_this_subtask()}/{context.get_number_of_parallel_subtasks()}"
        assert context.get_task_name()
        self.counter = context.get_metric_group().add_group("key", "value").counter("calls")
        done("open")

    def close(self) -> None:
        done("close")

    def eval(self, *args: Any) -> Any:
        self.counter.inc()
        return f"{self.task} {args[0]}"


class Sum(AggregateFunction):
    def open(self, context: Any) -> None:
        self.factor = int(context.get_job_parameter("factor", "1"))
        context.get_metric_group().counter("opened").inc()
        done("open")

    def close(self) -> None:
        done("close")

    def create_accumulator(self) -> Any:
        return [0]

    def accumulate(self, accumulator: Any, value: Any) -> None:
        accumulator[0] += self.factor * int(value.sum() if hasattr(value, "sum") else value)

    def get_value(self, accumulator: Any) -> Any:
        return accumulator[0]


def rows(table: Any) -> list[Any]:
    with table.execute().collect() as found:
        return [tuple(row) for row in found]


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DONE.clear()


def source(env: TableEnvironment) -> Any:
    env.get_config().set("parallelism.default", "1")
    return env.from_elements([(1,), (2,)], ["i"])


def test_a_scalar_function_knows_its_task_and_is_closed(env: TableEnvironment) -> None:
    told = udf(Told(), result_type=DataTypes.STRING())
    table = source(env).select(told(col("i")).alias("a"), told(col("i") + 1).alias("b"))
    assert sorted(rows(table)) == [("0/1 1", "0/1 2"), ("0/1 2", "0/1 3")]
    assert DONE == ["open", "close"]  # once for the operator, which calls it in two places


@pytest.mark.parametrize("func_type", ["general", "pandas"])
def test_an_aggregate_function_is_opened(func_type: str, env: TableEnvironment) -> None:
    env.get_config().set("user.factor", "10")
    total = udaf(Sum(), result_type=DataTypes.BIGINT(), func_type=func_type)
    assert rows(source(env).select(total(col("i")).alias("s")))[-1] == (30,)
    assert "open" in DONE
    assert DONE.count("close") == DONE.count("open")


def test_a_function_that_is_not_deterministic_is_called_in_each_place(env: TableEnvironment) -> None:
    numbers = itertools.count()

    def number() -> int:
        return next(numbers)

    def pairs(deterministic: bool | None) -> list[Any]:
        drawn = udf(number, result_type=DataTypes.BIGINT(), deterministic=deterministic)
        return rows(source(env).select(drawn().alias("a"), drawn().alias("b")))

    assert all(a == b for a, b in pairs(None))
    found = pairs(False)
    assert len({value for pair in found for value in pair}) == 4


def test_what_a_function_says_of_itself_must_agree() -> None:
    class Drawn(ScalarFunction):
        def is_deterministic(self) -> bool:
            return False

        def eval(self, *args: Any) -> int:
            return 4

    assert not udf(Drawn(), result_type=DataTypes.BIGINT())._deterministic
    with pytest.raises(ValueError, match="Inconsistent deterministic"):
        udf(Drawn(), result_type=DataTypes.BIGINT(), deterministic=True)
    with pytest.raises(SpecValueError, match="func_type must be one of"):
        udf(lambda x: x, result_type=DataTypes.BIGINT(), func_type="numpy")
    with pytest.raises(TypeError, match="does not fit its column"):
        TableEnvironment.create().from_elements(
            [("a",)], DataTypes.ROW([DataTypes.FIELD("i", DataTypes.INT())])
        )
    assert issubclass(SpecValueError, SpecError)
    with pytest.raises(TypeError, match="abstract"):
        type("Without", (ScalarFunction,), {})()
