"""Decides which message is published next or again. The protocol is go-back-N, which keeps the order.

A lost message is published again *with all messages published after it*, whether those are stored or not.
Published alone, it would come after a newer value of its key, and a reader that keeps the last value would
keep the older one. Acknowledgements of an earlier round say nothing about the order in this round and are
ignored.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.connectors.nats.encoding import OutMessage

#: The number of rounds after which the pause between rounds stops growing.
_MAX_DOUBLINGS = 3


class Sending(NamedTuple):
    """A message to send. ``round``: how often the window was sent again before; ``number``: the message's
    number."""

    round: int
    number: int
    message: OutMessage


@dataclass(slots=True)
class _Entry:
    message: OutMessage
    #: The time at which the message was first sent, in seconds; None: not yet. The next field has the last
    #: time.
    first_s: float | None = None
    last_s: float = 0.0


class SendWindow:
    """The window of messages under way. ``limit``: the most messages under way. All times are seconds of one
    clock."""

    def __init__(self, limit: int, retry_s: float) -> None:
        self._limit = limit
        self._retry_s = retry_s
        self._entries: deque[_Entry] = deque()
        #: Every message with a lower number is stored. This is the number of ``_entries[0]``.
        self.stored = 0
        self._next = 0
        self._round = 0
        self._rounds_without_progress = 0
        self._acknowledged: set[int] = set()

    @property
    def taken(self) -> int:
        """The number of messages taken so far, which is the number of the next one."""
        return self.stored + len(self._entries)

    @property
    def waiting(self) -> int:
        """The number of messages that must be sent, for the first time or again."""
        return self.taken - self._next

    @property
    def unacknowledged(self) -> int:
        """The number of messages that were sent and are not known to be stored in order."""
        return self._next - self.stored

    def add(self, messages: Iterable[OutMessage]) -> None:
        """Add messages after the waiting ones."""
        self._entries.extend(_Entry(m) for m in messages)

    def next(self, now_s: float) -> Sending | None:
        """The message to send now; None if there is none or the window is full."""
        if not self.waiting or self.unacknowledged >= self._limit:
            return None
        number = self._next
        self._next += 1
        entry = self._entries[number - self.stored]
        entry.first_s = now_s if entry.first_s is None else entry.first_s
        entry.last_s = now_s
        return Sending(self._round, number, entry.message)

    def message(self, number: int) -> OutMessage | None:
        """The message with this number; None if it is stored already."""
        at = number - self.stored
        return self._entries[at].message if 0 <= at < len(self._entries) else None

    def acknowledge(self, round_: int, number: int) -> None:
        """The server has stored a message of this round; acknowledgements of older rounds are ignored."""
        if round_ != self._round or number < self.stored:
            return
        self._acknowledged.add(number)
        while self.stored in self._acknowledged:
            self._acknowledged.remove(self.stored)
            self._entries.popleft()
            self.stored += 1
            self._rounds_without_progress = 0

    def oldest_sent_s(self) -> float | None:
        """When the oldest unacknowledged message was first sent."""
        return self._entries[0].first_s if self._entries else None

    def is_overdue(self, now_s: float) -> bool:
        """Whether the oldest message has been unacknowledged for too long, so that ``again`` must be called.
        The time limit doubles with each round, because a slow server must be able to answer one round before
        the next."""
        pause_s = self._retry_s * 2 ** min(self._rounds_without_progress, _MAX_DOUBLINGS)
        return self.unacknowledged > 0 and now_s - self._entries[0].last_s >= pause_s

    def again(self) -> None:
        """Begin a new round: every message from the oldest unacknowledged one on is sent again, in order."""
        self._next = self.stored
        self._round += 1
        self._rounds_without_progress += 1
        self._acknowledged.clear()
