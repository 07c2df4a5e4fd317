"""The join of two changelogs: every kind, with retractions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.key_index import KeyIndex
from penstock.columnar.store import grown
from penstock.operators.changes import DELETE, INSERT
from penstock.operators.emitting import batch_pieces, pieces
from penstock.operators.join_side import JoinSide
from penstock.operators.joining import (
    PairCondition,
    bounded_slices,
    joined,
    matchable_rows,
    null_columns,
    take_all,
)
from penstock.operators.operator import Operator
from penstock.snapshots.contract import OperatorSnapshot
from penstock.snapshots.keyed_blocks import restored_columns
from penstock.state.cold_tier import ColdTier, Resident, can_evict
from penstock.state.tables import StateTable
from penstock.state.time_to_live import TimeToLive
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.columnar.late_rows import LateColumn
    from penstock.jobgraph.specs import JoinSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState

LEFT, RIGHT = 0, 1
_LONG = t.BigIntType(False)


class JoinOperator(Operator):
    """Both inputs are kept whole, by join key.

    A row is joined with all rows of the other side and comes out under its own kind. Rows
    of an outer (or semi, anti) side carry how many partners they have: when a batch of the
    other side takes that number from or to zero, their padded (or bare) form is retracted
    before, or inserted after, the batch's pairs.
    """

    def __init__(self, spec: JoinSpec) -> None:
        self.spec = spec
        self._keys_of = (spec.left_keys, spec.right_keys)
        self._pads = (spec.kind in ("left", "full"), spec.kind in ("right", "full"))
        self._left_only = spec.kind in ("semi", "anti")

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        left, right = ctx.input_schemas
        self._schemas = (left, right)
        self._condition = PairCondition(self.spec.condition, left, right, ctx)
        self._keys = KeyIndex([left.types[i].with_nullable(True) for i in self.spec.left_keys])
        self._rows_of_key = np.zeros(1024, np.int64)
        counted = (self._pads[LEFT], self._pads[RIGHT])
        if self._left_only:
            counted = (True, False)
        evicts = can_evict(ctx, self._keys.types)
        self._sides = (
            JoinSide(
                left.types, self.spec.left_keys, self._keys, ctx, counts_partners=counted[LEFT], evicts=evicts
            ),
            JoinSide(
                right.types, self.spec.right_keys, self._keys, ctx,
                counts_partners=counted[RIGHT], evicts=evicts,
            ),
        )  # fmt: skip
        self._tables = (self._table("left", LEFT), self._table("right", RIGHT))
        self._ttl = [TimeToLive(self.spec.ttl_ms, ctx), TimeToLive(self.spec.ttl_ms, ctx)]
        self._tier = self._cold_tier() if evicts else Resident(ctx, self._nbytes)
        if restored is not None:
            self._restore(restored)
        ctx.metrics.gauge("numRowsInState", lambda: len(self._sides[0]) + len(self._sides[1]))
        ctx.metrics.gauge("stateBytes", self._nbytes)

    def _nbytes(self) -> int:
        keys = self._keys.live_bytes + 9 * len(self._keys)
        return keys + self._sides[LEFT].live_bytes + self._sides[RIGHT].live_bytes

    def _cold_tier(self) -> ColdTier:
        tables = []
        for side in (LEFT, RIGHT):
            table = self._sides[side].movable(self._came_back)
            if self.spec.ttl_ms:
                table.times = partial(self._times, side)
                table.touched = partial(self._touched, side)
            tables.append(table)
        return ColdTier(self.ctx, self._keys, tables, drop=self._move_out, nbytes=self._nbytes)

    def _came_back(self, key_slots: np.ndarray, copies: np.ndarray) -> None:
        self._rows_of_key = grown(self._rows_of_key, self._keys.high)
        np.add.at(self._rows_of_key, key_slots, copies)

    def _move_out(self, key_slots: np.ndarray) -> None:
        for side, mine in enumerate(self._sides):
            entries = mine.find(key_slots).pairs()[1]
            self._ttl[side].forget(entries)
            mine.free(entries)
        self._rows_of_key[key_slots] = 0
        self._keys.free(key_slots)

    def _times(self, side: int, entries: np.ndarray) -> np.ndarray:
        return self._ttl[side].times(entries)

    def _touched(self, side: int, entries: np.ndarray, times: np.ndarray) -> None:
        self._ttl[side].came_back(entries, times)

    def close(self) -> None:
        if hasattr(self, "_tier"):
            self._tier.close()

    # -- input -------------------------------------------------------------------------

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        usable = matchable_rows(batch, self._keys_of[input_index], self.spec.null_safe)
        if usable is not None:
            yield from self._alone(input_index, batch.filter(~usable))
            batch = batch.filter(usable)
            if not batch.num_rows:
                return
        key_slots, new = self._keys.upsert(
            [batch.columns[i] for i in self._keys_of[input_index]], batch.num_rows
        )
        self._rows_of_key = grown(self._rows_of_key, self._keys.high)
        new = self._tier.fetch(new)
        found = self._sides[1 - input_index].find(key_slots)
        partners = np.zeros(batch.num_rows, np.int64)
        for part in bounded_slices(found.counts):
            whole = part.start == 0 and part.stop == batch.num_rows
            rows = batch if whole else batch.slice(part.start, part.stop - part.start)
            partners[part], outputs = self._join_slice(input_index, rows, *found.pairs(part))
            for out in outputs:
                yield from batch_pieces(out)
        self._keep(input_index, batch, key_slots, partners)
        self._tier.used(key_slots)
        self._tier.make_room(len(new))

    def _join_slice(
        self, side: int, batch: Batch, rows: np.ndarray, entries: np.ndarray
    ) -> tuple[np.ndarray, list[Batch]]:
        """Of pairs of equal key: (partners of each row, outputs in order)."""
        other = self._sides[1 - side]
        if len(rows):
            rows, entries = self._condition.meeting(side, batch, rows, other, entries)
        copies = other.copies(entries)
        if copies is not None and int(copies.max(initial=1)) > 1:
            rows, entries = np.repeat(rows, copies), np.repeat(entries, copies)
        partners = np.bincount(rows, minlength=batch.num_rows)
        before, after = self._tell_other(side, batch, rows, entries)
        outputs = before
        if self._left_only:
            if side == LEFT:
                mask = partners > 0 if self.spec.kind == "semi" else partners == 0
                if mask.any():
                    outputs.append(self._left_batch(batch.filter(mask)))
        else:
            pairs = self._pairs(side, batch, rows, entries, partners)
            if pairs is not None:
                outputs.append(pairs)
        return partners, outputs + after

    def _pairs(
        self,
        side: int,
        batch: Batch,
        rows: np.ndarray,
        entries: np.ndarray,
        partners: np.ndarray,
    ) -> Batch | None:
        """Joined rows, and the padded ones of an outer side, in the batch's order."""
        alone = np.flatnonzero(partners == 0) if self._pads[side] else np.empty(0, np.int64)
        if not len(rows) and not len(alone):
            return None
        theirs = self._sides[1 - side].take(entries)
        if len(alone):
            places = np.concatenate((np.arange(len(rows)), np.full(len(alone), -1)))
            rows = np.concatenate((rows, alone))
            order = np.argsort(rows, kind="stable")
            rows, places = rows[order], places[order]
            theirs = [c.take_or_null(places) for c in theirs]
        mine = take_all(batch.columns, rows)
        kinds = None if batch.kinds is None else batch.kinds[rows]
        return joined(self.ctx.output_schema, *self._sorted_pair(side, mine, theirs), kinds)

    def _tell_other(
        self, side: int, batch: Batch, rows: np.ndarray, entries: np.ndarray
    ) -> tuple[list[Batch], list[Batch]]:
        """Count the new partners of the other side's rows; what that retracts before and
        inserts after the pairs."""
        matters = self._pads[1 - side] or (self._left_only and side == RIGHT)
        if not matters or not len(rows):
            return [], []
        other = self._sides[1 - side]
        signs = batch.signs()
        touched, at = np.unique(entries, return_inverse=True)
        # A pair repeated for the copies of one stored row is still one partner.
        once = np.ones(len(rows), np.bool_)
        once[1:] = (rows[1:] != rows[:-1]) | (entries[1:] != entries[:-1])
        delta = np.zeros(len(touched), np.int64)
        np.add.at(delta, at[once], 1 if signs is None else signs[rows[once]].astype(np.int64))
        was = other.meet(touched, delta)
        met = touched[(was <= 0) & (was + delta > 0)]
        left = touched[(was > 0) & (was + delta <= 0)]
        if self._left_only:
            come, gone = (met, left) if self.spec.kind == "semi" else (left, met)
            return self._bare(gone, DELETE), self._bare(come, INSERT)
        return self._padded(1 - side, met, DELETE), self._padded(1 - side, left, INSERT)

    def _keep(self, side: int, batch: Batch, key_slots: np.ndarray, partners: np.ndarray) -> None:
        mine = self._sides[side]
        was_indexed = mine.indexed
        added, gone, unmatched = mine.change(batch, key_slots, partners)
        if unmatched:
            self.ctx.metrics.inc("numUnmatchedRetractions", unmatched)
        signs = batch.signs()
        np.add.at(self._rows_of_key, key_slots, 1 if signs is None else signs.astype(np.int64))
        if mine.indexed and not was_indexed:  # entries were numbered anew
            self._ttl[side] = TimeToLive(self.spec.ttl_ms, self.ctx)
            added = mine.live()
        self._ttl[side].touch(added, mine.high)
        self._drop(side, gone)
        self._free_keys(key_slots)

    def _drop(self, side: int, entries: np.ndarray) -> None:
        if not len(entries):
            return
        mine = self._sides[side]
        # Copies still counted: all of an expired row's, none of a retracted one's, and
        # fewer than none where retractions met no row.
        copies = mine.copies(entries)
        np.subtract.at(self._rows_of_key, mine.key_slots(entries), 1 if copies is None else copies)
        self._ttl[side].forget(entries)
        mine.free(entries)

    def _free_keys(self, key_slots: np.ndarray) -> None:
        unused = key_slots[self._rows_of_key[key_slots] == 0]
        if len(unused):
            self._keys.free(np.unique(unused))

    def on_processing_time(self, now_ms: int) -> Iterator[Output]:
        for side in (LEFT, RIGHT):
            due = self._ttl[side].due(now_ms)
            if len(due):
                key_slots = self._sides[side].key_slots(due)
                self._drop(side, due)
                self._free_keys(key_slots)
            if not self._tier.expire(self._ttl[side].swept_ms, side):
                self.ctx.wake_at(now_ms + 1)
        return iter(())

    # -- output ------------------------------------------------------------------------

    def _alone(self, side: int, batch: Batch) -> Iterator[Output]:
        """Rows whose key has a NULL: no partner ever, nothing to keep."""
        if not batch.num_rows:
            return
        if self._left_only:
            if side == LEFT and self.spec.kind == "anti":
                yield self._left_batch(batch)
        elif self._pads[side]:
            padding = null_columns(self._schemas[1 - side], batch.num_rows)
            pair = self._sorted_pair(side, batch.columns, padding)
            yield joined(self.ctx.output_schema, *pair, batch.kinds)

    def _padded(self, side: int, entries: np.ndarray, kind: np.uint8) -> list[Batch]:
        out = []
        for part in pieces(self._repeated(side, entries)):
            mine = self._sides[side].take(part)
            pair = self._sorted_pair(side, mine, null_columns(self._schemas[1 - side], len(part)))
            out.append(joined(self.ctx.output_schema, *pair, np.full(len(part), kind)))
        return out

    def _bare(self, entries: np.ndarray, kind: np.uint8) -> list[Batch]:
        out = []
        for part in pieces(self._repeated(LEFT, entries)):
            columns = self._sides[LEFT].take(part)
            out.append(joined(self.ctx.output_schema, columns, (), np.full(len(part), kind)))
        return out

    def _repeated(self, side: int, entries: np.ndarray) -> np.ndarray:
        copies = self._sides[side].copies(entries)
        return entries if copies is None else np.repeat(entries, copies)

    def _left_batch(self, batch: Batch) -> Batch:
        return joined(self.ctx.output_schema, batch.columns, (), batch.kinds)

    def _sorted_pair(
        self, side: int, mine: Sequence[Column], theirs: Sequence[Column]
    ) -> tuple[Sequence[Column], Sequence[Column]]:
        return (mine, theirs) if side == LEFT else (theirs, mine)

    # -- state -------------------------------------------------------------------------

    def _table(self, name: str, side: int) -> StateTable:
        mine, keys = self._sides[side], self._keys_of[side]

        def read(entries: np.ndarray) -> tuple[list[Column], list[Column | LateColumn]]:
            return mine.take_some(entries, keys), [*mine.take_later(entries), *mine.state(entries)]

        names = [f"key{i}" for i in range(len(keys))]
        names += [f"{i}.{field.name}" for i, field in enumerate(self._schemas[side].fields)]
        return StateTable(
            name, read, names=[*names, "count", "partners"], kind="join",
            max_parallelism=self.ctx.max_parallelism, changes=mine.changes,
        )  # fmt: skip

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return OperatorSnapshot(keyed={table.name: table.cut() for table in self._tables})

    def _restore(self, restored: RestoredState) -> None:
        for name, side in (("left", LEFT), ("right", RIGHT)):
            schema, mine = self._schemas[side], self._sides[side]
            k = len(self._keys_of[side])
            types = [*(schema.types[i] for i in self._keys_of[side]), *schema.types, _LONG, _LONG]
            for block in restored.keyed.get(name, []):
                columns, n = restored_columns([block], types)
                if not n:
                    continue
                key_slots, new = self._keys.upsert(columns[:k], n)
                self._rows_of_key = grown(self._rows_of_key, self._keys.high)
                self._tier.fetch(new)
                np.add.at(self._rows_of_key, key_slots, columns[-2].values)
                entries = mine.load(columns[k:-2], key_slots, columns[-2].values, columns[-1].values)
                self._ttl[side].touch(entries, mine.high)
                self._tier.settle()
