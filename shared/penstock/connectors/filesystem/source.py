"""The filesystem source: discovers files, cuts large files into splits, and reads the splits in order."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock.connectors.base import Fetched, SourceEnumerator, SourceReader, Split, TableInfo
from penstock.connectors.cutting import first_rows
from penstock.connectors.filesystem.opening import open_files
from penstock.connectors.filesystem.partitions import check_there, found_files
from penstock.connectors.filesystem.parts import check_unchanged, file_format_of, part_reader
from penstock.connectors.filesystem.paths import FileInfo, Files
from penstock.connectors.filesystem.settings import METADATA, OPTIONS
from penstock.errors import ConnectorError
from penstock.types import Batch, Column, Field, Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.base import SourceContext
    from penstock.formats.api import Block

#: The most batches that are read ahead of ``poll``.
_AHEAD = 3


class FileEnumerator(SourceEnumerator):
    """Discovers files in the order of their paths. A split's id is the path and the start of the part, so a
    known file is not read again when it changes. ``size`` and ``modified`` in the payload: the file's bytes and
    modification time (ms since the epoch) when it was found."""

    def __init__(self, table: TableInfo) -> None:
        self._table = table
        self._options = OPTIONS.read(table.options)
        self.discovery_interval_ms = self._options["source.monitor-interval"]

    async def discover(self, ctx: SourceContext, known: set[str]) -> Sequence[Split]:
        def look() -> list[Split]:
            files, path = open_files(self._options["path"], self._table.options)
            found = found_files(self._table, files, path)
            if self.discovery_interval_ms is None:
                where = f"operator {ctx.uid}, option 'path'"
                check_there(self._table, files, path, found, where=where)
            out: list[Split] = []
            order = len(known)
            for file in found:
                if not file.kept:
                    continue
                more = {"partition": list(file.texts)} if file.texts else {}
                for payload in self._parts(files, file.info):
                    split_id = f"{file.info.path}#{payload.get('start', payload.get('first', 0))}"
                    if split_id not in known:
                        out.append(Split(split_id, {**payload, **more, "order": order}))
                        order += 1
            return out

        return await ctx.run(look)

    def _parts(self, files: Files, info: FileInfo) -> list[dict[str, Any]]:
        parts = file_format_of(self._table.options).parts(
            info.path, info.size, partial(files.open_input, info.path), self._options["source.split-size"]
        )
        about = {"path": info.path, "size": info.size, "modified": info.modified_ms}
        return [{**about, **part} for part in parts]


@dataclass(slots=True)
class _State:
    """A split and its position: ``row`` rows delivered; to resume, read from block ``at`` and skip the first
    ``skip`` rows. ``drop``: the number of rows still to be skipped after a restore."""

    split: Split
    at: int | None = None
    skip: int = 0
    row: int = 0
    done: bool = False
    drop: int = 0

    def position(self) -> dict[str, Any]:
        return {"at": self.at, "skip": self.skip, "row": self.row, "done": self.done}

    def enter(self, at: int, batch: Batch) -> Batch:
        """The rows of the block at ``at`` that must be delivered."""
        if self.drop:
            dropped = min(self.drop, len(batch))
            self.drop -= dropped
            return batch.slice(dropped)
        if at != self.at:
            self.at, self.skip = at, 0
        return batch


def _about_file(split: Split, key: str) -> Any:
    """The storage value of a metadata column."""
    payload = split.payload
    match key:
        case "file.path":
            return payload["path"]
        case "file.name":
            return payload["path"].rpartition("/")[2]
        case "file.size" if "size" in payload:
            return payload["size"]
        case "file.modification-time" if "modified" in payload:
            return payload["modified"] * 1_000
    raise ConnectorError(
        f"the state has no '{key}' of '{payload['path']}'",
        expected="a file that this release found",
        got="a file that is known from the state of an older release, which did not keep it",
        where=f"connector 'filesystem', metadata column '{key}'",
        remedy="leave the column out, or start the job without its state",
    )


def _restored(split: Split) -> _State:
    position = split.position
    if position is None:
        return _State(split)
    skip = position["skip"]
    return _State(split, position["at"], skip, position["row"], position["done"], skip)


class FileReader(SourceReader):
    """Reads parts of files, a few at a time."""

    def __init__(self, table: TableInfo) -> None:
        self._table = table
        self._states: dict[str, _State] = {}
        self._queue: deque[_State] = deque()
        self._ready: deque[tuple[_State, Block | None]] = deque()  # None: the split's end
        self._pending: tuple[_State, Batch] | None = None
        self._event = asyncio.Event()
        self._room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None

    async def open(self, ctx: SourceContext) -> None:
        self.ctx = ctx
        self._files, _ = await ctx.run(lambda: open_files(self._table.options["path"], self._table.options))
        fields = [Field(key, METADATA[key]) for key in ctx.metadata]
        self._schema = Schema((*ctx.schema.select(ctx.projection).fields, *fields))

    def add_splits(self, splits: Sequence[Split]) -> None:
        for split in splits:
            state = _restored(split)
            self._states[split.id] = state
            if not state.done:
                self._queue.append(state)
        self._event.set()
        if self._queue and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._read_ahead())

    async def _read_ahead(self) -> None:
        try:
            while self._queue:
                state = self._queue.popleft()
                if state.at is not None:
                    await self.ctx.run(partial(check_unchanged, self._files, state.split.payload))
                reader = part_reader(self.ctx, self._table, self._files, state.split.payload)
                async for block in reader.blocks(state.at):
                    await self._offer(state, block)
                await self._offer(state, None)
        except Exception as err:
            self._failure = err
            self._event.set()

    async def _offer(self, state: _State, block: Block | None) -> None:
        while len(self._ready) >= _AHEAD:
            self._room.clear()
            await self._room.wait()
        self._ready.append((state, block))
        self._event.set()

    def poll(self) -> Fetched | None:
        if self._pending is None and not self._next_block():
            return None
        state, batch = self._pending  # type: ignore[misc]
        rows = first_rows(batch, self.ctx.batch_rows)
        self._pending = (state, batch.slice(len(rows))) if len(rows) < len(batch) else None
        out = self._with_metadata(state, rows)
        state.skip += len(rows)
        state.row += len(rows)
        return Fetched(state.split.id, out)

    def _next_block(self) -> bool:
        """Decode blocks until one has rows to deliver; returns False when no block is available now."""
        while self._ready:
            state, block = self._ready.popleft()
            self._room.set()
            if block is None:
                state.done = True
                continue
            batch = state.enter(block.at, block.decode())
            if len(batch):
                self._pending = (state, batch)
                return True
        if self._failure is not None:
            raise self._failure
        self._event.clear()
        return False

    def _with_metadata(self, state: _State, rows: Batch) -> Batch:
        columns = list(rows.columns)
        for key in self.ctx.metadata:
            if key == "row":
                numbers = np.arange(state.row, state.row + len(rows), dtype=np.int64)
                columns.append(Column(METADATA[key], numbers))
            else:
                columns.append(Column.constant(METADATA[key], _about_file(state.split, key), len(rows)))
        return Batch(self._schema, columns, kinds=rows.kinds, num_rows=len(rows))

    async def wait(self) -> None:
        if self._pending is None and not self._ready and self._failure is None:
            await self._event.wait()

    def finished_splits(self) -> set[str]:
        return {s.split.id for s in self._states.values() if s.done}

    def caught_up(self, split_id: str) -> bool:
        return self._states[split_id].done

    def snapshot(self) -> list[Split]:
        return [msgspec.structs.replace(s.split, position=s.position()) for s in self._states.values()]

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
