"""Late rows against a dict of rows."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from penstock.columnar import late_rows
from penstock.columnar.late_rows import LateRows, Upkeep, within
from penstock.types import logical as t
from penstock.types.column import Column

TYPES = [t.BigIntType(), t.VarCharType(), t.ArrayType(t.VarCharType()), t.DoubleType()]


def row(number: int) -> tuple:
    return (
        number if number % 7 else None,
        f"text {number}" * (number % 5) if number % 11 else None,
        [f"x{number}", None][: number % 3] if number % 13 else None,
        number / 2,
    )


def columns_of(rows: list[tuple]) -> list[Column]:
    return [Column.of(x, [r[i] for r in rows]) for i, x in enumerate(TYPES)]


def rows_of(columns: list[Column]) -> list[tuple]:
    return list(zip(*(c.to_pylist() for c in columns), strict=True))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("segment_bytes", [400, 1 << 62])
def test_rows_come_back_as_they_came(monkeypatch, seed, segment_bytes):
    monkeypatch.setattr(late_rows, "_LONG", 64)
    upkeep = Upkeep(garbage_rows=32, garbage_share=0.5, segment_bytes=segment_bytes)
    monkeypatch.setattr(late_rows, "_REWRITTEN_ROWS", 20)
    monkeypatch.setattr(late_rows, "_GAPS", 3)
    rng, store, held = random.Random(seed), LateRows(TYPES, upkeep), {}
    number = 0
    for _ in range(120):
        n = rng.choice([1, 2, 5, 30, 90])
        rows = [row(number + i) for i in range(n)]
        number += n
        slots = store.append(columns_of(rows), n).tolist()
        assert not set(slots) & set(held)
        held.update(zip(slots, rows, strict=True))
        goes = rng.sample(sorted(held), rng.randrange(min(len(held), 80)))
        store.free(np.array(goes, np.int64))
        for slot in goes:
            del held[slot]
        asked = rng.choices(sorted(held), k=40) if held else []
        assert rows_of(store.take(np.array(asked, np.int64))) == [held[slot] for slot in asked]
        assert len(store) == len(held)
    asked = np.array(sorted(held), np.int64)
    assert rows_of(store.take_some(asked, [2, 0])) == [
        (r[2], r[0]) for r in (held[s] for s in asked.tolist())
    ]
    later = store.take_later(asked)
    store.free(asked)
    assert [c.nbytes > 0 for c in later]
    assert rows_of([c if isinstance(c, Column) else c.column() for c in later]) == [
        held[s] for s in asked.tolist()
    ]
    held = dict(
        zip(store.append(columns_of(list(held.values())), len(held)).tolist(), held.values(), strict=True)
    )
    asked = np.array(sorted(held), np.int64)
    in_place = asked[store.in_place(asked)]
    assert rows_of(store.take(in_place)) == [held[s] for s in in_place.tolist()]


def test_batches_are_kept_not_copied_and_let_go(monkeypatch):
    store = LateRows(TYPES)
    rows = columns_of([row(i) for i in range(5000)])
    slots = store.append(rows, 5000)
    heap = store._heap
    assert heap._segments[0].columns[1].values is rows[1].values
    assert store.nbytes >= rows[1].nbytes
    store.free(slots)
    assert heap._segments == []
    assert heap._rows == heap._live == len(store) == 0


def test_garbage_is_bounded():
    store = LateRows([t.VarCharType()])
    for batch in range(60):
        slots = store.append([Column.of(t.VarCharType(), [f"{batch} {i}" * 5 for i in range(5000)])], 5000)
        store.free(slots[100:])
    heap = store._heap
    assert heap._rows - heap._live <= 65_536
    assert store.take(np.arange(0))[0].to_pylist() == []


def test_segments_that_are_gone_leave_no_gaps(monkeypatch):
    monkeypatch.setattr(late_rows, "_GAPS", 8)
    store, window = LateRows([t.VarCharType()]), []
    for batch in range(200):
        texts = [f"{batch} {i}" for i in range(4096)]
        window.append((store.append([Column.of(t.VarCharType(), texts)], 4096), texts))
        if len(window) > 3:
            store.free(window.pop(0)[0])
    heap = store._heap
    assert len(heap._segments) <= 3 + 2 * 8
    assert heap._gone == sum(s is None for s in heap._segments)
    for slots, texts in window:
        assert store.take(slots)[0].to_pylist() == texts


def test_many_small_appends_make_few_segments():
    store = LateRows([t.VarCharType()])
    for i in range(2000):
        store.append([Column.of(t.VarCharType(), [str(i)])], 1)
    assert len(store._heap._segments) < 30
    assert store.take(np.arange(2000))[0].to_pylist() == [str(i) for i in range(2000)]


def test_state_with_a_limit_keeps_little_garbage_and_copies_a_small_part_at_once():
    text, limit, taken = "x" * 1_000, 64 << 20, []
    store = LateRows([t.VarCharType()], within(limit))
    heap = store._heap
    fetch = heap._fetch

    def seen(slots):
        taken.append(len(slots) * len(text))
        return fetch(slots)

    heap._fetch = seen
    held, rng = np.empty(0, np.int64), np.random.default_rng(3)
    for _ in range(60):
        slots = store.append([Column.of(t.VarCharType(), [text] * 500)], 500)
        held = rng.permutation(np.concatenate((held, slots)))
        store.free(held[4_000:])
        held = held[:4_000]
        assert heap.nbytes - heap._refs.nbytes <= len(held) * 1_010 * 4 / 3 + (1 << 20)
    assert max(taken) <= (1 << 20)
    assert max(s.nbytes for s in heap._segments if s is not None) <= 4 << 20
    assert heap._held == sum(s.nbytes for s in heap._segments if s is not None)
    assert heap._rows == sum(s.rows for s in heap._segments if s is not None)


def test_a_rewritten_row_does_not_keep_the_memory_of_its_batch():
    store = LateRows([t.VarCharType()], within(1 << 20))
    before = pa.total_allocated_bytes()
    slots = store.append([Column.of(t.VarCharType(), ["x" * 1_000] * 10_000)], 10_000)
    store.free(slots[100:])
    assert pa.total_allocated_bytes() - before < 200_000
    assert store.take(slots[:100])[0].to_pylist() == ["x" * 1_000] * 100
