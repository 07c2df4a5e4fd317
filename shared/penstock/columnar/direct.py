"""Slots of whole-number keys that lie close together: an array addressed by key.

Ids are handed out in sequence, and a window or a join keeps the latest of them: then the
array is little longer than the keys are many, and finding a slot is one gather, without
hashing, probing or comparing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.growing import grown

if TYPE_CHECKING:
    from collections.abc import Callable

_EMPTY = -1  # as others see it; in the array a slot is its complement, so that zeros are empty
#: A span up to this is always addressed; a longer one if at least every 16th key is there.
_SMALL_SPAN = 1 << 16
_SPARSE = 16
_MAX_SPAN = 1 << 28


class DirectTable:
    """int32 slots of keys ``base`` … ``base + len - 1``; empty at first."""

    def __init__(self) -> None:
        self._base = 0
        self._slots = np.empty(0, np.int32)

    @property
    def nbytes(self) -> int:
        return self._slots.nbytes

    def reach(self, keys: np.ndarray, count: int, live: Callable[[], tuple[np.ndarray, np.ndarray]]) -> bool:
        """Make every key addressable, by a new array if need be. False when the keys spread
        too far. ``count``: keys that are in; ``live``: gives (keys, slots) of them."""
        if not len(keys):
            return True
        low, high = int(keys.min()), int(keys.max())
        if low >= self._base and high < self._base + len(self._slots):
            return True
        if len(self._slots) and low >= self._base and high - self._base < _longest(count + len(keys)):
            self._slots = grown(self._slots, high - self._base + 1)
            return True
        old_keys, old_slots = live()
        if len(old_keys):
            low, high = min(low, int(old_keys.min())), max(high, int(old_keys.max()))
        span = high - low + 1
        if span > _longest(len(old_keys) + len(keys)):
            return False
        # Room mostly above: ids grow.
        below = min(span // 8, low + 2**63)
        self._base = low - below
        self._slots = grown(np.empty(0, np.int32), below + span + max(span, 1024))
        self._slots[old_keys - self._base] = ~old_slots
        return True

    def get(self, keys: np.ndarray) -> np.ndarray:
        """int64 slots (-1: none) of keys within reach."""
        return ~self._slots[keys - self._base].astype(np.int64)

    def lookup(self, keys: np.ndarray) -> np.ndarray:
        """int64 slots (-1: none) of any keys."""
        if not len(self._slots):
            return np.full(len(keys), _EMPTY, np.int64)
        at = keys - self._base
        # Differences that wrap around are out of reach as well; as unsigned, one test does.
        outside = at.view(np.uint64) >= np.uint64(len(self._slots))
        if not outside.any():
            return ~self._slots[at].astype(np.int64)
        at[outside] = 0
        out = ~self._slots[at].astype(np.int64)
        out[outside] = _EMPTY
        return out

    def first_of_each(self, keys: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Of rows whose keys have no slot yet, the first of each key, ascending. The
        places of those keys hold garbage until ``put``."""
        at = keys[rows] - self._base
        # The last writer wins: write backwards.
        numbers = np.arange(len(rows), dtype=np.int32)
        self._slots[at[::-1]] = numbers[::-1]
        return rows[self._slots[at] == numbers]

    def put(self, keys: np.ndarray, slots: np.ndarray) -> None:
        self._slots[keys - self._base] = ~slots

    def erase(self, keys: np.ndarray) -> None:
        self._slots[keys - self._base] = 0


def _longest(count: int) -> int:
    """Length of array that so many keys are worth."""
    return min(max(_SMALL_SPAN, _SPARSE * count), _MAX_SPAN)
