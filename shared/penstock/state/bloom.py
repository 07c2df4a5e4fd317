"""Bloom filters that grow: they tell, without I/O, that a key is not on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Bits for each key in a Bloom filter, and how many of them a key sets: one false positive in a hundred.
_BITS, _PROBES = 10, 6
#: The number of keys for which the first filter is made.
_FIRST_KEYS = 100_000
#: A small filter is followed by one that is so many times as large, so that there are few filters to ask.
_SMALL_GROWTH = 16


class Bloom:
    """Bloom filters, each larger than the one before. The first is made for ``first_keys`` keys. A key that
    was removed may still be reported."""

    def __init__(self, first_keys: int = _FIRST_KEYS) -> None:
        self._filters: list[np.ndarray] = []
        self._room = 0
        self._next = first_keys

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(f.nbytes for f in self._filters)

    def add(self, hashes: np.ndarray) -> None:
        """Adds keys by their hashes (uint64). A key that is added repeatedly takes no further space."""
        hashes = hashes[~self.may_hold(hashes)]
        if self._room < len(hashes):
            words = (max(self._next, len(hashes)) * _BITS + 63) // 64
            self._filters.append(np.zeros(words, np.uint64))
            self._room = words * 64 // _BITS
            self._next = self._room * (2 if self._room >= _FIRST_KEYS else _SMALL_GROWTH)
        self._room -= len(hashes)
        for word, bit in self._places(self._filters[-1], hashes):
            np.bitwise_or.at(self._filters[-1], word, bit)

    def may_hold(self, hashes: np.ndarray) -> np.ndarray:
        """For each hash: False if the key was never added."""
        out = np.zeros(len(hashes), np.bool_)
        for bits in self._filters:
            here = np.ones(len(hashes), np.bool_)
            for word, bit in self._places(bits, hashes):
                here &= (bits[word] & bit) != 0
            out |= here
        return out

    @staticmethod
    def _places(bits: np.ndarray, hashes: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        step = (hashes >> np.uint64(32)) | np.uint64(1)
        for k in range(_PROBES):
            at = (hashes + np.uint64(k) * step) % np.uint64(len(bits) * 64)
            yield (at >> np.uint64(6)).astype(np.int64), np.uint64(1) << (at & np.uint64(63))
