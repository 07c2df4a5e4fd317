"""Each function on whole arrays, slices, NULLs, no rows, and every type it reads; and that no other module
of the product reads Arrow's buffers."""

from __future__ import annotations

import ast
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import InternalError
from penstock.types import arrow_buffers as ab

ROOT = Path(__file__).parents[2]
TEXTS = ["", "a", None, "bcd", "é", None, "efgh"]
TEXT_TYPES = [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()]
#: [start, stop) of an array of seven values, the last ones empty.
SLICES = [(0, 7), (1, 6), (3, 4), (2, 3), (7, 7), (0, 0)]
FIXED = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float32(), pa.float64(), pa.date32(), pa.time64("us"), pa.timestamp("us"), pa.duration("us")),
]


def texts(type_: pa.DataType, values: list[str | None] = TEXTS) -> pa.Array:
    return pa.array(values, pa.string()).cast(type_)


def joined(values: list[str | None]) -> bytes:
    return "".join(v for v in values if v is not None).encode()


# -- NULLs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, None, 3], [True, False, True]),
        ([None, None], [False, False]),
        ([1, 2], None),
        ([], None),
        ([None] * 9 + [1], [False] * 9 + [True]),
    ],
)
@pytest.mark.parametrize("type_", [pa.int64(), pa.bool_(), pa.string()])
def test_validity(values: list[int | None], expected: list[bool] | None, type_: pa.DataType) -> None:
    array = pa.array(values, pa.int64()).cast(type_)
    valid = ab.validity(array)
    assert (None if valid is None else valid.tolist()) == expected


@pytest.mark.parametrize("start", range(11))
def test_the_validity_of_a_slice_starts_at_any_bit(start: int) -> None:
    values = [None if i % 3 == 0 else i for i in range(20)]
    part = pa.array(values)[start : start + 9]
    expected = [v is not None for v in values[start : start + 9]]
    valid = ab.validity(part)
    assert valid is not None
    assert valid.tolist() == expected
    copied = pa.Array.from_buffers(pa.int64(), 9, [ab.validity_bitmap(part), pa.py_buffer(np.arange(9))])
    assert copied.is_valid().to_pylist() == expected


def test_nothing_null_has_no_bitmap() -> None:
    assert ab.validity_bitmap(pa.array([1, 2])) is None
    assert ab.validity_bitmap(pa.array([None, 2])[1:]) is None
    assert ab.packed_bitmap(None) is None


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 64, 65])
def test_a_packed_bitmap_has_the_least_significant_bit_first(n: int) -> None:
    valid = np.arange(n) % 3 != 1
    bitmap = ab.packed_bitmap(valid)
    assert bitmap is not None
    assert bitmap.size == (n + 7) // 8
    array = pa.Array.from_buffers(pa.int8(), n, [bitmap, pa.py_buffer(np.zeros(n, np.int8))])
    assert array.is_valid().to_pylist() == valid.tolist()


# -- values of a fixed width --------------------------------------------------------------


@pytest.mark.parametrize("type_", FIXED, ids=str)
@pytest.mark.parametrize(("start", "stop"), SLICES)
def test_fixed_values_of_slices(type_: pa.DataType, start: int, stop: int) -> None:
    width = type_.bit_width // 8
    numbers = pa.array([1, 2, 3, 100, 5, 6, 7], pa.int32() if type_ == pa.date32() else pa.int64())
    array = numbers.cast(type_)[start:stop]
    kind = "u" if pa.types.is_unsigned_integer(type_) else "f" if pa.types.is_floating(type_) else "i"
    dtype = np.dtype(f"{kind}{width}")
    values = ab.fixed_values(array, dtype)
    assert values.dtype == dtype
    assert values.tolist() == [1, 2, 3, 100, 5, 6, 7][start:stop]


def test_fixed_values_are_not_copied_and_keep_their_memory() -> None:
    array = pa.array(range(100))
    values = ab.fixed_values(array[10:], np.dtype(np.int64))
    assert values.ctypes.data == array.buffers()[1].address + 80
    del array
    assert values.tolist() == list(range(10, 100))


