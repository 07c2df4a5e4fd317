"""The Nexmark source: the chunks of events are distributed over the splits in turn.

Chunk c (``CHUNK_EPOCHS`` epochs) belongs to split c mod splits, so all splits move through event time
together and any number of readers makes the same events. A position is the number of the split's next chunk,
or a chunk and how many of its rows were delivered.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock.connectors.base import Fetched, SourceEnumerator, SourceReader, Split, TableInfo
from penstock.connectors.nexmark.model import EVENTS_PER_EPOCH, PLACE, Model
from penstock.connectors.nexmark.rows import RowMaker
from penstock.connectors.nexmark.settings import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.base import SourceContext
    from penstock.types import Batch

#: 16,350 events, so that a chunk of all kinds fits a batch.
CHUNK_EPOCHS = 327
CHUNK_EVENTS = CHUNK_EPOCHS * EVENTS_PER_EPOCH
_STEP_MS = 20


class NexmarkEnumerator(SourceEnumerator):
    """Discovers the splits, each of which has every n-th chunk of epochs."""

    def __init__(self, table: TableInfo) -> None:
        self._options = OPTIONS.read(table.options)

    async def discover(self, ctx: SourceContext, known: set[str]) -> Sequence[Split]:
        if known:
            return []
        count = self._options["splits"] or ctx.parallelism
        return [Split(f"part-{i:05d}", {"index": i, "of": count}) for i in range(count)]


@dataclass(slots=True)
class _State:
    """A split and its position. ``chunk``: the next chunk, counted within the split; ``chunks``: the number
    of its chunks. ``rest``: generated rows, from chunk ``at`` on, that are not delivered yet; they follow
    ``skip`` delivered rows. ``drop``: after a restore, the number of next rows that were delivered before."""

    split: Split
    chunk: int
    chunks: int | None
    first: int
    started_ms: int
    at: int = 0
    skip: int = 0
    drop: int = 0
    rest: Batch | None = None

    @property
    def done(self) -> bool:
        return self.chunks is not None and self.chunk >= self.chunks and self.rest is None

    def position(self) -> Any:
        """A chunk's number, or within a chunk ``{"chunk": its number, "skip": rows delivered}``."""
        if self.rest is not None:
            return {"chunk": self.at, "skip": self.skip}
        return {"chunk": self.chunk, "skip": self.drop} if self.drop else self.chunk


