"""Sessions by key: a key has many cells, each with its bounds and its accumulators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.growing import grown
from penstock.columnar.multimap import MultiMap
from penstock.columnar.sorting import group_bounds
from penstock.columnar.store import Slots
from penstock.state.slot_table import SlotTable
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from penstock.columnar.accumulators import EntryTable
    from penstock.state.aggregates import AggregateSet
    from penstock.state.key_space import KeySpace

_LONG = t.BigIntType(False)
#: Added to a session's end on disk, because times there are not negative.
TIME_ZERO_US = 1 << 62
#: The end in a slot that is not in use.
_NEVER = 2**63 - 1
_BOUNDS = ["session_start", "session_end"]


class Sessions(SlotTable):
    """The sessions of all keys. ``start`` and ``end``: int64 µs by slot.

    On disk a key is listed by the end of its first session. Entries that accumulators have for each
    session are tables of their own.
    """

    def __init__(self, space: KeySpace, aggregates: AggregateSet) -> None:
        super().__init__(
            space, "cells", names=[*_BOUNDS, *aggregates.partial_names],
            types=[_LONG, _LONG, *aggregates.partial_types],
        )  # fmt: skip
        self.times = self._first_ends
        self._aggregates = aggregates
        self._slots, self._by_key = Slots(), MultiMap()
        self._key_of = np.zeros(1024, np.int64)
        self.start = np.zeros(1024, np.int64)
        self.end = np.full(1024, _NEVER, np.int64)
        for name, entries in aggregates.remembered():
            _SessionValues(self, name, entries)

    def __len__(self) -> int:
        return self._slots.count

    @property
    def live_bytes(self) -> int:
        n = len(self)
        return self._aggregates.live_bytes(n) + self._by_key.live_bytes + 36 * n

    # -- as a table ----------------------------------------------------------------------

    def rows_of(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._by_key.probe(keys)

    def keys_of(self, rows: np.ndarray) -> np.ndarray:
        return self._key_of[rows]

    def read(self, rows: np.ndarray) -> list[Column]:
        return [*self.bounds(rows), *self._aggregates.partials(rows)]

    def load(self, keys: np.ndarray, columns: list[Column]) -> np.ndarray:
        """See ``SlotTable``. The stored sessions of a key do not overlap, so each row becomes a session of
        its own."""
        sessions = self.open(keys)
        self.changes.write(sessions)
        self.start[sessions], self.end[sessions] = columns[0].values, columns[1].values
        self._aggregates.merge(sessions, columns[2:])
        return sessions

    def free(self, rows: np.ndarray, keys: np.ndarray) -> None:
        self.changes.free(rows)
        self._aggregates.release(rows)
        self._by_key.remove(rows)
        self.end[rows] = _NEVER
        self.space.use(keys, -1)
        self._slots.free(rows)

    # -- sessions ------------------------------------------------------------------------

    def open(self, keys: np.ndarray) -> np.ndarray:
        """Makes an empty session for each of these key slots; ``stretch`` sets its bounds."""
        new = self._slots.allocate(len(keys))
        high = self._slots.high
        self._key_of, self.start = grown(self._key_of, high), grown(self.start, high)
        self.end = grown(self.end, high, _NEVER)
        self._key_of[new] = keys
        self._aggregates.reset(new, high)
        self._by_key.add(keys, new)
        self.space.use(keys)
        return new

    def stretch(self, sessions: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> None:
        """Sets the bounds of sessions that are about to receive rows (µs)."""
        self.changes.write(sessions)
        # The entries of a session are stored with its start, by which they are assigned to it again.
        self._aggregates.touch_entries(sessions[self.start[sessions] != starts])
        self.start[sessions], self.end[sessions] = starts, ends

    def over(self, watermark: int) -> np.ndarray:
        """The sessions in memory that the watermark (µs) has passed."""
        self.space.given.finish()
        ends = self.end[: self._slots.high]
        return np.flatnonzero((ends - 1 <= watermark) & (ends != _NEVER))

    def first_end(self) -> int:
        """The earliest end of a session in memory, in µs."""
        return int(self.end[: self._slots.high].min(initial=_NEVER))

    def found(self, keys: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """The session of each key that begins at the given start."""
        rows, found = self._by_key.probe(keys)
        same = self.start[found] == starts[rows]
        sessions = np.empty(len(keys), np.int64)
        sessions[rows[same]] = found[same]
        return sessions

    def bounds(self, rows: np.ndarray) -> list[Column]:
        """The columns start and end of sessions."""
        return [Column(_LONG, self.start[rows]), Column(_LONG, self.end[rows])]

    def _first_ends(self, rows: np.ndarray) -> np.ndarray:
        """For each row, when the first session of its key ends. ``rows`` are all sessions of some keys, key
        by key."""
        groups = group_bounds(self._key_of[rows])
        first = np.minimum.reduceat(self.end[rows], groups[:-1])
        return np.repeat(first, np.diff(groups)) + TIME_ZERO_US


class _SessionValues(SlotTable):
    """The entries that an accumulator has for each session of a key, identified by the start of the session."""

    owned = True

    def __init__(self, sessions: Sessions, name: str, entries: EntryTable) -> None:
        super().__init__(
            sessions.space, name, names=[*_BOUNDS, *(f"value{j}" for j in range(len(entries.types)))],
            types=[_LONG, _LONG, *entries.types],
        )  # fmt: skip
        self._sessions, self._entries = sessions, entries
        self.ordered = entries.ordered
        entries.changes = self.changes

    def __len__(self) -> int:
        return len(self.changes.live())

    @property
    def live_bytes(self) -> int:
        """0: the accumulator counts them."""
        return 0

    def rows_of(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        positions, sessions = self._sessions.rows_of(keys)
        entries = self._entries.entries_of(sessions)
        order = np.argsort(sessions)
        at = order[np.searchsorted(sessions, self._entries.slots_of(entries), sorter=order)]
        return positions[at], entries

    def keys_of(self, rows: np.ndarray) -> np.ndarray:
        return self._sessions.keys_of(self._entries.slots_of(rows))

    def read(self, rows: np.ndarray) -> list[Column]:
        return [*self._sessions.bounds(self._entries.slots_of(rows)), *self._entries.read(rows)]

    def load(self, keys: np.ndarray, columns: list[Column]) -> np.ndarray:
        return self._entries.load(self._sessions.found(keys, columns[0].values), columns[2:])

    def free(self, rows: np.ndarray, keys: np.ndarray) -> None:
        raise AssertionError("the sessions that own these entries free them")
