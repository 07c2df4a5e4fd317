"""Records the elements in flight when a barrier overtakes: the elements of each channel before the
barrier."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.operators.operator import MIN_WATERMARK
from penstock.runtime.elements import Barrier, Element, EndOfInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.runtime.channels import InputChannel


@dataclass(slots=True)
class ChannelContent:
    """The elements of one channel that were in flight.

    ``elements``: batches, watermarks and idleness in the order in which they were sent. ``watermark``,
    ``idle``: the channel's state before them (int64 µs).
    """

    gate: int
    watermark: int = MIN_WATERMARK
    idle: bool = False
    elements: list[Element] = field(default_factory=list)
    nbytes: int = 0

    def add(self, element: Element, nbytes: int) -> None:
        """Add an element; a barrier is ignored, because its checkpoint was given up."""
        if not isinstance(element, Barrier):  # A barrier here belongs to a checkpoint that was given up.
            self.elements.append(element)
            self.nbytes += nbytes


class Recording:
    """The channels' content before the barrier of one checkpoint. Channels on which the barrier has not
    arrived are *open*: what they bring is recorded until it does.

    ``on_done``: called when the barrier has arrived on the last open channel, or that channel has ended.
    """

    def __init__(self, barrier: Barrier) -> None:
        self.barrier = barrier
        self.content: list[ChannelContent] = []
        self.on_done: Callable[[], None] = lambda: None
        self._open: dict[InputChannel, ChannelContent] = {}

    @property
    def done(self) -> bool:
        """Whether the barrier has arrived on every channel."""
        return not self._open

    @property
    def nbytes(self) -> int:
        """Bytes of the recorded elements."""
        return sum(content.nbytes for content in self.content)

    def add(self, channel: InputChannel, watermark: int, idle: bool) -> None:
        """Adds the queued elements of a channel up to the barrier; the channel stays open if the barrier is
        not there."""
        content = ChannelContent(channel.gate, watermark, idle)
        self.content.append(content)
        for element, nbytes in channel.queue:
            if self._ends(element):
                return
            content.add(element, nbytes)
        self._open[channel] = content

    def arrived(self, channel: InputChannel, element: Element, nbytes: int) -> None:
        """An element arrived on a channel: record it if the channel is open."""
        content = self._open.get(channel)
        if content is None:
            return
        if not self._ends(element):
            content.add(element, nbytes)
            return
        del self._open[channel]
        if not self._open:
            self.on_done()

    def _ends(self, element: Element) -> bool:
        if isinstance(element, Barrier):
            return element.checkpoint_id >= self.barrier.checkpoint_id
        return isinstance(element, EndOfInput)
