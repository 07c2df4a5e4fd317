"""What decoders with a compiled twin have in common: the kernel takes what it is sure of, the decoder the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.native.columns import Outs

#: Fewer records are not worth the call; more bytes have no 32-bit places.
MIN_RECORDS, MAX_BYTES = 16, 1 << 30


class Texts(NamedTuple):
    """Records in a buffer: record i is ``data[start[i]:end[i]]``."""

    data: bytes
    start: np.ndarray
    end: np.ndarray


class Decoded(NamedTuple):
    """Some records of a batch as columns; ``rows``: their numbers, ascending."""

    batch: Batch
    rows: np.ndarray


class JoinedMessages(Sequence[bytes]):
    """Messages that lie in one buffer: message i is ``data[start[i]:end[i]]``. ``there``: which are not absent."""

    def __init__(self, data: bytes, start: np.ndarray, end: np.ndarray, there: np.ndarray) -> None:
        self.data, self.start, self.end, self.there = data, start, end, there

    def __len__(self) -> int:
        return len(self.start)

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice | np.ndarray) -> JoinedMessages: ...
    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice | np.ndarray):
            return JoinedMessages(self.data, self.start[at], self.end[at], self.there[at])
        return self.data[self.start[at] : self.end[at]]

    def __iter__(self) -> Iterator[bytes]:
        return map(self.data.__getitem__, map(slice, self.start.tolist(), self.end.tolist()))

    def optional(self, at: int) -> bytes | None:
        """One message; None: it is absent."""
        return self[at] if self.there[at] else None

    @property
    def all_filled(self) -> bool:
        """Whether none is absent or empty."""
        return bool((self.end > self.start).all())


def of_messages(messages: Sequence[bytes], skip: int = 0) -> Texts:
    """Messages, one behind another, each without its first ``skip`` bytes, which it has."""
    if isinstance(messages, JoinedMessages):
        return Texts(messages.data, messages.start + skip, messages.end)
    lengths = np.fromiter(map(len, messages), np.int64, len(messages))
    ends = np.cumsum(lengths)
    return Texts(b"".join(messages), ends - lengths + skip, ends)


def of_lines(data: bytes) -> Texts:
    """The lines of a text that neither begins nor ends with a line end."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    return Texts(data, np.concatenate(([0], ends + 1)), np.concatenate((ends, [len(data)])))


def in_order(parts: Sequence[Decoded]) -> Batch:
    """The records of all parts, in the order of their numbers."""
    if len(parts) == 1:
        return parts[0].batch
    order = np.argsort(np.concatenate([part.rows for part in parts]), kind="stable")
    return Batch.concat([part.batch for part in parts]).take(order)


def with_rest(done: Decoded | None, count: int, rest: Callable[[list[int] | None], Decoded]) -> Decoded:
    """All of ``count`` records. ``rest``: decodes those with these numbers (None = all of them), and says which were
    not rejected, as positions in its argument."""
    if done is None:
        return rest(None)
    if len(done.rows) == count:
        return done
    there = np.zeros(count, np.bool_)
    there[done.rows] = True
    left = np.flatnonzero(~there)
    others = rest(left.tolist())
    others = Decoded(others.batch, left[others.rows])
    return Decoded(in_order([done, others]), np.sort(np.concatenate((done.rows, others.rows))))


def forget(outs: Outs, rows: np.ndarray) -> None:
    """What a kernel wrote of records before doubt came up must not show."""
    outs.valid[:, rows] = 0
    for places in outs.places:
        if places is not None:
            places[:, rows] = 0
