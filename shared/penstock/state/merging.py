"""Merges sorted streams of rows in bounded memory.

Each stream yields its rows block by block. Each round loads up to two blocks of every stream and releases
the rows before the first row that is not loaded yet. So each round releases about half of what is loaded,
however many streams there are.
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
    """A sorted stream of rows.

    ``blocks``: the rows. ``columns``: the columns by which they are sorted, before their number. ``of``:
    the owner, an index into the output of ``merged``. ``taken(part)``: called for rows that are released.
    """

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
        """The sort columns of each loaded block."""
        return [columns for _, columns in self._loaded]

    @property
    def ids(self) -> list[np.ndarray]:
        """The row numbers of each loaded block."""
        return [part.ids for part, _ in self._loaded]

    @property
    def rows(self) -> int:
        """The number of loaded rows."""
        return sum(len(part.ids) for part, _ in self._loaded)

    def load(self, blocks: int) -> None:
        """Loads until there are ``blocks`` blocks, or the stream has ended."""
        while not self.ended and len(self._loaded) < blocks:
            block = next(self._blocks, None)
            if block is None:
                self.ended = True
            elif len(block.ids):
                self._loaded.append((block, self._columns(block)))

    def load_more(self) -> None:
        """Loads until there are twice as many blocks."""
        self.load(2 * len(self._loaded))

    def take(self, rows: int) -> list[Part]:
        """Removes and returns the first ``rows`` loaded rows."""
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
    """All rows of all streams in order, in pieces. A piece has for each owner (``Stream.of``) the parts, and
    the order of their concatenated rows. ``whole``: a piece never splits rows that are equal in ``order``;
    these must fit into memory."""
    owners = 1 + max((stream.of for stream in streams), default=0)
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
    """(how many of the loaded rows may be released, the order of all loaded rows)."""
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
