"""Messages by the compiled kernel have the bytes that msgspec and fastavro write."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.formats import get_format
from penstock.formats.api import FormatContext
from penstock.types import Batch, Column, Schema
from penstock.types import logical as t
from penstock.types.storage import numpy_dtype
from tests.native.kernels import kernels

__all__ = ["kernels"]
pytestmark = pytest.mark.usefixtures("kernels")

N = 300
_WHOLE: dict[str, t.LogicalType] = {
    "tiny": t.TinyIntType(), "small": t.SmallIntType(), "int_": t.IntType(), "big": t.BigIntType(), "yes": t.BooleanType(),
    "text": t.VarCharType(), "code": t.CharType(3), "day": t.DateType(), "at": t.TimestampType(6), "milli": t.TimestampType(3),
}  # fmt: skip
JSON = {**_WHOLE, 'na"ïve': t.VarCharType(), "zoned": t.TimestampLtzType(3)}
AVRO = {
    **_WHOLE, "small_float": t.FloatType(), "float_": t.DoubleType(), "raw": t.VarBinaryType(), "bin": t.BinaryType(2),
    "noon": t.TimeType(3), "must": t.BigIntType(nullable=False), "word": t.VarCharType(nullable=False),
}  # fmt: skip
_TEXTS = [
    "",
    "é /~\x7f",
    'all is "well"',
    "\\",
    "a\nb\tc\r\b\f",
    "\x00\x01\x1f",
    "日本語" * 50,
    "x" * 200,
    "😀",
]
_EDGES = [0, 1, -1, 63, 64, -64, -65, 127, -128]
_SECONDS = [
    0,
    1,
    -1,
    999_999,
    -62_135_596_800_000_000,
    253_402_300_799_999_999,
    86_399_999_999,
    -1_000_500,
    1_700_000_000_123_000,
]


def _dtype(type_: t.LogicalType) -> np.dtype:
    found = numpy_dtype(type_)
    assert found is not None
    return found


def _values(type_: t.LogicalType, rng: Any) -> list[Any]:
    match type_:
        case t.BooleanType():
            return [bool(v) for v in rng.integers(0, 2, N)]
        case t.VarCharType() | t.CharType():
            return [_TEXTS[i] for i in rng.integers(0, len(_TEXTS), N)]
        case t.VarBinaryType() | t.BinaryType():
            return [_TEXTS[i].encode() + b"\xff" for i in rng.integers(0, len(_TEXTS), N)]
        case t.FloatType() | t.DoubleType():
            return [
                0.0,
                -0.0,
                1e300 if isinstance(type_, t.DoubleType) else 1e30,
                float("nan"),
                float("inf"),
                *rng.normal(size=N - 5),
            ]
        case t.TimestampType() | t.TimestampLtzType():
            return [*_SECONDS, *rng.integers(-(10**16), 10**16, N - len(_SECONDS)).tolist()]
        case t.DateType():
            return [-719_162, 2_932_896, 0, -1, *rng.integers(-100_000, 100_000, N - 4).tolist()]
        case t.TimeType():
            return [int(v) for v in rng.integers(0, 86_400_000_000, N)]
    bits = 8 * _dtype(type_).itemsize
    limits = [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1]
    return [*limits, *_EDGES, *rng.integers(limits[0], limits[1], N - 2 - len(_EDGES)).tolist()]


def _column(type_: t.LogicalType, nulls: bool, rng: Any) -> Column:
    values = _values(type_, rng)
    gone = nulls and type_.nullable
    if isinstance(type_, (*t.STRINGS, t.BinaryType, t.VarBinaryType)):
        kept = [None if gone and i % 3 == 0 else v for i, v in enumerate(values)]
        return Column(type_, pa.array(kept, pa.string() if isinstance(type_, t.STRINGS) else pa.binary()))
    array = np.array(values, _dtype(type_))
    return Column(type_, array, np.arange(N) % 3 != 0 if gone else None)


def _both(name: str, columns: dict[str, t.LogicalType], options: dict[str, str]) -> tuple[Any, Any]:
    schema = Schema.of(*columns.items())
    fast: Any
    plain: Any
    fast, plain = (get_format(name).encoder(schema, options) for _ in range(2))
    assert fast._kernel is not None
    plain._kernel = None
    return fast, plain


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize(
    ("name", "columns", "options"),
    [("json", JSON, {}), ("json", JSON, {"json.timestamp-format.standard": "ISO-8601"}), ("avro", AVRO, {})],
)
def test_both_ways_write_the_same(
    name: str, columns: dict[str, t.LogicalType], options: dict[str, str], nulls: bool
) -> None:
    rng = np.random.default_rng(11)
    fast, plain = _both(name, columns, options)
    schema = Schema.of(*columns.items())
    batch = Batch(schema, [_column(type_, nulls, rng) for type_ in schema.types], num_rows=N)
    for part in (
        batch,
        batch.slice(7, 50),
        batch.slice(N - 1, 1),
        batch.slice(3, 0),
        batch.take(np.arange(N)[::-2]),
    ):
        assert fast._kernel.encode(part) == plain.encode(part) == fast.encode(part)


def test_what_avro_wrote_is_read_again() -> None:
    fast, _ = _both("avro", AVRO, {})
    schema = Schema.of(*AVRO.items())
    rng = np.random.default_rng(3)
    batch = Batch(schema, [_column(type_, True, rng) for type_ in schema.types], num_rows=N)
    decoder = get_format("avro").decoder(
        FormatContext(schema, range(len(schema)), {}, lambda *found: pytest.fail(str(found)))
    )
    cut = [
        i
        for i, type_ in enumerate(schema.types)
        if isinstance(type_, (t.TimestampType, t.TimeType)) and type_.precision == 3
    ]
    read = decoder.decode(fast.encode(batch), str)
    for i, (want, got) in enumerate(zip(batch.columns, read.columns, strict=True)):
        if i in cut:
            assert (want.values // 1000 == got.values // 1000)[
                slice(None) if want.valid is None else want.valid
            ].all()
        else:
            assert str(want.to_pylist()) == str(got.to_pylist())


@pytest.mark.parametrize("us", [-62_135_596_800_000_001, 253_402_300_800_000_000, 2**63 - 1, -(2**63)])
def test_times_outside_the_years_1_to_9999_take_the_other_way(us: int) -> None:
    fast, _ = _both("json", {"at": t.TimestampType(6)}, {})
    column = Column(t.TimestampType(6), np.array([0, us], np.int64))
    batch = Batch(Schema.of(("at", t.TimestampType(6))), [column], num_rows=2)
    assert fast._kernel.encode(batch) is None


def test_null_in_a_column_without_null_takes_the_other_way() -> None:
    fast, _ = _both("avro", {"must": t.BigIntType(nullable=False)}, {})
    column = Column(t.BigIntType(nullable=False), np.array([1, 2], np.int64), np.array([True, False]))
    batch = Batch(Schema.of(("must", t.BigIntType(nullable=False))), [column], num_rows=2)
    assert fast._kernel.encode(batch) is None


@pytest.mark.parametrize(
    ("name", "columns", "options"),
    [
        ("json", {"a": t.DoubleType()}, {}),
        ("json", {"a": t.IntType()}, {"json.encode.ignore-null-fields": "true"}),
        ("json", {"a": t.ArrayType(t.IntType())}, {}),
        ("avro", {"a": t.DecimalType(10, 2)}, {}),
        ("avro", {"a": t.RowType((t.Field("b", t.IntType()),))}, {}),
        ("avro", {"a": t.IntType()}, {"avro.encoding": "json"}),
    ],
)
def test_other_columns_and_options_have_no_kernel(
    name: str, columns: dict[str, t.LogicalType], options: dict[str, str]
) -> None:
    assert get_format(name).encoder(Schema.of(*columns.items()), options)._kernel is None  # type: ignore[attr-defined]
