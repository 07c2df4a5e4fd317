"""Runs the cyclic garbage collector of a slot between steps, and switches its automatic runs off.

An automatic run comes whenever enough objects were made, in the middle of a batch, and walks over all state
that user functions keep. (Measured beside much state: a map on two integers did 0.57 instead of 2.8 M
rows/s.) Reference counting frees nearly everything at once; cycles of objects can wait until the slot is
idle.
"""

from __future__ import annotations

import gc
import time

#: Numbers of objects made and not freed since the last collection. With fewer than LEAST a collection is not
#: worth its cost; with more than MOST one runs even if the slot is never idle.
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
        """Runs the collector if the slot is ``idle`` and enough objects wait, or if very many wait. Returns
        whether it ran."""
        started = time.perf_counter()
        made = gc.get_count()[0]
        if started < self._not_before or made < (LEAST if idle else MOST):
            return False
        gc.collect()
        now = time.perf_counter()
        self._not_before = now + (now - started) / SHARE
        return True
