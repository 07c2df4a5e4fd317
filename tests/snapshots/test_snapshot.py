"""The snapshot object: what is written comes back at any parallelism; damage is named."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import SnapshotError
from penstock.messages.slot import StateHandle
from penstock.snapshots import restoring
from penstock.snapshots import writing as snap
from penstock.snapshots.contract import KeyedBlock, OperatorSnapshot
from penstock.snapshots.reading import SnapshotReader

MAX = 128


def keyed(groups: list[int], values: list[object]) -> KeyedBlock:
    batch = pa.record_batch([pa.array(values), pa.array(groups, pa.int32())], names=["v", "g"])
    return KeyedBlock(batch, np.array(groups, np.int32), {"columns": {"v": "STRING"}})


def handle(data: bytes, subtask: int, key_groups: tuple[int, int]) -> StateHandle:
    return StateHandle(
        vertex_id="v",
        subtask_index=subtask,
        checkpoint_id=7,
        inline=data,
        size_bytes=len(data),
        key_groups=key_groups,
    )


def ranges(parallelism: int) -> list[tuple[int, int]]:
    firsts = [-(-i * MAX // parallelism) for i in range(parallelism + 1)]
    return [(a, b - 1) for a, b in itertools.pairwise(firsts)]


def write(parallelism: int, rows_per_group: int = 3) -> list[StateHandle]:
    handles = []
    for i, (first, last) in enumerate(ranges(parallelism)):
        groups = [g for g in range(first, last + 1) for _ in range(rows_per_group)]
        snapshot = OperatorSnapshot(
            keyed={"count": keyed(groups, [f"{g}/{n}" for n, g in enumerate(groups)])},
            lists={"offsets": [f"{i}-{n}".encode() for n in range(3)]},
            unions={"all": [str(i).encode()]},
        )
        data = snap.write_snapshot(
            {"op": snapshot, "stateless": OperatorSnapshot()},
            checkpoint_id=7,
            key_groups=(first, last),
            meta={"job": "j"},
        )
        handles.append(handle(data, i, (first, last)))
    return handles


@pytest.mark.parametrize("before", [1, 2, 3, 8])
@pytest.mark.parametrize("after", [1, 2, 5, 128])
async def test_restores_every_row_once_at_any_parallelism(before: int, after: int) -> None:
    handles = write(before)
    rows, items = [], []
    for i, groups in enumerate(ranges(after)):
        state = await restoring.restore(handles, "op", groups, i, after)
        assert state is not None
        assert state.checkpoint_id == 7
        for batch in state.keyed["count"]:
            got = batch.column("g").to_pylist()
            assert all(groups[0] <= g <= groups[1] for g in got)
            rows += got
        items += state.lists["offsets"]
        assert state.unions["all"] == [str(n).encode() for n in range(before)]
        assert list(state.schemas["count"]) == [{"columns": {"v": "STRING"}}] * len(state.keyed["count"])
    assert sorted(rows) == [g for g in range(MAX) for _ in range(3)]
    assert sorted(items) == sorted(f"{i}-{n}".encode() for i in range(before) for n in range(3))


async def test_lists_are_dealt_round_robin_by_subtask_and_index() -> None:
    handles = write(2)
    state = await restoring.restore(list(reversed(handles)), "op", (0, 63), 1, 2)
    assert state is not None
    assert state.lists["offsets"] == [b"0-1", b"1-0", b"1-2"]


async def test_unknown_operator_has_nothing_and_stateless_one_is_known() -> None:
    handles = write(1)
    assert await restoring.restore(handles, "nobody", (0, 127), 0, 1) is None
    state = await restoring.restore(handles, "stateless", (0, 127), 0, 1)
    assert state is not None
    assert (state.keyed, state.lists) == ({}, {})


async def test_only_the_blocks_of_the_range_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snap, "BLOCK_BYTES", 64)
    (one,) = write(1)
    assert one.inline is not None
    data, reads = one.inline, []

    async def read(start: int, length: int) -> bytes:
        reads.append(length)
        return data[start : start + length]

    reader = await SnapshotReader.open(read, len(data), "obj")
    (state, *_) = reader.footer.states("op")
    assert len(state.blocks) > 10
    reads.clear()
    (block, *rest) = await reader.keyed("op", state, (64, 64))
    assert not rest
    assert block.rows().column("g").to_pylist() == [64, 64, 64]
    assert len(reads) == 1
    assert reads[0] < len(data) / 10


def test_blocks_are_cut_at_key_groups_and_inside_huge_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snap, "BLOCK_BYTES", 10)
    monkeypatch.setattr(snap, "MAX_BLOCK_BYTES", 20)
    groups = np.array([0] * 4 + [1] * 7 + [2] * 50 + [3], np.int32)
    cut = list(snap.cut_blocks(groups, len(groups)))
    assert cut == [
        (0, 11, [(0, 4), (1, 7)]),
        (11, 31, [(2, 20)]),
        (31, 51, [(2, 20)]),
        (51, 62, [(2, 10), (3, 1)]),
    ]
    assert list(snap.cut_blocks(np.array([], np.int32), 0)) == []
    before_huge = np.array([0, 0, 1, *[2] * 21], np.int32)
    assert list(snap.cut_blocks(before_huge, len(before_huge))) == [
        (0, 3, [(0, 2), (1, 1)]),
        (3, 23, [(2, 20)]),
        (23, 24, [(2, 1)]),
    ]


class TestDamage:
    async def restore(self, data: bytes) -> None:
        broken = handle(data, 0, (0, 127))
        await restoring.restore([broken], "op", (0, 127), 0, 1)

    async def test_a_flipped_bit_names_object_and_block(self) -> None:
        data = bytearray(write(1)[0].inline or b"")
        data[20] ^= 1
        with pytest.raises(SnapshotError) as err:
            await self.restore(bytes(data))
        assert "block 0 of state 'count' of operator 'op'" in str(err.value)
        assert "v:0 at checkpoint 7" in str(err.value)

    @pytest.mark.parametrize("keep", [0, 5, 15, -1, -200])
    async def test_a_cut_object_is_refused(self, keep: int) -> None:
        data = write(1)[0].inline or b""
        with pytest.raises(SnapshotError, match="damaged"):
            await self.restore(data[:keep])

    async def test_a_flipped_bit_in_the_footer(self) -> None:
        data = bytearray(write(1)[0].inline or b"")
        data[-40] ^= 1
        with pytest.raises(SnapshotError, match="footer"):
            await self.restore(bytes(data))

    async def test_a_newer_version_is_refused(self) -> None:
        data = bytearray(write(1)[0].inline or b"")
        data[-12:-10] = (99).to_bytes(2, "little")
        with pytest.raises(SnapshotError, match="newer Penstock"):
            await self.restore(bytes(data))