def test_fixed_values_with_nulls_have_the_others_in_their_places() -> None:
    array = pa.array([1, None, 3], pa.int16())
    assert ab.fixed_values(array, np.dtype(np.int16))[[0, 2]].tolist() == [1, 3]


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (pa.array([1]), np.int32),
        (pa.array([True, False]), np.uint8),  # bits, not bytes
        (pa.array(["a"]), np.int32),
        (pa.array([None]), np.int64),
        (pa.array(["a"]).dictionary_encode(), np.int32),  # codes are not the values
    ],
    ids=["width", "bool", "text", "null", "dictionary"],
)
def test_fixed_values_of_another_layout_are_refused(array: pa.Array, dtype: Any) -> None:
    with pytest.raises(InternalError, match="another layout") as err:
        ab.fixed_values(array, np.dtype(dtype))
    assert err.value.got == str(array.type)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([1, -1], pa.int16()), [[1], [0xFFFF]]),
        (pa.array([1.0]), [[0x3FF0000000000000]]),
        (pa.array([Decimal(7), Decimal(-1)], pa.decimal128(20)), [[7, 0], [2**64 - 1, 2**64 - 1]]),
        (pa.array([Decimal(7)], pa.decimal256(50)), [[7, 0, 0, 0]]),
        (pa.array([1, 2, 3], pa.uint8())[1:], [[2], [3]]),
        (pa.array([Decimal(1), Decimal(2)], pa.decimal128(20))[1:], [[2, 0]]),
        (pa.array([], pa.int32()), []),
    ],
)
def test_unsigned_words(array: pa.Array, expected: list[list[int]]) -> None:
    assert ab.unsigned_words(array).tolist() == expected


def test_unsigned_words_of_texts_and_bits_are_refused() -> None:
    for array in (pa.array(["a"]), pa.array([True])):
        with pytest.raises(InternalError, match="another layout"):
            ab.unsigned_words(array)


DECIMALS = [Decimal(0), None, Decimal("-1.5"), Decimal(10) ** 30, -(Decimal(10) ** 30), None, Decimal("2.5")]


@pytest.mark.parametrize(("start", "stop"), SLICES)
def test_decimals_to_words_and_back(start: int, stop: int) -> None:
    type_ = pa.decimal128(38, 1)
    part = pa.array(DECIMALS, type_)[start:stop]
    low, high = ab.decimal128_words(part)
    unscaled = [(int(h) << 64) + int(w) % 2**64 for w, h in zip(low, high, strict=True)]
    expected = [None if v is None else int(v * 10) for v in DECIMALS[start:stop]]
    assert [e if e is None else u for u, e in zip(unscaled, expected, strict=True)] == expected
    back = ab.decimal128_array(type_, low, high, ab.validity_bitmap(part))
    back.validate(full=True)
    assert back.to_pylist() == part.to_pylist()


def test_words_of_other_types_are_refused() -> None:
    with pytest.raises(InternalError, match="another layout"):
        ab.decimal128_words(pa.array([1]))


# -- texts and lists ----------------------------------------------------------------------


@pytest.mark.parametrize("type_", TEXT_TYPES, ids=str)
@pytest.mark.parametrize(("start", "stop"), SLICES)
def test_texts_of_slices(type_: pa.DataType, start: int, stop: int) -> None:
    part, values = texts(type_)[start:stop], TEXTS[start:stop]
    offsets, data = ab.offsets_and_bytes(part)
    assert offsets.dtype == (np.int64 if "large" in str(type_) else np.int32)
    assert ab.value_offsets(part).tolist() == offsets.tolist()
    cut = [data[a:b].tobytes() for a, b in pairwise(offsets)]
    assert cut == [(v or "").encode() for v in values]
    assert ab.value_bytes(part).tobytes() == joined(values)
    assert ab.values_between(part, np.arange(len(part) + 1)) == cut


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([[1, 2], [], [3]]), [0, 2, 2, 3]),
        (pa.array([[1, 2], [], [3]])[1:], [2, 2, 3]),
        (pa.array([[1], None, [2]], pa.large_list(pa.int8())), [0, 1, 1, 2]),
        (pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int8())), [0, 1, 1]),
        (pa.array([], pa.list_(pa.int8())), [0]),
        # An array from elsewhere may lack the one offset of an empty array.
        (pa.Array.from_buffers(pa.string(), 0, [None, pa.py_buffer(b""), pa.py_buffer(b"")]), [0]),
    ],
)
def test_value_offsets(array: pa.Array, expected: list[int]) -> None:
    assert ab.value_offsets(array).tolist() == expected


@pytest.mark.parametrize(
    "array",
    [pa.array([1]), pa.array(["a"], pa.string_view()), pa.array([[1]], pa.list_(pa.int8(), 1))],
    ids=["int64", "view", "fixed size list"],
)
def test_offsets_of_another_layout_are_refused(array: pa.Array) -> None:
    for read in (ab.value_offsets, ab.offsets_and_bytes):
        with pytest.raises(InternalError, match="another layout"):
            read(array)


def test_bytes_of_lists_are_refused() -> None:
    with pytest.raises(InternalError, match="another layout"):
        ab.offsets_and_bytes(pa.array([[1]]))


