"""The partition hash: golden vectors that no change may move, and its canonical forms."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.columnar.hashing import (
    HASH_VERSION,
    NULL_HASH,
    hash_column,
    hash_columns,
    key_group_range,
    key_groups,
    subtask_of_key_group,
)
from penstock.errors import UnsupportedError
from penstock.types import logical as t
from penstock.types.column import Column

NAN = float("nan")
PAIR = t.RowType((t.Field("a", t.IntType()), t.Field("b", t.VarCharType())))

GOLDEN = [
    (t.BigIntType(), 0, 0x7ACDBB98B1344213),
    (t.BigIntType(), 1, 0xBE0627CE1831F633),
    (t.BigIntType(), -1, 0x3BFB2E89B6CC4D41),
    (t.BigIntType(), 2**62, 0x5EBD7142F7F3ABA),
    (t.BigIntType(), None, 0x452821E638D01377),
    (t.DoubleType(), 0.0, 0x72DEE428A469F6FD),
    (t.DoubleType(), 1.5, 0xE23882E641D1091B),
    (t.DoubleType(), NAN, 0x9132074D7E1EA757),
    (t.VarCharType(), "", 0x8631179CA29BE2DF),
    (t.VarCharType(), "a", 0xF94AA6EDE88A0A7F),
    (t.VarCharType(), "JFK", 0x24A78A950AC4D4A7),
    (t.VarCharType(), "12345678", 0x3B5437EA3AF2E3DC),
    (t.VarCharType(), "123456789", 0xFF2DB94933B68AF7),
    (t.VarCharType(), "é" * 40, 0x620D2670ABD4099E),
    (t.DecimalType(10, 2), Decimal("1.25"), 0x21E49493996F3A3E),
    (t.DecimalType(30, 2), Decimal("1.25"), 0x21E49493996F3A3E),
    (t.DecimalType(30, 2), Decimal(10) ** 25, 0xD857451FDDAAA654),
    (t.ArrayType(t.IntType()), [1, 2], 0x7962B4E7BF130B19),
    (t.ArrayType(t.IntType()), [2, 1], 0xBFDA097478B6C968),
    (t.ArrayType(t.IntType()), [], 0x893F88F3EB9BC414),
    (PAIR, {"a": 1, "b": "x"}, 0x1CA801C95D076D53),
    (t.RawType(), (1, "a"), 0x9C32CE08080E273F),
]


def one(type_: t.LogicalType, value: object) -> int:
    return int(hash_column(Column.of(type_, [value]))[0])


@pytest.mark.parametrize(("type_", "value", "want"), GOLDEN, ids=lambda v: str(v)[:20])
def test_golden_vectors(type_, value, want):
    assert HASH_VERSION == 1
    assert one(type_, value) == want


def test_golden_vector_of_two_columns():
    columns = [Column.of(t.BigIntType(), [1, None]), Column.of(t.VarCharType(), ["JFK", "JFK"])]
    assert hash_columns(columns).tolist() == [0x8FB62FDE79496C5B, 0xF1E9AB19E46723AB]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((t.DoubleType(), 0.0), (t.DoubleType(), -0.0)),
        ((t.FloatType(), 1.5), (t.DoubleType(), 1.5)),
        ((t.TinyIntType(), -7), (t.BigIntType(), -7)),
        ((t.DecimalType(18, 3), Decimal("-0.001")), (t.DecimalType(38, 3), Decimal("-0.001"))),
        ((t.RawType(), 42), (t.BigIntType(), 42)),
        ((t.RawType(), "JFK"), (t.VarCharType(), "JFK")),
        ((t.BinaryType(3), b"JFK"), (t.VarCharType(), "JFK")),
    ],
)
def test_equal_values_of_other_storage_hash_alike(a, b):
    assert one(*a) == one(*b)


def test_every_null_is_one_null():
    for type_ in (t.IntType(), t.VarCharType(), t.DecimalType(30, 1), PAIR, t.ArrayType(t.IntType())):
        assert one(type_, None) == int(NULL_HASH)


@given(st.lists(st.one_of(st.none(), st.text(max_size=60)), min_size=1, max_size=30), st.data())
def test_a_string_hashes_alike_in_any_batch_and_slice(values, data):
    column = Column.of(t.VarCharType(), values)
    alone = [one(t.VarCharType(), v) for v in values]
    assert hash_column(column).tolist() == alone
    start = data.draw(st.integers(0, len(values) - 1))
    assert hash_column(column.slice(start, len(values) - start)).tolist() == alone[start:]


def test_key_groups_cover_and_agree_with_their_subtask():
    for parallelism, most in [(1, 128), (2, 128), (3, 128), (7, 128), (5, 200)]:
        groups = np.arange(most, dtype=np.int32)
        owner = subtask_of_key_group(groups, parallelism, most)
        for subtask in range(parallelism):
            first, last = key_group_range(subtask, parallelism, most)
            assert np.flatnonzero(owner == subtask).tolist() == list(range(first, last + 1))
    hashes = hash_column(Column.of(t.BigIntType(), list(range(10_000))))
    counts = np.bincount(key_groups(hashes, 128), minlength=128)
    assert counts.min() > 40
    assert (key_groups(hashes, 200) == (hashes % np.uint64(200))).all()


def test_a_key_without_canonical_form_is_refused():
    with pytest.raises(UnsupportedError, match="cannot be a key"):
        one(t.MapType(t.IntType(), t.IntType()), [(1, 2)])
    with pytest.raises(UnsupportedError, match="cannot be a key"):
        one(t.RawType(), object())
