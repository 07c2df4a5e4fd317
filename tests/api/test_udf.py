"""@udf, @udtf, @udaf: what they leave on a function, and what they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.api import ScalarFunction, StreamExecutionEnvironment, Types, udaf, udf, udtf
from penstock.errors import PenstockError, SpecError, UnsupportedError
from penstock.sql.functions import user_function
from penstock.types import logical as t


class Mean:
    def create_accumulator(self) -> list[float]:
        return [0, 0]

    def accumulate(self, acc: list[float], x: float) -> None:
        acc[0] += x
        acc[1] += 1

    def get_value(self, acc: list[float]) -> float:
        return acc[0] / acc[1]


def _declared(target: Any) -> tuple[str, Any, Any, str]:
    made = user_function("f", target, what="f", where="here")
    return made.kind, made.result, made.arguments, made.per


def test_a_decorated_function_stays_what_it_is() -> None:
    @udf(result_type="INT")
    def plus(a: int, b: int) -> int:
        return a + b

    assert plus(1, 2) == 3


def test_types_are_sqls_or_ours_or_annotated() -> None:
    @udf
    def annotated(x: int) -> str:
        return str(x)

    @udtf
    def words(line: str) -> Iterator[tuple[str, int]]:
        yield from ((w, len(w)) for w in line.split())

    two = Types.TUPLE([Types.STRING(), Types.LONG()])
    decimal = t.DecimalType(10, 2)
    cases: list[tuple[Any, tuple[str, Any, Any, str]]] = [
        (annotated, ("scalar", t.VarCharType(), None, "record")),
        (words, ("table", two, None, "record")),
        (
            udf(lambda x: x, result_type="DECIMAL(10, 2)", input_types=["INT"]),
            ("scalar", decimal, (t.IntType(),), "record"),
        ),
        (
            udtf(lambda x: x, result_types=Types.LONG()),
            ("table", Types.TUPLE([Types.LONG()]), None, "record"),
        ),
        (udaf(Mean, per="batch"), ("aggregate", t.DoubleType(), None, "batch")),
    ]
    for target, expected in cases:
        assert _declared(target) == expected


def test_objects_with_arguments_of_their_own_in_a_query_of_a_program(collect: Any) -> None:
    class Plus(ScalarFunction):
        def __init__(self, n: int) -> None:
            self.n = n

        def eval(self, x: int) -> int:
            return x + self.n

    env = StreamExecutionEnvironment.get_execution_environment()
    env.create_temporary_function("plus5", udf(Plus(5), result_type="BIGINT"))
    stream = env.sql_query("SELECT plus5(x) AS y FROM (VALUES (1), (2)) AS v(x)")
    assert [row.y for row in collect(stream)] == [6, 7]
    with pytest.raises(PenstockError, match="cannot be made"):
        user_function("f", udf(Plus, result_type="BIGINT"), what="Plus", where="here")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: udf(lambda x: x), SpecError, "is not declared"),
        (lambda: udf(lambda x: x, result_type="INT", per="row"), SpecError, "unknown 'per'"),
        (lambda: udf(lambda x: x, result_type="INT", func_type="pandas"), UnsupportedError, "pandas"),
        (lambda: udf(len, result_type="INT"), SpecError, "cannot mark"),
        (lambda: udaf(lambda x: x, result_type="INT"), SpecError, "no method 'accumulate'"),
        (lambda: udf(5, result_type="INT"), SpecError, "no method 'eval'"),
    ],
)
def test_what_is_refused(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_async_functions_are_marked_and_async_aggregates_refused_with_their_place() -> None:
    async def slow(x: int) -> int:
        return x

    assert udf(slow).penstock_function["asynchronous"]

    class Slow:
        async def accumulate(self, acc, x) -> int:
            return acc

    with pytest.raises(UnsupportedError, match="async") as err:
        udaf(Slow, result_type="INT")
    assert err.value.where is not None
    assert "test_udf.py" in err.value.where
