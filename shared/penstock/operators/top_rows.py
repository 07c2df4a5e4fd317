"""Top-N by one fixed-width column of an append-only input: the updating ROW_NUMBER query.

A partition's ranking is a row of two matrices, order codes and entries. One sort merges a batch with the
rankings of its partitions. Rows themselves are read only for output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.grouping import distinct_slots
from penstock.columnar.late_rows import LateRows
from penstock.columnar.sorting import position_in_group, single_key_codes, stable_argsort_by
from penstock.columnar.store import grown
from penstock.operators.changes import AFTER, BEFORE, INSERT, typed
from penstock.operators.emitting import PIECE_ROWS
from penstock.operators.operator import Operator
from penstock.state.key_space import KeySpace
from penstock.state.slot_table import SlotTable
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.columnar.late_rows import LateColumn
    from penstock.jobgraph.specs import TopNSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState
    from penstock.types.logical import Schema

_LONG = t.BigIntType(False)
_NONE_CODE = 2**63 - 1
_NONE = np.empty(0, np.int64)
#: The most ranks in a row of the matrices.
_WIDEST = 64


def fits(spec: TopNSpec) -> bool:
    """Whether ``TopRowsOperator`` can run the spec, whose order must be one fixed-width column."""
    return (
        spec.rank == "row_number"
        and not spec.retracts
        and spec.window is None
        and len(spec.order) == 1
        and spec.last <= _WIDEST
        and (spec.rank_column or spec.first == spec.last == 1)
    )


class TopRowsOperator(Operator):
    """Emits the differences between the rows at each rank before and after a batch. Ties are ordered by
    arrival.

    A stored row does not contain its rank and never changes. State holds the row and its arrival number; a
    restore computes the rankings from the rows.
    """

    def __init__(self, spec: TopNSpec) -> None:
        self.spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        spec, schema = self.spec, ctx.input_schemas[0]
        types = [schema.types[i] for i in spec.partition]
        self._keys = self.keep(KeySpace(ctx, types, kind="top-rows", ttl_ms=spec.ttl_ms))
        self._rows = _TopRows(self._keys, schema, spec)
        self._keys.restore(restored)
        ctx.metrics.gauge("numRowsInState", lambda: len(self._rows))

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        out = list[Batch]()
        with self._keys.touch([batch.columns[i] for i in self.spec.partition], batch.num_rows) as keys:
            changed, old, new, gone = self._rows.merge(batch, keys.slots)
            keys.written = changed
            if len(changed):
                out = list(self._shown(old, new))
                self._rows.drop(gone)
        yield from out

    def _shown(self, old: np.ndarray, new: np.ndarray) -> Iterator[Batch]:
        """The changes between two states of some rankings (entries by rank)."""
        first = self.spec.first - 1
        old, new = old[:, first:], new[:, first:]
        at, rank = np.nonzero(old != new)
        before, after = old[at, rank], new[at, rank]
        had = before >= 0
        if self.spec.emit_before:
            # Each position gives −U and +U side by side, or +I alone.
            entries = np.stack((before, after), axis=1).reshape(-1)
            kinds = np.stack((np.full(len(at), BEFORE), np.where(had, AFTER, INSERT)), axis=1).reshape(-1)
            ranks = np.repeat(rank, 2)
            shown = entries >= 0
            entries, kinds, ranks = entries[shown], kinds[shown], ranks[shown]
        else:
            # One row per rank needs no order, so rows are read in the fastest order.
            order = self._rows.rows.in_place(after)
            entries, ranks = after[order], rank[order]
            kinds = np.where(had[order], AFTER, INSERT)
        schema, start = self.ctx.output_schema, 0
        while start < len(entries):
            end = min(start + PIECE_ROWS, len(entries))
            if end < len(entries) and kinds[end - 1] == BEFORE:
                end += 1  # a −U and its +U stay in one batch
            part = slice(start, end)
            columns = self._rows.rows.take(entries[part])
            if self.spec.rank_column:
                columns.append(Column(_LONG, ranks[part] + self.spec.first))
            some = kinds[part]
            yield Batch(
                schema, typed(schema, columns), kinds=some if some.any() else None, num_rows=end - start
            )
            start = end


class _TopRows(SlotTable):
    """The rows of all rankings. A ranking is a row of two matrices at the partition's slot."""

    def __init__(self, space: KeySpace, schema: Schema, spec: TopNSpec) -> None:
        super().__init__(
            space, "rows", names=[*(f"{i}.{name}" for i, name in enumerate(schema.names)), "arrival"],
            types=[*schema.types, _LONG],
        )  # fmt: skip
        self._partition, self._order, self._width = spec.partition, spec.order[0], spec.last
        self.rows = LateRows(schema.types, space.upkeep)
        #: The arrival number of each row.
        self._arrivals = np.zeros(1024, np.int64)
        self._next_arrival = 0
        # Indexed by partition slot and rank. Rows of the matrix above ``_ready`` were never written.
        self._codes = np.empty((1024, spec.last), np.int64)
        self._entries = np.empty((1024, spec.last), np.int32)
        self._ready = 0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def live_bytes(self) -> int:
        return self.rows.live_bytes + 20 * len(self.rows) + 12 * self._width * len(self.space)

    # -- as a table ----------------------------------------------------------------------

    def rows_of(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(position of the partition, entry) pairs, in the order of the rankings."""
        held = self._entries[keys]
        at, rank = np.nonzero(held >= 0)
        return at, held[at, rank].astype(np.int64)

    def keys_of(self, rows: np.ndarray) -> np.ndarray:
        return self.space.index.lookup(self.rows.take_some(rows, self._partition), len(rows))

    def stored_key(self, rows: np.ndarray) -> tuple[list[Column], list[Column]]:
        return self.rows.take_some(rows, self._partition), []

    def read(self, rows: np.ndarray) -> list[Column]:
        return [*self.rows.take(rows), Column(_LONG, self._arrivals[rows])]

    def later(self, rows: np.ndarray) -> list[Column | LateColumn]:
        return [*self.rows.take_later(rows), Column(_LONG, self._arrivals[rows])]

    def make(self, keys: np.ndarray) -> None:
        high = self.space.high
        if high > len(self._codes):
            self._codes, self._entries = (_taller(x, high, self._ready) for x in (self._codes, self._entries))
        self._clear(slice(self._ready, high))
        self._ready = high

    def load(self, keys: np.ndarray, columns: list[Column]) -> np.ndarray:
        """The restored rows must come partition by partition, in the order of the rankings."""
        entries = self._append(columns[:-1], len(keys), columns[-1].values)
        place = position_in_group(keys)
        self._entries[keys, place] = entries
        self._codes[keys, place] = self._codes_of(columns)
        return entries

    def reload(self, keys: np.ndarray, columns: list[Column]) -> np.ndarray:
        arrivals = columns[-1].values
        new = self._append(columns[:-1], len(keys), arrivals)
        self._next_arrival = max(self._next_arrival, int(arrivals.max()) + 1)
        touched = distinct_slots(keys, self.space.high)
        at, held = self.rows_of(touched)
        codes = np.concatenate((
            self._codes[touched][self._entries[touched] >= 0], self._codes_of(columns)
        ))  # fmt: skip
        slots, entries = np.concatenate((touched[at], keys)), np.concatenate((held, new))
        order = np.argsort(self._arrivals[entries], kind="stable")
        order = order[stable_argsort_by(slots[order], codes[order])]
        place = position_in_group(slots[order])
        self._entries[slots[order], place] = entries[order]
        self._codes[slots[order], place] = codes[order]
        return new

    def free(self, rows: np.ndarray, keys: np.ndarray) -> None:
        """Free all rows of these partitions."""
        self.drop(rows)
        self._clear(keys)

    # -- rankings ------------------------------------------------------------------------

    def merge(self, batch: Batch, slots: np.ndarray) -> tuple[np.ndarray, ...]:
        """Merge a batch with the rankings of its rows' partitions.

        Returns (partitions whose rankings change, their entries by rank before and after (-1: none), entries
        that the caller must ``drop``).
        """
        codes = self._codes_of(batch.columns)
        rows = np.flatnonzero(codes < self._codes[slots, -1])
        if not len(rows):
            return _NONE, _NONE, _NONE, _NONE
        if len(rows) < len(slots):
            slots, codes = slots[rows], codes[rows]
        # Only the first n rows of a partition in the batch can enter its ranking.
        order = stable_argsort_by(slots, codes)
        order = order[position_in_group(slots[order]) < self._width]
        return self._merge_sorted(batch, rows[order], slots[order], codes[order])

    def _merge_sorted(
        self, batch: Batch, rows: np.ndarray, slots: np.ndarray, codes: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """``merge`` for ``rows`` of the batch, sorted by (partition, code)."""
        width = self._width
        touched = distinct_slots(slots, self.space.high)
        old = self._entries[touched]
        # The candidates are old ranks, then new rows, so that new rows follow old ones of equal code.
        all_slots = np.concatenate((np.repeat(touched, width), slots))
        all_codes = np.concatenate((self._codes[touched].reshape(-1), codes))
        all_entries = np.concatenate((old.reshape(-1).astype(np.int64), -2 - np.arange(len(rows))))
        standing = np.flatnonzero(all_entries != -1)
        order = standing[stable_argsort_by(all_slots[standing], all_codes[standing])]
        place = position_in_group(all_slots[order])
        stays = place < width
        gone = all_entries[order[~stays]]
        order, place = order[stays], place[stays]
        entries, of = all_entries[order], all_slots[order]
        fresh = np.flatnonzero(entries < 0)
        coming = rows[-2 - entries[fresh]]
        # Rows are stored in order of arrival, so that neighbours in memory arrived together.
        by_arrival = np.argsort(coming)
        entries[fresh[by_arrival]] = self._keep(batch, coming[by_arrival])
        self._clear(touched)
        self._entries[of, place] = entries
        self._codes[of, place] = all_codes[order]
        return touched, old, self._entries[touched], gone[gone >= 0]

    def drop(self, entries: np.ndarray) -> None:
        """Free rows that no ranking contains."""
        if len(entries):
            self.changes.free(entries)
            self.rows.free(entries)

    def _keep(self, batch: Batch, rows: np.ndarray) -> np.ndarray:
        """Store the batch's ``rows`` (ascending); return their entries."""
        n = len(rows)
        columns = batch.columns if n == batch.num_rows else [c.take(rows) for c in batch.columns]
        self._next_arrival += n
        return self._append(columns, n, np.arange(self._next_arrival - n, self._next_arrival))

    def _append(self, columns: Sequence[Column], n: int, arrivals: np.ndarray) -> np.ndarray:
        entries = self.rows.append(columns, n)
        self.changes.write(entries)
        self._arrivals = grown(self._arrivals, self.rows.slots.high)
        self._arrivals[entries] = arrivals
        return entries

    def _codes_of(self, columns: Sequence[Column]) -> np.ndarray:
        return single_key_codes(columns[self._order.index], self._order)

    def _clear(self, slots: np.ndarray | slice) -> None:
        self._codes[slots], self._entries[slots] = _NONE_CODE, -1


def _taller(matrix: np.ndarray, rows: int, used: int) -> np.ndarray:
    """A copy of the first ``used`` rows with room for at least ``rows``; it at least doubles and touches no
    other memory."""
    out = np.empty((max(rows, 2 * len(matrix)), matrix.shape[1]), matrix.dtype)
    out[:used] = matrix[:used]
    return out
