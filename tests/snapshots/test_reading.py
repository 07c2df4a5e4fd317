"""Blocks of a snapshot object: raw or compressed, and rows that are decoded when asked for."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pytest

from penstock.snapshots.contract import KeyedBlock, OperatorSnapshot
from penstock.snapshots.reading import RestoredRows, SnapshotReader
from penstock.snapshots.writing import write_snapshot

N = 4_000


async def opened(column: pa.Array) -> SnapshotReader:
    batch = pa.record_batch([column], names=["value"])
    groups = np.arange(N, dtype=np.int32) // 100
    snapshot = OperatorSnapshot(keyed={"s": KeyedBlock(batch, groups)})
    # An odd number of bytes before the next state's blocks.
    odd = OperatorSnapshot(lists={"items": [b"x"]})
    data = write_snapshot({"odd": odd, "op": snapshot}, checkpoint_id=1, key_groups=(0, 127))
    return await SnapshotReader.of_bytes(data)


@pytest.mark.parametrize(
    ("column", "raw"),
    [
        (pa.array([f"customer {i * 7919 % 991} of shop {i % 7}" for i in range(N)]), False),
        (pa.array([os.urandom(20) for _ in range(N)], pa.binary()), True),
        (pa.array(np.random.default_rng(1).integers(0, 2**62, N)), True),
        (pa.array(["the same text"] * N), False),
    ],
)
async def test_compressed_where_it_pays(column: pa.Array, raw: bool) -> None:
    reader = await opened(column)
    (state,) = reader.footer.states("op")
    assert {block.raw for block in state.blocks} == {raw}
    assert all(block.offset % 8 == 0 for block in state.blocks)
    assert all(raw == (block.length == block.size) for block in state.blocks)
    blocks = await reader.keyed("op", state, (3, 4))
    (rows,) = (block.rows() for block in blocks)
    assert rows.column(0).equals(column.slice(300, 200))


def test_rows_are_made_each_time_they_are_asked_for() -> None:
    made: list[int] = []

    def make(i: int) -> pa.RecordBatch:
        made.append(i)
        return pa.record_batch([pa.array([i])], names=["n"])

    rows = RestoredRows([(1, lambda: make(1))]) + RestoredRows([(1, lambda: make(2)), (1, lambda: make(3))])
    assert (len(rows), rows.num_rows, made) == (3, 3, [])
    assert [b.column(0)[0].as_py() for b in rows] == [1, 2, 3]
    assert [b.column(0)[0].as_py() for b in rows[1:]] == [2, 3]
    assert made == [1, 2, 3, 2, 3]
    assert not RestoredRows()
