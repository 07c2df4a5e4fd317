"""Growing arrays: what stood there stays, what is new holds the fill, long ones stay in place."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.columnar import growing
from penstock.columnar.growing import grown


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.bool_, np.float32])
@pytest.mark.parametrize("fill", [0, 1])
def test_grows_from_short_to_long(dtype, fill):
    array = grown(np.empty(0, dtype), 1, fill)
    for size in (10, 1_500, 200_000, 300_000, 1_200_000, 3_000_000):
        before = len(array)
        array = grown(array, size, fill)
        assert len(array) >= size
        assert (array[before:] == fill).all()
        array[size - 1] = 1 - fill
        array[:3] = fill
        assert array[size - 1] == 1 - fill
        array[size - 1] = fill
    assert (array == fill).all()


def test_a_system_without_huge_pages(monkeypatch):
    """macOS has no such advice: long arrays have small pages there."""
    monkeypatch.delattr(growing.mmap, "MADV_HUGEPAGE", raising=False)
    array = grown(np.zeros(1 << 21, np.int64), (1 << 21) + 1)
    assert array.nbytes > growing._HUGE_FROM
    assert not array.any()
    assert not growing.zeros(1 << 22, np.int64).any()


def test_a_long_array_stays_where_it_is():
    array = grown(np.empty(0, np.int64), 1 << 20)
    array[7] = 5
    longer = grown(array, 1 << 23)
    assert np.shares_memory(array, longer)
    assert longer[7] == 5
    assert len(longer) >= 1 << 23


def test_part_of_a_long_array_grows_into_memory_of_its_own():
    array = grown(np.empty(0, np.int64), 1 << 20)
    array[:] = 3
    part = grown(array[:100], 200)
    assert part[100] == 0
    part[0] = 9
    assert array[0] == 3


def test_without_address_space_it_is_copied(monkeypatch):
    def refuse(*args, **options):
        raise OSError("no")

    monkeypatch.setattr(growing, "_Space", refuse)
    array = growing._copied(np.ones(10, np.int64), 1 << 20, 2)
    assert array[:11].tolist() == [1] * 10 + [2]


def test_objects_are_copied():
    array = grown(np.full(3, None, object), 1 << 18, None)
    assert array[1 << 17] is None or array[1 << 17] == 0
