"""The array of slots of an open-addressing hash table: home positions, and placing new keys."""

from __future__ import annotations

import numpy as np

from penstock.columnar.growing import zeros

#: A table stores the complement of each slot, so slots are negative numbers and an empty place is 0.
#: Zeroed memory costs nothing until it is touched. Claims, which exist only during an insert, start at CLAIM.
EMPTY, TOMBSTONE, CLAIM = 0, 1, 2
_FIRST_BITS = 11
#: Positions (int32) in a 4 KiB page of memory.
_PAGE_ITEMS = 1024
_S32 = np.uint64(32)
_INT_SEED = np.uint64(0x9E3779B97F4A7C15)


class HashTable:
    """The int32 complements of slots at 2^bits positions. A key's home is the high bits of its hash."""

    __slots__ = ("capacity", "mask", "shift", "slots", "touched", "used")

    def __init__(self, bits: int) -> None:
        self.capacity = 1 << bits
        self.slots = zeros(self.capacity, np.int32)
        self.mask = self.capacity - 1
        self.shift = np.uint64(64 - bits)
        self.used = 0  # positions that are not empty, tombstones included
        self.touched = 0  # positions whose memory the system has already given

    def touch(self, positions: int) -> None:
        """Touch the memory of the next ``positions`` positions.

        Otherwise the first keys would touch pages all over the table at once, which causes a pause.
        """
        stop = min(self.touched + positions, self.capacity)
        self.slots[self.touched : stop : _PAGE_ITEMS] = EMPTY
        self.touched = stop

    @property
    def nbytes(self) -> int:
        """Allocated bytes."""
        return self.slots.nbytes

    def home(self, hashes: np.ndarray) -> np.ndarray:
        """int64 position at which probing for each uint64 hash begins."""
        return (hashes >> self.shift).view(np.int64)

    def place(self, hashes: np.ndarray, slots: np.ndarray) -> None:
        """Insert slots (each once) whose keys are not in the table; ``hashes`` are the keys' uint64 hashes."""
        self.used += len(slots)
        position, marks = self.home(hashes), ~slots.astype(np.int32)
        while len(marks):
            free = self.slots.take(position) == EMPTY
            if free.all():
                self.slots[position] = marks
            else:
                self.slots[position[free]] = marks[free]
            # Of the slots that were written to one free position, only the last stays; the others go on.
            rest = np.flatnonzero(self.slots.take(position) != marks)
            position, marks = (position[rest] + 1) & self.mask, marks[rest]


def table_bits(keys: int) -> int:
    """The ``bits`` of a table of which ``keys`` keys take at most a sixth."""
    return max(_FIRST_BITS, (6 * keys - 1).bit_length())


def hash_ints(keys: np.ndarray) -> np.ndarray:
    """uint64 hashes of int64 keys, for use in a ``HashTable`` only.

    Fibonacci hashing keeps runs of neighbouring keys apart and is cheaper than the mixing that
    partitioning needs. No snapshot contains these hashes.
    """
    h = keys.view(np.uint64) ^ (keys.view(np.uint64) >> _S32)
    h *= _INT_SEED
    return h
