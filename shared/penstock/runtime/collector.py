"""When the cyclic garbage collector runs in a slot: between steps, never by itself.

By itself it runs whenever enough objects were made, in the middle of a batch, and walks over all state that
user functions keep. (Measured beside much state: a map on two integers did 0.57 instead of 2.8 M rows/s.)
Reference counting frees nearly everything at once; the rest, cycles, can wait for a quiet moment.
"""

from __future__ import annotations

import gc
import time

#: Objects made and not freed since the last collection. Fewer are not worth a collection; with more, one
#: runs even if the slot never rests.
LEAST, MOST = 20_000, 2_000_000
#: The share of time that collecting may take.
SHARE = 0.002


class Collector:
    """Runs the cyclic collector. ``start`` switches Python's automatic runs off for the process; the slot then
    calls ``tick`` about once per second."""

    def __init__(self) -> None:
        self._not_before = 0.0

    def start(self) -> None:
        """Switch the automatic runs of Python's collector off."""
        gc.disable()

    def freeze(self) -> None:
        """Excludes all present objects from further collections."""
        gc.freeze()

    def tick(self, *, idle: bool) -> bool:
        """Run the collector if it is worth it and ``idle``, or if very many objects wait. Returns whether it ran."""
        started = time.perf_counter()
        made = gc.get_count()[0]
        if started < self._not_before or made < (LEAST if idle else MOST):
            return False
        gc.collect()
        now = time.perf_counter()
        self._not_before = now + (now - started) / SHARE
        return True
