"""Top-N by one fixed-width column of an append-only input: the updating ROW_NUMBER query.

A partition's ranking is a row of two matrices, order codes and entries, so a batch is
merged with the rankings it touches by one sort, and rows are fetched only to be shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.grouping import distinct_slots
from penstock.columnar.key_index import KeyIndex
from penstock.columnar.late_rows import GARBAGE_ROWS, LateRows
from penstock.columnar.sorting import position_in_group, single_key_codes, stable_argsort_by
from penstock.columnar.store import grown
from penstock.operators.changes import AFTER, BEFORE, INSERT, typed
from penstock.operators.emitting import PIECE_ROWS
from penstock.operators.operator import Operator
from penstock.snapshots.contract import OperatorSnapshot
from penstock.snapshots.keyed_blocks import restored_columns
from penstock.state.cold_tier import ColdTier, MovableTable, Resident, can_evict, make_changes
from penstock.state.tables import StateTable
from penstock.state.time_to_live import TimeToLive
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.columnar.late_rows import LateColumn
    from penstock.jobgraph.specs import TopNSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState

_LONG = t.BigIntType(False)
_NONE_CODE = 2**63 - 1
#: Ranks kept in a row of the matrices at most.
_WIDEST = 64


def fits(spec: TopNSpec) -> bool:
    """Whether ``TopRowsOperator`` can run the spec, its order being of one fixed-width column."""
    return (
        spec.rank == "row_number"
        and not spec.retracts
        and spec.window is None
        and len(spec.order) == 1
        and spec.last <= _WIDEST
        and (spec.rank_column or spec.first == spec.last == 1)
    )


class TopRowsOperator(Operator):
    """What stands at each rank is compared before and after a batch. Ties go to the row
    that came first.

    A stored row never changes, its rank is not part of it: state holds the row and when it
    came, and rankings are made of the rows anew when it is restored.
    """

    def __init__(self, spec: TopNSpec) -> None:
        self.spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        self._schema = ctx.input_schemas[0]
        self._keys = KeyIndex([self._schema.types[i] for i in self.spec.partition])
        evicts = can_evict(ctx, self._keys.types)
        self._rows = LateRows(self._schema.types, *((GARBAGE_ROWS,) if evicts else ()))
        #: By row: the number of its arrival.
        self._arrivals = np.zeros(1024, np.int64)
        self._next_arrival = 0
        # By partition slot and rank. What is above ``_ready`` was never written.
        self._codes = np.empty((1024, self.spec.last), np.int64)
        self._entries = np.empty((1024, self.spec.last), np.int32)
        self._ready = 0
        self._changes = make_changes(ctx, evicts=evicts)
        names = [f"key{i}" for i in range(len(self.spec.partition))]
        names += [f"{i}.{name}" for i, name in enumerate(self._schema.names)]
        self._table = StateTable(
            "rows", self._read, names=[*names, "arrival"], kind="top-rows",
            max_parallelism=ctx.max_parallelism, changes=self._changes,
        )  # fmt: skip
        self._ttl = TimeToLive(self.spec.ttl_ms, ctx)
        self._tier = self._cold_tier() if evicts else Resident(ctx, self._nbytes)
        if restored is not None:
            self._restore(restored)
        ctx.metrics.gauge("numRowsInState", lambda: len(self._rows))
        ctx.metrics.gauge("stateBytes", self._nbytes)

    def _nbytes(self) -> int:
        rankings = (8 + 12 * self.spec.last) * len(self._keys)
        return self._rows.live_bytes + self._keys.live_bytes + rankings + 20 * len(self._rows)

    def _cold_tier(self) -> ColdTier:
        table = MovableTable(
            self._changes, [*self._schema.types, _LONG], self._ranked, load=self._load,
            read=lambda entries: [*self._rows.take(entries), Column(_LONG, self._arrivals[entries])],
        )  # fmt: skip
        if self._ttl.ttl_ms:
            table.times = lambda entries: self._ttl.times(self._partition_of(entries))
            table.touched = lambda entries, times: self._ttl.came_back(self._partition_of(entries), times)
        return ColdTier(self.ctx, self._keys, [table], drop=self._drop, nbytes=self._nbytes)

    def _ranked(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(position of the partition, entry) pairs in the partitions' order."""
        held = self._entries[slots]
        at, rank = np.nonzero(held >= 0)
        return at, held[at, rank].astype(np.int64)

    def _partition_of(self, entries: np.ndarray) -> np.ndarray:
        return self._keys.lookup(self._rows.take_some(entries, self.spec.partition), len(entries))

    def _load(self, slots: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
        """``slots``: partition by partition, in their order."""
        entries = self._append(columns[:-1], len(slots), columns[-1].values)
        key = self.spec.order[0]
        self._make_ready()
        place = position_in_group(slots)
        self._entries[slots, place] = entries
        self._codes[slots, place] = single_key_codes(columns[key.index], key)
        return entries

    def close(self) -> None:
        if hasattr(self, "_tier"):
            self._tier.close()

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        slots, new = self._partitions(batch)
        yield from self._update(batch, slots)
        self._tier.used(slots)
        self._tier.make_room(len(new))

    def _update(self, batch: Batch, slots: np.ndarray) -> Iterator[Output]:
        codes = single_key_codes(batch.columns[self.spec.order[0].index], self.spec.order[0])
        enters = codes < self._codes[slots, -1]
        rows = np.flatnonzero(enters)
        if not len(rows):
            return
        if len(rows) < len(slots):
            slots, codes = slots[rows], codes[rows]
        # Of a batch's rows only the first n of a partition can stay.
        order = stable_argsort_by(slots, codes)
        order = order[position_in_group(slots[order]) < self.spec.last]
        yield from self._merge(batch, rows[order], slots[order], codes[order])

    def _partitions(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """(partition of each row, new ones)."""
        slots, new = self._keys.upsert([batch.columns[i] for i in self.spec.partition], batch.num_rows)
        self._make_ready()
        return slots, self._tier.fetch(new)

    def _make_ready(self) -> None:
        high = self._keys.high
        if high > len(self._codes):
            self._codes, self._entries = (_taller(x, high, self._ready) for x in (self._codes, self._entries))
        self._clear(slice(self._ready, high))
        self._ready = high

    def _clear(self, slots: np.ndarray | slice) -> None:
        self._codes[slots], self._entries[slots] = _NONE_CODE, -1

    def _merge(self, batch: Batch, rows: np.ndarray, slots: np.ndarray, codes: np.ndarray) -> Iterator[Batch]:
        """``rows``: of the batch, by (partition, code)."""
        width = self.spec.last
        touched = distinct_slots(slots, self._keys.high)
        self._ttl.touch(touched, self._keys.high)
        old = self._entries[touched]
        # New rows follow the old ones of equal code: candidates are old ranks, then new rows.
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
        # In order of arrival: then rows that are kept side by side came side by side.
        by_arrival = np.argsort(coming)
        entries[fresh[by_arrival]] = self._keep(batch, coming[by_arrival])
        self._clear(touched)
        self._entries[of, place] = entries
        self._codes[of, place] = all_codes[order]
        yield from self._shown(old, self._entries[touched])
        gone = gone[gone >= 0]
        if len(gone):
            self._changes.free(gone)
            self._rows.free(gone)

    def _keep(self, batch: Batch, rows: np.ndarray) -> np.ndarray:
        """Entries of the batch's ``rows`` (ascending)."""
        n = len(rows)
        columns = batch.columns if n == batch.num_rows else [c.take(rows) for c in batch.columns]
        self._next_arrival += n
        return self._append(columns, n, np.arange(self._next_arrival - n, self._next_arrival))

    def _append(self, columns: Sequence[Column], n: int, arrivals: np.ndarray) -> np.ndarray:
        entries = self._rows.append(columns, n)
        self._changes.write(entries)
        self._arrivals = grown(self._arrivals, self._rows.slots.high)
        self._arrivals[entries] = arrivals
        return entries

    def _shown(self, old: np.ndarray, new: np.ndarray) -> Iterator[Batch]:
        """The changes from one state of some rankings to another."""
        first = self.spec.first - 1
        old, new = old[:, first:], new[:, first:]
        at, rank = np.nonzero(old != new)
        before, after = old[at, rank], new[at, rank]
        had = before >= 0
        if self.spec.emit_before:
            # Each position as (−U, +U) side by side, or +I alone.
            entries = np.stack((before, after), axis=1).reshape(-1)
            kinds = np.stack((np.full(len(at), BEFORE), np.where(had, AFTER, INSERT)), axis=1).reshape(-1)
            ranks = np.repeat(rank, 2)
            shown = entries >= 0
            entries, kinds, ranks = entries[shown], kinds[shown], ranks[shown]
        else:
            # One row of each rank: in whatever order they are fetched fastest.
            order = self._rows.in_place(after)
            entries, ranks = after[order], rank[order]
            kinds = np.where(had[order], AFTER, INSERT)
        schema, start = self.ctx.output_schema, 0
        while start < len(entries):
            end = min(start + PIECE_ROWS, len(entries))
            if end < len(entries) and kinds[end - 1] == BEFORE:
                end += 1  # a pair is never parted
            part = slice(start, end)
            columns = self._rows.take(entries[part])
            if self.spec.rank_column:
                columns.append(Column(_LONG, ranks[part] + self.spec.first))
            some = kinds[part]
            yield Batch(
                schema, typed(schema, columns), kinds=some if some.any() else None, num_rows=end - start
            )
            start = end

    def on_processing_time(self, now_ms: int) -> Iterator[Output]:
        due = self._ttl.due(now_ms)
        if len(due):
            self._changes.free(self._ranked(due)[1])
            self._drop(due)
        if not self._tier.expire(self._ttl.swept_ms):
            self.ctx.wake_at(now_ms + 1)
        return iter(())

    def _drop(self, slots: np.ndarray) -> None:
        self._ttl.forget(slots)
        self._rows.free(self._ranked(slots)[1])
        self._clear(slots)
        self._keys.free(slots)

    # -- state -----------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return OperatorSnapshot(keyed={"rows": self._table.cut()})

    def _read(self, entries: np.ndarray) -> tuple[list[Column], list[Column | LateColumn]]:
        keys = self._rows.take_some(entries, self.spec.partition)
        return keys, [*self._rows.take_later(entries), Column(_LONG, self._arrivals[entries])]

    def _restore(self, restored: RestoredState) -> None:
        k = len(self.spec.partition)
        types = [*(self._schema.types[i] for i in self.spec.partition), *self._schema.types, _LONG]
        for block in restored.keyed.get("rows", []):
            columns, n = restored_columns([block], types)
            if n:
                self._put_back(Batch(self._schema, columns[k:-1], num_rows=n), columns[-1].values)
                self._tier.settle()

    def _put_back(self, rows: Batch, arrivals: np.ndarray) -> None:
        """Restored rows, of which a partition may have more elsewhere in the snapshot."""
        slots, _ = self._partitions(rows)
        entries = self._append(rows.columns, rows.num_rows, arrivals)
        self._next_arrival = max(self._next_arrival, int(arrivals.max()) + 1)
        touched = distinct_slots(slots, self._keys.high)
        self._ttl.touch(touched, self._keys.high)
        at, held = self._ranked(touched)
        key = self.spec.order[0]
        codes = np.concatenate((
            self._codes[touched][self._entries[touched] >= 0],
            single_key_codes(rows.columns[key.index], key),
        ))  # fmt: skip
        slots, entries = np.concatenate((touched[at], slots)), np.concatenate((held, entries))
        order = np.argsort(self._arrivals[entries], kind="stable")
        order = order[stable_argsort_by(slots[order], codes[order])]
        place = position_in_group(slots[order])
        self._entries[slots[order], place] = entries[order]
        self._codes[slots[order], place] = codes[order]


def _taller(matrix: np.ndarray, rows: int, used: int) -> np.ndarray:
    """Room for at least ``rows``, at least doubled; only ``used`` ones are copied, and the
    memory of the others is not touched."""
    out = np.empty((max(rows, 2 * len(matrix)), matrix.shape[1]), matrix.dtype)
    out[:used] = matrix[:used]
    return out
