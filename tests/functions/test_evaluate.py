"""Compiled expressions: sharing, laziness, constants, three-valued logic, user functions."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
import pytest

from penstock.errors import FunctionError, RecordError, SqlError
from penstock.functions.evaluate import compile_expr, compile_predicate, compile_projection
from penstock.functions.expr import Expr, InputRef, Literal, PythonCall
from penstock.functions.registry import make_call
from penstock.types.batch import Batch
from penstock.types.logical import (
    BigIntType,
    BooleanType,
    CharType,
    DecimalType,
    IntType,
    NullType,
    Schema,
    VarCharType,
)

SCHEMA = Schema.of(
    ("i", IntType()),
    ("l", BigIntType()),
    ("s", VarCharType()),
    ("d", DecimalType(10, 2)),
    ("p", BooleanType()),
)
ROWS = [
    (1, 2, "x", "1.25", True),
    (None, 0, "12", None, None),
    (-7, 2, None, "-3.10", False),
    (2**31 - 1, -4, "", "0.00", None),
]
BATCH = Batch.of(SCHEMA, ROWS)
N, L, S, D, P = (InputRef(i, f.type) for i, f in enumerate(SCHEMA.fields))


def number(value: int) -> Literal:
    return Literal(value, IntType(nullable=False))


def text(value: str) -> Literal:
    return Literal(value, CharType(max(1, len(value)), nullable=False))


def values(expr: Expr) -> list:
    return compile_expr(expr)(BATCH).to_pylist()


def test_column_is_free() -> None:
    assert compile_expr(L)(BATCH) is BATCH.columns[1]
    assert compile_projection([L, N])(BATCH) == [BATCH.columns[1], BATCH.columns[0]]


def test_integers_wrap_as_javas() -> None:
    assert values(make_call("+", [N, number(1)])) == [2, None, -6, -(2**31)]
    assert values(make_call("-", [N])) == [-1, None, 7, -(2**31) + 1]


@pytest.mark.parametrize(
    ("a", "b", "quotient", "remainder"), [(7, 2, 3, 1), (-7, 2, -3, -1), (7, -2, -3, 1), (-7, -2, 3, -1)]
)
def test_division_goes_towards_zero(a: int, b: int, quotient: int, remainder: int) -> None:
    schema = Schema.of(("a", IntType()), ("b", IntType()))
    batch = Batch.of(schema, [(a, b)])
    refs = [InputRef(0, IntType()), InputRef(1, IntType())]
    for right in (refs[1], number(b)):
        assert compile_expr(make_call("/", [refs[0], right]))(batch).to_pylist() == [quotient]
        assert compile_expr(make_call("MOD", [refs[0], right]))(batch).to_pylist() == [remainder]


def test_division_by_zero_names_its_place() -> None:
    with pytest.raises(RecordError, match="division by zero") as caught:
        values(make_call("/", [number(10), L], line=3, column=4))
    assert caught.value.where == "line 3, column 4: (10 / $1)"


def test_errors_do_not_leak_from_rows_that_are_not_wanted() -> None:
    quotient = make_call("/", [number(10), L])
    guard = make_call("<>", [L, number(0)])
    null = Literal(None, NullType())
    assert values(make_call("CASE", [guard, quotient, null])) == [5, None, 5, -2]
    assert values(make_call("AND", [guard, make_call(">", [quotient, number(0)])])) == [
        True,
        False,
        True,
        False,
    ]
    assert values(make_call("OR", [make_call("NOT", [guard]), make_call(">", [quotient, number(0)])])) == [
        True,
        True,
        True,
        False,
    ]
    assert values(make_call("COALESCE", [L, quotient])) == [2, 0, 2, -4]


def test_three_valued_logic() -> None:
    truth = {
        True: Literal(True, BooleanType()),
        False: Literal(False, BooleanType()),
        None: Literal(None, BooleanType()),
    }
    for value, literal in truth.items():
        conjunction = [
            None if (p is None and value is not False) or (p and value is None) else bool(p and value)
            for *_, p in ROWS
        ]
        assert values(make_call("AND", [P, literal])) == conjunction
        assert values(make_call("AND", [literal, P])) == conjunction
        inverted = None if value is None else not value
        de_morgan = make_call("NOT", [make_call("OR", [make_call("NOT", [P]), truth[inverted]])])
        assert values(de_morgan) == conjunction


def test_predicate_counts_null_as_false() -> None:
    mask = compile_predicate(make_call(">", [N, number(0)]))(BATCH)
    assert mask.dtype == np.bool_
    assert mask.tolist() == [True, False, False, True]


def test_constant_errors_wait_for_a_row() -> None:
    broken = make_call("/", [number(1), number(0)])
    safe = make_call("CASE", [make_call("=", [number(1), number(2)]), broken, number(5)])
    assert values(safe) == [5] * 4
    compiled = compile_expr(broken)
    assert compiled(Batch.empty(SCHEMA)).to_pylist() == []
    with pytest.raises(RecordError):
        compiled(BATCH)


def test_shared_expressions_run_once() -> None:
    calls = []

    def load(name: str):
        return lambda value: calls.append(value) or value

    shared = PythonCall("f", (L,), BigIntType())
    first, second = compile_projection(
        [make_call("+", [shared, number(1)]), make_call("*", [shared, shared])], load
    )(BATCH)
    assert first.to_pylist() == [3, 1, 3, -3]
    assert second.to_pylist() == [4, 0, 4, 16]
    assert len(calls) == 4


def test_decimal_product_beyond_int64() -> None:
    product = make_call("*", [D, Literal(10**17, DecimalType(18, 0, nullable=False))])
    assert str(product.type) == "DECIMAL(29, 2)"
    assert [None if v is None else str(v) for v in values(product)] == [
        "125000000000000000.00", None, "-310000000000000000.00", "0.00",
    ]  # fmt: skip


def test_case_on_strings_mixes_constants_and_columns() -> None:
    case = make_call(
        "CASE", [make_call("=", [S, text("x")]), text("yes"), make_call("IS NULL", [S]), text("none"), S]
    )
    assert values(case) == ["yes", "12", "none", ""]


def test_empty_batch() -> None:
    empty = Batch.empty(SCHEMA)
    for expr in (
        make_call("+", [N, L]),
        make_call("||", [S, S]),
        make_call("*", [D, D]),
        make_call("CASE", [P, S, text("a")]),
    ):
        assert compile_expr(expr)(empty).to_pylist() == []


def test_python_function_per_record_and_per_batch() -> None:
    per_record = PythonCall("f", (N, S), VarCharType())
    assert compile_expr(per_record, lambda name: lambda i, s: f"{i}-{s}")(BATCH).to_pylist()[1] == "None-12"
    per_batch = PythonCall("f", (N,), BigIntType(), per="batch")
    assert compile_expr(per_batch, lambda name: lambda array: pc.add(array.cast("int64"), 1))(
        BATCH
    ).to_pylist() == [2, None, -6, 2**31]


def test_python_function_errors_show_the_users_traceback() -> None:
    def broken(value: int) -> float:
        return value / 0

    with pytest.raises(FunctionError) as caught:
        compile_expr(PythonCall("f", (L,), BigIntType()), lambda name: broken)(BATCH)
    assert "in broken" in (caught.value.user_traceback or "")
    with pytest.raises(FunctionError, match="returned 1 values for 4 rows"):
        compile_expr(PythonCall("f", (L,), BigIntType(), per="batch"), lambda name: lambda array: [1])(BATCH)


def test_unknown_function_suggests_the_nearest() -> None:
    with pytest.raises(SqlError, match="SUBSTRNG") as caught:
        make_call("SUBSTRNG", [S], line=2, column=7)
    assert "SUBSTRING" in (caught.value.remedy or "")
    assert caught.value.where == "line 2, column 7"


def test_type_errors_name_what_was_given() -> None:
    with pytest.raises(SqlError) as caught:
        make_call("+", [N, S], line=1, column=2)
    assert caught.value.got == "+(INT, STRING)"
