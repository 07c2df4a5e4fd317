"""The join of two append-only streams within a bounded distance of event time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.grouping import distinct
from penstock.columnar.key_index import KeyIndex
from penstock.columnar.store import grown
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
from penstock.operators.joining import PairCondition, joined, matchable_rows, null_columns, take_all
from penstock.operators.operator import MAX_WATERMARK, MIN_WATERMARK, Operator
from penstock.snapshots.contract import OperatorSnapshot
from penstock.snapshots.keyed_blocks import restored_columns
from penstock.state.cold_tier import ColdTier, MovableTable, Resident, can_evict, make_changes
from penstock.state.tables import StateTable
from penstock.state.waiting_rows import WaitingOrder, WaitingRows
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.columnar.late_rows import LateColumn
    from penstock.jobgraph.specs import JoinSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import KeyedBlock, PendingBlock, RestoredState

LEFT, RIGHT = 0, 1
_BOOL, _LONG = t.BooleanType(False), t.BigIntType(False)
#: Keys that come back at a time because rows of theirs are over.
_REMINDED_KEYS = 512
#: Rows probed at a time: bounds the pairs of one step.
_PROBE_ROWS = 4096


class IntervalJoinOperator(Operator):
    """right.time BETWEEN left.time + low AND left.time + high, and equal keys.

    A row is kept as long as the watermark lets a partner come; an outer row without one is
    padded when it is dropped. A row so late that no partner can come any more still meets
    those that are kept. The output's watermark is held back by the interval.
    """

    def __init__(self, spec: JoinSpec) -> None:
        assert spec.interval is not None
        self.spec = spec
        self._times = spec.interval[:2]
        self._low, self._high = spec.interval[2:]
        self._keys_of = (spec.left_keys, spec.right_keys)
        #: Of each side: how long after a row its last partner may come.
        self._reach = (self._high, -self._low)
        #: Which sides' rows come out without a partner.
        self._pads = (spec.kind in ("left", "full", "anti"), spec.kind in ("right", "full"))

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        left, right = ctx.input_schemas
        self._schemas = (left, right)
        self._condition = PairCondition(self.spec.condition, left, right, ctx)
        self._keys = KeyIndex([left.types[i].with_nullable(True) for i in self.spec.left_keys])
        self._rows_of_key = np.zeros(1024, np.int64)
        evicts = can_evict(ctx, self._keys.types)
        self._sides = tuple(
            TimedRows(x.types, self._high - self._low, make_changes(ctx, evicts=evicts), evicts=evicts)
            for x in self._schemas
        )
        self._tables = (self._table("left", LEFT), self._table("right", RIGHT))
        self._watermark = restored_watermark(restored)
        self._tier = self._cold_tier() if evicts else Resident(ctx, self._nbytes)
        #: Keys on disk, and when they are to come back.
        self._reminders = self._reminder_log() if evicts else None
        if restored is not None:
            self._restore(restored)
        ctx.metrics.gauge("numRowsInState", lambda: len(self._sides[0]) + len(self._sides[1]))
        ctx.metrics.gauge("stateBytes", self._nbytes)

    def _nbytes(self) -> int:
        rows = self._sides[LEFT].live_bytes + self._sides[RIGHT].live_bytes
        return rows + self._keys.live_bytes + 8 * len(self._keys)

    def close(self) -> None:
        for held in (getattr(self, "_tier", None), getattr(self, "_reminders", None)):
            if held is not None:
                held.close()

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
            self._tier.make_room(min(batch.num_rows - at, _PROBE_ROWS))

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
        n = batch.num_rows
        key_slots, new = self._keys.upsert([batch.columns[i] for i in self._keys_of[side]], n)
        self._rows_of_key = grown(self._rows_of_key, self._keys.high)
        self._fetch(new)
        self._tier.used(key_slots)
        low, high = (self._low, self._high) if side == LEFT else (-self._high, -self._low)
        other = self._sides[1 - side]
        rows, entries = other.probe(key_slots, times + low, times + high)
        if len(rows):
            rows, entries = self._condition.meeting(side, batch, rows, other.rows, entries)
        matched = np.zeros(n, np.bool_)
        matched[rows] = True
        fresh = np.empty(0, np.int64)
        if self.spec.kind in ("semi", "anti") and side == RIGHT:
            fresh = np.unique(entries[~other.matched[entries]])
        other.match(entries)
        if self.spec.kind not in ("semi", "anti"):
            yield from self._pairs(side, batch, rows, entries)
        if self.spec.kind == "semi":
            if side == LEFT:
                yield from self._left_only(batch.filter(matched).columns, int(matched.sum()))
            elif len(fresh):
                yield from self._left_only(other.rows.take(fresh), len(fresh))
        # Rows whose last possible partner is already behind the watermark are not kept.
        keep = times + high > self._watermark if self._watermark > MIN_WATERMARK else np.ones(n, np.bool_)
        if not keep.all():
            yield from self._unmatched(side, batch.filter(~keep & ~matched))
        kept = np.flatnonzero(keep)
        np.add.at(self._rows_of_key, key_slots[kept], 1)
        kept_batch = batch if len(kept) == n else batch.take(kept)
        self._sides[side].add(key_slots[kept], times[kept], kept_batch.columns, matched[kept])
        unused = key_slots[self._rows_of_key[key_slots] == 0]
        if len(unused):
            self._keys.free(np.unique(unused))

    def _pairs(self, side: int, batch: Batch, rows: np.ndarray, entries: np.ndarray) -> Iterator[Batch]:
        for part in pieces(np.arange(len(rows))):
            mine = take_all(batch.columns, rows[part])
            theirs = self._sides[1 - side].rows.take(entries[part])
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
        """Rows without a partner, padded if their side is an outer one."""
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
                _, new = self._keys.upsert(piece.columns[:-1], piece.num_rows)
                self._rows_of_key = grown(self._rows_of_key, self._keys.high)
                self._keys.free(self._tier.fetch(new))  # those came back before
                yield from self._expire()
                self._tier.make_room(len(new))

    def _expired(self, side: int) -> np.ndarray:
        """Entries without a later partner: once time + reach <= watermark, for those have times
        above it."""
        limit = self._watermark
        if limit != MAX_WATERMARK:
            limit = clamp_watermark(limit - self._reach[side])
        return self._sides[side].expired(limit)

    def _expire(self) -> Iterator[Output]:
        for side, rows in enumerate(self._sides):
            gone = self._expired(side)
            if not len(gone):
                continue
            if self._pads[side]:
                alone = gone[~rows.matched[gone]]
                for part in pieces(alone):
                    columns = rows.rows.take(part)
                    yield from self._unmatched(side, Batch(self._schemas[side], columns, num_rows=len(part)))
            touched = self._free(side, gone)
            self._keys.free(touched[self._rows_of_key[touched] == 0])

    def _free(self, side: int, entries: np.ndarray) -> np.ndarray:
        """Drop rows; returns their keys, of which some may have none left."""
        key_slots = self._sides[side].key_slots[entries]
        np.subtract.at(self._rows_of_key, key_slots, 1)
        self._sides[side].free(entries)
        return distinct(key_slots)

    def output_watermark(self, watermark: int) -> int:
        if watermark in (MIN_WATERMARK, MAX_WATERMARK):
            return watermark
        return clamp_watermark(watermark - max(self._high, -self._low, 0))

    # -- on disk -----------------------------------------------------------------------

    def _cold_tier(self) -> ColdTier:
        tables = [
            MovableTable(
                rows.changes, [*self._schemas[side].types, _BOOL], rows.of_keys,
                read=partial(self._read, side), load=partial(self._load, side),
            )
            for side, rows in enumerate(self._sides)
        ]  # fmt: skip
        return ColdTier(self.ctx, self._keys, tables, drop=self._move_out, nbytes=self._nbytes)

    def _reminder_log(self) -> WaitingRows:
        fields = [*(t.Field(f"key{i}", x) for i, x in enumerate(self._keys.types)), t.Field("at", _LONG)]
        order = WaitingOrder(
            lambda rows: rows.columns[-1:], (SortKey(0),), lambda rows: rows.columns[-1].values
        )
        return WaitingRows(self.ctx, "reminders", t.Schema(tuple(fields)), (), order, kind="interval-join")

    def _fetch(self, new: np.ndarray) -> None:
        """What lies on disk of keys that were just made; of it, what is over is left out."""
        if len(self._tier.fetch(new)) == len(new):
            return
        for side in (LEFT, RIGHT):
            # Rows that come out alone when they are over did so in time.
            self._free(side, self._expired(side))

    def _read(self, side: int, entries: np.ndarray) -> list[Column]:
        rows = self._sides[side]
        return [*rows.rows.take(entries), Column(_BOOL, rows.matched[entries])]

    def _load(self, side: int, key_slots: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
        self._rows_of_key = grown(self._rows_of_key, self._keys.high)
        np.add.at(self._rows_of_key, key_slots, 1)
        times = columns[self._times[side]].values
        return self._sides[side].add(key_slots, times, columns[:-1], columns[-1].values)

    def _move_out(self, key_slots: np.ndarray) -> None:
        self._remind(key_slots)
        for rows in self._sides:
            rows.free(rows.of_keys(key_slots)[1])
        self._rows_of_key[key_slots] = 0
        self._keys.free(key_slots)

    def _remind(self, key_slots: np.ndarray) -> None:
        """Keys come back when the first of their rows has to come out alone, or when all of
        them are over."""
        assert self._reminders is not None
        n = len(key_slots)
        first, last = np.full(n, MAX_WATERMARK), np.full(n, MIN_WATERMARK)
        for side, rows in enumerate(self._sides):
            owners, entries = rows.of_keys(key_slots)
            over = rows.times[entries] + self._reach[side]
            np.maximum.at(last, owners, over)
            if self._pads[side]:
                alone = ~rows.matched[entries]
                np.minimum.at(first, owners[alone], over[alone])
        columns = [*self._keys.keys(key_slots), Column(_LONG, np.minimum(first, last))]
        # While keys are being moved out, more may be held than in the end.
        self._reminders.add(Batch(self._reminders.schema, columns, num_rows=n), checked=False)

    # -- state -------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        keyed: dict[str, KeyedBlock | PendingBlock] = {table.name: table.cut() for table in self._tables}
        return OperatorSnapshot(keyed=keyed, unions=watermark_state(self._watermark))

    def _table(self, name: str, side: int) -> StateTable:
        mine, keys = self._sides[side], self._keys_of[side]

        def read(entries: np.ndarray) -> tuple[list[Column], list[Column | LateColumn]]:
            matched = Column(_BOOL, mine.matched[entries])
            return mine.rows.take_some(entries, keys), [*mine.rows.take_later(entries), matched]

        names = [*(f"key{i}" for i in range(len(keys))), *_row_names(self._schemas[side]), "matched"]
        return StateTable(
            name, read, names=names, kind="interval-join", max_parallelism=self.ctx.max_parallelism,
            changes=mine.changes,
        )  # fmt: skip

    def _restore(self, restored: RestoredState) -> None:
        for name, side in (("left", LEFT), ("right", RIGHT)):
            schema = self._schemas[side]
            key_types = [schema.types[i] for i in self._keys_of[side]]
            types = [*key_types, *schema.types, _BOOL]
            for batch in restored.keyed.get(name, []):
                columns, n = restored_columns([batch], types)
                if n:
                    key_slots, new = self._keys.upsert(columns[: len(key_types)], n)
                    self._rows_of_key = grown(self._rows_of_key, self._keys.high)
                    self._fetch(new)
                    self._load(side, key_slots, columns[len(key_types) :])
                    # Of what lay on disk some may have been over.
                    self._free(side, self._expired(side))
                    touched = distinct(key_slots)
                    self._keys.free(touched[self._rows_of_key[touched] == 0])
                    self._tier.settle()


def _row_names(schema: t.Schema) -> list[str]:
    return [f"{i}.{name}" for i, name in enumerate(schema.names)]
