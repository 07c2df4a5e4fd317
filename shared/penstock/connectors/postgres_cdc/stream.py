"""The stream of changes: takes messages from the replication connection and cuts them into runs that can be
decoded and resumed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.connectors.postgres_cdc import pgoutput
from penstock.connectors.postgres_cdc.database import place
from penstock.errors import ConnectorError
from penstock.log_events import EventLog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.connectors.postgres_cdc.database import CdcTable
    from penstock.connectors.postgres_cdc.replication import ReplicationStream

_log = EventLog("penstock.connectors.postgres_cdc")

#: The most bytes of one run.
_MOST_BYTES = 16 << 20
#: 2000-01-01 in µs since 1970-01-01.
_EPOCH_US = 946_684_800_000_000
_ROWS = pgoutput.ROWS
_BEGIN, _COMMIT = pgoutput.BEGIN, pgoutput.COMMIT
_OUTSIDE = frozenset((pgoutput.ORIGIN, pgoutput.TYPE, pgoutput.MESSAGE))


@dataclass(slots=True)
class Run:
    """Messages of rows in the order of the stream.

    Args:
        messages: For each layout of a table its messages.
        order: For each layout, the place of each of its messages in the run.
        count: Number of messages in all.
        starts: Where transactions begin in the run: place, id, commit time (µs since the epoch).
        lsn: Transactions up to here end in the run or earlier; ``skip`` messages of the next transaction are
            in the run or earlier.
    """

    messages: dict[int, list[bytes]] = field(default_factory=dict)
    order: dict[int, list[int]] = field(default_factory=dict)
    count: int = 0
    starts: list[tuple[int, int, int]] = field(default_factory=list)
    lsn: int = 0
    skip: int = 0

    def per_message(self, which: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """The transaction's id and its commit time, for the messages at places ``which``."""
        begins, xids, times_us = np.array(self.starts, np.int64).reshape(-1, 3).T
        at = np.searchsorted(begins, np.asarray(which, np.int64), "right") - 1
        return xids[at], times_us[at]


class ChangeStream:
    """The changes after ``lsn``, without the first ``skip`` messages."""

    def __init__(
        self,
        source: ReplicationStream,
        options: Mapping[str, Any],
        tables: Sequence[CdcTable],
        lsn: int,
        skip: int,
    ) -> None:
        self._source, self._options, self._tables = source, options, tables
        self._by_name = {(table.schema, table.name): i for i, table in enumerate(tables)}
        #: Number of a table in the stream → its layout; None: the table is not read.
        self._relations: dict[bytes, int | None] = {}
        #: Layouts of tables: index of the table, names of its columns in the order of its messages.
        self.layouts: list[tuple[int, list[str]]] = []
        self._lsn, self._skip = lsn, skip
        #: Number of messages of the open transaction that were delivered or left out; None: no transaction is
        #: open.
        self._in_transaction: int | None = None
        self._transaction = (0, 0)

    def take(self, most: int) -> Run:
        """The messages that have arrived, with at most ``most`` row messages; does not wait."""
        run = Run()
        read, size = self._source.read, 0
        delivered = self._in_transaction
        if delivered is not None:
            run.starts.append((0, *self._transaction))
        while run.count < most and size < _MOST_BYTES:
            payload = read()
            if payload is None:
                if delivered is None:
                    # The server reports how far it has read, even if it found no changes of these tables.
                    self._lsn = max(self._lsn, self._source.looked)
                break
            letter = payload[0]
            if letter in _ROWS:
                assert delivered is not None
                delivered += 1
                if delivered <= self._skip:
                    continue
                layout = self._relations[payload[1:5]]
                if layout is not None:
                    run.messages.setdefault(layout, []).append(payload)
                    run.order.setdefault(layout, []).append(run.count)
                    size += len(payload)
                run.count += 1
            elif letter == _BEGIN:
                xid, time_us = pgoutput.begin(payload)
                delivered = 0
                self._transaction = (xid, time_us + _EPOCH_US)
                run.starts.append((run.count, *self._transaction))
            elif letter == _COMMIT:
                self._lsn = max(self._lsn, pgoutput.commit_end(payload))
                delivered, self._skip = None, 0
            elif letter == pgoutput.RELATION:
                self._described(pgoutput.relation(payload), payload[1:5])
            elif letter == pgoutput.TRUNCATE:
                self._truncated(pgoutput.truncated(payload))
            elif letter not in _OUTSIDE:
                raise ConnectorError(
                    "the stream has a message that is not understood",
                    expected="messages of pgoutput, version 1",
                    got=repr(chr(letter)),
                    where=place(self._options),
                    remedy="report this to the maintainers",
                )
        self._in_transaction = delivered
        run.lsn, run.skip = self._lsn, max(delivered or 0, self._skip)
        return run

    def _described(self, found: pgoutput.Relation, number: bytes) -> None:
        """Handle the new description of a table: the declared columns must still exist with the same
        types."""
        index = self._by_name.get((found.schema, found.name))
        if index is None:
            self._relations[number] = None
            return
        table = self._tables[index]
        there = {column.name: (column.type_id, column.modifier) for column in found.columns}
        was = dict(zip(table.columns, table.types, strict=True))
        gone = [name for name in was if name not in there]
        added = [name for name in there if name not in was]
        other = [name for name in was if name in there and was[name] != there[name]]
        if gone or other:
            # A generated column is in the catalog but not in the stream.
            gone = [name for name in gone if name not in table.generated]
        if gone or other or (added and self._options["scan.schema-change"] == "fail"):
            raise ConnectorError(
                f"the columns of table '{table.shown}' have changed",
                expected=", ".join(table.columns),
                got="; ".join(
                    f"{what}: {', '.join(names)}"
                    for what, names in (("added", added), ("gone", gone), ("of another type", other))
                    if names
                ),
                where=place(self._options),
                remedy="set 'scan.schema-change' = 'ignore-added-columns' and restore the last checkpoint"
                if not (gone or other)
                else "declare the table as it is now, and start with another 'slot.name' and without this source's state",
            )
        layout = (index, [column.name for column in found.columns])
        if layout not in self.layouts:
            self.layouts.append(layout)
        self._relations[number] = self.layouts.index(layout)
        if added:
            _log.warning(
                "postgres_columns_added",
                where=place(self._options),
                table=table.shown,
                columns=",".join(added),
            )

    def _truncated(self, numbers: Sequence[int]) -> None:
        if self._options["debezium.truncate.handling.mode"] == "skip":
            return
        known = [self._relations.get(number.to_bytes(4, "big")) for number in numbers]
        names = [self._tables[self.layouts[layout][0]].shown for layout in known if layout is not None]
        if names:
            raise ConnectorError(
                f"table '{', '.join(names)}' was emptied by TRUNCATE",
                expected="DELETE, which says which rows are gone",
                got="TRUNCATE",
                where=place(self._options),
                remedy="start with another 'slot.name' and without this source's state; "
                "'debezium.truncate.handling.mode' = 'skip' goes on as if nothing had happened",
            )
