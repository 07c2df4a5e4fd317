"""Aggregation per key and session window.

Keys above the memory limit are on disk with all their sessions, ordered by the first end of these. They are
fetched when a row has such a key, or when that end has come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.grouping import distinct
from penstock.columnar.sorting import stable_argsort
from penstock.columnar.windows import ROWTIME_STEP_US
from penstock.errors import SpecError, UnsupportedError
from penstock.operators.changes import typed
from penstock.operators.emitting import event_times, pieces, restored_watermark, watermark_state
from penstock.operators.operator import MAX_WATERMARK, MIN_WATERMARK, Operator, SideBatch
from penstock.state.aggregates import AggregateSet
from penstock.state.key_space import KeySpace
from penstock.state.sessions import TIME_ZERO_US, Sessions
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph.specs import WindowAggregateSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import OperatorSnapshot, RestoredState
    from penstock.state.key_groups import KeyGroups

_LONG = t.BigIntType(False)


class SessionAggregateOperator(Operator):
    """Aggregates session windows. A session [first, last + gap) is one cell.

    The rows of a batch form sessions, which are merged with the stored sessions that they touch, all keys at
    once.
    """

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
        self._keys = self.keep(
            KeySpace(
                ctx, [schema.types[i] for i in self.spec.keys], kind="session-aggregate", counted=True
            )
        )  # fmt: skip
        self._aggregates = AggregateSet(
            self.spec.aggregates, schema.types, retracts=self.spec.retracts, function=ctx.function
        )
        self._sessions = Sessions(self._keys, self._aggregates)
        self._watermark = restored_watermark(restored)
        self._keys.restore(restored)
        self._wake()
        ctx.metrics.gauge("numSessionsInState", lambda: len(self._sessions))

    def absorb(self, groups: KeyGroups, rows: RestoredState) -> None:
        super().absorb(groups, rows)
        self._wake()

    def _wake(self) -> None:
        """Ask to be woken now: the clock may have passed sessions that were restored or absorbed."""
        if self._processing_time and (len(self._sessions) or self._keys.on_disk):
            self.ctx.wake_at(self.ctx.now_ms())

    # -- input -------------------------------------------------------------------------

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        n = batch.num_rows
        if self._processing_time:
            times = np.full(n, self.ctx.now_ms() * 1000, np.int64)
        else:
            assert self.spec.window.time is not None
            times = event_times(batch, self.spec.window.time, self.ctx)
        with self._keys.touch([batch.columns[i] for i in self.spec.keys], n) as keys:
            late = self._add(batch, keys.slots, times)
        if late is not None:
            self.ctx.metrics.inc("numLateRecordsDropped", int(late.sum()))
            if self.spec.late_tag is not None:
                yield SideBatch(self.spec.late_tag, batch.filter(late))

    def _add(self, batch: Batch, key_slots: np.ndarray, times: np.ndarray) -> np.ndarray | None:
        """Add rows to the sessions of their keys. Returns the mask of the rows that are too late."""
        groups, starts, ends, stored, group_of_stored = self._merge_intervals(key_slots, times)
        # Late is a session that has ended and touches no open session.
        kept_groups = np.zeros(len(starts), np.bool_)
        kept_groups[group_of_stored] = True
        kept_groups |= ends - 1 > self._watermark
        late = None
        if not kept_groups.all():
            late = ~kept_groups[groups]
            kept = np.flatnonzero(~late)
            if not len(kept):
                return late
            batch, groups, key_slots = batch.take(kept), groups[kept], key_slots[kept]
        self.ctx.metrics.inc("numRecordsAccepted", batch.num_rows)
        cells = self._cells_of_groups(groups, key_slots, starts, ends, stored, group_of_stored)
        self._aggregates.add(cells[groups], batch.columns, batch.signs())
        if self._processing_time:
            self.ctx.wake_at(int(-(-int(ends.min()) // 1000)))
        return late

    def _merge_intervals(
        self, key_slots: np.ndarray, times: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Merge the intervals of rows and of the stored sessions of their keys.

        Returns (group of each row, start and end of each group, stored sessions, group of each stored session).
        """
        n, gap = len(times), self.spec.window.gap_us
        touched = distinct(key_slots)
        _, stored = self._sessions.rows_of(touched)
        keys = np.concatenate((key_slots, self._sessions.keys_of(stored)))
        starts = np.concatenate((times, self._sessions.start[stored]))
        ends = np.concatenate((times + gap, self._sessions.end[stored]))
        order = stable_argsort(starts)
        order = order[stable_argsort(keys[order])]
        k, s = keys[order], starts[order]
        reach = _running_max(ends[order], k)
        opens = np.ones(len(order), np.bool_)
        # Touching sessions merge, as in Flink: a session starts a new group only if its start > the end before.
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
        """The cell of each group that has rows: a stored session, into which the group's others are merged, or
        a new one.

        Groups without rows get -1.
        """
        cells = np.full(len(starts), -1, np.int64)
        has_rows = np.zeros(len(starts), np.bool_)
        has_rows[groups] = True
        mine = has_rows[group_of_stored]
        stored, group_of_stored = stored[mine], group_of_stored[mine]
        cells[group_of_stored[::-1]] = stored[::-1]  # the last write stays: the first session of each group
        swallowed = cells[group_of_stored] != stored
        fresh = np.flatnonzero(has_rows & (cells < 0))
        if len(fresh):
            key_of_group = np.empty(len(starts), np.int64)
            key_of_group[groups] = key_slots
            cells[fresh] = self._sessions.open(key_of_group[fresh])
        used = np.flatnonzero(has_rows)
        self._sessions.stretch(cells[used], starts[used], ends[used])
        gone = stored[swallowed]
        if len(gone):
            self._aggregates.absorb(cells[group_of_stored[swallowed]], self._aggregates, gone)
            self._sessions.free(gone, self._sessions.keys_of(gone))
        return cells

    # -- firing ------------------------------------------------------------------------

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        if not self._processing_time:
            yield from self._advance(watermark)

    def on_processing_time(self, now_ms: int) -> Iterator[Output]:
        if self._processing_time:
            yield from self._advance(now_ms * 1000 - 1)
            first = self._sessions.first_end()
            on_disk = self._keys.tier.earliest()
            if on_disk is not None:
                first = min(first, on_disk - TIME_ZERO_US)
            if first < MAX_WATERMARK:
                self.ctx.wake_at(-(-first // 1000))

    def finish(self) -> Iterator[Output]:
        yield from self._advance(MAX_WATERMARK)

    def _advance(self, watermark: int) -> Iterator[Output]:
        if watermark <= self._watermark:
            return
        self._watermark = watermark
        yield from self._fire(self._sessions.over(watermark))
        until = min(watermark + 1 + TIME_ZERO_US, MAX_WATERMARK)
        while (keys := self._keys.tier.due(until)) is not None:
            key_slots, made = self._keys.upsert(keys, len(keys[0]))
            self._keys.fetch(made)
            back = self._sessions.rows_of(key_slots)[1]
            yield from self._fire(back[self._sessions.end[back] - 1 <= watermark])
            self._keys.tier.make_room(len(made))

    def _fire(self, due: np.ndarray) -> Iterator[Output]:
        """Emit the sessions ``due`` and free them."""
        due = due[stable_argsort(self._sessions.end[due])]
        for part in pieces(due, self._keys.tier.piece_keys):
            yield self._batch(part)
        if len(due):
            key_slots = self._sessions.keys_of(due)
            self._sessions.free(due, key_slots)
            self._keys.free_unused(key_slots)

    def _batch(self, sessions: np.ndarray) -> Batch:
        schema, held = self.ctx.output_schema, self._sessions
        end = held.end[sessions]
        columns = [*self._keys.keys(held.keys_of(sessions)), *self._aggregates.results(sessions)]
        bounds = {"start": held.start[sessions], "end": end, "time": end - ROWTIME_STEP_US}
        columns += [Column(_LONG, bounds[name]) for name in self.spec.window_columns]
        times = end - 1 if self.spec.window.time == -1 else None
        return Batch(schema, typed(schema, columns), times=times, num_rows=len(sessions))

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return self._cut(watermark_state(self._watermark))


def _running_max(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The highest value so far within each run of equal groups."""
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
