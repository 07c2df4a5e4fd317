"""Slots of whole-number keys that lie close together: an array addressed by key.

Many keys are ids from a sequence, and a window or a join keeps the latest ids. The array is then only a
little longer than the number of keys, and a lookup is one gather without hashing, probing or comparing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.growing import grown

if TYPE_CHECKING:
    from collections.abc import Callable

#: The slot of an unknown key. The array stores the complement of each slot, so that zeros are empty places.
_EMPTY = -1
#: A span of keys up to this length is always addressed; a longer one if at least one key in 16 is present.
_SMALL_SPAN = 1 << 16
_SPARSE = 16
_MAX_SPAN = 1 << 28


class DirectTable:
    """Slots (int32) of the keys from ``base`` to ``base + len - 1``. A new table is empty."""

    def __init__(self) -> None:
        self._base = 0
        self._slots = np.empty(0, np.int32)

    @property
    def nbytes(self) -> int:
        """Allocated bytes."""
        return self._slots.nbytes

    def reach(self, keys: np.ndarray, count: int, live: Callable[[], tuple[np.ndarray, np.ndarray]]) -> bool:
        """Make every one of the int64 keys addressable; allocate a longer array if necessary.

        ``count`` is the number of keys in the table, ``live`` returns their (keys, slots). Returns False,
        with the table unchanged, if the keys lie too far apart.
        """
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
        # Most of the room is above the keys, because ids grow.
        below = min(span // 8, low + 2**63)
        self._base = low - below
        self._slots = grown(np.empty(0, np.int32), below + span + max(span, 1024))
        self._slots[old_keys - self._base] = ~old_slots
        return True

    def get(self, keys: np.ndarray) -> np.ndarray:
        """int64 slots of keys that ``reach`` made addressable; -1 for an unknown key."""
        return ~self._slots[keys - self._base].astype(np.int64)

    def lookup(self, keys: np.ndarray) -> np.ndarray:
        """int64 slots of any keys; -1 for an unknown key."""
        if not len(self._slots):
            return np.full(len(keys), _EMPTY, np.int64)
        at = keys - self._base
        # A negative difference, wrapped or not, is a large unsigned number: one comparison finds both ends.
        outside = at.view(np.uint64) >= np.uint64(len(self._slots))
        if not outside.any():
            return ~self._slots[at].astype(np.int64)
        at[outside] = 0
        out = ~self._slots[at].astype(np.int64)
        out[outside] = _EMPTY
        return out

    def first_of_each(self, keys: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The first row of each key among ``rows``, ascending; the rows' keys must have no slot yet.

        The places of those keys hold garbage until the caller calls ``put`` for them.
        """
        at = keys[rows] - self._base
        # Of several writes to one place the last stays, so the rows are written backwards.
        numbers = np.arange(len(rows), dtype=np.int32)
        self._slots[at[::-1]] = numbers[::-1]
        return rows[self._slots[at] == numbers]

    def put(self, keys: np.ndarray, slots: np.ndarray) -> None:
        """Store the slots of addressable keys."""
        self._slots[keys - self._base] = ~slots

    def erase(self, keys: np.ndarray) -> None:
        """Remove addressable keys."""
        self._slots[keys - self._base] = 0


def _longest(count: int) -> int:
    """The longest array that is allowed for ``count`` keys."""
    return min(max(_SMALL_SPAN, _SPARSE * count), _MAX_SPAN)
