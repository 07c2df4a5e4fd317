import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InternalError, RecordError
from penstock.types import Column
from penstock.types import logical as t
from penstock.types.storage import arrow_type

SAMPLES = [
    (t.BooleanType(), [True, None, False]),
    (t.TinyIntType(), [-128, None, 127]),
    (t.SmallIntType(), [-(2**15), None, 2**15 - 1]),
    (t.IntType(), [-(2**31), None, 2**31 - 1]),
    (t.BigIntType(), [-(2**63), None, 2**63 - 1]),
    (t.FloatType(), [1.5, None, -0.25]),
    (t.DoubleType(), [1e300, None, -0.1]),
    (t.DecimalType(10, 2), [Decimal("-12345678.90"), None, Decimal("0.01")]),
    (t.DecimalType(38, 3), [Decimal("-1234567890123456789012345678901.234"), None, Decimal("0.001")]),
    (t.VarCharType(), ["", None, "žluťoučký"]),
    (t.VarBinaryType(), [b"", None, b"\x00\xff"]),
    (t.DateType(), [dt.date(1969, 12, 31), None, dt.date(2024, 2, 29)]),
    (t.TimeType(3), [dt.time(0), None, dt.time(23, 59, 59, 999000)]),
    (t.TimestampType(3), [dt.datetime(1901, 1, 1), None, dt.datetime(2024, 2, 29, 1, 2, 3, 4000)]),
    (t.TimestampLtzType(3), [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), None, dt.datetime(1970, 1, 1, tzinfo=dt.UTC)]),
    (t.YearMonthIntervalType(), [14, None, -1]),
    (t.DayTimeIntervalType(), [dt.timedelta(days=1, microseconds=5), None, dt.timedelta(seconds=-1)]),
    (t.ArrayType(t.IntType()), [[1, None], None, []]),
    (t.MapType(t.VarCharType(), t.BigIntType()), [[("a", 1)], None, []]),
    (
        t.RowType((t.Field("x", t.IntType()), t.Field("y", t.VarCharType()))),
        [{"x": 1, "y": "a"}, None, {"x": None, "y": None}],
    ),
    (t.RawType(), [(1, 2), None, {"k": [1]}]),
    (t.NullType(), [None, None, None]),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "values"), SAMPLES, ids=[str(s[0]) for s in SAMPLES])
def test_values_survive_every_way_through(type_: t.LogicalType, values: list) -> None:
    column = Column.of(type_, values)
    assert column.to_pylist() == values
    assert column.null_count == values.count(None)
    physical = column.to_arrow()
    assert Column.from_arrow(type_, physical).to_pylist() == values
    assert Column.from_arrow(type_, physical.slice(1)).to_pylist() == values[1:]
    if not isinstance(type_, t.RawType):
        assert Column.from_arrow(type_, column.to_external_arrow()).to_pylist() == values
    order = np.array([2, 0, 1])
    assert column.take(order).to_pylist() == [values[i] for i in order]
    assert column.slice(1, 2).to_pylist() == values[1:]
    assert Column.concat([column, column.slice(0, 1)]).to_pylist() == [*values, values[0]]
    assert column.take_or_null(np.array([-1, 2])).to_pylist() == [None, values[2]]


def test_nullable_integers_never_become_floats() -> None:
    big = 2**53 + 1
    column = Column.from_arrow(t.BigIntType(), pa.array([big, None], pa.int64()))
    assert column.values.dtype == np.int64
    assert column.to_pylist() == [big, None]


def test_fixed_width_values_are_shared_with_arrow() -> None:
    array = pa.array(np.arange(1000))
    column = Column.from_arrow(t.BigIntType(), array)
    assert column.values.ctypes.data == array.buffers()[1].address


def test_child_of_a_null_row_is_null() -> None:
    row = t.RowType((t.Field("x", t.IntType(nullable=False)),))
    column = Column.of(row, [{"x": 7}, None, {"x": 9}])
    assert column.child(0).to_pylist() == [7, None, 9]
    assert column.slice(1, 2).child(0).to_pylist() == [None, 9]
    with pytest.raises(InternalError, match=r"child\(\) of a INT"):
        Column.of(t.IntType(), [1]).child(0)


@pytest.mark.parametrize(
    ("type_", "value"),
    [(t.BigIntType(), 5), (t.VarCharType(), "a"), (t.RawType(), (1, 2)), (t.IntType(), None)],
)
def test_constant(type_: t.LogicalType, value: object) -> None:
    assert Column.constant(type_, value, 3).to_pylist() == [value] * 3
    assert len(Column.constant(type_, value, 0)) == 0


@given(st.lists(st.one_of(st.none(), st.integers(-(10**18) + 1, 10**18 - 1))))
def test_unscaled_decimals_equal_arrows(unscaled: list) -> None:
    type_ = t.DecimalType(18, 4)
    values = [None if u is None else Decimal(u).scaleb(-4) for u in unscaled]
    column = Column.of(type_, values)
    assert column.storage_list() == unscaled
    assert column.to_external_arrow().equals(pa.array(values, pa.decimal128(18, 4)))


def test_rows_taken_without_a_null_among_them_have_no_mask() -> None:
    column = Column.of(t.BigIntType(), [1, None, 3])
    assert column.take(np.array([0, 2])).valid is None
    assert column.filter(np.array([True, False, True])).valid is None
    taken = column.take(np.array([1, 2]))
    assert taken.valid is not None
    assert taken.valid.tolist() == [False, True]


ARRAY_OF_DATES = t.ArrayType(t.DateType())


@pytest.mark.parametrize(
    ("column", "got"),
    [
        (Column(t.DateType(), np.array([0, 2_932_897], np.int32)), "10000-01-01"),
        (Column(t.DateType(), np.array([-719_163], np.int32)), "0000-12-31"),
        (Column(t.TimestampType(3), np.array([253_402_300_800_000_000])), "10000-01-01 00:00:00.000000"),
        (Column(t.TimestampLtzType(3), np.array([253_402_300_800_000_000])), "10000-01-01 00:00:00.000000Z"),
        (
            Column.from_arrow(ARRAY_OF_DATES, pa.array([[2_932_897]], arrow_type(ARRAY_OF_DATES))),
            "within list<item: date32[day]>",
        ),
    ],
)
def test_a_time_that_python_does_not_have_is_named(column: Column, got: str) -> None:
    with pytest.raises(RecordError, match="outside the years 1 to 9999") as refused:
        column.to_pylist()
    assert refused.value.got == got
