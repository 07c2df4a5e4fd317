"""Rows that are joined from columns have the bytes that msgspec writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.formats.json_encode import JsonEncoder
from penstock.formats.json_text import TextRows
from penstock.types import Batch, Column, Schema
from penstock.types import logical as t

TYPES: dict[str, t.LogicalType] = {
    "tiny": t.TinyIntType(), "small": t.SmallIntType(), "int": t.IntType(), "big": t.BigIntType(), "yes": t.BooleanType(),
    "naïve": t.VarCharType(), "code": t.CharType(3), "day": t.DateType(), "at": t.TimestampType(6), "zoned": t.TimestampLtzType(3),
}  # fmt: skip
OPTIONS = {"json.timestamp-format.standard": "SQL", "json.encode.ignore-null-fields": False}
N = 200


def column(type_: t.LogicalType, nulls: bool, rng: Any) -> Column:
    match type_:
        case t.BooleanType():
            values: list[Any] = [bool(v) for v in rng.integers(0, 2, N)]
        case t.VarCharType() | t.CharType():
            values = [f"é{v} /~\x7f" for v in rng.integers(0, 100, N)]
        case _:
            values = rng.integers(-100, 100, N).tolist()
            if not isinstance(type_, (t.TinyIntType, t.SmallIntType, t.IntType, t.DateType)):
                values = [v * 1_000_000_007_000 for v in values]
    if nulls:
        values = [None if i % 3 == 0 else v for i, v in enumerate(values)]
    if isinstance(type_, (t.VarCharType, t.CharType)):
        return Column(type_, pa.array(values, pa.string()))
    if nulls:
        return Column.of(type_, values)
    if isinstance(type_, t.BooleanType):
        return Column.of(type_, values)
    return Column(type_, np.array(values, Column.of(type_, [1]).values.dtype))


@pytest.mark.parametrize("iso", [False, True])
@pytest.mark.parametrize("nulls", [False, True])
def test_both_ways_write_the_same(iso: bool, nulls: bool) -> None:
    rng = np.random.default_rng(5)
    schema = Schema.of(*TYPES.items())
    assert TextRows.can(schema)
    batch = Batch(schema, [column(type_, nulls, rng) for type_ in schema.types], num_rows=N)
    options = {**OPTIONS, "json.timestamp-format.standard": "ISO-8601" if iso else "SQL"}
    fast, plain = JsonEncoder(schema, options), JsonEncoder(schema, options)
    plain._texts = None
    for part in (batch, batch.slice(7, 50), batch.slice(N - 1, 1), batch.slice(3, 0)):
        assert fast.encode(part) == plain.encode(part)
        arrays = [c.to_external_arrow() for c in part.columns]
        assert fast._texts is not None
        assert fast._texts.encode(arrays, fast._text) == plain.encode(part)


@pytest.mark.parametrize("text", ['"', "\\", "\n", "\x00", "\x1f", 'all is "well"'])
def test_texts_with_characters_that_json_escapes_take_the_other_way(text: str) -> None:
    schema = Schema.of(("a", t.VarCharType()), ("b", t.IntType()))
    batch = Batch.of(schema, [("plain", 1), (text, 2), (None, None)])
    encoder = JsonEncoder(schema, OPTIONS)
    assert encoder._texts is not None
    assert encoder._texts.encode([c.to_external_arrow() for c in batch.columns], encoder._text) is None
    plain = JsonEncoder(schema, OPTIONS)
    plain._texts = None
    assert encoder.encode(batch) == plain.encode(batch)
    # A slice without the text does not meet it.
    [first] = encoder.encode(batch.slice(0, 1))
    assert first == b'{"a":"plain","b":1}'


def test_columns_of_other_types_take_the_other_way() -> None:
    assert not TextRows.can(Schema.of(("a", t.DoubleType()), ("b", t.IntType())))
    assert not TextRows.can(Schema(()))
