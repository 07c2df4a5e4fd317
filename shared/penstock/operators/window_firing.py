"""The results of windows: the cells of their panes, merged per key."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.windows import ROWTIME_STEP_US
from penstock.operators.changes import typed
from penstock.operators.emitting import pieces
from penstock.state.pane_space import key_of, packed
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penstock.jobgraph.specs import WindowAggregateSpec
    from penstock.operators.window_pieces import WindowPieces
    from penstock.state.aggregates import AggregateSet
    from penstock.state.pane_space import Pane, PaneSpace
    from penstock.types.logical import Schema

#: Windows that are due are merged and emitted together, up to about this many cells.
FIRE_CELLS = 16_384


class WindowFiring:
    """Computes the results of windows without changing the state.

    ``space`` and ``aggregates`` are the operator's state in memory; ``spilled`` merges windows that may be
    partly on disk (None if no window ever is).
    """

    def __init__(
        self,
        spec: WindowAggregateSpec,
        schema: Schema,
        *,
        space: PaneSpace,
        aggregates: AggregateSet,
        spilled: WindowPieces | None,
    ) -> None:
        self.spec, self._schema = spec, schema
        self._windowed = spec.windowed_input is not None
        self._keys, self._cells, self._aggregates = space.index, space.cells, aggregates
        self._tier, self._spilled = space.tier, spilled

    def fire(
        self, live: Iterable[Pane], windows: Sequence[tuple[int, int]], only_keys: np.ndarray | None = None
    ) -> Iterator[Batch]:
        """The results of windows (end, start), for all keys or for the given key slots.

        Many small windows are emitted together: after a pause of the watermark thousands may be due, and each
        batch has a fixed cost in the operators downstream.
        """
        by_start = sorted(live, key=lambda p: p.start)
        starts = [p.start for p in by_start]
        chosen: list[tuple[int, int]] = []
        cells: list[np.ndarray] = []
        window_of: list[np.ndarray] = []
        waiting, merge = 0, False
        for end, start in windows:
            panes = self._panes_of(by_start, starts, start, end)
            found = [pane.cells(self._cells) for pane in panes]
            count = sum(map(len, found))
            if self._spilled is not None and self._spilled.needed([p.run for p in panes], count):
                if waiting:
                    yield from self._fire_cells(chosen, cells, window_of, only_keys, merge)
                    chosen, cells, window_of, waiting, merge = [], [], [], 0, False
                yield from self._fire_spilled(self._spilled, (start, end), panes, only_keys)
                continue
            merge = merge or len(panes) > 1
            cells += found
            window_of += [np.full(len(x), len(chosen), np.int64) for x in found]
            waiting += count
            chosen.append((start, end))
            if waiting >= FIRE_CELLS:
                yield from self._fire_cells(chosen, cells, window_of, only_keys, merge)
                chosen, cells, window_of, waiting, merge = [], [], [], 0, False
        if waiting:
            yield from self._fire_cells(chosen, cells, window_of, only_keys, merge)

    def _panes_of(self, by_start: Sequence[Pane], starts: Sequence[int], start: int, end: int) -> list[Pane]:
        if self._windowed:
            first = bisect_left(starts, start)
            same = itertools.takewhile(lambda p: p.start == start, by_start[first:])
            return [p for p in same if p.end == end]
        return list(by_start[bisect_left(starts, start) : bisect_left(starts, end)])

    def _fire_cells(
        self,
        windows: Sequence[tuple[int, int]],
        cells_of: Sequence[np.ndarray],
        window_of: Sequence[np.ndarray],
        only_keys: np.ndarray | None,
        merge: bool,
    ) -> Iterator[Batch]:
        """The results of windows (start, end): the cells of one window and key become one row."""
        cells, window = np.concatenate(cells_of), np.concatenate(window_of)
        key_slots = key_of(self._cells.ints(cells))
        if only_keys is not None:
            chosen = np.isin(key_slots, only_keys)
            cells, window, key_slots = cells[chosen], window[chosen], key_slots[chosen]
        bounds = np.array(windows, np.int64).reshape(-1, 2)
        if not merge:
            for part in pieces(np.arange(len(cells)), self._tier.piece_keys):
                keys = self._keys.keys(key_slots[part])
                yield self._window_batch(bounds[window[part]], keys, self._aggregates.results(cells[part]))
            return
        high = self._keys.high
        local, rows = dense(window * high + key_slots, high * len(windows))
        merged = self._aggregates.fresh()
        merged.reset(np.arange(len(rows)), len(rows))
        merged.absorb(local, self._aggregates, cells)
        for part in pieces(np.arange(len(rows)), self._tier.piece_keys):
            window_rows, of_keys = np.divmod(rows[part], high)
            yield self._window_batch(bounds[window_rows], self._keys.keys(of_keys), merged.results(part))

    def _fire_spilled(
        self,
        spilled: WindowPieces,
        window: tuple[int, int],
        panes: Sequence[Pane],
        only_keys: np.ndarray | None,
    ) -> Iterator[Batch]:
        """The results of a window (start, end) that may be partly on disk."""
        if only_keys is None:
            found = spilled.whole([(p.run, p.cells(self._cells)) for p in panes])
        else:
            found = spilled.some(
                [(p.run, self._cells_of(only_keys, p)) for p in panes],
                self._keys.keys(only_keys),
            )
        for keys, results in found:
            n = len(results[0]) if results else len(keys[0])
            for part in pieces(np.arange(n)):
                bounds = np.tile(np.array(window, np.int64), (len(part), 1))
                whole = len(part) == n
                yield self._window_batch(
                    bounds,
                    keys if whole else [c.take(part) for c in keys],
                    results if whole else [c.take(part) for c in results],
                )

    def _cells_of(self, key_slots: np.ndarray, pane: Pane) -> np.ndarray:
        """The cells in memory that these keys have in a pane."""
        cells = self._cells.lookup_ints(packed(key_slots, pane.id))
        return cells[cells >= 0]

    def _window_batch(self, bounds: np.ndarray, keys: list[Column], results: list[Column]) -> Batch:
        """The output batch. ``bounds`` has the (start, end) of each row's window."""
        schema = self._schema
        n = len(bounds)
        columns = [*keys, *results]
        starts, ends = np.ascontiguousarray(bounds[:, 0]), np.ascontiguousarray(bounds[:, 1])
        values = {"start": starts, "end": ends, "time": ends - ROWTIME_STEP_US}
        for name in self.spec.window_columns:
            columns.append(Column(schema.types[len(columns)], values[name]))
        times = ends - 1 if self.spec.window.time == -1 else None
        return Batch(schema, typed(schema, columns), times=times, num_rows=n)


def dense(key_slots: np.ndarray, high: int) -> tuple[np.ndarray, np.ndarray]:
    """(position of each row's key among the distinct keys, the distinct keys ascending)."""
    if len(key_slots) * 8 < high:
        keys, local = np.unique(key_slots, return_inverse=True)
        return local, keys
    seen = np.zeros(high, np.bool_)
    seen[key_slots] = True
    keys = np.flatnonzero(seen)
    position = np.empty(high, np.int64)
    position[keys] = np.arange(len(keys))
    return position[key_slots], keys
