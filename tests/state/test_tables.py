"""Cuts of a table under load: what is copied in slices, between writes and frees, is the
table as it stood at the barrier; deltas put together are the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.columnar.key_index import KeyIndex
from penstock.columnar.store import grown
from penstock.messages.slot import StateHandle, StateLink
from penstock.snapshots import restoring
from penstock.snapshots.contract import KeyedBlock, OperatorSnapshot
from penstock.snapshots.writing import write_snapshot
from penstock.state import tables
from penstock.state.epochs import Epochs
from penstock.state.tables import SlotChanges, StateTable
from penstock.types import logical as t
from penstock.types.column import Column

LONG = t.BigIntType(False)
ALL = (0, 127)


class Sums:
    """An operator's table in miniature: key → sum, keys freed and slots used again."""

    def __init__(self) -> None:
        self.epochs = Epochs()
        self.keys = KeyIndex([LONG])
        self.sums = np.zeros(1024, np.int64)
        self.changes = SlotChanges(self.epochs)
        self.table = StateTable(
            "sums", self._read, names=["key0", "sum"], kind="test", max_parallelism=128, changes=self.changes
        )
        self.truth: dict[int, int] = {}

    def _read(self, slots: np.ndarray) -> tuple[list[Column], list[Column]]:
        return self.keys.keys(slots), [Column(LONG, self.sums[slots])]

    def add(self, keys: list[int], value: int) -> None:
        slots, new = self.keys.upsert([Column(LONG, np.array(keys, np.int64))], len(keys))
        self.changes.write(slots)
        self.sums = grown(self.sums, self.keys.high)
        self.sums[new] = 0
        np.add.at(self.sums, slots, value)
        for key in keys:
            self.truth[key] = self.truth.get(key, 0) + value

    def drop(self, keys: list[int]) -> None:
        known = sorted({k for k in keys if k in self.truth})
        slots = self.keys.lookup([Column(LONG, np.array(known, np.int64))], len(known))
        self.changes.free(slots)
        self.sums[slots] = -1
        self.keys.free(slots)
        for key in known:
            del self.truth[key]

    def renumber(self) -> None:
        self.changes.renumber()
        old, self.keys, self.sums = self.truth, KeyIndex([LONG]), np.zeros(1024, np.int64)
        self.truth = {}
        for key, value in reversed(old.items()):
            self.add([key], value)


def stored(block: KeyedBlock, checkpoint_id: int) -> bytes:
    snapshot = OperatorSnapshot(keyed={"sums": block})
    return write_snapshot({"op": snapshot}, checkpoint_id=checkpoint_id, key_groups=ALL)


def chained(objects: list[tuple[int, bytes]]) -> StateHandle:
    """The handle of a chain; ``objects``: (checkpoint, bytes), newest first."""
    links = [StateLink(checkpoint_id=n, inline=data, size_bytes=len(data)) for n, data in objects]
    newest = links[0]
    return StateHandle(
        vertex_id="v", subtask_index=0, checkpoint_id=newest.checkpoint_id, inline=newest.inline,
        size_bytes=newest.size_bytes, key_groups=ALL, chain=tuple(links[1:]),
    )  # fmt: skip


async def rows(handle: StateHandle, groups: tuple[int, int] = ALL) -> list[tuple[int, int]]:
    state = await restoring.restore([handle], "op", groups, 0, 1)
    assert state is not None
    found = state.keyed["sums"]
    assert all(batch.schema.names == ["key0", "sum"] for batch in found)
    return [
        pair
        for b in found
        for pair in zip(b.column("key0").to_pylist(), b.column("sum").to_pylist(), strict=True)
    ]


KEYS = st.lists(st.integers(0, 40), min_size=1, max_size=12)
STEP = st.one_of(
    st.tuples(st.just("add"), KEYS, st.integers(-5, 5)),
    st.tuples(st.just("drop"), KEYS),
    st.tuples(st.just("copy"), st.sampled_from([1, 2, 4, 100])),
    st.tuples(st.just("cut")),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("abort")),
    st.tuples(st.just("renumber")),
)


