"""Barriers of at-least-once checkpoints: they hold no channel back, and each checkpoint is counted by itself. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.runtime.channels import InputChannel
    from penstock.runtime.elements import Barrier


@dataclass(slots=True)
class _Counted:
    """A barrier, and the channels that have delivered it. ``since``: its first arrival, s."""

    barrier: Barrier
    since: float
    channels: set[InputChannel] = field(default_factory=set)


class CountedBarriers:
    """The barriers that have arrived on some channels, but not on all. ``time_s``: a clock, s."""

    def __init__(self, time_s: Callable[[], float]) -> None:
        self._time_s = time_s
        #: Checkpoint id → its barrier and the channels that have delivered it.
        self._counted: dict[int, _Counted] = {}

    def arrived(self, barrier: Barrier, channel: InputChannel) -> None:
        """``channel`` has delivered ``barrier``."""
        counted = self._counted.setdefault(barrier.checkpoint_id, _Counted(barrier, self._time_s()))
        counted.channels.add(channel)

    def ended(self, channel: InputChannel) -> None:
        """``channel`` has ended: it is no longer among those that count."""
        for counted in self._counted.values():
            counted.channels.discard(channel)

    def forget(self, checkpoint_id: int) -> None:
        """The checkpoint is aborted."""
        self._counted.pop(checkpoint_id, None)

    def complete(self, live: int) -> Iterator[tuple[Barrier, float]]:
        """(barrier, ms since its first arrival) of those that came on all ``live`` channels, the oldest first.

        Earlier ones are dropped: barriers keep their order on a channel, so the missing barriers of an earlier
        checkpoint will never come.
        """
        last = 0
        for checkpoint_id, counted in sorted(self._counted.items()):
            if len(counted.channels) >= live:
                last = checkpoint_id
                yield counted.barrier, (self._time_s() - counted.since) * 1000
        self._counted = {n: counted for n, counted in self._counted.items() if n > last}
