"""Window functions over rows sorted by partition and order: peers, ranks, shifts, frames.

Every array has one element per sorted row. ``slots`` holds the partition of each row; the rows of a
partition are contiguous.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.sorting import changes, group_bounds, order_codes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.jobgraph.specs import SortKey
    from penstock.types.column import Column

_FAR = 2**62


@dataclass(frozen=True, slots=True)
class Layout:
    """For each row (int64) where its partition and its peers (rows of equal order) start and end.

    ``low`` and ``peers_low`` are row numbers, ``high`` and ``peers_high`` are exclusive ends.
    """

    low: np.ndarray
    high: np.ndarray
    peers_low: np.ndarray
    peers_high: np.ndarray

    @classmethod
    def of(cls, columns: Sequence[Column], order: Sequence[SortKey], slots: np.ndarray) -> Layout:
        """The layout of sorted rows. Without an order all rows of a partition are peers."""
        n = len(slots)
        bounds = group_bounds(slots)
        sizes = np.diff(bounds)
        low, high = np.repeat(bounds[:-1], sizes), np.repeat(bounds[1:], sizes)
        if not order or not n:
            return cls(low, high, low, high)
        opens = changes(columns, order, np.arange(n))
        opens[1:] |= slots[1:] != slots[:-1]
        first = np.flatnonzero(opens)
        group = np.cumsum(opens) - 1
        return cls(low, high, first[group], np.append(first[1:], n)[group])

    def __len__(self) -> int:
        return len(self.low)

    # -- ranks ---------------------------------------------------------------------------

    def row_number(self) -> np.ndarray:
        """ROW_NUMBER of each row, from 1."""
        return np.arange(len(self)) - self.low + 1

    def rank(self) -> np.ndarray:
        """RANK of each row, from 1, with gaps."""
        return self.peers_low - self.low + 1

    def dense_rank(self) -> np.ndarray:
        """DENSE_RANK of each row, from 1, without gaps."""
        groups = np.cumsum(self.peers_low == np.arange(len(self)))
        return groups - groups[self.low] + 1 if len(self) else groups

    def percent_rank(self) -> np.ndarray:
        """PERCENT_RANK of each row: (rank - 1) / (rows - 1), 0.0 in a partition of one row."""
        others = self.high - self.low - 1
        return np.where(others > 0, (self.rank() - 1) / np.maximum(others, 1), 0.0)

    def cume_dist(self) -> np.ndarray:
        """CUME_DIST of each row: the part of the partition up to the row's last peer."""
        return (self.peers_high - self.low) / np.maximum(self.high - self.low, 1)

    def ntile(self, buckets: int) -> np.ndarray:
        """NTILE: the bucket of each row, from 1. Sizes of buckets differ by at most one; larger ones come first."""
        size, larger = np.divmod(self.high - self.low, buckets)
        at = np.arange(len(self)) - self.low
        edge = larger * (size + 1)
        rest = larger + (at - edge) // np.maximum(size, 1)
        return np.where(at < edge, at // (size + 1), rest) + 1

    def shifted(self, by: int, there: np.ndarray | None = None) -> np.ndarray:
        """The row number ``by`` rows after each row (before it if negative); -1 outside the partition.

        ``there`` (bool): only these rows are counted.
        """
        at = np.arange(len(self))
        found = at + by if there is None else counted_from(at, there, by)
        return np.where((found >= self.low) & (found < self.high), found, -1)

    # -- frames --------------------------------------------------------------------------

    def rows_frame(self, preceding: int | None, following: int | None) -> tuple[np.ndarray, np.ndarray]:
        """The frame [start, end) of each row for ROWS BETWEEN … AND …; an empty frame has start = end.

        ``preceding`` and ``following`` are numbers of rows; None means UNBOUNDED.
        """
        at = np.arange(len(self))
        start = self.low if preceding is None else np.clip(at - preceding, self.low, self.high)
        end = self.high if following is None else np.clip(at + following + 1, self.low, self.high)
        return start, np.maximum(start, end)

    def range_frame(
        self, preceding: int | None, following: int | None, order: Column | None, key: SortKey | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The frame [start, end) of each row for RANGE BETWEEN … AND … over one order column.

        ``preceding`` and ``following`` are distances in the column's units; None means UNBOUNDED and 0 the
        row's peers (CURRENT ROW). The frame of a NULL is the NULLs of its partition.
        """
        start, end = self.peers_low, self.peers_high
        if preceding is None:
            start = self.low
        elif preceding:
            assert order is not None
            assert key is not None
            start = self._reach(order, key, -preceding, right=False)
        if following is None:
            end = self.high
        elif following:
            assert order is not None
            assert key is not None
            end = self._reach(order, key, following, right=True)
        return start, np.maximum(start, end)

    def _reach(self, order: Column, key: SortKey, by: int, *, right: bool) -> np.ndarray:
        """The number of the first row of each row's partition whose value is at least ``value + by``.

        If ``right``, the first row whose value is above ``value + by``. For a descending key the values
        are negated first.
        """
        codes = order_codes(order)
        values = -codes if key.descending else codes
        valid = order.valid
        if valid is not None:
            values = np.where(valid, values, -_FAR if key.nulls_first else _FAR)
        wanted = np.clip(values, -_FAR + abs(by), _FAR - abs(by)) + by
        n = len(values)
        group = np.concatenate((self.low, self.low))
        at = np.concatenate((values, wanted))
        # A wanted value sorts before the rows that equal it, or after them if ``right``.
        tie = np.concatenate((np.zeros(n, np.int8), np.full(n, 1 if right else -1, np.int8)))
        sequence = np.lexsort((tie, at, group))
        is_row = sequence < n
        before: np.ndarray = np.cumsum(is_row) - is_row
        out = np.empty(n, np.int64)
        out[sequence[~is_row] - n] = before[~is_row]
        if valid is not None:
            out = np.where(valid, out, self.peers_high if right else self.peers_low)
        return np.clip(out, self.low, self.high)


def counted_from(at: np.ndarray, there: np.ndarray, by: int) -> np.ndarray:
    """For each row number in ``at`` the number of the ``by``-th row after it (before it if negative) among the
    rows that are ``there``; -1 if there are not so many. ``by`` is not 0."""
    numbers = np.flatnonzero(there)
    up_to = np.cumsum(there)  # how many are there up to each row, itself included
    wanted = up_to[at] + by - 1 if by > 0 else up_to[at] - there[at] + by
    inside = (wanted >= 0) & (wanted < len(numbers))
    return np.where(inside, np.append(numbers, -1)[np.where(inside, wanted, -1)], -1)


def running(ufunc: np.ufunc, values: np.ndarray, groups: np.ndarray, longest: int) -> np.ndarray:
    """The running ``ufunc`` of the values within each run of equal groups.

    ``longest`` is the length of the longest run. The function takes log2(longest) steps over all rows.
    """
    out = values.copy()
    step = 1
    while step < longest:
        same = groups[step:] == groups[:-step]
        out[step:] = np.where(same, ufunc(out[step:], out[:-step]), out[step:])
        step *= 2
    return out