@pytest.mark.parametrize("type_", TEXT_TYPES, ids=str)
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["ab", "cd"], ["ab", "cd"]),
        (["ab", "c", "def"], None),  # the mean length is the same
        (["ab", "c"], None),
        (["", ""], None),
        (["ab", None], None),
        ([], None),
        (["é", "ab"], ["é", "ab"]),
    ],
)
def test_equal_length_bytes(type_: pa.DataType, values: list[str | None], expected: list[str] | None) -> None:
    for array in (texts(type_, values), texts(type_, ["x", *values, "yz"])[1:-1]):
        rows = ab.equal_length_bytes(array)
        assert (None if rows is None else [r.tobytes().decode() for r in rows]) == expected


def test_values_between_cuts_of_a_slice() -> None:
    array = texts(pa.binary(), ["x", "ab", "c", "", "def", "y"])[1:5]
    assert ab.values_between(array, np.array([0, 2, 2, 4])) == [b"abc", b"", b"def"]
    assert ab.values_between(array, np.array([1, 3])) == [b"c"]
    assert ab.values_between(array[:0], np.array([0])) == []


PAIR = np.dtype([("flag", np.bool_), ("number", np.int64)])  # nine bytes: not aligned


@pytest.mark.parametrize("start", [0, 1, 3])
def test_structured_rows_to_bytes_and_back(start: int) -> None:
    block = np.array([(True, 1), (False, -2), (True, 3)], PAIR)
    array = ab.binary_array_of_width(block, 3, PAIR.itemsize)
    array.validate(full=True)
    assert array.to_pylist() == [row.tobytes() for row in block]
    assert ab.structured_rows(array[start:], PAIR).tolist() == block[start:].tolist()


def test_byte_strings_of_another_width_are_refused() -> None:
    with pytest.raises(InternalError, match="do not hold values of 9 bytes"):
        ab.structured_rows(pa.array([b"12345678"]), PAIR)


@pytest.mark.parametrize(("lengths", "offsets"), [([2, 0, 3], [0, 2, 2, 5]), ([], [0])])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32])
def test_offsets_of_lengths(lengths: list[int], offsets: list[int], dtype: Any) -> None:
    found = ab.offsets_of_lengths(np.array(lengths, dtype))
    assert (found.dtype, found.tolist()) == (np.int32, offsets)


def test_more_bytes_than_an_offset_can_say_are_refused() -> None:
    most = 2**31 - 1
    assert ab.offsets_of_lengths(np.array([most])).tolist() == [0, most]
    with pytest.raises(InternalError, match="too long") as err:
        ab.offsets_of_lengths(np.array([most, 1], np.int32))
    assert err.value.got == f"{most + 1} bytes"
    with pytest.raises(InternalError, match="too long"):
        ab.binary_array_of_width(b"", 2**30, 2)


@pytest.mark.parametrize("type_", [pa.string(), pa.binary()], ids=str)
def test_texts_of_offsets_and_bytes(type_: pa.DataType) -> None:
    for data in (b"xabcdey", np.frombuffer(b"xabcdey", np.uint8)):
        array = ab.binary_array(type_, np.array([1, 3, 3, 6], np.int32), data)
        array.validate(full=True)
        assert array.cast(pa.binary()).to_pylist() == [b"ab", b"", b"cde"]
    assert len(ab.binary_array(type_, np.zeros(1, np.int32), b"")) == 0


def test_recut_makes_other_pieces_of_the_same_bytes() -> None:
    array = pa.array(["ab", "cde", "f"])
    pieces = ab.recut(array, np.array([0, 1, 4, 6], np.int32))
    assert pieces.to_pylist() == ["a", "bcd", "ef"]
    assert pieces.buffers()[2].address == array.buffers()[2].address
    part = array[1:]
    assert ab.recut(part, ab.value_offsets(part)).to_pylist() == ["cde", "f"]
    for other in (pa.array([1]), pa.array(["a"], pa.large_string())):
        with pytest.raises(InternalError, match="another layout"):
            ab.recut(other, np.zeros(1, np.int32))


# -- the rule -----------------------------------------------------------------------------


def test_no_other_module_reads_or_makes_arrow_buffers() -> None:
    """``pa.py_buffer`` of bytes for a reader of Arrow's IPC is no layout, and allowed."""
    only = {"buffers", "from_buffers", "packbits", "unpackbits", "foreign_buffer"}
    places = []
    for folder in ("shared/penstock", "services", "bench", "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.name == "arrow_buffers.py":
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and node.attr in only:
                    places.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.attr}")
    assert places == [], "use a function of penstock.types.arrow_buffers"
