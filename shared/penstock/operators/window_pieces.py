"""Windows that are large or partly on disk are merged piece by piece.

The panes of a window, in memory and on disk, are read in parallel in the order of their keys' hashes. A piece
is a range of hashes: it has all cells of its keys, and only as many as may be in memory beside the state. The
state does not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.hashing import hash_columns
from penstock.columnar.key_index import KeyIndex
from penstock.state.cold_tier import PIECE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.state.aggregates import AggregateSet
    from penstock.state.cold_runs import Run, RunPiece, RunTier
    from penstock.types.column import Column

    #: (key columns, result columns); each key occurs once.
    Rows = tuple[list[Column], list[Column]]
    #: A pane: its name on disk, and the cells in memory that belong to the result.
    PanePart = tuple[tuple[int, ...], np.ndarray]

#: The least number of keys that are read ahead from each pane on disk.
_LEAST_KEYS = 64


class WindowPieces:
    """Merges windows in pieces. ``keys_of(cells)`` gives the key columns of cells in memory, without the pane."""

    def __init__(
        self, tier: RunTier, aggregates: AggregateSet, keys_of: Callable[[np.ndarray], list[Column]]
    ) -> None:
        self._tier, self._aggregates, self._keys_of = tier, aggregates, keys_of

    def needed(self, runs: Sequence[tuple[int, ...]], cells: int) -> bool:
        """Whether a window of these panes, with ``cells`` cells in memory, must be merged in pieces."""
        if any(self._tier.lies(run) for run in runs):
            return True
        return len(runs) > 1 and self._tier.is_large(cells)

    def whole(self, panes: Sequence[PanePart]) -> Iterator[Rows]:
        """The results of all keys of a window. ``panes`` are in the order of their time."""
        runs = [self._tier.run(name) if self._tier.lies(name) else None for name, _ in panes]
        try:
            if len(panes) == 1:
                yield from self._single(panes[0][1], runs[0])
            else:
                yield from self._merged([cells for _, cells in panes], runs)
        finally:
            for run in runs:
                if run is not None:
                    run.close()

    def some(self, panes: Sequence[PanePart], keys: list[Column]) -> Iterator[Rows]:
        """The results of a few keys of a window. The cells of ``panes`` must belong to these keys."""
        found = [self._tier.peek(name, keys) if self._tier.lies(name) else None for name, _ in panes]
        yield from self._rows([cells for _, cells in panes], found)

    # -- pieces --------------------------------------------------------------------------

    def _single(self, cells: np.ndarray, run: Run | None) -> Iterator[Rows]:
        most = self._tier.piece_keys
        for at in range(0, len(cells), most):
            yield from self._rows([cells[at : at + most]], [None])
        while run is not None and not run.done:
            run.fill(most, PIECE_BYTES)
            yield from self._rows([cells[:0]], [run.take()])

    def _merged(self, cells_of: Sequence[np.ndarray], runs: Sequence[Run | None]) -> Iterator[Rows]:
        cells, panes = np.concatenate(cells_of), range(len(cells_of))
        of_pane = np.repeat(np.arange(len(panes)), [len(x) for x in cells_of])
        hashes = self._hashes(cells)
        order = np.argsort(hashes, kind="stable")
        cells, of_pane, hashes = cells[order], of_pane[order], hashes[order]
        reading = [run for run in runs if run is not None]
        most = self._tier.piece_keys
        each = max(most // max(len(reading), 1), _LEAST_KEYS)
        at, more = 0, True
        while more:
            for run in reading:
                if run.empty and not run.done:
                    run.fill(each, PIECE_BYTES // max(len(reading), 1))
            ends = [run.last for run in reading if not run.done]
            if len(cells) - at > most:
                ends.append(int(hashes[at + most - 1]))
            upto = min(ends, default=None)
            stop = len(cells) if upto is None else int(np.searchsorted(hashes, np.uint64(upto), side="right"))
            mine, of = cells[at:stop], of_pane[at:stop]
            taken = [None if run is None else run.take(upto) for run in runs]
            yield from self._rows([mine[of == i] for i in panes], taken)
            at, more = stop, upto is not None

    def _hashes(self, cells: np.ndarray) -> np.ndarray:
        """The uint64 hashes of the cells' keys, computed in pieces: the keys of all cells would double the memory."""
        most = self._tier.piece_keys
        parts = [hash_columns(self._keys_of(cells[i : i + most])) for i in range(0, len(cells), most)]
        return np.concatenate(parts) if parts else np.empty(0, np.uint64)

    # -- rows ----------------------------------------------------------------------------

    def _rows(self, cells: Sequence[np.ndarray], pieces: Sequence[RunPiece | None]) -> Iterator[Rows]:
        """The results of one piece; ``cells`` (in memory) and ``pieces`` (from disk) have one element per pane."""
        parts: list[tuple[list[Column], AggregateSet, np.ndarray]] = []
        for mine, piece in zip(cells, pieces, strict=True):
            if len(mine):
                parts.append((self._keys_of(mine), self._aggregates, mine))
            if piece is not None:
                parts.append((piece.keys, self._loaded(piece), np.arange(len(piece))))
        if len(cells) == 1:  # each key has one cell: nothing is merged
            for keys, of, slots in parts:
                yield keys, of.results(slots)
            return
        if not parts:
            return
        index = KeyIndex([c.type for c in parts[0][0]])
        targets = [index.upsert(keys, len(slots))[0] for keys, _, slots in parts]
        merged, all_slots = self._aggregates.fresh(), np.arange(index.high)
        merged.reset(all_slots, index.high)
        for target, (_, of, slots) in zip(targets, parts, strict=True):
            merged.absorb(target, of, slots)
        yield index.keys(all_slots), merged.results(all_slots)

    def _loaded(self, piece: RunPiece) -> AggregateSet:
        side, slots = self._aggregates.fresh(), np.arange(len(piece))
        side.reset(slots, len(slots))
        first, *entries = piece.tables
        side.merge(slots, first.columns)
        for (_, table), moved in zip(side.remembered(), entries, strict=True):
            if len(moved.ids):
                table.load(np.repeat(slots, moved.counts), moved.columns)
        return side
