"""Records which keys of a state changed: for dictionaries, LevelDB rows and timers.

The changed keys are recorded for each epoch; a cut takes the record and puts an empty dictionary in its
place. Before a key changes for the first time after a cut, the value that the cut must contain is put
aside.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.snapshots.contract import KeyedBlock, PendingBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.state.epochs import Epochs

    #: (keys, their values, None where removed) → rows. Called on the data thread.
    MakeRows = Callable[[Sequence[Any], Sequence[Any]], pa.RecordBatch]
    #: (rows copied during the scan, rows put aside before a change, whether it is a delta) → the block.
    Assemble = Callable[[list[pa.RecordBatch], list[pa.RecordBatch], bool], KeyedBlock]

#: How many cuts may wait for their confirmation before the records of the oldest two are merged.
_MOST_OLDER = 4
_PIECE_S = 0.0005
_FIRST_ROWS, _LEAST_ROWS, _MOST_ROWS = 512, 64, 16_384


class _Everything(dict[Any, bool]):
    """Stands for the record of changed keys while none is kept: every key may have changed, and have been there
    before."""

    __slots__ = ()

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: Any) -> bool:
        return True


class KeyChanges:
    """The changed keys of one table. ``value`` returns the live value of a key (None: absent).

    ``changed``: the keys changed since the last cut, and whether each existed then. Before a key that is
    not in it changes, ``first_change`` must be called (``note`` does both).
    """

    __slots__ = ("_began", "_epochs", "_older", "changed", "cuts", "value")

    def __init__(self, epochs: Epochs, value: Callable[[Any], Any]) -> None:
        self._epochs = epochs
        #: The epoch in which the table was made, or its record given up. No delta builds on a snapshot up to an
        #: earlier epoch.
        self._began = epochs.now
        self.value = value
        self.changed: dict[Any, bool] = {}
        #: (epoch, keys changed up to it) of each cut after the confirmed one.
        self._older: list[tuple[int, dict[Any, bool]]] = []
        self.cuts: list[KeyCut] = []

    def first_change(self, key: Any) -> None:
        """Announces the first change of ``key`` since the last cut."""
        for cut in self.cuts:
            cut.keep(key)
        self.changed[key] = self.value(key) is not None

    def restored(self, keys: Iterable[Any]) -> None:
        """Records that ``keys`` came from a snapshot; no snapshot of this attempt has them yet."""
        if type(self.changed) is not _Everything:
            self.changed.update(dict.fromkeys(keys, True))

    @property
    def recorded(self) -> int:
        """How many changed keys are remembered."""
        return len(self.changed) + sum(len(keys) for _, keys in self._older)

    def forget(self) -> None:
        """Gives up the record of changed keys, which takes too much memory: the next snapshot holds the table
        whole, as if it were new. Until then no key is recorded. Does nothing while a cut is copied, which has to
        know what changes."""
        if not self.cuts:
            self._began = self._epochs.now
            self._older, self.changed = [], _Everything()

    def note(self, key: Any) -> None:
        """Announces that ``key`` is about to change."""
        if key not in self.changed:
            self.first_change(key)

    def removed(self, key: Any) -> None:
        """Announces that ``key``, which was noted, has been removed. A key that was new since the last cut
        leaves no trace."""
        if not self.changed[key]:
            del self.changed[key]

    def cut(
        self,
        *,
        rows: Callable[[], Iterator[tuple[Any, Any]]],
        copy: Callable[[Any], Any] | None,
        make_rows: MakeRows,
        assemble: Assemble,
    ) -> KeyCut:
        """The table at this moment. Nothing is copied yet.

        ``rows()`` iterates over all (key, value) while the table changes; a key that changes may come with
        either value. ``copy`` copies a value that may change in place.
        """
        since = self._epochs.since
        if since < self._began:  # nobody knows what changed since the checkpoint on which a delta would build
            since = 0
        confirmed = self._epochs.settled
        self._older = [(epoch, keys) for epoch, keys in self._older if epoch > confirmed]
        self._older.append((self._epochs.upto, self.changed))
        if len(self._older) > _MOST_OLDER:
            (_, first), (epoch, second) = self._older[:2]
            self._older[:2] = [(epoch, {**first, **second})]
        self.changed = {}
        self._epochs.end()
        sets = [keys for _, keys in self._older] if since else None
        found = rows() if sets is None else ((key, self.value(key)) for key in _distinct(sets))
        cut = KeyCut(self, sets, found, copy, make_rows, assemble)
        self.cuts.append(cut)
        return cut


class KeyCut(PendingBlock):
    """The cut of a table by key, while it is copied; see ``PendingBlock``."""

    def __init__(
        self,
        changes: KeyChanges,
        sets: list[dict[Any, bool]] | None,
        found: Iterator[tuple[Any, Any]],
        copy: Callable[[Any], Any] | None,
        make_rows: MakeRows,
        assemble: Assemble,
    ) -> None:
        self._changes = changes
        self._sets = sets
        self._found = found
        self._copy_value = copy
        self._make_rows, self._assemble = make_rows, assemble
        self._kept: dict[Any, Any] = {}
        self._open = True
        self._size = _FIRST_ROWS
        self._pieces: list[pa.RecordBatch] = []
        self._aside: list[pa.RecordBatch] = []

    def keep(self, key: Any) -> None:
        """Puts the value of ``key`` aside, because the key is about to change."""
        if key in self._kept or (self._sets is not None and not any(key in keys for keys in self._sets)):
            return
        value = self._changes.value(key)
        if value is not None and self._copy_value is not None:
            value = self._copy_value(value)
        self._kept[key] = value

    def copy(self, more: Callable[[], bool]) -> bool:
        while self._open:
            if not more():
                return False
            if not self._take(self._found, self._pieces):
                self._close()
                self._found = iter(self._kept.items())
        while more():
            if not self._take(self._found, self._aside):
                if not self._pieces:
                    self._pieces.append(self._make_rows([], []))
                return True
        return False

    def discard(self) -> None:
        self._close()
        self._found, self._kept = iter(()), {}
        self._pieces, self._aside = [], []

    def block(self) -> KeyedBlock:
        return self._assemble(self._pieces, self._aside, self._sets is not None)

    def _close(self) -> None:
        self._open = False
        if self in self._changes.cuts:
            self._changes.cuts.remove(self)

    def _take(self, found: Iterator[tuple[Any, Any]], out: list[pa.RecordBatch]) -> bool:
        """Makes the next rows. Returns False if there are none left."""
        began = time.perf_counter()
        pairs = list(itertools.islice(found, self._size))
        rows = pairs
        if self._sets is None and out is self._pieces:
            rows = [pair for pair in pairs if pair[1] is not None]
        if rows:
            out.append(self._make_rows([key for key, _ in rows], [value for _, value in rows]))
        if len(pairs) >= _LEAST_ROWS:
            faster = min(2.0, _PIECE_S / max(time.perf_counter() - began, 1e-6))
            self._size = int(min(max(len(pairs) * faster, _LEAST_ROWS), _MOST_ROWS))
        return bool(pairs)


def _distinct(sets: Sequence[dict[Any, bool]]) -> Iterator[Any]:
    for i, keys in enumerate(sets):
        later = sets[i + 1 :]
        for key in keys:
            if not any(key in other for other in later):
                yield key
