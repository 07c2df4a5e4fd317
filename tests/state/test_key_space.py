"""The port of keyed state: what its blocks guarantee, and that a space gives everything back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.messages.slot import StateHandle
from penstock.metrics import MetricGroup
from penstock.snapshots.contract import OperatorSnapshot, RestoredState
from penstock.snapshots.restoring import restore
from penstock.snapshots.writing import write_snapshot
from penstock.state.cells import NumberCells, RowCells
from penstock.state.epochs import Epochs
from penstock.state.key_space import KeySpace
from penstock.state.memory import StateMemory
from penstock.state.slot_table import CellTable
from penstock.types import logical as t
from penstock.types.column import Column

BIG, STR = t.BigIntType(), t.VarCharType()


class Context:
    """Processing time is ``now``; ``wakes``: what was asked for."""

    name, max_parallelism = "test", 128

    def __init__(self, folder: Path, limit_bytes: int = 0) -> None:
        self.metrics, self.local_dir, self.epochs = MetricGroup(), folder, Epochs()
        self.memory = StateMemory(limit_bytes)
        self.now, self.wakes = 0, list[int]()

    def now_ms(self) -> int:
        return self.now

    def wake_at(self, at_ms: int) -> None:
        self.wakes.append(at_ms)


class Counts:
    """How often each key came, and the text that came last with it."""

    def __init__(self, ctx: Any, *, ttl_ms: int = 0, restored: RestoredState | None = None) -> None:
        self.ctx = ctx
        self.space = KeySpace(ctx, [BIG], kind="counts", ttl_ms=ttl_ms)
        self.counts, self.texts = NumberCells("count", BIG), RowCells(["text"], [STR])
        self.table = CellTable(self.space, "rows", [self.counts, self.texts])
        self.space.restore(restored)

    def add(self, *keys: int, fails: bool = False) -> None:
        with self.table.compare([Column.of(BIG, keys)], len(keys)) as rows:
            np.add.at(self.counts.values, rows.slots, 1)
            texts = Column.of(STR, [str(k) for k in self.space.keys(rows.touched)[0].values])
            self.texts.merge(rows.touched, [texts])
            rows.free(rows.touched[self.counts.values[rows.touched] > 2])
            if fails:
                raise ValueError("the operator fails")

    def rows(self) -> dict[int, tuple[int, str]]:
        slots = self.space.index.live_slots()
        [keys], [counts, texts] = self.space.keys(slots), self.table.read(slots)
        found = zip(counts.to_pylist(), texts.to_pylist(), strict=True)
        return dict(zip(keys.to_pylist(), found, strict=True))

    def snapshot(self) -> RestoredState:
        self.ctx.epochs.begin(0)
        data = write_snapshot(
            {"u": OperatorSnapshot(keyed=self.space.cut()).copied()}, checkpoint_id=1, key_groups=(0, 127)
        )
        handle = StateHandle(
            vertex_id="v", subtask_index=0, checkpoint_id=1, inline=data, size_bytes=len(data),
            key_groups=(0, 127),
        )  # fmt: skip
        state = asyncio.run(restore([handle], "u", (0, 127), 0, 1))
        assert state is not None
        return state


def test_a_block_frees_at_its_end_and_new_keys_are_empty(tmp_path: Path) -> None:
    counts = Counts(Context(tmp_path))
    counts.add(1, 1, 2)
    assert counts.rows() == {1: (2, "1"), 2: (1, "2")}
    counts.add(1, 3)  # the third of 1: it goes
    assert counts.rows() == {2: (1, "2"), 3: (1, "3")}
    counts.add(4)  # in the slot of 1
    assert counts.rows() == {2: (1, "2"), 3: (1, "3"), 4: (1, "4")}


def test_on_an_error_nothing_is_freed(tmp_path: Path) -> None:
    counts = Counts(Context(tmp_path))
    counts.add(1, 1, 2)
    with pytest.raises(ValueError, match="fails"):
        counts.add(1, fails=True)
    assert set(counts.rows()) == {1, 2}


def test_what_changes_in_a_block_is_copied_for_an_open_cut(tmp_path: Path) -> None:
    ctx = Context(tmp_path)
    counts = Counts(ctx)
    counts.add(1, 2, 3)
    ctx.epochs.begin(0)
    cut = OperatorSnapshot(keyed=counts.space.cut())
    counts.add(1, 1, 2)  # 1 goes, 2 changes
    batch = cut.block("rows").batch
    assert sorted(zip(batch["key0"].to_pylist(), batch["count"].to_pylist(), strict=True)) == [
        (1, 1), (2, 1), (3, 1)
    ]  # fmt: skip
    assert counts.rows() == {2: (2, "2"), 3: (1, "3")}


def test_reading_makes_no_delta(tmp_path: Path) -> None:
    ctx = Context(tmp_path)
    counts = Counts(ctx)
    counts.add(1, 2, 3)
    since = ctx.epochs.begin(0)
    OperatorSnapshot(keyed=counts.space.cut()).copied()
    ctx.epochs.confirmed = since
    counts.rows()
    counts.add(2)
    ctx.epochs.begin(since)
    block = OperatorSnapshot(keyed=counts.space.cut()).block("rows")
    assert block.delta
    assert block.batch["key0"].to_pylist() == [2]


@pytest.mark.parametrize("limit_bytes", [0, 700])
def test_a_snapshot_gives_everything_back(tmp_path: Path, limit_bytes: int) -> None:
    first = Counts(Context(tmp_path / "a", limit_bytes))
    first.ctx.memory.check = lambda: None
    for key in range(300):
        first.add(key, key % 7)
    assert (first.space.on_disk > 0) == bool(limit_bytes)
    assert len(first.space) + first.space.on_disk == len(expected := reference(300))
    ctx = Context(tmp_path / "b")
    second = Counts(ctx, restored=first.snapshot())
    assert second.rows() == expected
    assert ctx.metrics.gauges["numKeysInState"]() == len(expected)
    first.space.close()
    second.space.close()


def reference(n: int) -> dict[int, tuple[int, str]]:
    found: dict[int, int] = {}
    for key in range(n):
        for k in (key, key % 7):
            found[k] = found.get(k, 0) + 1
        found = {k: count for k, count in found.items() if count < 3}
    return {k: (count, str(k)) for k, count in found.items()}


def test_keys_that_nobody_writes_expire(tmp_path: Path) -> None:
    ctx = Context(tmp_path)
    counts = Counts(ctx, ttl_ms=1_000)
    counts.add(1, 2)
    ctx.now = 900
    counts.add(2)
    assert ctx.wakes == [1_000]
    ctx.now = 1_500
    counts.space.expire(1_500)
    assert set(counts.rows()) == {2}