@settings(max_examples=200, deadline=None)
@given(steps=st.lists(STEP, max_size=60))
async def test_every_chain_is_the_table_at_its_barrier(steps: list[tuple[Any, ...]]) -> None:
    """Random writes, frees and renumberings between slices; checkpoints overlap, are
    confirmed or aborted; each chain restored is what stood there at its barrier."""
    sums, next_id = Sums(), 1
    pending: list[tuple[int, tables.Cut, int, dict[int, int], list[tuple[int, bytes]]]] = []
    done: list[tuple[int, bytes, int, dict[int, int], list[tuple[int, bytes]]]] = []
    confirmed: tuple[int, list[tuple[int, bytes]]] = (0, [])

    def finish(entry: Any) -> None:
        number, cut, epoch, truth, base = entry
        assert cut.copy(lambda: True)
        done.append((number, stored(cut.block(), number), epoch, truth, base))

    for step in [*steps, ("cut",), ("drop", list(range(20))), ("add", [1, 2, 50], 7)]:
        match step:
            case ("add", keys, value):
                sums.add(keys, value)
            case ("drop", keys):
                sums.drop(keys)
            case ("renumber",):
                sums.renumber()
            case ("copy", pieces):
                for entry in list(pending):
                    budget = iter([True] * pieces)
                    if entry[1].copy(lambda budget=budget: next(budget, False)):
                        pending.remove(entry)
                        finish(entry)
            case ("cut",):
                epoch, base = confirmed
                now = sums.epochs.now
                sums.epochs.since = epoch
                pending.append((next_id, sums.table.cut(), now, dict(sums.truth), base))
                next_id += 1
            case ("checkpoint",) if pending:  # the oldest is complete, and confirmed
                finish(pending.pop(0))
                number, data, epoch, _, base = done[-1]
                if epoch > confirmed[0]:
                    confirmed = (epoch, [(number, data), *base])
            case ("abort",) if pending:
                pending.pop(0)[1].discard()
    for entry in pending:
        finish(entry)
    for number, data, _, truth, base in done:
        assert sorted(await rows(chained([(number, data), *base]))) == sorted(truth.items())
    assert not sums.changes.copying


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_SCAN", 8)
    monkeypatch.setattr(tables, "_FIRST_ROWS", 3)


async def test_a_delta_holds_what_changed_and_restores_at_any_key_group_range() -> None:
    sums = Sums()
    sums.add(list(range(1000)), 1)
    whole = sums.table.cut()
    whole.copy(lambda: True)
    base = stored(whole.block(), 1)
    sums.epochs.since = sums.epochs.now - 1
    sums.add([5, 6, 2000], 3)
    sums.drop([7, 8])
    sums.add([3000], 1)  # in a freed slot: key and key group of the slot change
    cut = sums.table.cut()
    cut.copy(lambda: True)
    block = cut.block()
    assert block.delta
    assert block.batch.num_rows == 4
    assert block.touched is not None
    assert len(block.touched) == 5
    delta = stored(block, 2)
    assert len(delta) < len(base) / 3
    handle = chained([(2, delta), (1, base)])
    assert sorted(await rows(handle)) == sorted(sums.truth.items())
    parts = [await rows(handle, groups) for groups in [(0, 40), (41, 41), (42, 127)]]
    assert sorted(row for part in parts for row in part) == sorted(sums.truth.items())


async def test_nothing_changed_is_an_empty_delta() -> None:
    sums = Sums()
    sums.add([1, 2], 1)
    sums.epochs.since = sums.epochs.end()
    cut = sums.table.cut()
    assert cut.copy(lambda: True)
    block = cut.block()
    assert (block.delta, block.batch.num_rows) == (True, 0)
    assert block.batch.schema.names == ["key0", "sum", "__slot"]


def test_a_discarded_cut_costs_nothing_more() -> None:
    sums = Sums()
    sums.add([1], 1)
    cut = sums.table.cut()
    assert sums.changes.copying
    cut.discard()
    assert not sums.changes.copying
    sums.add([1], 1)
    assert cut._parts == []
