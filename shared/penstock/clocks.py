"""Time of day for those who decide by it: it never goes back, and never stands still.

The wall clock of a host may be set back, by an operator or by NTP; what is due "in five
seconds" would then wait for an hour. Set forward it is followed at once (a machine that
slept really has lost that time).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class SteadyClock:
    """``wall_ms``: the time of day; ``monotonic_ms``: never goes back."""

    def __init__(self, wall_ms: Callable[[], int], monotonic_ms: Callable[[], float]) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        self._ahead_ms = wall_ms() - monotonic_ms()

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        monotonic_ms = self._monotonic_ms()
        self._ahead_ms = max(self._ahead_ms, self._wall_ms() - monotonic_ms)
        return int(self._ahead_ms + monotonic_ms)
