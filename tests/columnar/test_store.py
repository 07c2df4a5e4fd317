"""Heaps of texts by slot."""

from __future__ import annotations

import numpy as np

from penstock.columnar.store import HeapStore
from penstock.types import logical as t
from penstock.types.column import Column

TEXT = t.VarCharType()


def test_a_heap_of_few_long_texts_drops_its_garbage() -> None:
    store, long, slots = HeapStore(TEXT), "x" * 10_000, np.arange(100)
    for i in range(40):
        store.put(slots, Column.of(TEXT, [f"{i} {slot} {long}" for slot in range(100)]), 100)
        assert store.nbytes < (4 << 20) + 2 * 100 * 10_010
    assert store.take(slots).to_pylist() == [f"39 {slot} {long}" for slot in range(100)]
    store.clear(slots[50:])
    store.put(slots[:50], Column.of(TEXT, [None] * 50), 100)
    assert store.take(slots).to_pylist() == [None] * 100


def test_a_heap_is_rewritten_in_pieces_with_every_text_in_its_place() -> None:
    store, rng, held = HeapStore(TEXT), np.random.default_rng(7), {}
    for i in range(60):
        slots = rng.permutation(4_000)[:900]
        texts = [f"{i}-{slot}" * 150 for slot in slots.tolist()]
        store.put(slots, Column.of(TEXT, texts), 4_000)
        held.update(zip(slots.tolist(), texts, strict=True))
    asked = np.array(sorted(held))
    assert store.take(asked).to_pylist() == [held[slot] for slot in asked.tolist()]
