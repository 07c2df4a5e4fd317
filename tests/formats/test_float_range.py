"""A number beyond the range of its column is a bad record, never infinity, in every format that converts numbers."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from penstock.formats import get_format
from penstock.formats.api import FormatContext
from penstock.types import Schema
from penstock.types import logical as t
from tests.native.kernels import kernels

__all__ = ["kernels"]

FLOAT, DOUBLE = t.FloatType(), t.DoubleType()
_LISTS = t.ArrayType(FLOAT)


def decoded(name: str, type_: t.LogicalType, messages: list[bytes]) -> tuple[list[Any], int]:
    """The values of column ``a``, and how many records were bad."""
    bad: list[Any] = []
    schema = Schema.of(("a", type_))
    decoder = get_format(name).decoder(FormatContext(schema, range(1), {}, lambda *found: bad.append(found)))
    return decoder.decode(messages, str).columns[0].to_pylist(), len(bad)


def json_of(value: str) -> bytes:
    return f'{{"a":{value}}}'.encode()


def pack(value: Any) -> bytes:
    return msgspec.msgpack.encode({"a": value})


CASES: list[tuple[str, t.LogicalType, bytes]] = [
    *(("json", FLOAT, json_of(v)) for v in ("1e300", '"1e300"', "-1e39", "3.4028236e38", "1e400", '"1e400"', "1" + "0" * 60)),
    *(("json", DOUBLE, json_of(v)) for v in ("1e400", '"-1e400"', "1" + "0" * 400)),
    *(("csv", FLOAT, v) for v in (b"1e300", b"-1e39", b"1e400")),
    *(("csv", DOUBLE, v) for v in (b"1e400", b"-1e999")),
    *(("msgpack", FLOAT, pack(v)) for v in (1e300, -1e39)),
    ("json", _LISTS, json_of("[1.5,1e300]")), ("msgpack", _LISTS, pack([1.5, -1e300])),
]  # fmt: skip


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("around", [0, 20])
@pytest.mark.parametrize(("name", "type_", "message"), CASES)
def test_a_number_beyond_the_range_is_a_bad_record(
    name: str, type_: t.LogicalType, message: bytes, around: int
) -> None:
    good: Any = [0.5] if type_ is _LISTS else 0.5
    made = pack(good) if name == "msgpack" else b"0.5" if name == "csv" else json_of(str(good))
    values, bad = decoded(name, type_, [made] * around + [message] + [made] * around)
    assert (values, bad) == ([good] * 2 * around, 1)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("count", [1, 20])
@pytest.mark.parametrize("type_", [FLOAT, DOUBLE])
def test_what_is_written_as_infinity_is_infinity(type_: t.LogicalType, count: int) -> None:
    assert decoded("json", type_, [json_of('"Infinity"')] * count) == ([math.inf] * count, 0)
    assert decoded("json", type_, [json_of('"-Infinity"')] * count) == ([-math.inf] * count, 0)
    assert decoded("csv", type_, [b"Infinity"] * count) == ([math.inf] * count, 0)
    assert decoded("csv", type_, [b"-inf"] * count) == ([-math.inf] * count, 0)
    assert decoded("msgpack", type_, [pack(math.inf)] * count) == ([math.inf] * count, 0)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("count", [1, 20])
def test_the_greatest_float_fits(count: int) -> None:
    for text in ("3.4028235e38", "-3.4028235e38", "1e-60"):
        values, bad = decoded("json", FLOAT, [json_of(text)] * count)
        assert bad == 0
        assert all(map(math.isfinite, values))
