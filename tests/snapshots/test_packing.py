"""Whole numbers in fewer bytes: the same values and types come back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.snapshots.packing import pack, unpack

LOW, HIGH = -(2**63), 2**63 - 1
RANDOM = np.random.default_rng(4)
N = 200


def alternating(a: int, b: int, dtype: type = np.int64) -> np.ndarray:
    return np.array([a, b] * (N // 2), dtype)


@pytest.mark.parametrize(
    ("values", "stored"),
    [
        (RANDOM.integers(0, 256, N), "uint8"),
        (alternating(-128, 127), "uint8"),
        (alternating(-129, 127), "uint16"),
        (alternating(LOW, LOW + 2**16), "uint32"),
        (alternating(HIGH - 2**32 + 1, HIGH), "uint32"),
        (alternating(HIGH - 2**32, HIGH), "int64"),
        (alternating(LOW, HIGH), "int64"),
        (np.full(N, HIGH), "null"),
        (np.full(N, -7, np.int32), "null"),
        (alternating(-(2**31), -(2**31) + 255, np.int32), "uint8"),
        (alternating(0, 2**16, np.int32), "int32"),
        (alternating(-(2**31), 2**31 - 1, np.int32), "int32"),
    ],
)
def test_as_narrow_as_they_are(values: np.ndarray, stored: str) -> None:
    batch = pa.record_batch([pa.array(values), pa.array(["x"] * N)], names=["n", "text"])
    for rows in (batch, batch.slice(3, 100)):
        packed = pack(rows)
        assert str(packed.schema.field("n").type) == stored
        assert packed.column("text").equals(rows.column("text"))
        assert unpack(packed).equals(rows)
        assert unpack(packed).schema == rows.schema


def test_nulls_floats_and_short_columns_stay() -> None:
    with_null = pa.array([None, *range(N - 1)], pa.int64())
    batch = pa.record_batch([with_null, pa.array(np.arange(N) / 2)], names=["n", "f"])
    assert pack(batch).schema == batch.schema
    short = batch.slice(1, 10)
    assert pack(short) is short


def test_only_the_columns_that_are_wanted() -> None:
    batch = pa.record_batch([pa.array(np.arange(N)), pa.array(np.arange(N) * 3)], names=["a", "b"])
    assert unpack(pack(batch), [1]).equals(batch.select(["b"]))
