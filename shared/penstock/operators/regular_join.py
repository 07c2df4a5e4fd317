"""The join of two changelogs: every kind, with retractions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

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
from penstock.state.key_space import KeySpace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.jobgraph.specs import JoinSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState
    from penstock.types.batch import Batch
    from penstock.types.column import Column

LEFT, RIGHT = 0, 1


class JoinOperator(Operator):
    """Joins two changelogs and keeps both inputs whole, by join key.

    A row is joined with all rows of the other side and emitted with its own kind. Rows of an outer, semi or
    anti side have a number of partners. When a batch of the other side changes that number from or to zero,
    their padded (or bare) row is retracted before, or inserted after, the pairs of the batch.
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
        self._keys = self.keep(
            KeySpace(
                ctx, [left.types[i].with_nullable(True) for i in self.spec.left_keys], kind="join",
                counted=True,
            )
        )  # fmt: skip
        counted = (True, False) if self._left_only else self._pads
        self._sides = (self._side("left", LEFT, counted[LEFT]), self._side("right", RIGHT, counted[RIGHT]))
        self._keys.restore(restored)
        ctx.metrics.gauge("numRowsInState", lambda: len(self._sides[0]) + len(self._sides[1]))

    def _side(self, name: str, side: int, counts_partners: bool) -> JoinSide:
        return JoinSide(
            self._keys, name, self._schemas[side], self._keys_of[side], counts_partners=counts_partners,
            ttl_ms=self.spec.ttl_ms if side == LEFT or self.spec.right_ttl_ms is None else self.spec.right_ttl_ms,
        )  # fmt: skip

    # -- input -------------------------------------------------------------------------

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        usable = matchable_rows(batch, self._keys_of[input_index], self.spec.null_safe)
        if usable is not None:
            yield from self._alone(input_index, batch.filter(~usable))
            batch = batch.filter(usable)
            if not batch.num_rows:
                return
        start = 0
        while start < batch.num_rows:
            done, outputs = self._join_some(input_index, batch.slice(start, batch.num_rows - start))
            start += done
            for out in outputs:
                yield from batch_pieces(out)

    def _join_some(self, side: int, batch: Batch) -> tuple[int, list[Batch]]:
        """Join and keep the first rows of a batch, as many as give a bounded number of pairs.

        Returns (the number of these rows, the outputs in order).
        """
        keys = [batch.columns[i] for i in self._keys_of[side]]
        with self._keys.touch(keys, batch.num_rows) as touched:
            found = self._sides[1 - side].find(touched.slots)
            part = next(bounded_slices(found.counts))
            batch = batch.slice(0, part.stop)
            partners, outputs = self._join_slice(side, batch, *found.pairs(part))
            unmatched = self._sides[side].change(batch, touched.slots[part], partners)
            if unmatched:
                self.ctx.metrics.inc("numUnmatchedRetractions", unmatched)
        return part.stop, outputs

    def _join_slice(
        self, side: int, batch: Batch, rows: np.ndarray, entries: np.ndarray
    ) -> tuple[np.ndarray, list[Batch]]:
        """From pairs of equal keys: (number of partners of each row, outputs in order)."""
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
        """The joined rows, and the padded rows of an outer side, in the batch's order."""
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
        """Add the new partners to the other side's rows: (outputs before the pairs, outputs after them)."""
        matters = self._pads[1 - side] or (self._left_only and side == RIGHT)
        if not matters or not len(rows):
            return [], []
        other = self._sides[1 - side]
        signs = batch.signs()
        touched, at = np.unique(entries, return_inverse=True)
        # A pair that is repeated for copies of a stored row counts as one partner.
        once = np.ones(len(rows), np.bool_)
        once[1:] = (rows[1:] != rows[:-1]) | (entries[1:] != entries[:-1])
        delta = np.zeros(len(touched), np.int64)
        np.add.at(delta, at[once], 1 if signs is None else signs[rows[once]].astype(np.int64))
        was = other.meet(touched, delta)
        alone, stays_alone = was <= 0, was + delta <= 0
        if self._left_only:
            met, left = touched[alone & ~stays_alone], touched[~alone & stays_alone]
            come, gone = (met, left) if self.spec.kind == "semi" else (left, met)
            return self._bare(gone, DELETE), self._bare(come, INSERT)
        # A partner that comes and goes within the batch leaves the padded row as it was. It is taken back and given
        # anew all the same: of the changes of a key the last one counts in a table that is written by key.
        came = np.zeros(len(touched), np.bool_)
        came[at if signs is None else at[signs[rows] > 0]] = True
        before = touched[alone & came]
        after = touched[stays_alone & (came | ~alone)]
        return self._padded(1 - side, before, DELETE), self._padded(1 - side, after, INSERT)

    # -- output ------------------------------------------------------------------------

    def _alone(self, side: int, batch: Batch) -> Iterator[Output]:
        """Rows whose key has a NULL. They never have a partner and are not kept."""
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
