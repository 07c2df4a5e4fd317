"""The rows of a log that are in memory: as they came, and in runs sorted by time.

New rows are in the batches in which they came. When some of them are due, the others are sorted by time,
so that the next watermark takes a prefix. Every four runs of similar length are merged. Arrays never
change, so parts that were handed out stay valid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.sorting import stable_argsort
from penstock.state.row_log import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.types.batch import Batch

#: How many runs of similar length are merged.
_FAN = 4


class _Run:
    """Rows sorted by time. Those before ``start`` are gone."""

    __slots__ = ("part", "start", "times")

    def __init__(self, part: Part, times: np.ndarray) -> None:
        self.part, self.times, self.start = part, times, 0

    @property
    def rows(self) -> int:
        return len(self.times) - self.start

    def rest(self) -> Part:
        return self.part.slice(self.start, len(self.times)) if self.start else self.part


class MemoryRows:
    """Rows in memory. ``times(rows)``: when each row is due (int64); None: all are due at the end.

    ``most_run_bytes``: no more rows are sorted or merged together (None: no limit).
    """

    def __init__(
        self, times: Callable[[Batch], np.ndarray] | None, *, most_run_bytes: int | None = None
    ) -> None:
        self._times, self._most_run_bytes = times, most_run_bytes
        self._sorted: list[_Run] = []
        self._fresh: list[Part] = []
        #: The earliest time of a row that is in no run.
        self._first_fresh: int | None = None
        #: Bytes of memory.
        self.nbytes = 0

    def add(self, part: Part) -> None:
        """Adds rows as they come."""
        self._fresh.append(part)
        self.nbytes += part.nbytes
        if self._times is not None:
            first = int(self._times(part.batch).min())
            self._first_fresh = first if self._first_fresh is None else min(first, self._first_fresh)

    def parts(self) -> list[Part]:
        """All rows, older ones first."""
        return [*(run.rest() for run in self._sorted), *self._fresh]

    def whole(self) -> Part | None:
        """All rows as they came, joined to one part; None if there are none. Only if there are no times."""
        if self._fresh:
            self._fresh = [Part.concat(self._fresh)]
        return self._fresh[0] if self._fresh else None

    def take_out(self, mask: np.ndarray) -> Part:
        """Removes and returns the rows of ``whole`` under the mask."""
        [whole] = self._fresh
        rest = whole.take(np.flatnonzero(~mask))
        self._fresh = [rest] if len(rest.ids) else []
        self.nbytes = sum(part.nbytes for part in self._fresh)
        return whole.take(np.flatnonzero(mask))

    def take_oldest(self, nbytes: int) -> tuple[list[Part], int]:
        """Removes about ``nbytes`` of the oldest rows. Returns (the rows, their bytes)."""
        taken: list[Part] = []
        size = 0
        while self._sorted and size < nbytes:
            oldest = self._sorted.pop(0)
            taken.append(oldest.rest())
            size += oldest.part.nbytes
        fresh = 0
        while fresh < len(self._fresh) and size < nbytes:
            size += self._fresh[fresh].nbytes
            fresh += 1
        taken += self._fresh[:fresh]
        del self._fresh[:fresh]
        if not self._fresh:
            self._first_fresh = None
        self.nbytes -= size
        return taken, size

    def take(self, limit: int | None) -> list[Part]:
        """Removes and returns the rows that are due not after ``limit`` (None: all), older ones first."""
        out: list[Part] = []
        if limit is None:
            out = self.parts()
            self._sorted, self._fresh, self._first_fresh, self.nbytes = [], [], None, 0
            return out
        for run in self._sorted:
            n = int(np.searchsorted(run.times, limit, "right"))
            if n > run.start:
                out.append(run.part.slice(run.start, n))
                run.start = n
        self._tidy()
        if self._first_fresh is not None and self._first_fresh <= limit:
            out += self._split_fresh(limit)
        return out

    def without(self, chosen: Callable[[Part], np.ndarray]) -> Iterator[Part]:
        """Removes the rows under the masks that ``chosen`` returns, a part at a time, and yields each part
        removed (maybe empty). Between two steps other rows may be added or taken."""
        for fresh in list(self._fresh):
            if fresh in self._fresh:
                gone = chosen(fresh)
                rest = fresh.take(np.flatnonzero(~gone))
                self.nbytes += rest.nbytes - fresh.nbytes
                at = self._fresh.index(fresh)
                self._fresh[at : at + 1] = [rest] if len(rest.ids) else []
                yield fresh.take(np.flatnonzero(gone))
        for run in list(self._sorted):
            if run in self._sorted:
                part = run.rest()
                gone = chosen(part)
                rest = part.take(np.flatnonzero(~gone))
                self.nbytes += rest.nbytes - run.part.nbytes
                at = self._sorted.index(run)
                self._sorted[at : at + 1] = [_Run(rest, run.times[run.start :][~gone])]
                yield part.take(np.flatnonzero(gone))
        self._tidy()

    def _split_fresh(self, limit: int) -> list[Part]:
        """Returns the fresh rows that are due; the others become runs."""
        assert self._times is not None
        fresh, self._fresh, self._first_fresh = self._fresh, [], None
        fresh.reverse()
        out: list[Part] = []
        while fresh:
            some = [fresh.pop()]
            size = some[0].nbytes
            while fresh and (self._most_run_bytes is None or size + fresh[-1].nbytes <= self._most_run_bytes):
                some.append(fresh.pop())
                size += some[-1].nbytes
            self.nbytes -= size
            whole = Part.concat(some)
            del some
            times = self._times(whole.batch)
            due = times <= limit
            if due.all():
                out.append(whole)
                continue
            rest = np.flatnonzero(~due)
            order = rest[stable_argsort(times[rest])]
            self._add_run(whole.take(order), times[order])
            if len(rest) < len(times):
                out.append(whole.take(np.flatnonzero(due)))
        return out

    def _add_run(self, part: Part, times: np.ndarray) -> None:
        """Adds a run, and merges runs of similar length."""
        runs = self._sorted
        runs.append(_Run(part, times))
        self.nbytes += part.nbytes
        while len(runs) >= _FAN and runs[-_FAN].rows < _FAN * runs[-1].rows:
            last = runs[-_FAN:]
            size = sum(run.part.nbytes for run in last)
            if self._most_run_bytes is not None and size > self._most_run_bytes:
                return
            times = np.concatenate([run.times[run.start :] for run in last])
            order = stable_argsort(times)
            whole = Part.concat([run.rest() for run in last]).take(order)
            runs[-_FAN:] = [_Run(whole, times[order])]
            self.nbytes += whole.nbytes - size

    def _tidy(self) -> None:
        """Releases the rows that were taken from a run once they are most of it."""
        kept = []
        for run in self._sorted:
            if run.rows and run.start > run.rows:
                self.nbytes -= run.part.nbytes
                rest = np.arange(run.start, len(run.times))
                run = _Run(run.part.take(rest), run.times[rest])
                self.nbytes += run.part.nbytes
            if run.rows:
                kept.append(run)
            else:
                self.nbytes -= run.part.nbytes
        self._sorted = kept
