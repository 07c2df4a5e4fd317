"""Limits of requests by client: buckets of tokens that refill. Pure: the time is an argument."""

from __future__ import annotations

import math
from collections import OrderedDict

#: Clients that are remembered. The one that was silent longest is forgotten first, and starts with a full bucket.
MOST_CLIENTS = 10_000


class Limit:
    """At most ``per_s`` requests a second of each client on average, and ``burst`` at once. ``per_s`` 0: no limit."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = max(1.0, burst)
        #: Client → (requests that it may send now, when that was counted in seconds).
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str, now_s: float) -> int:
        """0 if the client may send a request now, which is counted; else whole seconds until it may."""
        left = self._now(client, now_s)
        if left < 1:
            return max(1, math.ceil((1 - left) / self._per_s))
        if self._per_s:
            self._keep(client, left - 1, now_s)
        return 0

    def exhausted(self, client: str, now_s: float) -> int:
        """As ``take``, but nothing is counted."""
        left = self._now(client, now_s)
        return 0 if left >= 1 else max(1, math.ceil((1 - left) / self._per_s))

    def _now(self, client: str, now_s: float) -> float:
        if not self._per_s:
            return self._burst
        left, then = self._left.get(client, (self._burst, now_s))
        return min(self._burst, left + max(0.0, now_s - then) * self._per_s)

    def _keep(self, client: str, left: float, now_s: float) -> None:
        self._left[client] = left, now_s
        self._left.move_to_end(client)
        if len(self._left) > MOST_CLIENTS:
            self._left.popitem(last=False)
