"""Credit: how many bytes a sender may have under way to a receiver.

A receiver first grants each channel an exclusive amount, and more from a pool that all channels of the slot
share. A sender may send while its credit is above zero, and the last element may overdraw it. So a channel
holds at most its window and one element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: The credit that every channel has for itself.
EXCLUSIVE_BYTES = 256 * 1024
#: The most credit of one channel. It is small, because a barrier waits for all bytes in flight before it.
MAX_WINDOW_BYTES = 2 * 1024 * 1024
#: The slot-wide pool (``taskmanager.memory.network.size``).
POOL_BYTES = 64 * 1024 * 1024


class CreditPool:
    """Bytes that the channels of one slot may borrow beyond their exclusive credit."""

    __slots__ = ("free", "total")

    def __init__(self, total: int = POOL_BYTES) -> None:
        self.total = total
        self.free = total

    def take(self, n: int) -> bool:
        """Borrow ``n`` bytes; False, with nothing borrowed, if the pool has less."""
        if n > self.free:
            return False
        self.free -= n
        return True

    def give(self, n: int) -> None:
        """Return ``n`` borrowed bytes."""
        self.free += n

    @property
    def usage(self) -> float:
        """The share of the pool that is lent, from 0 to 1."""
        return (self.total - self.free) / self.total if self.total else 0.0

    @property
    def scarce(self) -> bool:
        """Whether less than a quarter of the pool is left. Channels that borrowed then give credit back."""
        return self.free * 4 < self.total


class ReceiveWindow:
    """The receiver's account of one channel.

    ``size``: bytes that may be outstanding in all. ``outstanding``: credit that the sender still has, as far
    as this side knows. ``grant(n)`` gives the sender more.
    """

    __slots__ = ("_exclusive", "_grant", "_maximum", "_pool", "_returned", "outstanding", "size")

    def __init__(
        self,
        pool: CreditPool,
        grant: Callable[[int], None],
        *,
        exclusive: int = EXCLUSIVE_BYTES,
        maximum: int = MAX_WINDOW_BYTES,
    ) -> None:
        self._pool = pool
        self._grant = grant
        self._exclusive = exclusive
        self._maximum = maximum
        self._returned = 0
        self.size = exclusive
        self.outstanding = exclusive

    def received(self, n: int) -> None:
        """Notes that ``n`` bytes arrived. A sender that has used up its credit gets more if the pool has
        some."""
        self.outstanding -= n
        if self.outstanding <= 0 and self.size < self._maximum and self._pool.take(self._exclusive):
            self.size += self._exclusive
            self.outstanding += self._exclusive
            self._grant(self._exclusive)

    def consumed(self, n: int) -> None:
        """Notes that ``n`` bytes left the queue. They are granted again as soon as they make a quarter of the
        window."""
        self._returned += n
        if self._returned * 4 < self.size:
            return
        if self.size > self._exclusive and self._pool.scarce:
            back = min(self.size - self._exclusive, self._returned)
            self.size -= back
            self._returned -= back
            self._pool.give(back)
        granted, self._returned = self._returned, 0
        if granted:
            self.outstanding += granted
            self._grant(granted)

    def close(self) -> None:
        """Gives the borrowed credit back to the pool when the channel has ended."""
        self._pool.give(self.size - self._exclusive)
        self.size = self._exclusive
