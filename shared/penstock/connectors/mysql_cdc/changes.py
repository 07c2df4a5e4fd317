"""The stream of changes: follows transactions and tables through the events, and cuts them into runs that can be
decoded and resumed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.connectors.mysql_cdc import events as ev
from penstock.connectors.mysql_cdc.database import place
from penstock.connectors.mysql_cdc.layouts import Layout, Layouts
from penstock.connectors.mysql_cdc.position import Gtids, Place
from penstock.connectors.mysql_cdc.statements import Statements
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.connectors.mysql_cdc.binlog import BinlogStream
    from penstock.connectors.mysql_cdc.database import CdcTable

#: The most bytes and events of one run.
_MOST_BYTES, _MOST_EVENTS = 4 << 20, 20_000


class RowsEvent(NamedTuple):
    """An event of rows.

    Args:
        layout: The index of its table's layout.
        kind: ``events.WRITE``, ``UPDATE`` or ``DELETE``.
        body: Its rows.
        at_s: When its transaction began to be logged, s since the epoch.
        begin: The place before its transaction.
        number: Its number among the transaction's events of rows of followed tables, from 0.
        skip: Number of its first rows that were delivered before.
    """

    layout: int
    kind: int
    body: bytes
    at_s: int
    begin: Place
    number: int
    skip: int = 0


@dataclass(slots=True)
class Run:
    """Events of rows in the order of the log. All transactions before ``place`` are in it or earlier, and ``events``
    of the next one, and ``done`` rows of the event after them. ``more``: other events wait already."""

    place: Place
    rows: list[RowsEvent] = field(default_factory=list)
    events: int = 0
    done: int = 0
    more: bool = True


class ChangeStream:
    """The changes behind ``start``, without the first ``skip`` of the next transaction: events, and rows of the
    event that follows them."""

    def __init__(
        self,
        source: BinlogStream,
        options: Mapping[str, Any],
        tables: Sequence[CdcTable],
        start: Place,
        skip: tuple[int, int],
        *,
        mariadb: bool,
        statements: Statements,
    ) -> None:
        self._source, self._options = source, options
        self._mariadb = mariadb
        self._layouts = Layouts(tables, options)
        self._statements = statements
        self._skip = skip
        self._since_s = (options["scan.startup.timestamp-millis"] or 0) / 1000
        self._timed = options["scan.startup.mode"] == "timestamp"
        self._file, self._pos = start.file, start.pos
        self._gtids = None if start.gtids is None else Gtids(start.gtids, mariadb=mariadb)
        self._place = start
        #: Layouts by the numbers of table maps; None: the table is not followed.
        self._maps: dict[int, tuple[ev.TableMap, int] | None] = {}
        #: Number of events of rows that the open transaction had; None: no transaction is open.
        self._events: int | None = None
        self._gtid: tuple[Any, ...] | None = None
        self._alone = self._prepared = self._begun = False
        self._at_s = 0

    @property
    def layouts(self) -> list[Layout]:
        """The layouts of tables that were met."""
        return self._layouts.known

    @property
    def reached(self) -> tuple[int, int]:
        """The place of this server that the stream has passed, for comparing."""
        return Place(self._file, self._pos).order if self._events is None else self._place.order

    def take(self) -> Run:
        """The events that have arrived; does not wait."""
        run, size = Run(self._place), 0
        while size < _MOST_BYTES and len(run.rows) < _MOST_EVENTS:
            event = self._source.read()
            if event is None:
                run.more = False
                break
            size += len(event)
            self._event(event, run)
        run.place = self._place
        events = self._events or 0
        # Until the stream has passed them again, the events of the position stay delivered.
        run.events, run.done = (events, 0) if events > self._skip[0] else self._skip
        return run

    def _event(self, event: bytes, run: Run) -> None:
        head = ev.header(event)
        type_ = head.type
        if type_ in ev.ROWS:
            self._rows(event, type_, run)
        elif type_ == ev.TABLE_MAP:
            found = ev.table_map(event)
            index = self._layouts.table_of(found)
            self._maps[ev.table_number(event)] = None if index is None else (found, index)
        elif type_ == ev.MARIADB_GTID:
            gtid = ev.mariadb_gtid(event)
            self._begin(("mariadb", gtid.domain, gtid.server, gtid.sequence), head.at_s)
            self._alone, self._prepared = gtid.alone, gtid.prepared
        elif type_ == ev.GTID:
            self._begin(("mysql", *ev.mysql_gtid(event)), head.at_s)
        elif type_ == ev.ANONYMOUS_GTID:
            self._begin(None, head.at_s)
        elif type_ == ev.QUERY:
            self._statement(event)
        elif type_ in (ev.XID, ev.XA_PREPARE):
            self._end(head.end)
        elif type_ == ev.ROTATE:
            self._file, self._pos = ev.rotation(event)
        elif type_ == ev.HEARTBEAT:
            self._heard(event, head.end)
        elif type_ == ev.FORMAT:
            self._maps.clear()
        elif type_ in ev.UNREADABLE:
            raise self._unreadable(ev.UNREADABLE[type_])
        elif type_ == ev.GTID_TAGGED:
            raise self._unreadable("GTIDs with tags")
        elif type_ == ev.INCIDENT:
            raise self._unreadable("an incident: the server says that changes may be missing")
        if self._events is None and head.end and type_ not in (ev.ROTATE, ev.HEARTBEAT):
            self._pos = max(self._pos, head.end)
            self._moved()

    def _heard(self, event: bytes, end: int) -> None:
        file = event[19:].rstrip(b"\0").decode(errors="replace")
        if self._events is None and end and file == self._file:
            self._pos = max(self._pos, end)
            self._moved()

    def _moved(self) -> None:
        self._place = Place(self._file, self._pos, None if self._gtids is None else str(self._gtids))

    def _begin(self, gtid: tuple[Any, ...] | None, at_s: int) -> None:
        self._gtid, self._at_s = gtid, at_s
        self._events = 0
        self._alone = self._prepared = self._begun = False

    def _end(self, end: int) -> None:
        if self._gtids is not None and self._gtid is not None:
            kind, *parts = self._gtid
            (self._gtids.passed_mariadb if kind == "mariadb" else self._gtids.passed_mysql)(*parts)
        self._events, self._gtid, self._skip = None, None, (0, 0)
        self._pos = max(self._pos, end)
        self._moved()

    def _statement(self, event: bytes) -> None:
        database, text = ev.query(event)
        word = text.strip().rstrip(";").upper()
        if word == "BEGIN":
            self._begun = True
            if self._events is None:
                self._begin(None, ev.header(event).at_s)
            return
        if word == "COMMIT":
            self._end(ev.header(event).end)
            return
        if word.startswith(("XA START", "XA BEGIN")):
            self._prepared = self._begun = True
            return
        if word.startswith("XA END"):
            return
        self._statements.check(database, text, rows=self._events or 0)
        inside = self._events is not None and (self._begun or (self._mariadb and not self._alone))
        if not inside or word == "ROLLBACK":
            self._end(ev.header(event).end)

    def _rows(self, event: bytes, type_: int, run: Run) -> None:
        known = self._maps.get(ev.table_number(event))
        if known is None:
            return
        if self._events is None:
            raise self._unreadable("rows outside of a transaction")
        if self._prepared:
            raise self._unreadable("an XA transaction, whose rows stand in the log before it is committed")
        table, index = known
        number, self._events = self._events, self._events + 1
        if number < self._skip[0] or (self._timed and self._at_s < self._since_s):
            return
        width, present, at = ev.rows_body(event, type_)
        layout = self._layouts.layout(index, table, width, present)
        skip = self._skip[1] if number == self._skip[0] else 0
        run.rows.append(RowsEvent(layout, ev.ROWS[type_], event[at:], self._at_s, self._place, number, skip))

    def _unreadable(self, got: str) -> ConnectorError:
        return ConnectorError(
            "the binary log has changes that cannot be read",
            expected="rows of transactions, as binlog_format = ROW writes them",
            got=got,
            where=f"{place(self._options)}, {self._file} behind byte {self._pos}",
            remedy="change the server's or the session's setting, and start without this source's state",
        )
