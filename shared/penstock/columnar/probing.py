"""Finding, inserting and erasing keys in a ``HashTable``.

A call probes all rows of a batch together, in as many rounds as the longest probe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.hash_table import CLAIM, EMPTY, TOMBSTONE, HashTable
from penstock.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.columnar.slot_keys import SlotKeys, Wanted


def find(table: HashTable, held: SlotKeys, wanted: Wanted) -> np.ndarray:
    """The int64 slot in ``table`` of each key wanted; -1 for an unknown key."""
    position = table.home(wanted.hashes)
    # The slot of an empty place or a tombstone is negative.
    slots = ~table.slots[position].astype(np.int64)
    match = held.matches(slots, wanted)
    out = np.where(match, slots, -1)
    rest = np.flatnonzero(~match & (slots != ~EMPTY))
    position = position[rest]
    while len(rest):
        position = (position + 1) & table.mask
        slots = ~table.slots[position].astype(np.int64)
        match = held.matches(slots, wanted, rest)
        out[rest[match]] = slots[match]
        go_on = ~match & (slots != ~EMPTY)
        rest, position = rest[go_on], position[go_on]
    return out


def insert(
    table: HashTable,
    held: SlotKeys,
    wanted: Wanted,
    out: np.ndarray,
    missing: np.ndarray,
    allocate: Callable[[np.ndarray, Wanted], np.ndarray],
) -> np.ndarray:
    """Inserts the keys of the ``missing`` rows, which may share keys, and sets their slots in ``out``.

    ``allocate(rows, wanted)``: gives slots to the keys of ``rows``. Returns the new slots.
    """
    rows, position = missing, table.home(wanted.hashes[missing])
    new: list[np.ndarray] = []
    claim = np.arange(CLAIM, len(out) + CLAIM, dtype=np.int32)
    while len(rows):
        at = table.slots[position]
        free = np.flatnonzero(at == EMPTY)
        if len(free):
            # Several rows may claim one free position. The last write stays, so claims are written
            # backwards: keys then get their slots in the order in which they first occur.
            back = free[::-1]
            table.slots[position[back]] = claim[rows[back]]
            won = free[table.slots[position[free]] == claim[rows[free]]]
            slots = allocate(rows[won], wanted)
            table.slots[position[won]] = ~slots
            table.used += len(won)
            new.append(slots)
            at = table.slots[position]
        slots = ~at.astype(np.int64)
        match = held.matches(slots, wanted, rows)
        out[rows[match]] = slots[match]
        rows = rows[~match]
        position = (position[~match] + 1) & table.mask
    return np.concatenate(new) if new else np.empty(0, np.int64)


def erase(table: HashTable, hashes: np.ndarray, slots: np.ndarray) -> None:
    """Removes slots (each once), whose keys have these uint64 ``hashes``.

    Raises InternalError if a slot is not in the table.
    """
    position = table.home(hashes)
    while len(slots):
        found = table.slots[position]
        here = found == ~slots
        if (found == EMPTY).any():
            raise InternalError("a slot was freed twice", got=f"{len(slots)} slots to free")
        table.slots[position[here]] = TOMBSTONE
        slots, position = slots[~here], (position[~here] + 1) & table.mask
