"""Idle-state retention: when each slot was last written, and which slots are due."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.growing import grown

if TYPE_CHECKING:
    from penstock.state.context import StateContext

_NEVER = np.iinfo(np.int64).max


class TimeToLive:
    """``ttl_ms``: 0 = nothing expires. A slot lives at least that long after it was last
    written, and at most half as long again."""

    def __init__(self, ttl_ms: int, ctx: StateContext) -> None:
        self.ttl_ms, self._ctx = ttl_ms, ctx
        self._last = np.full(1024, _NEVER, np.int64)
        self._next_ms: int | None = None
        #: What was last written by then is gone (-1: nothing yet).
        self.swept_ms = -1

    def touch(self, slots: np.ndarray, high: int) -> None:
        """These slots are written now; ``high``: one above the highest slot of all."""
        if not self.ttl_ms:
            return
        now = self._ctx.now_ms()
        self._last = grown(self._last, high, _NEVER)
        self._last[slots] = now
        if self._next_ms is None:
            # Half a TTL between sweeps: a slot lives at most 1.5 TTL.
            self._next_ms = now + self.ttl_ms
            self._ctx.wake_at(self._next_ms)

    def forget(self, slots: np.ndarray) -> None:
        """These slots are free."""
        if self.ttl_ms:
            self._last[slots] = _NEVER

    def times(self, slots: np.ndarray) -> np.ndarray:
        """When each was last written, ms since the epoch."""
        return self._last[slots]

    def came_back(self, slots: np.ndarray, times: np.ndarray) -> None:
        """These were last written at other times than now."""
        if len(slots):
            self._last = grown(self._last, int(slots.max()) + 1, _NEVER)
            self._last[slots] = times

    def due(self, now_ms: int) -> np.ndarray:
        """Slots whose time is over; they are forgotten here."""
        if self._next_ms is None or now_ms < self._next_ms:
            return np.empty(0, np.int64)
        self.swept_ms = now_ms - self.ttl_ms
        out = np.flatnonzero(self._last <= self.swept_ms)
        self._last[out] = _NEVER
        self._next_ms = now_ms + max(self.ttl_ms // 2, 1)
        self._ctx.wake_at(self._next_ms)
        return out
