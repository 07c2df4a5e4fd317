"""The outputs of a task: each channel collects rows and sends them while it has credit.

A channel collects rows up to 16k or 1 MiB. A full channel sends its rows; so does a channel whose rows must
leave (the input ran empty, a control element follows, the buffer timeout passed). Without credit the rows
wait and the task counts as blocked: it makes no more output until credit arrives. So a channel holds at most
one full batch and the pieces of one operator output.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from penstock.runtime.elements import CONTROL_BYTES, Control, Element
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.runtime.partitioners import Partitioner

TARGET_ROWS = 16_384
MAX_ROWS = 65_536
TARGET_BYTES = 1024 * 1024
#: The most bytes that a channel may hold, and have sent without credit, while a barrier is about to overtake.
MAX_OWED_BYTES = 8 * TARGET_BYTES

#: Hands an element to the receiver and returns the credit that the element costs.
Push: TypeAlias = "Callable[[Element], int]"


class OutputChannel:
    """The sending end of one channel. ``credit``: bytes that the receiver still allows; negative after a send
    without credit."""

    __slots__ = ("_bytes", "_outputs", "_parts", "_push", "_queue", "_rows", "_since", "_wanted", "credit")

    def __init__(self, outputs: Outputs, push: Push, credit: int) -> None:
        self._outputs = outputs
        self._push = push
        self.credit = credit
        self._queue: deque[Element] = deque()
        self._parts: list[Batch] = []
        self._rows = 0
        self._bytes = 0
        self._since = 0.0
        #: True if a flush was requested while there was no credit.
        self._wanted = False

    @property
    def blocked(self) -> bool:
        """Whether elements wait for credit."""
        return bool(self._queue)

    @property
    def held(self) -> bool:
        """Whether rows are accumulated for which no flush was requested."""
        return bool(self._parts)

    def append(self, batch: Batch) -> None:
        """Add rows; full batches are sent if there is credit."""
        nbytes = batch.nbytes
        if batch.num_rows > MAX_ROWS or nbytes > 2 * TARGET_BYTES:
            self._append_pieces(batch, nbytes)
            return
        if self._parts and (
            self._rows + batch.num_rows > 2 * TARGET_ROWS or self._bytes + nbytes > 2 * TARGET_BYTES
        ):
            self._seal()
        if not self._parts:
            self._since = self._outputs.time_s()
        self._parts.append(batch)
        self._rows += batch.num_rows
        self._bytes += nbytes
        if self._rows >= TARGET_ROWS or self._bytes >= TARGET_BYTES:
            self._seal()
            self._drain()

    def emit(self, element: Control) -> None:
        """Send a control element after all rows so far; it waits only behind rows that wait for credit."""
        self._seal()
        self._queue.append(element)
        self._drain()

    def push_on(self) -> None:
        """Sends everything in order, even without credit. Credit that arrives later first makes up for it."""
        self._seal()
        self._drain(owing=True)

    @property
    def overdrawn(self) -> bool:
        """Whether so many bytes wait, or were sent without credit, that the task must make no more output."""
        return sum(element_bytes(element) for element in self._queue) - self.credit > MAX_OWED_BYTES

    def flush(self) -> None:
        """Sends the accumulated rows now, or as soon as there is credit."""
        if not self._parts:
            return
        if self.credit > 0 and not self._queue:
            self._seal()
            self._drain()
        else:
            self._wanted = True

    def flush_older_than(self, since: float) -> None:
        """Flush if the first accumulated row came at or before ``since`` (seconds of ``time_s``)."""
        if self._parts and self._since <= since:
            self.flush()

    def add_credit(self, n: int) -> None:
        """Adds ``n`` bytes of credit from the receiver, and sends elements that wait."""
        self.credit += n
        if self.credit <= 0:
            return
        if self._queue:
            self._drain()
            if not self._queue:
                self._outputs._unblocked(self)
        if self._wanted and self.credit > 0 and not self._queue:
            self._seal()
            self._drain()

    def _append_pieces(self, batch: Batch, nbytes: int) -> None:
        per_row = max(1, nbytes // batch.num_rows)
        step = max(1, min(MAX_ROWS, TARGET_BYTES // per_row))
        self._seal()
        for start in range(0, batch.num_rows, step):
            self._queue.append(batch.slice(start, step))
        self._drain()

    def _seal(self) -> None:
        if self._parts:
            self._queue.append(Batch.concat(self._parts))
            self._parts = []
            self._rows = self._bytes = 0
        self._wanted = False

    def _drain(self, *, owing: bool = False) -> None:
        queue = self._queue
        while queue and (owing or self.credit > 0):
            element = queue.popleft()
            cost = self._push(element)
            self.credit -= cost
            self._outputs.bytes_out += cost
        if queue:
            self._outputs._blocked(self)


class EdgeWriter:
    """All channels of one output edge of a subtask."""

    __slots__ = ("_partitioner", "channels", "records_out", "taps")

    def __init__(self, partitioner: Partitioner, channels: Sequence[OutputChannel]) -> None:
        self._partitioner = partitioner
        self.channels = list(channels)
        self.records_out = 0
        #: Called with each batch, while somebody looks at the edge.
        self.taps: tuple[Callable[[Batch], None], ...] = ()

    def write(self, batch: Batch) -> None:
        """Distribute the rows over the channels."""
        self.records_out += batch.num_rows
        for tap in self.taps:
            tap(batch)
        for channel, rows in self._partitioner.partition(batch):
            self.channels[channel].append(rows)

    def emit(self, element: Control) -> None:
        """Emits an element to every channel."""
        for channel in self.channels:
            channel.emit(element)


class Outputs:
    """All output edges of a task. ``on_unblocked`` is called when the last waiting channel got credit."""

    def __init__(
        self,
        on_unblocked: Callable[[], None] = lambda: None,
        *,
        time_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.time_s = time_s
        self.edges: list[EdgeWriter] = []
        self.on_unblocked = on_unblocked
        self._waiting: set[OutputChannel] = set()
        self.bytes_out = 0

    @property
    def blocked(self) -> bool:
        """Whether some channel waits for credit."""
        return bool(self._waiting)

    def channels(self) -> Iterable[OutputChannel]:
        """All channels of all edges."""
        return (channel for edge in self.edges for channel in edge.channels)

    def flush(self) -> None:
        """Flush every channel."""
        for edge in self.edges:
            for channel in edge.channels:
                if channel.held:
                    channel.flush()

    def flush_older_than(self, since: float) -> None:
        """Flushes channels whose first row came before ``since`` (by ``time_s``)."""
        for edge in self.edges:
            for channel in edge.channels:
                channel.flush_older_than(since)

    def emit(self, element: Control) -> None:
        """Send a control element to every channel."""
        for edge in self.edges:
            edge.emit(element)

    def push_on(self) -> None:
        """Sends all waiting elements without credit, before a barrier that overtakes. The receivers save
        these elements as in flight instead of processing them first."""
        waited = self.blocked
        for channel in self.channels():
            channel.push_on()
        self._waiting.clear()
        if waited:
            self.on_unblocked()

    @property
    def overdrawn(self) -> bool:
        """Whether some channel is overdrawn."""
        return any(channel.overdrawn for channel in self.channels())

    def _blocked(self, channel: OutputChannel) -> None:
        self._waiting.add(channel)

    def _unblocked(self, channel: OutputChannel) -> None:
        self._waiting.discard(channel)
        if not self._waiting:
            self.on_unblocked()


def element_bytes(element: Element) -> int:
    """The credit that an element costs if it is passed by reference."""
    return element.nbytes + CONTROL_BYTES if isinstance(element, Batch) else CONTROL_BYTES
