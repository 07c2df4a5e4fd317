"""The join of two append-only streams whose rows are at most a given distance of event time apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.timed_rows import TimedRows
from penstock.errors import UnsupportedError
from penstock.jobgraph.specs import SortKey
from penstock.operators.emitting import (
    RECORD_TIMES,
    clamp_watermark,
    pieces,
    restored_watermark,
    watermark_state,
)
from penstock.operators.joining import (
    PairCondition,
    bounded_slices,
    joined,
    matchable_rows,
    null_columns,
    take_all,
)
from penstock.operators.operator import MAX_WATERMARK, MIN_WATERMARK, Operator
from penstock.snapshots.keyed_blocks import restored_columns
from penstock.state.key_space import KeySpace
from penstock.state.slot_table import SlotTable
from penstock.state.waiting_order import WaitingOrder
from penstock.state.waiting_rows import WaitingRows
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from penstock.columnar.late_rows import LateColumn
    from penstock.jobgraph.specs import JoinSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import OperatorSnapshot, RestoredState
    from penstock.state.context import StateContext
    from penstock.state.slot_table import Parsed
    from penstock.types.logical import LogicalType

LEFT, RIGHT = 0, 1
_BOOL, _LONG = t.BooleanType(False), t.BigIntType(False)
#: The number of keys that are fetched from disk at a time because rows of theirs have expired.
_REMINDED_KEYS = 512
#: The number of rows probed at a time, which bounds the pairs of one step.
_PROBE_ROWS = 4096


class IntervalJoinOperator(Operator):
    """Joins rows with equal keys and right.time BETWEEN left.time + low AND left.time + high.

    A row is kept until the watermark excludes further partners; an outer row without a partner is then padded and
    emitted. A row that is too late for new partners still joins the rows that are kept. The operator holds the output's
    watermark back by the interval.
    """

    def __init__(self, spec: JoinSpec) -> None:
        assert spec.interval is not None
        self.spec = spec
        self._times = spec.interval[:2]
        self._low, self._high = spec.interval[2:]
        self._keys_of = (spec.left_keys, spec.right_keys)
        #: For each side: how long (µs) after a row's time its last partner may have its time.
        self._reach = (self._high, -self._low)
        #: For each side: whether its rows are emitted even without a partner.
        self._pads = (spec.kind in ("left", "full", "anti"), spec.kind in ("right", "full"))

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        left, right = ctx.input_schemas
        self._schemas = (left, right)
        self._condition = PairCondition(self.spec.condition, left, right, ctx)
        self._keys = self.keep(
            _JoinKeys(
                ctx, [left.types[i].with_nullable(True) for i in self.spec.left_keys], self._remind
            )
        )  # fmt: skip
        self._sides = (self._side("left", LEFT), self._side("right", RIGHT))
        self._watermark = restored_watermark(restored)
        #: The keys on disk, each with the time at which it must be fetched.
        self._reminders = self.hold(self._reminder_log()) if self._keys.evicts else None
        self._keys.restore(restored)
        ctx.metrics.gauge("numRowsInState", lambda: len(self._sides[0]) + len(self._sides[1]))

    def _side(self, name: str, side: int) -> _Side:
        return _Side(
            self._keys, name, self._schemas[side], self._keys_of[side], time=self._times[side],
            span_us=self._high - self._low, limit=lambda: self._limit(side),
        )  # fmt: skip

    # -- input -------------------------------------------------------------------------

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        if batch.kinds is not None and batch.kinds.any():
            raise UnsupportedError(
                "an interval join needs append-only inputs",
                expected="rows of kind +I",
                got="an updating input",
                where=self.ctx.name,
                remedy="aggregate or deduplicate by window before the join, or use a regular join",
            )
        for at in range(0, batch.num_rows, _PROBE_ROWS):
            yield from self._process(input_index, batch.slice(at, _PROBE_ROWS))

    def _process(self, side: int, batch: Batch) -> Iterator[Output]:
        times, timed = self._event_times(side, batch)
        usable = matchable_rows(batch, self._keys_of[side], self.spec.null_safe)
        if timed is not None:
            usable = timed if usable is None else usable & timed
        if usable is not None:
            yield from self._unmatched(side, batch.filter(~usable))
            kept = np.flatnonzero(usable)
            if not len(kept):
                return
            batch, times = batch.take(kept), times[kept]
        start = 0
        while start < batch.num_rows:
            rest = batch.slice(start, batch.num_rows - start)
            keys = [rest.columns[i] for i in self._keys_of[side]]
            with self._keys.touch(keys, rest.num_rows) as touched:
                if touched.came_back:
                    # Rows that must be emitted without a partner were emitted when they expired.
                    for rows in self._sides:
                        rows.sweep()
                done, outputs = self._join(side, rest, touched.slots, times[start:])
            start += done
            yield from outputs

    def _join(
        self, side: int, batch: Batch, key_slots: np.ndarray, times: np.ndarray
    ) -> tuple[int, list[Output]]:
        """Join and keep the first rows of a batch, as many as give a bounded number of pairs.

        Returns (the number of these rows, the outputs in order).
        """
        low, high = (self._low, self._high) if side == LEFT else (-self._high, -self._low)
        other = self._sides[1 - side]
        rows, entries = other.rows.probe(key_slots, times + low, times + high)
        n = next(bounded_slices(np.bincount(rows, minlength=batch.num_rows))).stop
        if n < batch.num_rows:
            batch, key_slots, times = batch.slice(0, n), key_slots[:n], times[:n]
            rows, entries = rows[rows < n], entries[rows < n]
        if len(rows):
            rows, entries = self._condition.meeting(side, batch, rows, other.rows.rows, entries)
        outputs: list[Output] = []
        matched = np.zeros(n, np.bool_)
        matched[rows] = True
        fresh = np.empty(0, np.int64)
        if self.spec.kind in ("semi", "anti") and side == RIGHT:
            fresh = np.unique(entries[~other.rows.matched[entries]])
        other.rows.match(entries)
        if self.spec.kind not in ("semi", "anti"):
            outputs += self._pairs(side, batch, rows, entries)
        if self.spec.kind == "semi":
            if side == LEFT:
                outputs += self._left_only(batch.filter(matched).columns, int(matched.sum()))
            elif len(fresh):
                outputs += self._left_only(other.rows.rows.take(fresh), len(fresh))
        # A row whose last possible partner is behind the watermark is not kept.
        keep = times + high > self._watermark if self._watermark > MIN_WATERMARK else np.ones(n, np.bool_)
        if not keep.all():
            outputs += self._unmatched(side, batch.filter(~keep & ~matched))
        kept = np.flatnonzero(keep)
        kept_batch = batch if len(kept) == n else batch.take(kept)
        self._sides[side].add(key_slots[kept], times[kept], kept_batch.columns, matched[kept])
        return n, outputs

    def _pairs(self, side: int, batch: Batch, rows: np.ndarray, entries: np.ndarray) -> Iterator[Batch]:
        for part in pieces(np.arange(len(rows))):
            mine = take_all(batch.columns, rows[part])
            theirs = self._sides[1 - side].rows.rows.take(entries[part])
            left, right = (mine, theirs) if side == LEFT else (theirs, mine)
            yield joined(self.ctx.output_schema, left, right)

    def _event_times(self, side: int, batch: Batch) -> tuple[np.ndarray, np.ndarray | None]:
        index = self._times[side]
        if index == RECORD_TIMES:
            assert batch.times is not None
            return batch.times, None
        column = batch.columns[index]
        return column.values, column.valid

    # -- output ------------------------------------------------------------------------

    def _unmatched(self, side: int, batch: Batch) -> Iterator[Output]:
        """The rows without a partner: padded if their side is an outer one, else dropped."""
        if not self._pads[side] or not batch.num_rows:
            return
        if self.spec.kind == "anti":
            yield from self._left_only(batch.columns, batch.num_rows)
            return
        padding = null_columns(self._schemas[1 - side], batch.num_rows)
        pair = (batch.columns, padding) if side == LEFT else (padding, batch.columns)
        yield joined(self.ctx.output_schema, *pair)

    def _left_only(self, columns: list[Column] | tuple[Column, ...], n: int) -> Iterator[Output]:
        if n:
            yield joined(self.ctx.output_schema, columns, ())

    # -- time --------------------------------------------------------------------------

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        if watermark <= self._watermark:
            return
        self._watermark = watermark
        yield from self._expire()
        if self._reminders is None:
            return
        for keys in self._reminders.due(watermark):
            for at in range(0, keys.num_rows, _REMINDED_KEYS):
                piece = keys.slice(at, _REMINDED_KEYS)
                _, made = self._keys.upsert(piece.columns[:-1], piece.num_rows)
                self._keys.free_unused(self._keys.fetch(made))  # keys without rows were fetched before
                yield from self._expire()
                self._keys.tier.make_room(len(made))

    def _limit(self, side: int) -> int:
        """Rows of this side with a time (µs) up to the result have no further partner: time + reach <= watermark."""
        if self._watermark == MAX_WATERMARK:
            return MAX_WATERMARK
        return clamp_watermark(self._watermark - self._reach[side])

    def _expire(self) -> Iterator[Output]:
        self._keys.given.finish()
        for side, rows in enumerate(self._sides):
            gone = rows.expired()
            if not len(gone):
                continue
            if self._pads[side]:
                alone = gone[~rows.rows.matched[gone]]
                for part in pieces(alone):
                    columns = rows.rows.rows.take(part)
                    yield from self._unmatched(side, Batch(self._schemas[side], columns, num_rows=len(part)))
            key_slots = rows.keys_of(gone)
            rows.free(gone, key_slots)
            self._keys.free_unused(key_slots)

    def output_watermark(self, watermark: int) -> int:
        if watermark in (MIN_WATERMARK, MAX_WATERMARK):
            return watermark
        return clamp_watermark(watermark - max(self._high, -self._low, 0))

    # -- on disk -----------------------------------------------------------------------

    def _reminder_log(self) -> WaitingRows:
        fields = [
            *(t.Field(f"key{i}", x) for i, x in enumerate(self._keys.index.types)),
            t.Field("at", _LONG),
        ]
        order = WaitingOrder(
            lambda rows: rows.columns[-1:], (SortKey(0),), lambda rows: rows.columns[-1].values
        )
        return WaitingRows(self.ctx, "reminders", t.Schema(tuple(fields)), (), order, kind="interval-join")

    def _remind(self, key_slots: np.ndarray) -> None:
        """Note when evicted keys must be fetched: when the first of their rows must be emitted without a
        partner, or when all of their rows have expired."""
        assert self._reminders is not None
        n = len(key_slots)
        first, last = np.full(n, MAX_WATERMARK), np.full(n, MIN_WATERMARK)
        for side, rows in enumerate(self._sides):
            owners, entries = rows.rows_of(key_slots)
            over = rows.rows.times[entries] + self._reach[side]
            np.maximum.at(last, owners, over)
            if self._pads[side]:
                alone = ~rows.rows.matched[entries]
                np.minimum.at(first, owners[alone], over[alone])
        columns = [*self._keys.keys(key_slots), Column(_LONG, np.minimum(first, last))]
        # During an eviction the memory limit may be exceeded for a moment, so it is not checked here.
        self._reminders.add(Batch(self._reminders.schema, columns, num_rows=n), checked=False)

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return self._cut(watermark_state(self._watermark))


class _JoinKeys(KeySpace):
    """A key space whose evicted keys are noted together with the time at which they must be fetched."""

    def __init__(
        self, ctx: StateContext, types: Sequence[LogicalType], remind: Callable[[np.ndarray], None]
    ) -> None:
        self._remind = remind
        super().__init__(ctx, types, kind="interval-join", counted=True)

    def evicted(self, slots: np.ndarray) -> None:
        self._remind(slots)
        super().evicted(slots)


class _Side(SlotTable):
    """The rows of one side. ``keys``: the join key's columns; ``time``: the time column (or RECORD_TIMES).

    Rows with a time up to ``limit()`` have expired.
    """

    def __init__(
        self, space: KeySpace, name: str, schema: t.Schema, keys: Sequence[int], *, time: int, span_us: int,
        limit: Callable[[], int],
    ) -> None:  # fmt: skip
        super().__init__(
            space, name, names=[*(f"{i}.{x}" for i, x in enumerate(schema.names)), "matched"],
            types=[*schema.types, _BOOL],
        )  # fmt: skip
        self._row_types, self._key_columns = schema.types, list(keys)
        self._time, self._limit = time, limit
        self.rows = TimedRows(schema.types, span_us, self.changes, evicts=space.evicts, upkeep=space.upkeep)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def live_bytes(self) -> int:
        return self.rows.live_bytes

    def rows_of(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.rows.of_keys(keys)

    def keys_of(self, rows: np.ndarray) -> np.ndarray:
        return self.rows.key_slots[rows]

    def stored_key(self, rows: np.ndarray) -> tuple[list[Column], list[Column]]:
        return self.rows.rows.take_some(rows, self._key_columns), []

    def read(self, rows: np.ndarray) -> list[Column]:
        return [*self.rows.rows.take(rows), Column(_BOOL, self.rows.matched[rows])]

    def later(self, rows: np.ndarray) -> list[Column | LateColumn]:
        return [*self.rows.rows.take_later(rows), Column(_BOOL, self.rows.matched[rows])]

    def parsed(self, blocks: Sequence[pa.RecordBatch]) -> Parsed:
        k = len(self._key_columns)
        columns, n = restored_columns(blocks, [*(self._row_types[i] for i in self._key_columns), *self.types])
        return columns[:k], columns[k:], n

    def load(self, keys: np.ndarray, columns: list[Column]) -> np.ndarray:
        return self.add(keys, columns[self._time].values, columns[:-1], columns[-1].values)

    def reload(self, keys: np.ndarray, columns: list[Column]) -> np.ndarray:
        entries = self.load(keys, columns)
        # Some of the rows from disk may have expired already.
        self.sweep()
        self.space.free_unused(keys)
        return entries

    def free(self, rows: np.ndarray, keys: np.ndarray) -> None:
        self.space.use(keys, -1)
        self.rows.free(rows)

    def add(
        self, keys: np.ndarray, times: np.ndarray, columns: Sequence[Column], matched: np.ndarray
    ) -> np.ndarray:
        """Add rows; return their entries."""
        self.space.use(keys)
        return self.rows.add(keys, times, columns, matched)

    def expired(self) -> np.ndarray:
        """The entries of expired rows, by time; each is returned once, and the caller frees it."""
        return self.rows.expired(self._limit())

    def sweep(self) -> None:
        """Free expired rows that were emitted already or never will be. Their keys stay."""
        gone = self.expired()
        self.free(gone, self.keys_of(gone))
