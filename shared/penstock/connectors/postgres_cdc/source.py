"""The single split of ``postgres-cdc``: a snapshot in chunks with the changes that come meanwhile, then only
changes.

One reader reads all tables, so that the rows of a key stay in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock.cancelling import end_tasks
from penstock.connectors.base import SourceEnumerator, Split
from penstock.connectors.cdc.reader import LOOK_S, SPLIT, FollowingReader, readable
from penstock.connectors.postgres_cdc.checks import check_server
from penstock.connectors.postgres_cdc.database import CdcTable, connect, find_tables, place, rows
from penstock.connectors.postgres_cdc.decoding import Decoder, Texts
from penstock.connectors.postgres_cdc.position import Cursor, Position, Window, lsn_of
from penstock.connectors.postgres_cdc.replication import ReplicationStream
from penstock.connectors.postgres_cdc.selecting import Selector
from penstock.connectors.postgres_cdc.settings import OPTIONS
from penstock.connectors.postgres_cdc.slot import (
    check_restored,
    find_slot,
    make_publication,
    make_slot,
    wait_for_transactions,
)
from penstock.connectors.postgres_cdc.snapshot import Chunk, ChunkReader, behind
from penstock.connectors.postgres_cdc.stream import ChangeStream
from penstock.errors import ConnectorError, ExternalError
from penstock.log_events import EventLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.base import SourceContext, TableInfo
    from penstock.types.batch import Batch

_log = EventLog("penstock.connectors.postgres_cdc")

#: How long the reader waits for the socket while the stream must pass the place of a chunk, in seconds.
_ASK_S = 0.02


class PostgresCdcEnumerator(SourceEnumerator):
    """Creates the publication and the slot, and describes the tables."""

    def __init__(self, table: TableInfo) -> None:
        self._options = OPTIONS.read(table.options)

    async def discover(self, ctx: SourceContext, known: set[str]) -> Sequence[Split]:
        if SPLIT in known:
            return []
        options, mode = self._options, self._options["scan.startup.mode"]
        with closing(connect(options)) as connection:
            follows = mode != "snapshot"
            check_server(connection, options, follows=follows)
            tables = [described.table for described in find_tables(connection, options)]
            lsn = self._start(connection, mode, tables) if follows else 0
        payload = {"tables": msgspec.to_builtins(tables), "mode": mode, "lsn": lsn}
        return [Split(SPLIT, payload)]

    def _start(self, connection: Any, mode: str, tables: Sequence[CdcTable]) -> int:
        options = self._options
        if mode == "committed-offset" and find_slot(connection, options) is None:
            raise ConnectorError(
                f"there is no replication slot '{options['slot.name']}'",
                expected="a slot, for 'scan.startup.mode' = 'committed-offset'",
                got="none",
                where=place(options),
                remedy="set another 'scan.startup.mode', or 'slot.name'",
            )
        make_publication(connection, options, tables)
        lsn = make_slot(connection, options)
        if mode == "initial":
            wait_for_transactions(connection, options)
        elif mode == "latest-offset":
            [(now,)] = rows(connection, options, "SELECT pg_current_wal_flush_lsn()::text")
            lsn = max(lsn, lsn_of(now))
        return lsn


class PostgresCdcReader(FollowingReader):
    """Reads the split. If the server does not answer, the reader waits for it and then continues from its
    position."""

    _position: Position

    def __init__(self, table: TableInfo) -> None:
        super().__init__()
        self._options = OPTIONS.read(table.options)
        self._position = Position(0)
        self._connection: Any = None
        self._chunks: ChunkReader | None = None
        self._source: ReplicationStream | None = None
        self._stream: ChangeStream | None = None
        self._checked = False
        self._idle = False
        #: Places of checkpoints that are complete, the newest last.
        self._completed: deque[int] = deque()
        self._heart: asyncio.Task[None] | None = None

    async def open(self, ctx: SourceContext) -> None:
        self.ctx = ctx
        self._upserts = self._options["changelog-mode"] == "upsert"
        self._decoder = Decoder(ctx, self._options, upserts=self._upserts)
        self._heart = asyncio.get_running_loop().create_task(self._beat())

    def add_splits(self, splits: Sequence[Split]) -> None:
        for split in splits:
            payload = split.payload
            self._split = split
            self._tables = msgspec.convert(payload["tables"], list[CdcTable])
            self._follows = payload["mode"] != "snapshot"
            if split.position is not None:
                self._position = Position.from_json(split.position)
            else:
                first = Cursor(0) if payload["mode"] in ("initial", "snapshot") else None
                self._position = Position(payload["lsn"], cursor=first)
            self._selector = Selector(
                self._tables,
                self._decoder.names,
                upserts=self._upserts,
                is_behind=lambda *asked: behind(self._connection, self._options, *asked),
            )
        self._event.set()

    # -- rows ---------------------------------------------------------------------------

    def _connect(self) -> None:
        if self._connection is None:
            self._connection = connect(self._options)
            self._chunks = ChunkReader(self._connection, self._options, follows=self._follows)
            if self._follows and not self._checked:
                check_restored(self._connection, self._options, self._position.lsn)
                if self._position.cursor is not None:
                    wait_for_transactions(self._connection, self._options)
                self._checked = True
        if self._follows and self._stream is None:
            self._source = ReplicationStream(self._options, self._position.lsn)
            self._stream = ChangeStream(
                self._source, self._options, self._tables, self._position.lsn, self._position.skip
            )
            self._confirm()

    def _reconnecting(self, err: ExternalError, pause_s: float) -> None:
        _log.warning("postgres_reconnecting", where=place(self._options), pause_s=pause_s, error=str(err))

    def _hang_up(self) -> None:
        self._ready.clear()
        if self._source is not None:
            self._source.close()
        if self._connection is not None:
            self._connection.close()
        self._connection = self._chunks = self._source = self._stream = None

    def _read(self) -> bool:
        """Read a chunk, or the changes that have arrived; returns False if there is nothing now."""
        position = self._position
        if position.cursor is not None and position.window is None:
            self._read_chunk(position, position.cursor)
            return True
        assert self._stream is not None
        # A message may be two rows, which share one position, so a restore never separates them.
        run = self._stream.take(max(1, self.ctx.batch_rows // 2))
        texts = self._selector.rows(run, self._stream.layouts, position)
        window = position.window
        if window is not None and run.lsn >= window.high:
            window = None
        after = Position(run.lsn, run.skip, position.cursor, window)
        self._idle = not run.count and run.skip == 0
        batch = self._decoder.batch(texts)
        if len(batch):
            self._ready.append((batch, after))
        else:
            self._position = after
        return bool(run.count) or after != position

    def _read_chunk(self, position: Position, cursor: Cursor) -> None:
        assert self._chunks is not None
        table = self._tables[cursor.table]
        size = max(1, self._options["scan.incremental.snapshot.chunk.size"])
        selector = self._selector
        chunk = self._chunks.read(table, self._decoder.names, cursor.after, size, list(selector.must_see))
        selector.must_see.clear()
        step = max(1, min(self.ctx.batch_rows, self._options["scan.snapshot.fetch.size"]))
        for first in range(0, len(chunk), step):
            end = min(first + step, len(chunk))
            last = end == len(chunk) and chunk.last
            upto = None if last else chunk.key(end - 1)
            self._ready.append(
                (
                    self._rows_of(table, chunk, first, end),
                    self._after(position, cursor, chunk, upto, last=last),
                )
            )
        if not len(chunk):
            self._position = self._after(position, cursor, chunk, None, last=True)

    def _after(
        self, position: Position, cursor: Cursor, chunk: Chunk, upto: tuple[str, ...] | None, *, last: bool
    ) -> Position:
        """The position after rows of a chunk up to the key ``upto``; ``last``: these are the table's last
        rows."""
        following: Cursor | None = Cursor(cursor.table, upto)
        if last:
            following = Cursor(cursor.table + 1) if cursor.table + 1 < len(self._tables) else None
        window = Window(cursor.table, cursor.after, upto, chunk.view, chunk.high) if self._follows else None
        return Position(position.lsn, position.skip, following, window)

    def _rows_of(self, table: CdcTable, chunk: Chunk, first: int, end: int) -> Batch:
        n = end - first
        columns = [column.slice(first, n) for column in chunk.columns]
        return self._decoder.batch([Texts(table, columns, np.zeros(n, np.uint8), np.zeros(n, np.int64))])

    # -- waiting ------------------------------------------------------------------------

    async def _wait_for_changes(self) -> None:
        if self._source is None:
            return
        window = self._position.window
        if window is not None:
            self._source.feedback(answer=True)
        await readable(self._source.fileno(), LOOK_S if window is None else _ASK_S)

    async def _beat(self) -> None:
        """Send feedback regularly, also while back-pressure stops the reader, so that the server keeps the
        connection."""
        while True:
            await asyncio.sleep(self._options["heartbeat.interval"] / 1000)
            if self._source is not None:
                try:
                    self._source.feedback()
                except ExternalError as err:
                    self._lost(err)

    # -- progress -----------------------------------------------------------------------

    def caught_up(self, split_id: str) -> bool:
        return self._done or (self._idle and not self._position.filters and not self._ready)

    def on_checkpoint_complete(self, checkpoint_id: int, positions: Sequence[Split]) -> None:
        for split in positions:
            if split.position is not None:
                self._completed.append(Position.from_json(split.position).lsn)
        self._confirm()

    def _confirm(self) -> None:
        """Confirm changes to the server that no retained checkpoint needs, so that it can remove them from
        its log."""
        delay = self._options["scan.lsn-commit.checkpoints-num-delay"]
        while len(self._completed) > delay + 1:
            self._completed.popleft()
        if len(self._completed) == delay + 1 and self._source is not None:
            try:
                self._source.confirm(self._completed[0])
            except ExternalError as err:
                self._lost(err)

    async def close(self) -> None:
        if self._heart is not None:
            await end_tasks([self._heart])
        self._hang_up()
