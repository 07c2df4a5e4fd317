"""Rows by key and time, with and without the map from keys to rows that eviction needs."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.columnar.timed_rows import TimedRows
from penstock.types import logical as t
from penstock.types.column import Column

BIG = t.BigIntType()


class Unheard:
    def write(self, slots: np.ndarray) -> None: ...

    def free(self, slots: np.ndarray) -> None: ...


@pytest.mark.parametrize("evicts", [False, True])
def test_the_rows_of_keys_are_found_with_and_without_a_map(evicts: bool) -> None:
    rows = TimedRows([BIG], 10, Unheard(), evicts=evicts)
    keys, times = np.array([5, 2, 5, 9, 2]), np.array([1, 2, 3, 4, 5])
    rows.add(keys, times, [Column.of(BIG, times.tolist())], np.zeros(5, np.bool_))
    rows.free(rows.expired(1))
    at, entries = rows.of_keys(np.array([9, 7, 2, 5]))
    assert sorted(zip(at.tolist(), rows.times[entries].tolist(), strict=True)) == [
        (0, 4),
        (2, 2),
        (2, 5),
        (3, 3),
    ]
    assert at.tolist() == sorted(at.tolist())
    assert [len(part) for part in rows.of_keys(np.array([], np.int64))] == [0, 0]
