"""Timers: registered for a key, each once, and fired in the order (time, key)."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

from penstock.state.epochs import Epochs
from penstock.state.key_changes import KeyChanges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.state.states import Journal


_NONE: Any = object()


class _Many(dict[Any, None]):
    """The entries of one time, if there are several: a set in insertion order."""


class TimerQueue:
    """Timers of one kind. An entry is a key, or (key, namespace).

    A heap of distinct times, and for each time its one entry or a set of entries: registering and deleting
    are O(1) for a known time. Deleted times stay in the heap until they are the earliest. ``changes``
    records (time, entry).
    """

    def __init__(self, epochs: Epochs | None = None) -> None:
        self.changes = KeyChanges(epochs or Epochs(), self.known)
        self._heap: list[int] = []
        self._entries: dict[int, Any] = {}
        self._count = 0
        #: Called before timers fire.
        self.before_due: Callable[[], None] = _nothing

    def __len__(self) -> int:
        return self._count

    @property
    def next_time(self) -> int | None:
        """The earliest registered time; None if there is no timer."""
        heap = self._heap
        while heap and heap[0] not in self._entries:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def register(self, time: int, entry: Any, journal: Journal | None = None) -> bool:
        """Registers a timer. Returns False if it was registered before. ``journal`` receives the undo."""
        if self.known((time, entry)):
            return False
        self.changes.note((time, entry))
        self._keep(time, entry)
        self._count += 1
        if journal is not None:
            journal.add(lambda: self.delete(time, entry))
        return True

    def _keep(self, time: int, entry: Any) -> None:
        """Puts an entry that is not there into memory."""
        entries = self._entries
        if time not in entries:
            # The heap may still hold this time if its entries were all deleted; a second one does no harm.
            heapq.heappush(self._heap, time)
            entries[time] = entry
            return
        known = entries[time]
        if type(known) is _Many:
            known[entry] = None
        else:
            entries[time] = _Many({known: None, entry: None})

    @staticmethod
    def _of(known: Any) -> list[Any]:
        """The entries of one time, of which ``known`` is what is kept."""
        return list(known) if type(known) is _Many else [known]

    def delete(self, time: int, entry: Any, journal: Journal | None = None) -> None:
        """Deletes a timer, if it is registered. ``journal`` receives the undo."""
        entries = self._entries
        if not self.known((time, entry)):
            return
        self.changes.note((time, entry))
        known = entries[time]
        if type(known) is _Many:
            del known[entry]
            if not known:
                del entries[time]
        else:
            del entries[time]
        self._count -= 1
        self.changes.removed((time, entry))
        if journal is not None:
            journal.add(lambda: self.register(time, entry))

    def due(self, until: int) -> Iterator[tuple[int, Any]]:
        """Removes and yields the timers with time <= ``until`` in the order (time, key). Timers that are
        registered meanwhile are included if they are due."""
        self.before_due()
        while (time := self.next_time) is not None and time <= until:
            for entry in self._waiting(time):
                if not self.known((time, entry)):
                    continue  # an earlier timer of this moment deleted it
                self.delete(time, entry)
                yield time, entry
                if self._heap and self._heap[0] < time:
                    break

    def _waiting(self, time: int) -> list[Any]:
        """The entries of the earliest time, in order."""
        known = self._entries[time]
        return _in_order(known) if type(known) is _Many else [known]

    def known(self, pair: tuple[int, Any]) -> bool | None:
        """True if this (time, entry) is registered, otherwise None."""
        time, entry = pair
        if time not in self._entries:
            return None
        known = self._entries[time]
        return (entry in known if type(known) is _Many else known == entry) or None

    def pairs(self) -> Iterator[tuple[tuple[int, Any], bool]]:
        """((time, entry), True) of all timers at this moment, while they may change."""
        for time in list(self._entries):
            known = self._entries.get(time, _NONE)
            for entry in list(known) if type(known) is _Many else [known]:
                if entry is not _NONE:
                    yield (time, entry), True


def _nothing() -> None:
    """The default of ``before_due``."""


def _in_order(entries: Any) -> list[Any]:
    try:
        return sorted(entries)
    except TypeError:
        # A key contains NULL, or a type without an order. Any stable total order is enough.
        return sorted(entries, key=lambda e: (type(e).__name__, repr(e)))
