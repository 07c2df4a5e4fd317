"""The position of the source: a place in the server's binary log, and the progress of the snapshot.

The snapshot is taken chunk by chunk, in the order of the primary key, while changes go on. A chunk is read in one
transaction that sees all that the stream has passed, and is held back until the stream has passed all that the chunk
may have seen. Of the changes that come meanwhile

* those to keys behind the chunk are left out: a later chunk will see them;
* those to keys of the chunk replace, add or remove its rows: whether the chunk saw them or not, the last one says how
  the row is;
* all others are delivered.

Then the chunk's rows are delivered. A held chunk is in no checkpoint: after a restore it is read again.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

Key = tuple[Any, ...]

_INTERVAL = re.compile(r"(\d+)(?:-(\d+))?")


class Place(msgspec.Struct, frozen=True):
    """A place between two transactions.

    Args:
        file: The file of the binary log.
        pos: The byte in it.
        gtids: The transactions before it: MariaDB's GTID position or MySQL's GTID set; None: the server has none.
    """

    file: str
    pos: int
    gtids: str | None = None

    @property
    def order(self) -> tuple[int, int]:
        """For comparing places of one server: the number of the file, and the byte."""
        return int(self.file.rpartition(".")[2] or 0), self.pos


class Cursor(msgspec.Struct, frozen=True):
    """The progress of the snapshot: all tables before ``table`` are read, and of this table the rows up to
    the key ``after`` (numbers and texts; bytes in hex; None: no row yet)."""

    table: int
    after: tuple[int | str, ...] | None = None


class Position(msgspec.Struct, frozen=True):
    """A split's position.

    Args:
        place: Transactions before it are delivered.
        events: Number of events of rows of the next transaction that are delivered, too.
        rows: Number of rows of the event after them that are delivered (an update's two count as one).
        cursor: The progress of the snapshot; None: it is complete.
    """

    place: Place
    events: int = 0
    rows: int = 0
    cursor: Cursor | None = None

    def to_json(self) -> dict[str, Any]:
        """The position as a checkpoint keeps it."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    @classmethod
    def from_json(cls, value: Any) -> Position:
        """The position of which ``to_json`` gave ``value``."""
        return msgspec.convert(value, cls)


class Gtids:
    """The transactions that were passed. ``mariadb``: one GTID a domain (``0-1-5``); otherwise MySQL's set of
    intervals for each UUID. ValueError for a text that is none."""

    def __init__(self, text: str, *, mariadb: bool) -> None:
        self._mariadb = mariadb
        self._last: dict[int, str] = {}
        self._sets: dict[str, list[tuple[int, int]]] = {}
        for part in "".join(text.split()).split(","):
            if not part:
                continue
            if mariadb:
                self._last[int(part.split("-")[0])] = part
                continue
            source, *intervals = part.lower().split(":")
            for interval in intervals:
                found = _INTERVAL.fullmatch(interval)
                if found is None:
                    raise ValueError(f"{interval!r} is no interval of transactions")
                first = int(found.group(1))
                self._add(source, first, int(found.group(2) or first))

    def __str__(self) -> str:
        if self._mariadb:
            return ",".join(self._last[domain] for domain in sorted(self._last))
        return ",".join(
            ":".join([source, *(f"{a}-{b}" if b > a else str(a) for a, b in intervals)])
            for source, intervals in sorted(self._sets.items())
        )

    def passed_mariadb(self, domain: int, server: int, sequence: int) -> None:
        """A transaction of MariaDB was passed."""
        self._last[domain] = f"{domain}-{server}-{sequence}"

    def passed_mysql(self, source: str, number: int) -> None:
        """A transaction of MySQL was passed."""
        self._add(source, number, number)

    def _add(self, source: str, first: int, last: int) -> None:
        merged: list[tuple[int, int]] = []
        for a, b in sorted([*self._sets.get(source, []), (first, last)]):
            if merged and a <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(b, merged[-1][1]))
            else:
                merged.append((a, b))
        self._sets[source] = merged

    def covers(self, other: Gtids) -> bool:
        """Whether every transaction of ``other`` was passed here, too; both MariaDB's."""
        return all(
            domain in self._last and _sequence(self._last[domain]) >= _sequence(gtid)
            for domain, gtid in other._last.items()
        )

    def encoded(self) -> bytes:
        """MySQL's set as COM_BINLOG_DUMP_GTID takes it."""
        out = len(self._sets).to_bytes(8, "little")
        for source, intervals in sorted(self._sets.items()):
            out += bytes.fromhex(source.replace("-", "")) + len(intervals).to_bytes(8, "little")
            for first, last in intervals:
                out += first.to_bytes(8, "little") + (last + 1).to_bytes(8, "little")
        return out


def _sequence(gtid: str) -> int:
    return int(gtid.rpartition("-")[2])
