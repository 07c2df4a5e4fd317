"""Time to live of slots: when each was last written, and which have expired."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.growing import grown

if TYPE_CHECKING:
    from penstock.state.context import StateContext

_NEVER = np.iinfo(np.int64).max


class TimeToLive:
    """The time to live of the slots of one table or key space. ``ttl_ms``: 0: nothing expires.

    A slot lives at least ``ttl_ms`` after it was last written, and at most half as long again.
    """

    def __init__(self, ttl_ms: int, ctx: StateContext) -> None:
        self.ttl_ms, self._ctx = ttl_ms, ctx
        self._last = np.full(1024, _NEVER, np.int64)
        self._next_ms: int | None = None
        #: Slots last written not after this time (ms) have been removed; -1: none yet.
        self.swept_ms = -1

    def touch(self, slots: np.ndarray, high: int) -> None:
        """Records that these slots are written now. ``high``: one above the highest slot number in use."""
        if not self.ttl_ms:
            return
        now = self._ctx.now_ms()
        self._last = grown(self._last, high, _NEVER)
        self._last[slots] = now
        if self._next_ms is None:
            # The sweeps follow every half time to live, so a slot lives at most 1.5 times as long.
            self._next_ms = now + self.ttl_ms
            self._ctx.wake_at(self._next_ms)

    def forget(self, slots: np.ndarray) -> None:
        """Records that these slots are free."""
        if self.ttl_ms:
            self._last[slots] = _NEVER

    def times(self, slots: np.ndarray) -> np.ndarray:
        """When each slot was last written, in milliseconds since 1970."""
        return self._last[slots]

    def came_back(self, slots: np.ndarray, times: np.ndarray) -> None:
        """Records that these slots came back from the disk, and when they were last written."""
        if len(slots):
            self._last = grown(self._last, int(slots.max()) + 1, _NEVER)
            self._last[slots] = times

    def due(self, now_ms: int) -> np.ndarray:
        """The slots that have expired. They are no longer recorded afterwards."""
        if self._next_ms is None or now_ms < self._next_ms:
            return np.empty(0, np.int64)
        self.swept_ms = now_ms - self.ttl_ms
        out = np.flatnonzero(self._last <= self.swept_ms)
        self._last[out] = _NEVER
        self._next_ms = now_ms + max(self.ttl_ms // 2, 1)
        self._ctx.wake_at(self._next_ms)
        return out
