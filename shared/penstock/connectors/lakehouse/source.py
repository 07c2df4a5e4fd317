"""The common part of sources whose data files are listed in a table's log: splits by version, and a reader
whose positions are row counts.

A split is one data file of one version: its id is ``<version>/<file>``. Each discovered version also has a
split without rows, ``<version>/``. From these a restored enumerator knows its position, even after versions
without files.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.connectors.base import Fetched, SourceReader, Split
from penstock.formats.arrow_columns import columns_by_name
from penstock.types import Batch
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from penstock.connectors.base import SourceContext, TableInfo

#: The most batches that are read ahead of ``poll``.
_AHEAD = 3


def split_id(version: int, file: str = "") -> str:
    """The id of a file's split, or of the version's own."""
    return f"{version:020d}/{file}"


def last_version(known: Iterable[str]) -> int | None:
    """The latest version of the known splits; None: no split is known."""
    return max((int(id.partition("/")[0]) for id in known), default=None)


def splits_of(version: int, files: Sequence[dict[str, Any]], known: set[str]) -> list[Split]:
    """The splits of a version that are not known yet. ``files``: payloads, each with its ``path``."""
    own = split_id(version)
    out = [
        Split(split_id(version, payload["path"]), {**payload, "order": len(known) + i})
        for i, payload in enumerate(files)
    ]
    out.append(Split(own, {"order": len(known) + len(out)}))
    return [split for split in out if split.id not in known]


def equalities(table: TableInfo, equals: Mapping[int, Any]) -> Mapping[str, Any]:
    """The conditions by which a reader may skip rows early: equalities of whole numbers and texts. The query
    checks all rows anyway."""
    found = {
        table.schema.fields[index].name: value
        for index, value in equals.items()
        if (isinstance(table.schema.fields[index].type, t.INTEGERS) and type(value) is int)
        or (isinstance(table.schema.fields[index].type, t.STRINGS) and type(value) is str)
    }
    return {"equals": found} if found else {}


@dataclass(slots=True)
class _State:
    """A split and its position. ``row``: rows delivered; ``drop``: rows still to be skipped after a
    restore."""

    split: Split
    row: int = 0
    done: bool = False
    drop: int = 0


class LakeReader(SourceReader):
    """Reads splits one after another, in the order in which they were found."""

    def __init__(self) -> None:
        self._states: dict[str, _State] = {}
        self._queue: deque[_State] = deque()
        self._ready: deque[tuple[_State, Batch | None]] = deque()  # None: the split's end
        self._pending: tuple[_State, Batch] | None = None
        self._event = asyncio.Event()
        self._room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failure: Exception | None = None

    @abstractmethod
    def _open_table(self) -> None:
        """Connect. Blocks."""

    @abstractmethod
    def _batches(self, payload: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """The rows of a file, always in the same order. Blocks."""

    async def open(self, ctx: SourceContext) -> None:
        self.ctx = ctx
        self._schema = ctx.schema.select(ctx.projection)
        self._equals: Mapping[str, Any] = ctx.pushed.get("equals", {})
        await ctx.run(self._open_table)

    def add_splits(self, splits: Sequence[Split]) -> None:
        for split in splits:
            position = split.position or {"row": 0, "done": "path" not in split.payload}
            state = _State(split, position["row"], position["done"], position["row"])
            self._states[split.id] = state
            if not state.done:
                self._queue.append(state)
        self._queue = deque(sorted(self._queue, key=lambda state: state.split.payload["order"]))
        self._event.set()
        if self._queue and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._read_ahead())

    async def _read_ahead(self) -> None:
        try:
            while self._queue:
                state = self._queue.popleft()
                rows = self._batches(state.split.payload)
                try:
                    while (found := await self.ctx.run(partial(next, rows, None))) is not None:
                        await self._offer(state, self._to_batch(found, state.split.payload["path"]))
                finally:
                    close = getattr(rows, "close", None)
                    if close is not None:
                        await self.ctx.run(close)
                await self._offer(state, None)
        except Exception as err:
            self._failure = err
            self._event.set()

    def _to_batch(self, rows: pa.RecordBatch, where: str) -> Batch:
        return Batch(self._schema, columns_by_name(self._schema, rows, where), num_rows=rows.num_rows)

    async def _offer(self, state: _State, batch: Batch | None) -> None:
        while len(self._ready) >= _AHEAD:
            self._room.clear()
            await self._room.wait()
        self._ready.append((state, batch))
        self._event.set()

    def poll(self) -> Fetched | None:
        while self._pending is None:
            if not self._ready:
                if self._failure is not None:
                    raise self._failure
                self._event.clear()
                return None
            state, batch = self._ready.popleft()
            self._room.set()
            if batch is None:
                state.done = True
                continue
            dropped = min(state.drop, len(batch))
            state.drop -= dropped
            if len(batch) > dropped:
                self._pending = state, batch.slice(dropped)
        state, batch = self._pending
        rows = batch.slice(0, self.ctx.batch_rows)
        self._pending = (state, batch.slice(len(rows))) if len(rows) < len(batch) else None
        state.row += len(rows)
        return Fetched(state.split.id, rows)

    async def wait(self) -> None:
        if self._pending is None and not self._ready and self._failure is None:
            await self._event.wait()

    def finished_splits(self) -> set[str]:
        return {s.split.id for s in self._states.values() if s.done}

    def caught_up(self, split_id: str) -> bool:
        return self._states[split_id].done

    def snapshot(self) -> list[Split]:
        return [
            msgspec.structs.replace(s.split, position={"row": s.row, "done": s.done})
            for s in self._states.values()
        ]

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
