"""Aggregation per key and session: windows that grow and merge.

Keys beyond the memory's limit lie on disk with all their sessions, listed by when the first
of these ends; they come back when a row asks for them, or when that time has come.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.grouping import distinct
from penstock.columnar.key_index import KeyIndex
from penstock.columnar.multimap import MultiMap
from penstock.columnar.sorting import group_bounds, stable_argsort
from penstock.columnar.store import Slots, grown
from penstock.columnar.windows import ROWTIME_STEP_US
from penstock.errors import SpecError, UnsupportedError
from penstock.operators.changes import typed
from penstock.operators.emitting import event_times, pieces, restored_watermark, watermark_state
from penstock.operators.operator import MAX_WATERMARK, MIN_WATERMARK, Operator, SideBatch
from penstock.snapshots.contract import OperatorSnapshot
from penstock.snapshots.keyed_blocks import restored_columns
from penstock.state.aggregates import AggregateSet
from penstock.state.cold_tier import ColdTier, MovableTable, Resident, can_evict, make_changes
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.columnar.accumulators import EntryTable
    from penstock.jobgraph.specs import WindowAggregateSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState

_LONG = t.BigIntType(False)
#: A session's end on disk, where times are positive.
_TIME_ZERO_US = 1 << 62


class SessionAggregateOperator(Operator):
    """A session [first, last + gap) is one cell. A batch's rows are cut into sessions of
    their own, which are merged with the stored ones they touch, all keys at once."""

    def __init__(self, spec: WindowAggregateSpec) -> None:
        if spec.window.gap_us <= 0:
            raise SpecError("a session window needs a positive gap", got=f"gap_us = {spec.window.gap_us}")
        if spec.phase != "single" or spec.allowed_lateness_us:
            raise UnsupportedError(
                "session windows are aggregated in one phase, without allowed lateness",
                expected="phase = single and allowed_lateness_us = 0",
                got=f"phase = {spec.phase}, allowed_lateness_us = {spec.allowed_lateness_us}",
            )
        self.spec = spec
        self._processing_time = spec.window.time is None

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        schema = ctx.input_schemas[0]
        self._key_types = [schema.types[i] for i in self.spec.keys]
        self._keys = KeyIndex(self._key_types)
        self._of_key = np.zeros(1024, np.int64)  # sessions of each key
        self._sessions = Slots()
        self._key_of = np.zeros(1024, np.int64)
        self._start = np.zeros(1024, np.int64)
        self._end = np.full(1024, MAX_WATERMARK, np.int64)  # MAX: not in use
        self._by_key = MultiMap()
        self._aggregates = AggregateSet(
            self.spec.aggregates, schema.types, retracts=self.spec.retracts, function=ctx.function
        )
        evicts = can_evict(ctx, self._key_types)
        self._tables = self._aggregates.state_tables(
            ctx, head=self._head, kind="session-aggregate",
            names=[*(f"key{i}" for i in range(len(self.spec.keys))), "session_start", "session_end"],
            make_changes=partial(make_changes, ctx, evicts=evicts),
        )  # fmt: skip
        self._changes = self._tables[0].changes
        self._watermark = restored_watermark(restored)
        self._tier = self._cold_tier() if evicts else Resident(ctx, self._nbytes)
        if restored is not None:
            self._restore(restored)
        ctx.metrics.gauge("numSessionsInState", lambda: self._sessions.count)

    def _nbytes(self) -> int:
        sessions = self._sessions.count
        state = self._aggregates.live_bytes(sessions) + self._by_key.live_bytes + 36 * sessions
        return self._keys.live_bytes + 8 * len(self._keys) + state

    def close(self) -> None:
        if hasattr(self, "_tier"):
            self._tier.close()

    # -- input -------------------------------------------------------------------------

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        n = batch.num_rows
        if self._processing_time:
            times = np.full(n, self.ctx.now_ms() * 1000, np.int64)
        else:
            assert self.spec.window.time is not None
            times = event_times(batch, self.spec.window.time, self.ctx)
        key_slots, fresh = self._key_slots([batch.columns[i] for i in self.spec.keys], n)
        groups, starts, ends, stored, group_of_stored = self._merge_intervals(key_slots, times)
        # Late: a session that has already ended and touches none that is still open.
        all_slots = key_slots
        kept_groups = np.zeros(len(starts), np.bool_)
        kept_groups[group_of_stored] = True
        kept_groups |= ends - 1 > self._watermark
        if not kept_groups.all():
            late = ~kept_groups[groups]
            self.ctx.metrics.inc("numLateRecordsDropped", int(late.sum()))
            if self.spec.late_tag is not None:
                yield SideBatch(self.spec.late_tag, batch.filter(late))
            kept = np.flatnonzero(~late)
            if not len(kept):
                self._free_unused(key_slots)
                return
            batch, groups, key_slots = batch.take(kept), groups[kept], key_slots[kept]
        self.ctx.metrics.inc("numRecordsAccepted", batch.num_rows)
        cells = self._cells_of_groups(groups, key_slots, starts, ends, stored, group_of_stored)
        self._aggregates.add(cells[groups], batch.columns, batch.signs())
        self._free_unused(all_slots)
        if self._processing_time:
            self.ctx.wake_at(int(-(-int(ends.min()) // 1000)))
        self._tier.used(all_slots)
        self._tier.make_room(fresh)

    def _key_slots(self, keys: Sequence[Column], n: int) -> tuple[np.ndarray, int]:
        """(slots of keys, how many are new to the memory); what lay on disk has come back."""
        slots, new = self._keys.upsert(keys, n)
        self._of_key = grown(self._of_key, self._keys.high)
        self._tier.fetch(new)
        return slots, len(new)

    def _merge_intervals(
        self, key_slots: np.ndarray, times: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Rows and the stored sessions of their keys as merged intervals: (group of each
        row, start and end of each group, stored sessions, group of each of those)."""
        n, gap = len(times), self.spec.window.gap_us
        touched = distinct(key_slots)
        _, stored = self._by_key.probe(touched)
        keys = np.concatenate((key_slots, self._key_of[stored]))
        starts = np.concatenate((times, self._start[stored]))
        ends = np.concatenate((times + gap, self._end[stored]))
        order = stable_argsort(starts)
        order = order[stable_argsort(keys[order])]
        k, s = keys[order], starts[order]
        reach = _running_max(ends[order], k)
        opens = np.ones(len(order), np.bool_)
        # Touching sessions merge, as Flink's do: start <= the end before it.
        opens[1:] = (k[1:] != k[:-1]) | (s[1:] > reach[:-1])
        first = np.flatnonzero(opens)
        group = np.cumsum(opens) - 1
        last = np.append(first[1:], len(order)) - 1
        groups = np.empty(len(order), np.int64)
        groups[order] = group
        return groups[:n], s[first], reach[last], stored, groups[n:]

    def _cells_of_groups(
        self,
        groups: np.ndarray,
        key_slots: np.ndarray,
        starts: np.ndarray,
        ends: np.ndarray,
        stored: np.ndarray,
        group_of_stored: np.ndarray,
    ) -> np.ndarray:
        """The session of each group that rows fall into: a stored one, into which the
        others it has swallowed are merged, or a new one. -1 for groups without rows."""
        cells = np.full(len(starts), -1, np.int64)
        has_rows = np.zeros(len(starts), np.bool_)
        has_rows[groups] = True
        mine = has_rows[group_of_stored]
        stored, group_of_stored = stored[mine], group_of_stored[mine]
        cells[group_of_stored[::-1]] = stored[::-1]  # the first of each group stays
        swallowed = cells[group_of_stored] != stored
        fresh = np.flatnonzero(has_rows & (cells < 0))
        if len(fresh):
            key_of_group = np.empty(len(starts), np.int64)
            key_of_group[groups] = key_slots
            cells[fresh] = self._new_sessions(key_of_group[fresh])
        used = np.flatnonzero(has_rows)
        self._changes.write(cells[used])
        # The rows of a session's values carry its start, by which they find it again.
        moved = cells[used][self._start[cells[used]] != starts[used]]
        self._aggregates.touch_entries(moved)
        self._start[cells[used]], self._end[cells[used]] = starts[used], ends[used]
        gone = stored[swallowed]
        if len(gone):
            self._aggregates.absorb(cells[group_of_stored[swallowed]], self._aggregates, gone)
            self._drop(gone)
        return cells

    def _new_sessions(self, key_slots: np.ndarray) -> np.ndarray:
        """An empty one for each of these; their bounds are to be set."""
        new = self._sessions.allocate(len(key_slots))
        high = self._sessions.high
        self._key_of, self._start = grown(self._key_of, high), grown(self._start, high)
        self._end = grown(self._end, high, MAX_WATERMARK)
        self._key_of[new] = key_slots
        self._aggregates.reset(new, high)
        self._by_key.add(key_slots, new)
        np.add.at(self._of_key, key_slots, 1)
        return new

    # -- firing ------------------------------------------------------------------------

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        if not self._processing_time:
            yield from self._advance(watermark)

    def on_processing_time(self, now_ms: int) -> Iterator[Output]:
        if self._processing_time:
            yield from self._advance(now_ms * 1000 - 1)
            first = int(self._end[: self._sessions.high].min(initial=MAX_WATERMARK))
            on_disk = self._tier.earliest()
            if on_disk is not None:
                first = min(first, on_disk - _TIME_ZERO_US)
            if first < MAX_WATERMARK:
                self.ctx.wake_at(-(-first // 1000))

    def finish(self) -> Iterator[Output]:
        yield from self._advance(MAX_WATERMARK)

    def _advance(self, watermark: int) -> Iterator[Output]:
        if watermark <= self._watermark:
            return
        self._watermark = watermark
        ends = self._end[: self._sessions.high]
        due = np.flatnonzero((ends - 1 <= watermark) & (ends != MAX_WATERMARK))
        yield from self._fire(due)
        until = min(watermark + 1 + _TIME_ZERO_US, MAX_WATERMARK)
        while (keys := self._tier.due(until)) is not None:
            key_slots, fresh = self._key_slots(keys, len(keys[0]))
            back = self._by_key.probe(key_slots)[1]
            yield from self._fire(back[self._end[back] - 1 <= watermark])
            self._tier.make_room(fresh)

    def _fire(self, due: np.ndarray) -> Iterator[Output]:
        """Emit sessions and forget them."""
        due = due[stable_argsort(self._end[due])]
        for part in pieces(due, self._tier.piece_keys):
            yield self._batch(part)
        if len(due):
            key_slots = self._key_of[due]
            self._drop(due)
            self._free_unused(key_slots)

    def _batch(self, sessions: np.ndarray) -> Batch:
        schema, end = self.ctx.output_schema, self._end[sessions]
        columns = [*self._keys.keys(self._key_of[sessions]), *self._aggregates.results(sessions)]
        bounds = {"start": self._start[sessions], "end": end, "time": end - ROWTIME_STEP_US}
        columns += [Column(_LONG, bounds[name]) for name in self.spec.window_columns]
        times = end - 1 if self.spec.window.time == -1 else None
        return Batch(schema, typed(schema, columns), times=times, num_rows=len(sessions))

    def _drop(self, sessions: np.ndarray) -> None:
        self._changes.free(sessions)
        self._release(sessions)

    def _release(self, sessions: np.ndarray) -> None:
        self._aggregates.release(sessions)
        self._by_key.remove(sessions)
        self._end[sessions] = MAX_WATERMARK
        np.subtract.at(self._of_key, self._key_of[sessions], 1)
        self._sessions.free(sessions)

    def _free_unused(self, key_slots: np.ndarray) -> None:
        unused = key_slots[self._of_key[key_slots] == 0]
        if len(unused):
            self._keys.free(distinct(unused))

    # -- state -------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        keyed = {table.name: table.cut() for table in self._tables}
        return OperatorSnapshot(keyed=keyed, unions=watermark_state(self._watermark))

    def _head(self, sessions: np.ndarray) -> tuple[list[Column], list[Column]]:
        return self._keys.keys(self._key_of[sessions]), self._bounds(sessions)

    def _restore(self, restored: RestoredState) -> None:
        k = len(self._key_types)
        for name, types, put in self._aggregates.state_loaders():
            batches = restored.keyed.get(name, [])
            # Block by block, so that no more than one is in memory beside what may be there;
            # entries that are put into order all together.
            for part in [batches] if self._aggregates.is_ordered(name) else ([b] for b in batches):
                columns, n = restored_columns(part, [*self._key_types, _LONG, _LONG, *types])
                if not n:
                    continue
                key_slots, _ = self._key_slots(columns[:k], n)
                if name == "cells":
                    self._load_sessions(key_slots, columns[k:])
                else:
                    put(self._found(key_slots, columns[k].values), columns[k + 2 :])
                self._tier.settle()
        if self._processing_time and (self._sessions.count or self._tier.count):
            self.ctx.wake_at(self.ctx.now_ms())

    def _load_sessions(self, key_slots: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
        """``columns``: start, end, accumulators. Stored sessions of a key lie apart, so each row
        makes one of its own."""
        sessions = self._new_sessions(key_slots)
        self._changes.write(sessions)
        self._start[sessions], self._end[sessions] = columns[0].values, columns[1].values
        self._aggregates.merge(sessions, columns[2:])
        return sessions

    def _found(self, key_slots: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Sessions of keys, by when they start."""
        rows, found = self._by_key.probe(key_slots)
        same = self._start[found] == starts[rows]
        sessions = np.empty(len(key_slots), np.int64)
        sessions[rows[same]] = found[same]
        return sessions

    # -- on disk -----------------------------------------------------------------------

    def _cold_tier(self) -> ColdTier:
        sessions = MovableTable(
            self._changes, [_LONG, _LONG, *self._aggregates.partial_types], self._by_key.probe,
            read=lambda rows: [*self._bounds(rows), *self._aggregates.partials(rows)],
            load=self._load_sessions, times=self._first_ends,
        )  # fmt: skip
        tables = [sessions, *(self._movable_values(table) for table in self._aggregates.tables())]
        return ColdTier(self.ctx, self._keys, tables, drop=self._evicted, nbytes=self._nbytes)

    def _movable_values(self, table: EntryTable) -> MovableTable:
        """What an accumulator remembers of each session of a key, found by the session's start."""
        assert table.changes is not None

        def rows_of(key_slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            positions, sessions = self._by_key.probe(key_slots)
            entries = table.entries_of(sessions)
            order = np.argsort(sessions)
            at = order[np.searchsorted(sessions, table.slots_of(entries), sorter=order)]
            return positions[at], entries

        def read(entries: np.ndarray) -> list[Column]:
            return [*self._bounds(table.slots_of(entries)), *table.read(entries)]

        def load(key_slots: np.ndarray, columns: list[Column]) -> np.ndarray:
            return table.load(self._found(key_slots, columns[0].values), columns[2:])

        return MovableTable(table.changes, [_LONG, _LONG, *table.types], rows_of, read, load)

    def _bounds(self, sessions: np.ndarray) -> list[Column]:
        return [Column(_LONG, self._start[sessions]), Column(_LONG, self._end[sessions])]

    def _first_ends(self, sessions: np.ndarray) -> np.ndarray:
        """When the first session of each one's key ends; of all sessions of some keys, key by key."""
        bounds = group_bounds(self._key_of[sessions])
        first = np.minimum.reduceat(self._end[sessions], bounds[:-1])
        return np.repeat(first, np.diff(bounds)) + _TIME_ZERO_US

    def _evicted(self, key_slots: np.ndarray) -> None:
        """These lie on disk: give up what the memory has of them."""
        self._release(self._by_key.probe(key_slots)[1])
        self._keys.free(key_slots)


def _running_max(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Highest value so far within each run of equal groups, by doubling steps."""
    out = values.copy()
    step = 1
    while step < len(out):
        same = groups[step:] == groups[:-step]
        if not same.any():
            break
        shifted = np.where(same, out[:-step], MIN_WATERMARK)
        out[step:] = np.maximum(out[step:], shifted)
        step *= 2
    return out
