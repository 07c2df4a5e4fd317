"""Casts: fast paths agree with the plain parsers, slices and NULLs are respected."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import RecordError, SqlError
from penstock.functions.casts import converter
from penstock.functions.expr import InputRef, Literal
from penstock.functions.formatting import double_text
from penstock.functions.number_casts import saturate
from penstock.functions.parsing import parse_iso_timestamps, parse_timestamp, parser
from penstock.functions.registry import make_call
from penstock.types import logical as t
from penstock.types.column import Column

TEXT = st.one_of(
    st.datetimes().map(lambda m: m.isoformat(" ", "seconds")),
    st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?", fullmatch=True),
    st.dates().map(str),
    st.just("garbage"),
)


@given(st.lists(TEXT, min_size=1, max_size=6), st.integers(0, 6), st.integers(0, 2))
@settings(max_examples=200, deadline=None)
def test_timestamps_by_bytes_or_by_regex(texts: list[str], precision: int, skip: int) -> None:
    texts = [x.rjust(4, "0") for x in texts]
    array = pa.array(["x" * i for i in range(skip)] + texts, pa.string()).slice(skip)
    fast = parse_iso_timestamps(array, precision)
    if fast is not None:
        assert fast.tolist() == [parse_timestamp(x, precision) for x in texts]


@pytest.mark.parametrize("target", [t.IntType(), t.BigIntType(), t.DoubleType()], ids=str)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_numbers_by_arrow_or_by_regex(target: t.LogicalType, data: st.DataObject) -> None:
    number = (
        st.floats(allow_nan=False, allow_infinity=False).map(repr)
        if isinstance(target, t.DoubleType)
        else st.integers(-(2**31), 2**31 - 1).map(str)
    )
    texts = data.draw(st.lists(st.one_of(number, st.none()), min_size=17, max_size=20))
    got = converter(t.VarCharType(), target)(Column.of(t.VarCharType(), texts)).to_pylist()
    assert got == [None if x is None else parser(target)(x) for x in texts]


@pytest.mark.parametrize("text", ["", "abc", "1e2", "2147483648", "0x10"])
def test_bad_text(text: str) -> None:
    column = Column.of(t.VarCharType(), ["1", None, text])
    with pytest.raises(RecordError, match="cannot cast"):
        converter(t.VarCharType(), t.IntType())(column)
    assert converter(t.VarCharType(), t.IntType(), lenient=True)(column).to_pylist() == [1, None, None]


@given(st.floats())
def test_double_text_is_javas(value: float) -> None:
    text = double_text(value)
    if math.isnan(value):
        assert text == "NaN"
    elif math.isinf(value):
        assert text.endswith("Infinity")
    else:
        assert float(text) == value
        assert "." in text
        assert ("E" in text) == (value != 0 and not 1e-3 <= abs(value) < 1e7)


@pytest.mark.parametrize(
    ("dtype", "want"),
    [
        (np.int8, [0, -1, -1, 0]),
        (np.int32, [0, -1, 2**31 - 1, -(2**31)]),
        (np.int64, [0, -1, 2**63 - 1, -(2**63)]),
    ],
)
def test_floating_point_saturates(dtype: type, want: list[int]) -> None:
    assert saturate(np.array([np.nan, -1.9, 1e30, -1e30]), dtype).tolist() == want


def test_nested_casts_respect_slices_and_nulls() -> None:
    source = t.ArrayType(t.IntType())
    column = Column.of(source, [[9], [1, None], None, [3]]).slice(1, 3)
    out = converter(source, t.ArrayType(t.VarCharType()))(column)
    assert out.to_pylist() == [["1", None], None, ["3"]]
    row = t.RowType((t.Field("a", t.IntType()), t.Field("b", t.VarCharType())))
    wide = t.RowType((t.Field("x", t.BigIntType()), t.Field("y", t.VarCharType())))
    column = Column.of(row, [{"a": 1, "b": "p"}, None, {"a": None, "b": "q"}]).slice(1, 2)
    assert converter(row, wide)(column).to_pylist() == [None, {"x": None, "y": "q"}]
    map_ = t.MapType(t.VarCharType(), t.IntType())
    column = Column.of(map_, [[("a", 1)], None, [("b", 2)]]).slice(1, 2)
    assert converter(map_, t.MapType(t.VarCharType(), t.VarCharType()))(column).to_pylist() == [
        None,
        [("b", "2")],
    ]


def test_what_cannot_be_cast_is_refused_while_planning() -> None:
    with pytest.raises(SqlError, match="cannot cast DATE to INT"):
        make_call("CAST", [InputRef(0, t.DateType())], type=t.IntType())


def test_literals_are_retyped_not_computed() -> None:
    cast = make_call("CAST", [Literal(5, t.IntType(nullable=False))], type=t.DecimalType(10, 2))
    assert cast == Literal(500, t.DecimalType(10, 2, nullable=False))
