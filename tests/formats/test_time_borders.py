"""Dates and times at the borders of SQL's range (the years 1 to 9999): every decoder gives them, or refuses the record.

The values are read back as the numbers that they are stored as: a wrong one shows nowhere else at once.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from penstock.formats.api import FormatContext
from penstock.formats.avro.format import OPTIONS
from penstock.formats.avro.messages import AvroDecoder
from penstock.formats.json import JsonDecoder
from penstock.formats.registry import get_format
from penstock.types import Schema
from penstock.types import logical as t
from tests.native.kernels import kernels

__all__ = ["kernels"]

DAY_US = 86_400_000_000
EPOCH = dt.datetime(1970, 1, 1)

DATES = ["0001-01-01", "9999-12-31"]
NO_DATES = ["0000-01-01", "0000-02-29", "0000-12-31", "10000-01-01", "-0001-01-01", "1900-02-29"]
TIMES = ["0001-01-01 00:00:00", "9999-12-31 23:59:59", "2400-01-24 00:24:24", "2024-01-24 00:00:00"]
NO_TIMES = [
    "0000-12-31 23:59:59", "10000-01-01 00:00:00", "2016-12-31 23:59:60", "2024-01-01 24:00:00", "9999-12-31 24:00:00",
    "2024-01-01 25:00:00", "2024-01-01 00:60:00",
]  # fmt: skip
#: In their own zone they are in SQL's range, in UTC they are not.
NO_OFFSETS = ["0001-01-01 00:00:00+01:00", "9999-12-31 23:59:59-01:00"]
TEXTS = [
    *((t.DateType(), text, True) for text in DATES),
    *((t.DateType(), text, False) for text in NO_DATES),
    *((t.TimestampType(p), text, True) for p in (3, 6) for text in TIMES),
    *((t.TimestampType(p), text, False) for p in (3, 6) for text in NO_TIMES),
    *((t.TimestampLtzType(p), f"{text}Z", True) for p in (3, 6) for text in TIMES),
    *((t.TimestampLtzType(p), f"{text}Z", False) for p in (3, 6) for text in NO_TIMES),
    *((t.TimestampLtzType(p), text, False) for p in (3, 6) for text in NO_OFFSETS),
]


def storage(type_: t.LogicalType, text: str) -> int:
    """The days or microseconds since 1970 of a date or time, by Python's calendar."""
    past = dt.datetime.fromisoformat(text.removesuffix("Z")) - EPOCH
    return past.days if isinstance(type_, t.DateType) else past // dt.timedelta(microseconds=1)


def decoded(decoder: Any, messages: list[bytes], bad: list[str]) -> tuple[list[int], int]:
    """The values that are not NULL, and how many records were refused."""
    batch = decoder.decode(messages, lambda i: f"message {i}")
    values = batch.columns[0].storage_list()
    return [v for v in values if v is not None], len(bad)


def context(type_: t.LogicalType, bad: list[str], options: dict[str, str]) -> FormatContext:
    return FormatContext(Schema.of(("c", type_)), [0], options, lambda err, raw, where: bad.append(str(err)))


def expected(type_: t.LogicalType, text: str, good: bool) -> tuple[list[int], int]:
    return ([storage(type_, text)], 0) if good else ([], 1)


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("among", [0, 20])
def test_json(kernels: Any, kernel: bool, among: int) -> None:
    for type_, text, good in TEXTS:
        for standard, written in (("SQL", text), ("ISO-8601", text.replace(" ", "T"))):
            bad: list[str] = []
            decoder = JsonDecoder(context(type_, bad, {"json.timestamp-format.standard": standard}))
            if not kernel:
                decoder._kernel = None
            messages = [
                *[b'{"c":null}'] * among,
                json.dumps({"c": written}).encode(),
                *[b'{"c":null}'] * among,
            ]
            assert decoded(decoder, messages, bad) == expected(type_, text, good), (type_, written)


def test_csv_and_debezium() -> None:
    for type_, text, good in TEXTS:
        row = json.dumps({"c": text})
        for name, message in (
            ("csv", text), ("debezium-json", f'{{"before":null,"after":{row},"op":"c"}}'),
        ):  # fmt: skip
            bad: list[str] = []
            decoder = get_format(name).decoder(context(type_, bad, {}))
            assert decoded(decoder, [message.encode()], bad) == expected(type_, text, good), (
                name,
                type_,
                text,
            )


def avro_long(n: int) -> bytes:
    """Avro's zigzag number of variable length, as a value of the second branch of a union."""
    left, out = (n << 1) ^ (n >> 63), bytearray(b"\x02")
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


@pytest.mark.parametrize("kernel", [True, False])
def test_avro(kernels: Any, kernel: bool) -> None:
    first, last = storage(t.DateType(), DATES[0]), storage(t.DateType(), DATES[1])
    for type_, least, most, unit in (
        (t.DateType(), first, last, 1),
        (t.TimestampType(3), first * DAY_US // 1000, (last + 1) * DAY_US // 1000 - 1, 1000),
        (t.TimestampType(6), first * DAY_US, (last + 1) * DAY_US - 1, 1),
    ):
        for n, good in ((least, True), (most, True), (least - 1, False), (most + 1, False)):
            bad: list[str] = []
            decoder = AvroDecoder(context(type_, bad, {}), OPTIONS.read({}))
            assert decoder._records._kernel is not None
            if not kernel:
                decoder._records._kernel = None
            messages = [*[b"\x00"] * 20, avro_long(n), *[b"\x00"] * 20]
            want = ([n * unit], 0) if good else ([], 1)
            assert decoded(decoder, messages, bad) == want, (type_, n)
