"""A hash table's array of slots: where a key's probing begins, and placing known new keys."""

from __future__ import annotations

import numpy as np

from penstock.columnar.growing import zeros

#: In a table a slot stands as its complement, a claim (while inserting) above these two:
#: so a new table is zeros, which cost nothing until they are touched.
EMPTY, TOMBSTONE, CLAIM = 0, 1, 2
_FIRST_BITS = 11
#: Positions in a page of memory.
_PAGE_ITEMS = 1024
_S32 = np.uint64(32)
_INT_SEED = np.uint64(0x9E3779B97F4A7C15)


class HashTable:
    """int32 complements of slots at 2^bits positions; position = hash's high bits."""

    __slots__ = ("capacity", "mask", "shift", "slots", "touched", "used")

    def __init__(self, bits: int) -> None:
        self.capacity = 1 << bits
        self.slots = zeros(self.capacity, np.int32)
        self.mask = self.capacity - 1
        self.shift = np.uint64(64 - bits)
        self.used = 0  # positions that are not empty, tombstones included
        self.touched = 0  # positions whose memory is there

    def touch(self, positions: int) -> None:
        """Have the system give some of the memory now: the first keys would else scatter
        over all of it at once."""
        stop = min(self.touched + positions, self.capacity)
        self.slots[self.touched : stop : _PAGE_ITEMS] = EMPTY
        self.touched = stop

    @property
    def nbytes(self) -> int:
        return self.slots.nbytes

    def home(self, hashes: np.ndarray) -> np.ndarray:
        return (hashes >> self.shift).view(np.int64)

    def place(self, hashes: np.ndarray, slots: np.ndarray) -> None:
        """Slots (each once) whose keys are not in the table."""
        self.used += len(slots)
        position, marks = self.home(hashes), ~slots.astype(np.int32)
        while len(marks):
            free = self.slots.take(position) == EMPTY
            if free.all():
                self.slots[position] = marks
            else:
                self.slots[position[free]] = marks[free]
            # Of those that share a free position, the last one has it.
            rest = np.flatnonzero(self.slots.take(position) != marks)
            position, marks = (position[rest] + 1) & self.mask, marks[rest]


def table_bits(keys: int) -> int:
    """Of a table of which so many keys take at most a sixth."""
    return max(_FIRST_BITS, (6 * keys - 1).bit_length())


def hash_ints(keys: np.ndarray) -> np.ndarray:
    """Spreads keys over the table; private to it, so it may be cheap: Fibonacci hashing
    keeps runs of near keys apart without the full mixing that partitioning needs."""
    h = keys.view(np.uint64) ^ (keys.view(np.uint64) >> _S32)
    h *= _INT_SEED
    return h
