"""The hybrid source: discovers the splits of both parts at once, the live ones first, then reads the history
to its end and the live part after it.

Discovering the live splits first fixes the start of the live part, and puts it into the checkpoint, before
the end of the history is known. A reader switches when its own history splits are read; until then its live
splits hold no watermark.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from penstock.connectors.base import Fetched, SourceContext, SourceEnumerator, SourceReader, Split
from penstock.connectors.hybrid.cut import Cut
from penstock.connectors.hybrid.parts import HISTORY, LIVE, part_named, part_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.base import Connector, TableInfo

#: The most batches without a row of the part that one poll may skip.
_EMPTY_POLLS = 16


def _outer(part: str, split: Split) -> Split:
    return msgspec.structs.replace(split, id=part_named(part, split.id))


def _inner(part: str, split: Split) -> Split:
    return msgspec.structs.replace(split, id=split.id.removeprefix(f"{part}:"))


class HybridEnumerator(SourceEnumerator):
    """Discovers the splits of the history and of the live stream."""

    def __init__(self, table: TableInfo) -> None:
        self._table = table
        self._history = self._make(HISTORY)
        self._live = self._make(LIVE)
        self._live.pinned = True
        #: The history is bounded, so only the live part may have new splits later.
        self.discovery_interval_ms = self._live.discovery_interval_ms

    def _make(self, part: str) -> SourceEnumerator:
        connector, info = part_of(self._table, part)
        return connector.enumerator(info)

    async def discover(self, ctx: SourceContext, known: set[str]) -> Sequence[Split]:
        found = []
        for part, enumerator in ((LIVE, self._live), (HISTORY, self._history)):
            own = {i.removeprefix(f"{part}:") for i in known if i.startswith(f"{part}:")}
            if part is HISTORY and known:
                continue  # The history was discovered at the first call; files that came later do not belong to it.
            _, info = part_of(self._table, part)
            splits = await enumerator.discover(replace(ctx, options=info.options), own)
            found.append([_outer(part, split) for split in splits])
        return [split for part_splits in reversed(found) for split in part_splits]

    async def close(self) -> None:
        await self._live.close()
        await self._history.close()


class _Part:
    """The reader of one part, which is opened when the part's turn comes."""

    def __init__(self, name: str, connector: Connector, info: TableInfo) -> None:
        self.name = name
        self.info = info
        self.reader = connector.reader(info)
        self.opened = False
        #: Splits that wait until the reader is open.
        self.waiting: list[Split] = []
        self.known: set[str] = set()

    def add(self, split: Split) -> None:
        self.known.add(split.id)
        own = _inner(self.name, split)
        if self.opened:
            self.reader.add_splits([own])
        else:
            self.waiting.append(own)

    async def open(self, ctx: SourceContext) -> None:
        await self.reader.open(ctx)
        self.opened = True
        waiting, self.waiting = self.waiting, []
        self.reader.add_splits(waiting)

    def finished(self) -> set[str]:
        if not self.opened:
            return set()
        return {part_named(self.name, i) for i in self.reader.finished_splits()}

    def snapshot(self) -> list[Split]:
        read = self.reader.snapshot() if self.opened else self.waiting
        return [_outer(self.name, split) for split in read]


class HybridReader(SourceReader):
    """Reads the history, then the live stream from the point at which the history ends."""

    def __init__(self, table: TableInfo) -> None:
        self._table = table
        self._cut = Cut.of(table.options, table.schema)
        self._parts = {name: _Part(name, *part_of(table, name)) for name in (HISTORY, LIVE)}
        self._history, self._live = self._parts[HISTORY], self._parts[LIVE]

    async def open(self, ctx: SourceContext) -> None:
        self.ctx = ctx
        #: The index of the cut's column in the batches of the parts' readers.
        self._at: int | None = None
        self._projection = list(ctx.projection)
        if self._cut is not None:
            if self._cut.column not in self._projection:
                self._projection.append(self._cut.column)
            self._at = self._projection.index(self._cut.column)

    def _context(self, part: _Part) -> SourceContext:
        return replace(self.ctx, options=part.info.options, projection=tuple(self._projection), pushed={})

    def add_splits(self, splits: Sequence[Split]) -> None:
        for split in splits:
            self._parts[LIVE if split.id.startswith(f"{LIVE}:") else HISTORY].add(split)

    @property
    def _current(self) -> _Part:
        history = self._history
        return self._live if history.finished() >= history.known else history

    def poll(self) -> Fetched | None:
        for _ in range(_EMPTY_POLLS):
            part = self._current
            if not part.opened:
                return None
            part.reader.ctx.batch_rows = self.ctx.batch_rows
            fetched = part.reader.poll()
            if fetched is None:
                return None
            fetched = self._own(part, fetched)
            if fetched.batch.num_rows:
                return fetched
        return None

    def _own(self, part: _Part, fetched: Fetched) -> Fetched:
        """The rows on the part's side of the cut, without the column that was read only for the cut."""
        batch = fetched.batch
        if self._cut is not None:
            assert self._at is not None
            batch = self._cut.split(batch, self._at, history=part is self._history)
            counters = self.ctx.metrics.counters
            name = "historyRecordsBehindCut" if part is self._history else "liveRecordsBeforeCut"
            counters[name] = counters.get(name, 0) + fetched.batch.num_rows - batch.num_rows
            width = len(self.ctx.projection)
            if len(self._projection) > width:
                batch = batch.select(range(width))
        return Fetched(part_named(part.name, fetched.split_id), batch)

    async def wait(self) -> None:
        part = self._current
        if part.opened:
            await part.reader.wait()
        else:
            await part.open(self._context(part))

    def finished_splits(self) -> set[str]:
        return self._history.finished() | self._live.finished()

    def caught_up(self, split_id: str) -> bool:
        part = self._parts[LIVE if split_id.startswith(f"{LIVE}:") else HISTORY]
        return part.opened and part.reader.caught_up(split_id.removeprefix(f"{part.name}:"))

    def dormant(self, split_id: str) -> bool:
        return split_id.startswith(f"{LIVE}:") and self._current is self._history

    def snapshot(self) -> list[Split]:
        return self._history.snapshot() + self._live.snapshot()

    def on_checkpoint_complete(self, checkpoint_id: int, positions: Sequence[Split]) -> None:
        for name, part in self._parts.items():
            if part.opened:
                own = [_inner(name, split) for split in positions if split.id.startswith(f"{name}:")]
                part.reader.on_checkpoint_complete(checkpoint_id, own)

    def pending_records(self) -> int | None:
        return self._current.reader.pending_records() if self._current.opened else None

    async def close(self) -> None:
        for part in self._parts.values():
            if part.opened:
                await part.reader.close()
