"""Where the source stands, and which changes a snapshot in chunks has already seen.

The snapshot is taken chunk by chunk, in the order of the primary key, while changes go on. Each chunk is read in one
transaction, whose *view* names the transactions that it sees. Of the stream, a change is

* left out when its key lies behind the chunks read so far: a later chunk will see it;
* left out when its key lies in the chunk read last and the chunk's view saw its transaction;
* delivered in all other cases.

The next chunk is read only when the stream has passed the place (``high``) that the log had reached when the last one
was read: from there on no transaction is one that its view saw.
"""

from __future__ import annotations

from typing import Any

import msgspec


class View(msgspec.Struct, frozen=True):
    """What ``pg_current_snapshot()`` says: transactions below ``xmin`` are seen, those from ``xmax`` on and ``xip`` are not."""

    xmin: int
    xmax: int
    xip: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> View:
        """``xmin:xmax:xip,xip``."""
        xmin, xmax, running = text.split(":")
        return cls(int(xmin), int(xmax), tuple(int(x) for x in running.split(",") if x))

    def sees(self, xid: int) -> bool:
        """Whether the rows of a committed transaction are seen. ``xid``: its lower 32 bits, as the stream has them."""
        whole = self.xmax + ((xid - self.xmax + 2**31) % 2**32 - 2**31)
        return whole < self.xmin or (whole < self.xmax and whole not in self.xip)


class Cursor(msgspec.Struct, frozen=True):
    """The snapshot's place: tables before ``table`` are read, of this one the rows up to the key ``after`` (its values
    as text; None: none yet)."""

    table: int
    after: tuple[str, ...] | None = None


class Window(msgspec.Struct, frozen=True):
    """The chunk read last: keys of ``table`` behind ``after`` (None: from the first) up to ``upto`` (None: to the last),
    with the view that read it."""

    table: int
    after: tuple[str, ...] | None
    upto: tuple[str, ...] | None
    view: View
    high: int


class Position(msgspec.Struct, frozen=True):
    """A split's position.

    Args:
        lsn: Transactions that end here or before are delivered.
        skip: Messages of rows of the next transaction that are delivered, too.
        cursor: Where the snapshot stands; None: it is complete.
        window: The chunk whose view must still be asked; None: none.
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
        """What ``to_json`` gave."""
        return msgspec.convert(value, cls)


def lsn_of(text: str) -> int:
    """``16/B374D848`` as a number."""
    high, low = text.split("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(lsn: int) -> str:
    """The number as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
