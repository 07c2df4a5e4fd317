"""The queue of an asynchronous function: records whose answers are awaited, in segments between watermarks.

A pure core: it knows nothing of calls or clocks. A record never overtakes a watermark; in order, it never overtakes
another record either.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.types.batch import Batch


class Entry:
    """A record: row ``row`` of ``batch``. ``answer``: the results, once there are some; ``error``: what the call raised."""

    __slots__ = ("answer", "batch", "done", "error", "row", "segment")

    def __init__(self, batch: Batch, row: int) -> None:
        self.batch = batch
        self.row = row
        self.answer: list[Any] = []
        self.error: Exception | None = None
        self.done = False
        self.segment: Segment | None = None


class Segment:
    """The records up to one watermark. ``mark``: that watermark (µs), None for the last segment."""

    __slots__ = ("entries", "finished", "mark")

    def __init__(self) -> None:
        #: In the order of the input.
        self.entries: dict[Entry, None] = {}
        #: Of these, the ones that are done, in the order in which they were.
        self.finished: list[Entry] = []
        self.mark: int | None = None


class AsyncQueue:
    """``ordered``: records come out in the order in which they came in; otherwise as their answers come."""

    def __init__(self, *, ordered: bool) -> None:
        self._ordered = ordered
        self._segments: deque[Segment] = deque([Segment()])
        self._size = 0

    def __len__(self) -> int:
        """Records that have not come out."""
        return self._size

    def add(self, entry: Entry) -> None:
        """A record came."""
        entry.segment = self._segments[-1]
        entry.segment.entries[entry] = None
        self._size += 1

    def mark(self, watermark: int) -> None:
        """A watermark (µs) came behind the records so far."""
        self._segments[-1].mark = watermark
        self._segments.append(Segment())

    def finish(self, entry: Entry) -> None:
        """The answer to a record has come."""
        entry.done = True
        assert entry.segment is not None
        entry.segment.finished.append(entry)

    def take(self) -> list[Entry]:
        """The records that may come out now: of the first segment, which no watermark is before."""
        first = self._segments[0]
        if not self._ordered:
            found, first.finished = first.finished, []
        else:
            found = []
            for entry in first.entries:
                if not entry.done:
                    break
                found.append(entry)
        for entry in found:
            del first.entries[entry]
        self._size -= len(found)
        return found

    def pass_mark(self) -> int | None:
        """The watermark (µs) that may come out now, because no record before it is left; None if there is none."""
        first = self._segments[0]
        if first.entries or first.mark is None:
            return None
        self._segments.popleft()
        return first.mark

    def has_ready(self) -> bool:
        """Whether ``take`` or ``pass_mark`` would give something."""
        first = self._segments[0]
        if not first.entries:
            return first.mark is not None
        return next(iter(first.entries)).done if self._ordered else bool(first.finished)

    def waiting(self) -> list[Entry]:
        """All records that have not come out, in the order of the input."""
        return [entry for segment in self._segments for entry in segment.entries]
