"""The position of the source, and the rule that tells which changes a snapshot in chunks has already seen.

The snapshot is taken chunk by chunk, in the order of the primary key, while changes go on. Each chunk is read in one
transaction, whose *view* names the transactions that it sees. A change in the stream is

* left out when its key comes after the chunks read so far, because a later chunk will see it;
* left out when its key is in the chunk read last and the chunk's view saw its transaction;
* delivered in all other cases.

The next chunk is read only when the stream has passed the place (``high``) that the log had reached when the
last chunk was read: the chunk's view saw no transaction after that place.
"""

from __future__ import annotations

from typing import Any

import msgspec


class View(msgspec.Struct, frozen=True):
    """The result of ``pg_current_snapshot()``: transactions below ``xmin`` are seen; those from ``xmax`` on
    and those in ``xip`` are not."""

    xmin: int
    xmax: int
    xip: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> View:
        """The view of a text ``xmin:xmax:xip,xip``."""
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), tuple(int(x) for x in running.split(",") if x))

    def sees(self, xid: int) -> bool:
        """Whether the rows of a committed transaction are seen. ``xid``: its lower 32 bits, as the stream has them."""
        whole = self.xmax + ((xid - self.xmax + 2**31) % 2**32 - 2**31)
        return whole < self.xmin or (whole < self.xmax and whole not in self.xip)


class Cursor(msgspec.Struct, frozen=True):
    """The progress of the snapshot: all tables before ``table`` are read, and of this table the rows up to
    the key ``after`` (its values as text; None: no row yet)."""

    table: int
    after: tuple[str, ...] | None = None


class Window(msgspec.Struct, frozen=True):
    """The chunk read last: keys of ``table`` after ``after`` (None: from the first) up to ``upto`` (None: to the last),
    with the view that read it."""

    table: int
    after: tuple[str, ...] | None
    upto: tuple[str, ...] | None
    view: View
    high: int


class Position(msgspec.Struct, frozen=True):
    """A split's position.

    Args:
        lsn: Transactions that end here or earlier are delivered.
        skip: Number of row messages of the next transaction that are delivered, too.
        cursor: The progress of the snapshot; None: it is complete.
        window: The chunk whose view must still be compared with changes; None: none.
    """

    lsn: int
    skip: int = 0
    cursor: Cursor | None = None
    window: Window | None = None

    @property
    def filters(self) -> bool:
        """Whether changes must still be compared with the snapshot."""
        return self.cursor is not None or self.window is not None

    def to_json(self) -> dict[str, Any]:
        """The position as a checkpoint keeps it."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    @classmethod
    def from_json(cls, value: Any) -> Position:
        """The position of which ``to_json`` gave ``value``."""
        return msgspec.convert(value, cls)


def lsn_of(text: str) -> int:
    """``16/B374D848`` as a number."""
    high, low = text.split("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(lsn: int) -> str:
    """The number as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
