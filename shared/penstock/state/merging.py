"""Sorted streams of rows as one, in bounded memory.

Each stream gives its rows block by block. A round loads up to two blocks of each and lets go of
what stands before the first row that is not loaded yet; so about half of what is loaded goes
in every round, however many streams there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.sorting import changes, sort_indices
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.jobgraph.specs import SortKey
    from penstock.state.row_log import Part


class Stream:
    """``blocks``: sorted rows; ``columns``: what of them they are sorted by, then by number.
    ``of``: whose they are, as ``merged`` gives them. ``taken(part)``: is told of rows that go."""

    def __init__(
        self,
        blocks: Iterator[Part],
        columns: Callable[[Part], Sequence[Column]],
        of: int,
        taken: Callable[[Part], None],
    ) -> None:
        self._blocks, self._columns = blocks, columns
        self.of, self._taken = of, taken
        self._loaded: list[tuple[Part, Sequence[Column]]] = []
        self.ended = False

    @property
    def keys(self) -> list[Sequence[Column]]:
        return [columns for _, columns in self._loaded]

    @property
    def ids(self) -> list[np.ndarray]:
        return [part.ids for part, _ in self._loaded]

    @property
    def rows(self) -> int:
        return sum(len(part.ids) for part, _ in self._loaded)

    def load(self, blocks: int) -> None:
        """Up to so many are there then."""
        while not self.ended and len(self._loaded) < blocks:
            block = next(self._blocks, None)
            if block is None:
                self.ended = True
            elif len(block.ids):
                self._loaded.append((block, self._columns(block)))

    def load_more(self) -> None:
        """Twice as many."""
        self.load(2 * len(self._loaded))

    def take(self, rows: int) -> list[Part]:
        """The first rows that are loaded, out of here."""
        out: list[Part] = []
        while rows:
            part, columns = self._loaded[0]
            n = len(part.ids)
            if n > rows:
                rest = part.slice(rows, n)
                self._loaded[0] = (rest, [c.slice(rows, n - rows) for c in columns])
                part, n = part.slice(0, rows), rows
            else:
                del self._loaded[0]
            self._taken(part)
            out.append(part)
            rows -= n
        return out


def merged(
    streams: Sequence[Stream], order: Sequence[SortKey], *, whole: bool
) -> Iterator[list[tuple[list[Part], np.ndarray]]]:
    """All rows of all streams, a piece at a time: by owner (``Stream.of``) the parts and in which
    order their rows, one part after the other, stand. ``whole``: a piece ends where the order
    changes; rows that are equal in it must fit into memory."""
    owners = 1 + max(stream.of for stream in streams)
    streams = list(streams)
    while True:
        for stream in streams:
            stream.load(2)
        streams = [stream for stream in streams if stream.rows]
        if not streams:
            return
        cut, sequence = _ready(streams, order, whole=whole)
        sizes = np.array([stream.rows for stream in streams])
        ends = np.cumsum(sizes)
        ready = sequence[:cut]
        place = np.zeros(int(ends[-1]), np.bool_)
        place[ready] = True
        out: list[tuple[list[Part], np.ndarray]] = []
        taken = [int(place[end - n : end].sum()) for end, n in zip(ends, sizes, strict=True)]
        of_row = np.repeat([stream.of for stream in streams], sizes)
        for owner in range(owners):
            mine = of_row[ready] == owner if owners > 1 else slice(None)
            rows = ready[mine]
            number = np.cumsum(place & (of_row == owner)) - 1
            parts: list[Part] = []
            for stream, n in zip(streams, taken, strict=True):
                if stream.of == owner:
                    parts += stream.take(n)
            out.append((parts, number[rows]))
        yield out


def _ready(streams: Sequence[Stream], order: Sequence[SortKey], *, whole: bool) -> tuple[int, np.ndarray]:
    """How many of the loaded rows may go, and the order of all of them."""
    while True:
        keys = [Column.concat(columns) for columns in zip(*(k for s in streams for k in s.keys), strict=True)]
        ids = np.concatenate([x for s in streams for x in s.ids])
        by_number = np.argsort(ids, kind="stable")
        sequence = by_number[sort_indices([c.take(by_number) for c in keys], order)]
        ends = np.cumsum([s.rows for s in streams])
        position = np.empty(len(ids), np.int64)
        position[sequence] = np.arange(len(ids))
        last = [(int(position[end - 1]), s) for end, s in zip(ends, streams, strict=True) if not s.ended]
        if not last:
            return len(ids), sequence
        at, stream = min(last, key=lambda x: x[0])
        if not whole:
            return at + 1, sequence
        starts = np.flatnonzero(changes(keys, order, sequence))
        cut = int(starts[np.searchsorted(starts, at, "right") - 1])
        if cut:
            return cut, sequence
        stream.load_more()
