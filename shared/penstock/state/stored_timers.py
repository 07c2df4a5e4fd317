"""Timers that may be far more than fit into memory: those that were registered last lie there, the others in LevelDB.

A row is ``prefix ‖ time ‖ place of the entry`` → the encoded entry, so that the next timers are the first rows. The place
orders keys of whole numbers and texts as their values are, and all others by their encoding; timers of one time fire
in the order of their places, wherever they lie.
"""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.state.timers import TimerQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.state.epochs import Epochs
    from penstock.state.states import Journal

#: The key group in the place of which the rows of timers have this number, which no key has, and the kind of timers.
_PREFIX = struct.Struct(">HH")
_NO_GROUP = 0xFFFF
#: A time, or a whole number, so that bytes have the order of the values.
_NUMBER = struct.Struct(">Q")
_LEAST = -(1 << 63)
#: How many timers are brought back at once at most, and how many are written at once.
MOST_FETCHED, _WRITTEN = 1024, 4096
#: How many timers that were found on the disk are remembered.
_MOST_SEEN = 4096
#: A timer in memory takes about so many bytes.
TIMER_BYTES = 400


class EntryCodec(NamedTuple):
    """How an entry of a timer, which is a key or (key, window), becomes bytes."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    namespaced: Callable[[], bool]


class StoredTimers(TimerQueue):
    """Timers of one kind, of which ``spill`` moves those in memory to the disk.

    Args:
        epochs: The epochs of the task.
        db: An open LevelDB, in which the rows of values begin with a key group.
        kind: Distinguishes the queues in one database, from 0 to 65,535.
        codec: Encodes entries.
        fetched: How many timers are brought back at once.
    """

    def __init__(
        self, epochs: Epochs, db: Any, kind: int, codec: EntryCodec, fetched: int = MOST_FETCHED
    ) -> None:
        super().__init__(epochs)
        self._db = db
        self._codec = codec
        self._fetched = fetched
        self._prefix = _PREFIX.pack(_NO_GROUP, kind)
        #: The number of timers on the disk, and the earliest time of one.
        self._stored = 0
        self._first: int | None = None
        #: Timers that were asked for and are on the disk.
        self._seen: set[tuple[int, Any]] = set()
        self._firing = False
        #: The time whose timers are being fired, and the last row of it that came back.
        self._fetching: tuple[int, bytes] | None = None

    @property
    def in_memory(self) -> int:
        """The number of timers in memory."""
        return self._count - self._stored

    @property
    def stored(self) -> int:
        """The number of timers on the disk."""
        return self._stored

    @property
    def next_time(self) -> int | None:
        """The earliest registered time; None if there is no timer."""
        time = super().next_time
        if self._first is None or (time is not None and time < self._first):
            return time
        return self._first

    def spill(self) -> int:
        """Moves all timers in memory to the disk, and returns their number. Does nothing while timers fire."""
        if self._firing or not self._entries:
            return 0
        moved = self._store(sorted(self._entries))
        self._heap.clear()
        return moved

    def known(self, pair: tuple[int, Any]) -> bool | None:
        """True if this (time, entry) is registered, otherwise None."""
        found = super().known(pair)
        return found if found or not self._stored else self._on_disk(pair)

    def delete(self, time: int, entry: Any, journal: Journal | None = None) -> None:
        """Deletes a timer, if it is registered. ``journal`` receives the undo."""
        pair = (time, entry)
        if not self._stored or super().known(pair) or not self._on_disk(pair):
            super().delete(time, entry, journal)
            return
        self.changes.note(pair)
        self._db.delete(self._row(time, entry))
        self._seen.discard(pair)
        self._stored -= 1
        self._count -= 1
        if time == self._first:
            self._first = self._first_from(time)
        self.changes.removed(pair)
        if journal is not None:
            journal.add(lambda: self.register(time, entry))

    def due(self, until: int) -> Iterator[tuple[int, Any]]:
        """See ``TimerQueue``."""
        self._firing, self._fetching = True, None
        try:
            yield from super().due(until)
        finally:
            self._firing = False

    def pairs(self) -> Iterator[tuple[tuple[int, Any], bool]]:
        """((time, entry), True) of all timers at this moment, while they may change."""
        if not self._stored:
            # Nothing in memory may move to the disk before it was listed.
            yield from list(super().pairs())
            return
        stored = self._db.snapshot()
        try:
            yield from list(super().pairs())
            for row, data in stored.iterator(prefix=self._prefix, include_value=True, fill_cache=False):
                yield (self._time(row), self._codec.decode(data)), True
        finally:
            stored.close()

    def _waiting(self, time: int) -> list[Any]:
        bound = self._fetch(time) if self._first == time else None
        # The entry itself may be 0, an empty text or None.
        entries = self._of(self._entries[time]) if time in self._entries else []
        places = sorted((self._place(entry), entry) for entry in entries)
        return [entry for place, entry in places if bound is None or place <= bound]

    # -- the disk -------------------------------------------------------------------------------

    def _on_disk(self, pair: tuple[int, Any]) -> bool | None:
        if self._first is None or pair[0] < self._first:
            return None
        if pair in self._seen:
            return True
        if self._db.get(self._row(*pair)) is None:
            return None
        if len(self._seen) >= _MOST_SEEN:
            self._seen.clear()
        self._seen.add(pair)
        return True

    def _fetch(self, time: int) -> bytes | None:
        """Brings the next timers of ``time`` back. Returns the place of the last one; None if no more are there."""
        if self._fetching is None or self._fetching[0] != time:
            if time in self._entries:
                self._store([time])  # so that all timers of this time come back in one order
            self._fetching = (time, b"")
        start = self._fetching[1] or self._time_prefix(time)
        rows = list(
            itertools.islice(
                self._db.iterator(
                    start=start, stop=self._end(time), include_start=not self._fetching[1], include_value=True,
                    fill_cache=False,
                ),
                self._fetched,
            )
        )  # fmt: skip
        with self._db.write_batch() as batch:
            for row, data in rows:
                batch.delete(row)
                self._keep(time, self._codec.decode(data))
        self._stored -= len(rows)
        self._seen.clear()
        if len(rows) == self._fetched:
            last = rows[-1][0]
            self._fetching = (time, last)
            return last[len(self._time_prefix(time)) :]
        self._fetching = None
        self._first = self._first_from(time)
        return None

    def _store(self, times: list[int]) -> int:
        """Writes the timers of some times, ascending, which are in memory, and gives them up there."""
        moved = 0
        pairs = ((time, entry) for time in times for entry in self._of(self._entries[time]))
        while part := list(itertools.islice(pairs, _WRITTEN)):
            with self._db.write_batch() as batch:
                for time, entry in part:
                    batch.put(self._row(time, entry), self._codec.encode(entry))
            moved += len(part)
        for time in times:
            del self._entries[time]
        self._stored += moved
        self._first = times[0] if self._first is None else min(self._first, times[0])
        return moved

    def _first_from(self, time: int) -> int | None:
        """The earliest time on the disk, which is not before ``time``."""
        if not self._stored:
            return None
        start, stop = self._time_prefix(time), self._prefix + b"\xff" * (_NUMBER.size + 1)
        with self._db.iterator(start=start, stop=stop, include_value=False, fill_cache=False) as rows:
            row = next(rows, None)
        return None if row is None else self._time(row)

    # -- rows -----------------------------------------------------------------------------------

    def _time_prefix(self, time: int) -> bytes:
        return self._prefix + _NUMBER.pack(time - _LEAST)

    def _end(self, time: int) -> bytes:
        return self._time_prefix(time) + b"\xff"

    def _time(self, row: bytes) -> int:
        return int(_NUMBER.unpack_from(row, len(self._prefix))[0]) + _LEAST

    def _row(self, time: int, entry: Any) -> bytes:
        return self._time_prefix(time) + self._place(entry)

    def _place(self, entry: Any) -> bytes:
        """Bytes that no other entry has. None of them begins with 0xff."""
        key, window = entry if self._codec.namespaced() else (entry, ())
        parts = key if type(key) is tuple else (key,)
        out = bytearray()
        for part in parts:
            if type(part) is int and -(1 << 63) <= part < 1 << 63:
                out += b"i" + _NUMBER.pack(part - _LEAST)
            elif type(part) is str:
                out += b"s" + part.encode("utf-8", "surrogatepass").replace(b"\0", b"\0\xff") + b"\0"
            else:
                return b"z" + self._codec.encode(entry)
        for end in window:
            out += _NUMBER.pack(end - _LEAST)
        return bytes(out)