class NexmarkReader(SourceReader):
    """Generates the events of its splits at the configured pace."""

    #: Epochs in a chunk; a slow subclass sets a smaller number.
    chunk_epochs = CHUNK_EPOCHS

    def __init__(self, table: TableInfo) -> None:
        options = OPTIONS.read(table.options)
        self._events: int | None = options["events.num"]
        self._pace: int = options["rows-per-second"]
        self._model = Model(
            options["seed"], options["rate"], options["base-time-ms"], options["out-of-order"]
        )
        self._chunk_events = self.chunk_epochs * EVENTS_PER_EPOCH
        self._states: dict[str, _State] = {}
        #: The split whose ``rest`` goes first.
        self._begun: _State | None = None
        self._added = asyncio.Event()

    async def open(self, ctx: SourceContext) -> None:
        self.ctx = ctx
        self._schema = ctx.schema.select(ctx.projection)
        self._only: int | None = ctx.pushed.get("event_type")
        self._maker = RowMaker(self._model, self._schema, self._only)
        # A batch of a rare kind takes several chunks.
        rows = max(1, self._maker.rows_per_epoch * self.chunk_epochs)
        self._chunks_per_batch = 1 if self._pace else max(1, ctx.batch_rows // rows)
        # Counts events of all kinds, even those that are not delivered, because benchmarks count these.
        ctx.metrics.gauge("numEvents", self._passed)

    def _passed(self) -> int:
        """Events that this reader has passed since the start of its splits."""
        return sum(s.chunk for s in self._states.values()) * self._chunk_events

    def add_splits(self, splits: Sequence[Split]) -> None:
        for split in splits:
            index, of = split.payload["index"], split.payload["of"]
            total = None if self._events is None else -(-self._events // self._chunk_events)
            chunks = None if total is None else max(0, -(-(total - index) // of))
            position: Any = split.position or 0
            inside = isinstance(position, dict)
            at, drop = (position["chunk"], position["skip"]) if inside else (position, 0)
            self._states[split.id] = _State(split, at, chunks, at, self.ctx.now_ms(), drop=drop)
        self._added.set()

    def poll(self) -> Fetched | None:
        """Poll the split that is furthest behind, so that event time moves evenly."""
        if self._begun is not None:
            return self._delivered(self._begun, self._begun.rest)
        ready = [s for s in self._states.values() if self._due(s)]
        while ready:
            state = min(ready, key=self._next_chunk)
            state.at, state.skip = state.chunk, 0
            count = min(self._due(state), self._chunks_per_batch)
            index, of = state.split.payload["index"], state.split.payload["of"]
            chunks = (state.chunk + np.arange(count, dtype=np.int64)) * of + index
            state.chunk += count
            within = np.arange(self.chunk_epochs, dtype=np.int64)
            epochs = (chunks[:, None] * self.chunk_epochs + within).reshape(-1)
            batch = self._maker.batch(epochs)
            if self._events is not None and (int(epochs[-1]) + 1) * EVENTS_PER_EPOCH > self._events:
                batch = batch.slice(0, self._rows_before_end(epochs))
            if state.drop:
                state.skip = min(state.drop, len(batch))
                state.drop -= state.skip
                batch = batch.slice(state.skip)
            if len(batch):
                return self._delivered(state, batch)
            ready = [s for s in self._states.values() if self._due(s)]
        return None

    def _delivered(self, state: _State, batch: Batch | None) -> Fetched:
        """The next rows of ``batch``; rows beyond one poll wait."""
        assert batch is not None
        limit = self.ctx.batch_rows
        self._begun, state.rest = None, None
        if len(batch) > limit:
            self._begun, state.rest = state, batch.slice(limit)
            state.skip += limit
            batch = batch.slice(0, limit)
        return Fetched(state.split.id, batch)

    @staticmethod
    def _next_chunk(state: _State) -> int:
        return state.chunk * state.split.payload["of"] + state.split.payload["index"]

    def _rows_before_end(self, epochs: np.ndarray) -> int:
        """Rows of these epochs whose event number is below ``events.num``."""
        assert self._events is not None
        first, count = (0, EVENTS_PER_EPOCH) if self._only is None else PLACE.get(self._only, (0, 0))
        left = np.clip(self._events - epochs * EVENTS_PER_EPOCH - first, 0, count)
        return int(left.sum())

    def _due(self, state: _State) -> int:
        """Chunks that may be made now."""
        left = 1 << 40 if state.chunks is None else state.chunks - state.chunk
        if not self._pace:
            return left
        elapsed_ms = self.ctx.now_ms() - state.started_ms + _STEP_MS
        events = elapsed_ms * self._pace // (1000 * state.split.payload["of"])
        return max(0, min(left, events // self._chunk_events + 1 - (state.chunk - state.first)))

    async def wait(self) -> None:
        if self._begun is not None:
            return
        if all(s.done for s in self._states.values()):
            self._added.clear()
            await self._added.wait()
        elif not any(self._due(s) for s in self._states.values()):
            await asyncio.sleep(_STEP_MS / 1000)

    def finished_splits(self) -> set[str]:
        return {s.split.id for s in self._states.values() if s.done}

    def caught_up(self, split_id: str) -> bool:
        state = self._states[split_id]
        return state.rest is None and not self._due(state)

    def snapshot(self) -> list[Split]:
        return [msgspec.structs.replace(s.split, position=s.position()) for s in self._states.values()]
