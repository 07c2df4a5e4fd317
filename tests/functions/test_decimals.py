"""Exact decimals against Python's, over the border between int64 and big integers."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.functions.evaluate import compile_expr
from penstock.functions.expr import InputRef
from penstock.functions.inference import decimal_result
from penstock.functions.registry import make_call
from penstock.types.batch import Batch
from penstock.types.logical import DecimalType, IntType, Schema

EXACT = Context(prec=200)
TYPES = [
    DecimalType(5, 2),
    DecimalType(18, 0),
    DecimalType(18, 9),
    DecimalType(20, 5),
    DecimalType(38, 10),
    DecimalType(38, 38),
]


def numbers(type_: DecimalType) -> st.SearchStrategy[Decimal | None]:
    limit = 10**type_.precision - 1
    edge = st.sampled_from([0, 1, -1, limit, -limit])
    return st.one_of(
        st.none(),
        st.one_of(edge, st.integers(-limit, limit)).map(lambda v: EXACT.scaleb(Decimal(v), -type_.scale)),
    )


def expected(op: str, a: Decimal | None, b: Decimal | None, type_: DecimalType) -> Decimal | None:
    if a is None or b is None:
        return None
    exact = {"+": EXACT.add, "-": EXACT.subtract, "*": EXACT.multiply}.get(op)
    if exact is not None:
        value = exact(a, b)
    elif op == "/":
        value = EXACT.divide(a, b)
    else:
        value = EXACT.remainder(a, b)
    value = value.quantize(Decimal(1).scaleb(-type_.scale), ROUND_HALF_UP, EXACT)
    return value if EXACT.scaleb(value, type_.scale).copy_abs() < 10**type_.precision else None


@pytest.mark.parametrize("op", ["+", "-", "*", "/", "%"])
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_arithmetic(op: str, data: st.DataObject) -> None:
    a_type, b_type = data.draw(st.sampled_from(TYPES)), data.draw(st.sampled_from(TYPES))
    rows = data.draw(st.lists(st.tuples(numbers(a_type), numbers(b_type)), max_size=6))
    if op in "/%":
        rows = [(a, b) for a, b in rows if b is None or b]
    batch = Batch.of(Schema.of(("a", a_type), ("b", b_type)), rows)
    call = make_call(op, [InputRef(0, a_type), InputRef(1, b_type)])
    assert isinstance(call.type, DecimalType)
    assert compile_expr(call)(batch).to_pylist() == [expected(op, a, b, call.type) for a, b in rows]


@given(st.lists(st.tuples(numbers(TYPES[3]), numbers(TYPES[2])), max_size=6))
@settings(max_examples=40, deadline=None)
def test_comparison_aligns_scales(rows: list[tuple[Decimal | None, Decimal | None]]) -> None:
    batch = Batch.of(Schema.of(("a", TYPES[3]), ("b", TYPES[2])), rows)
    call = make_call("<", [InputRef(0, TYPES[3]), InputRef(1, TYPES[2])])
    assert compile_expr(call)(batch).to_pylist() == [
        None if a is None or b is None else a < b for a, b in rows
    ]


@pytest.mark.parametrize("name", ["FLOOR", "CEIL", "ABS", "SIGN", "-"])
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_one_operand(name: str, data: st.DataObject) -> None:
    type_ = data.draw(st.sampled_from(TYPES))
    values = data.draw(st.lists(numbers(type_), max_size=6))
    functions = {
        "FLOOR": lambda v: v.to_integral_value("ROUND_FLOOR", EXACT), "CEIL": lambda v: v.to_integral_value("ROUND_CEILING", EXACT),
        "ABS": EXACT.abs, "SIGN": lambda v: Decimal((v > 0) - (v < 0)), "-": lambda v: EXACT.minus(v),
    }  # fmt: skip
    batch = Batch.of(Schema.of(("a", type_)), [(v,) for v in values])
    call = make_call(name, [InputRef(0, type_)])
    assert isinstance(call.type, DecimalType)
    limit = Decimal(f"1e{call.type.precision - call.type.scale}")
    want = [None if v is None else EXACT.plus(functions[name](EXACT.plus(v))) for v in values]
    got = compile_expr(call)(batch).to_pylist()
    assert got == [None if v is None or v.copy_abs() >= limit else v for v in want]


@pytest.mark.parametrize(
    ("op", "a", "b", "result"),
    [
        ("+", (10, 2), (10, 2), "DECIMAL(11, 2)"),
        ("+", (38, 10), (38, 10), "DECIMAL(38, 9)"),
        ("*", (10, 2), (10, 2), "DECIMAL(21, 4)"),
        ("*", (38, 10), (38, 10), "DECIMAL(38, 6)"),
        ("/", (10, 2), (10, 2), "DECIMAL(23, 13)"),
        ("/", (20, 5), (20, 5), "DECIMAL(38, 18)"),
        ("%", (20, 5), (10, 3), "DECIMAL(12, 5)"),
    ],
)
def test_result_types(op: str, a: tuple[int, int], b: tuple[int, int], result: str) -> None:
    assert str(decimal_result(op, DecimalType(*a), DecimalType(*b))) == result


def test_cast_to_integer_wraps_and_truncates() -> None:
    type_ = DecimalType(38, 5)
    batch = Batch.of(Schema.of(("a", type_)), [("12345678901.99999",), ("-1.9",), (None,)])
    cast = make_call("CAST", [InputRef(0, type_)], type=IntType())
    assert compile_expr(cast)(batch).to_pylist() == [12345678901 - 3 * 2**32, -1, None]
