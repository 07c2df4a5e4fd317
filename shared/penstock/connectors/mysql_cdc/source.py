"""The single split of ``mysql-cdc``: a snapshot in chunks with the changes that come meanwhile, then only
changes."""

from __future__ import annotations

import random
from contextlib import closing
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock.connectors.away import Away
from penstock.connectors.base import SourceEnumerator, Split
from penstock.connectors.cdc.reader import LOOK_S, SPLIT, FollowingReader, readable
from penstock.connectors.mysql_cdc.binlog import BinlogStream
from penstock.connectors.mysql_cdc.changes import ChangeStream
from penstock.connectors.mysql_cdc.checks import check_server, check_table
from penstock.connectors.mysql_cdc.chunks import ChunkReader, Held, start_place
from penstock.connectors.mysql_cdc.database import (
    CdcTable,
    columns_of,
    connect,
    find_tables,
    is_mariadb,
    place,
)
from penstock.connectors.mysql_cdc.events import UPDATE
from penstock.connectors.mysql_cdc.keys import behind
from penstock.connectors.mysql_cdc.position import Cursor, Place, Position
from penstock.connectors.mysql_cdc.rows import ChangeRows, Decoder, rows_of
from penstock.connectors.mysql_cdc.settings import OPTIONS, server_id_of
from penstock.connectors.mysql_cdc.statements import Statements
from penstock.types.batch import Batch, RowKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.base import SourceContext, TableInfo
    from penstock.connectors.mysql_cdc.changes import Run
    from penstock.connectors.mysql_cdc.position import Key
    from penstock.errors import ExternalError

#: Numbers of readers that are not told theirs: far from those that people give to replicas.
_RANDOM_IDS = (1 << 20, (1 << 31) - 1)


class MySqlCdcEnumerator(SourceEnumerator):
    """Describes the tables, and finds the place where the stream of changes begins."""

    def __init__(self, table: TableInfo) -> None:
        self._options = OPTIONS.read(table.options)

    async def discover(self, ctx: SourceContext, known: set[str]) -> Sequence[Split]:
        if SPLIT in known:
            return []
        options, mode = self._options, self._options["scan.startup.mode"]
        follows = mode != "snapshot"
        with closing(connect(options)) as connection:
            check_server(connection, options, follows=follows)
            found = find_tables(connection, options)
            for described in found:
                check_table(connection, described, options, follows=follows)
            start = start_place(connection, options) if follows else Place("", 4)
        tables = [described.table for described in found]
        payload = {"tables": msgspec.to_builtins(tables), "mode": mode, "start": msgspec.to_builtins(start)}
        return [Split(SPLIT, payload)]


class MySqlCdcReader(FollowingReader):
    """Reads the split."""

    _position: Position

    def __init__(self, table: TableInfo) -> None:
        super().__init__()
        self._options = OPTIONS.read(table.options)
        self._position = Position(Place("", 4))
        self._server_id = server_id_of(self._options) or random.randint(*_RANDOM_IDS)
        self._away = Away(place(self._options))
        self._connection: Any = None
        self._chunks: ChunkReader | None = None
        self._source: BinlogStream | None = None
        self._stream: ChangeStream | None = None
        self._held: Held | None = None
        #: The most rows of a chunk; smaller after one that grew while it was held.
        self._most: int | None = None
        self._idle = False

    async def open(self, ctx: SourceContext) -> None:
        self.ctx = ctx
        self._upserts = self._options["changelog-mode"] == "upsert"
        self._decoder = Decoder(ctx, self._options, upserts=self._upserts)

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
                self._position = Position(msgspec.convert(payload["start"], Place), cursor=first)
        self._event.set()

    # -- connections --------------------------------------------------------------------

    def _connect(self) -> None:
        if self._connection is None:
            self._connection = connect(self._options)
            self._chunks = ChunkReader(self._connection, self._options, follows=self._follows)
        if self._follows and self._stream is None:
            position = self._position
            self._source = BinlogStream(
                self._options, position.place, self._server_id, eager=position.cursor is not None
            )
            self._stream = ChangeStream(
                self._source,
                self._options,
                self._tables,
                position.place,
                (position.events, position.rows),
                mariadb=is_mariadb(self._connection),
                statements=Statements(self._tables, self._options, self._columns_now),
            )
        self._away.answered()

    def _columns_now(self, table: CdcTable) -> Any:
        with closing(connect(self._options)) as connection:
            return columns_of(connection, self._options, table.schema, table.name)

    def _reconnecting(self, err: ExternalError, pause_s: float) -> None:
        self._away.failed(err)

    def _hang_up(self) -> None:
        self._ready.clear()
        if self._source is not None:
            self._source.close()
        if self._connection is not None:
            self._connection._force_close()
        self._connection = self._chunks = self._source = self._stream = self._held = None

    # -- rows ---------------------------------------------------------------------------

    def _read(self) -> bool:
        position = self._position
        if position.cursor is not None and not self._follows:
            self._read_rows(position.cursor)
            return True
        if position.cursor is not None and self._held is None and not (position.events or position.rows):
            self._hold(position.cursor)
        return self._read_changes(position)

    def _read_rows(self, cursor: Cursor) -> None:
        """Read a chunk of a table that is not followed."""
        assert self._chunks is not None
        table = self._tables[cursor.table]
        size = self._options["scan.incremental.snapshot.chunk.size"]
        chunk = self._chunks.read(table, self._decoder.names, cursor.after, size, None)
        step = min(self.ctx.batch_rows, self._options["scan.snapshot.fetch.size"])
        n = len(chunk.keys)
        for first in range(0, max(1, n), step):
            end = min(first + step, n)
            batch, _ = self._decoder.chunk(table, [c[first:end] for c in chunk.columns], end - first)
            last = end == n and chunk.last
            after = self._after(cursor, None if last else chunk.keys[end - 1])
            position = msgspec.structs.replace(self._position, cursor=after)
            if len(batch):
                self._ready.append((batch, position))
            elif not self._ready:
                self._position = position

    def _hold(self, cursor: Cursor) -> None:
        """Read the next chunk, which waits until the stream has passed all that it may have seen."""
        assert self._chunks is not None
        table, options = self._tables[cursor.table], self._options
        most = min(
            options["scan.incremental.snapshot.chunk.size"],
            options["scan.snapshot.fetch.size"],
            self.ctx.batch_rows,
        )
        size = min(most, self._most or most)
        chunk = self._chunks.read(table, self._decoder.names, cursor.after, size, self._position.place)
        rows, which = self._decoder.chunk(table, chunk.columns, len(chunk.keys))
        upto = None if chunk.last else chunk.keys[-1]
        keys = [chunk.keys[i] for i in which.tolist()]
        self._held = Held(cursor.table, cursor.after, upto, chunk.high, rows, keys)

    def _after(self, cursor: Cursor, upto: Key | None) -> Cursor | None:
        """The progress behind a chunk up to the key ``upto``; None: to the table's last row."""
        if upto is not None:
            return Cursor(cursor.table, upto)
        return Cursor(cursor.table + 1) if cursor.table + 1 < len(self._tables) else None

    def _read_changes(self, position: Position) -> bool:
        assert self._stream is not None
        run = self._stream.take()
        several = rows_of(run, self._tables, self._stream.layouts, upserts=self._upserts)
        if position.cursor is not None:
            several = [self._outside(rows, position.cursor) for rows in several]
        after = Position(run.place, run.events, run.done, position.cursor)
        self._cut(several, run, after)
        self._idle = not run.rows and not run.events
        if not self._ready:
            self._position = after
        # A chunk without rows moves the position itself.
        released = self._release(after)
        return bool(self._ready) or run.more or bool(run.rows) or released

    def _outside(self, rows: ChangeRows, cursor: Cursor) -> ChangeRows:
        """The rows that are to be delivered now: their keys are in chunks that were delivered. Rows of the chunk that is held are
        put into it; others are left out, since a later chunk will have them."""
        if rows.index < cursor.table or not len(rows):
            return rows
        if rows.index > cursor.table:
            return rows.take(np.zeros(0, np.int64))
        keys = rows.keys()
        later = np.ones(len(rows), np.bool_)
        if cursor.after is not None:
            later = np.array(self._behind(rows, keys, cursor.after), np.bool_)
        held = self._held
        if held is not None:
            inside = later.copy()
            if held.upto is not None:
                inside &= ~np.array(self._behind(rows, keys, held.upto), np.bool_)
            self._into(held, rows, keys, np.flatnonzero(inside))
        return rows.take(np.flatnonzero(~later))

    def _behind(self, rows: ChangeRows, keys: Sequence[Key], bound: Key) -> list[bool]:
        return behind(self._connection, self._options, rows.table, keys, bound)

    def _into(self, held: Held, rows: ChangeRows, keys: Sequence[Key], which: np.ndarray) -> None:
        inside = rows.take(which)
        gone = (RowKind.DELETE, RowKind.UPDATE_BEFORE)
        batch, order = self._decoder.changes(inside)
        at = {number: i for i, number in enumerate(order.tolist())}
        for n, kind, number in zip(which.tolist(), inside.kinds.tolist(), inside.order.tolist(), strict=True):
            found = at.get(number)
            # A row that does not fit, and that 'on-error' leaves out, is left out of the chunk, too.
            held.newer[keys[n]] = (
                None if kind in gone or found is None else batch.slice(found, 1).with_kinds(None)
            )

    def _release(self, after: Position) -> bool:
        """Deliver the chunk that is held, if the stream has passed all that it may have seen."""
        held, stream = self._held, self._stream
        assert stream is not None
        if held is None or after.cursor is None or stream.reached < held.high or after.events or after.rows:
            return False
        kept = np.array([key not in held.newer for key in held.keys], np.bool_)
        parts = [held.rows.filter(kept), *(row for row in held.newer.values() if row is not None)]
        batch = Batch.concat(parts)
        self._held = None
        if len(batch) > self.ctx.batch_rows:
            # More rows than a batch may have came into the chunk: read fewer at once.
            self._most = max(1, len(held.keys) // 2)
            return True
        self._most = None
        position = msgspec.structs.replace(after, cursor=self._after(after.cursor, held.upto))
        if len(batch):
            self._ready.append((batch, position))
        elif self._ready:
            last, _ = self._ready.pop()
            self._ready.append((last, position))
        else:
            self._position = position
            return True
        return True

    def _cut(self, several: Sequence[ChangeRows], run: Run, after: Position) -> None:
        """Make batches of the rows of all tables, in their order, each with the position after it."""
        several = [rows for rows in several if len(rows)]
        if not several:
            return
        order = np.concatenate([rows.order for rows in several])
        order.sort()
        first, limit = 0, self.ctx.batch_rows
        while first < len(order):
            end = min(first + limit, len(order))
            if end < len(order) and _one_update(run, int(order[end - 1]), int(order[end])):
                end = end - 1 if end - 1 > first else end + 1
            low, high = order[first], order[end - 1]
            parts = [
                rows.take(np.flatnonzero((rows.order >= low) & (rows.order <= high))) for rows in several
            ]
            found = [self._decoder.changes(part) for part in parts if len(part)]
            batch = Batch.concat([part for part, _ in found])
            if len(found) > 1:
                batch = batch.take(np.argsort(np.concatenate([places for _, places in found])))
            position = after if end == len(order) else _behind_row(run, int(high), int(order[end]), after)
            if len(batch):
                self._ready.append((batch, position))
            elif not self._ready:
                self._position = position
            first = end

    # -- waiting and progress -----------------------------------------------------------

    async def _wait_for_changes(self) -> None:
        if self._source is not None:
            await readable(self._source.fileno(), LOOK_S)

    def caught_up(self, split_id: str) -> bool:
        return self._done or (self._idle and self._position.cursor is None and not self._ready)

    async def close(self) -> None:
        self._hang_up()


def _one_update(run: Run, order: int, following: int) -> bool:
    """Whether two rows of a run that follow one another are the old and the new row of one update."""
    return following == order + 1 and run.rows[order >> 32].kind == UPDATE and following % 2 == 1


def _behind_row(run: Run, order: int, following: int, after: Position) -> Position:
    """The position between two rows of a run that stand at ``order`` and ``following``."""
    event, step = run.rows[following >> 32], following & 0xFFFFFFFF
    done = 0
    if following >> 32 == order >> 32:
        done = step // 2 if event.kind == UPDATE else step
    return Position(event.begin, event.number, max(done, event.skip), after.cursor)
