"""Top-N by one fixed-width column of an append-only input: the updating ROW_NUMBER query.

A partition's ranking is a row of two matrices, order codes and entries, so a batch is
merged with the rankings it touches by one sort, and rows are copied only on their way in
and out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.runtime.kernels.grouping import distinct_slots
from penstock.runtime.kernels.key_index import KeyIndex
from penstock.runtime.kernels.keyed_state import in_group_order, keyed_block, restored_columns
from penstock.runtime.kernels.sorting import position_in_group, single_key_codes, stable_argsort
from penstock.runtime.kernels.store import RowStore
from penstock.runtime.operator import Operator, OperatorSnapshot
from penstock.runtime.operators.changes import AFTER, BEFORE, INSERT, TimeToLive, typed
from penstock.runtime.operators.emitting import PIECE_ROWS
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph.specs import TopNSpec
    from penstock.runtime.operator import OperatorContext, Output, RestoredState

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
    that came first."""

    def __init__(self, spec: TopNSpec) -> None:
        self.spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        self._schema = ctx.input_schemas[0]
        self._keys = KeyIndex([self._schema.types[i] for i in self.spec.partition])
        self._rows = RowStore(self._schema.types)
        self._codes = np.full((1024, self.spec.last), _NONE_CODE, np.int64)
        self._entries = np.full((1024, self.spec.last), -1, np.int64)
        self._ttl = TimeToLive(self.spec.ttl_ms, ctx)
        if restored is not None:
            self._restore(restored)
        ctx.metrics.gauge("numRowsInState", lambda: len(self._rows))
        own = lambda: self._rows.nbytes + self._keys.nbytes + self._codes.nbytes + self._entries.nbytes  # noqa: E731
        ctx.metrics.gauge("stateBytes", own)

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        slots = self._partitions(batch)
        codes = single_key_codes(batch.columns[self.spec.order[0].index], self.spec.order[0])
        enters = codes < self._codes[slots, -1]
        if not enters.all():
            rows = np.flatnonzero(enters)
            if not len(rows):
                return
            slots, codes = slots[rows], codes[rows]
        else:
            rows = np.arange(len(slots))
        # Of a batch's rows only the first n of a partition can stay.
        order = stable_argsort(codes)
        order = order[stable_argsort(slots[order])]
        order = order[position_in_group(slots[order]) < self.spec.last]
        yield from self._merge(batch, rows[order], slots[order], codes[order])

    def _partitions(self, batch: Batch) -> np.ndarray:
        slots, _ = self._keys.upsert([batch.columns[i] for i in self.spec.partition], batch.num_rows)
        self._reach()
        return slots

    def _reach(self) -> None:
        high = self._keys.high
        if high > len(self._codes):
            more = max(high, 2 * len(self._codes)) - len(self._codes)
            width = self.spec.last
            self._codes = np.concatenate((self._codes, np.full((more, width), _NONE_CODE, np.int64)))
            self._entries = np.concatenate((self._entries, np.full((more, width), -1, np.int64)))

    def _merge(self, batch: Batch, rows: np.ndarray, slots: np.ndarray, codes: np.ndarray) -> Iterator[Batch]:
        """``rows``: of the batch, by (partition, code)."""
        width = self.spec.last
        touched = distinct_slots(slots, self._keys.high)
        self._ttl.touch(touched, self._keys.high)
        old = self._entries[touched]
        # New rows follow the old ones of equal code: candidates are old ranks, then new rows.
        all_slots = np.concatenate((np.repeat(touched, width), slots))
        all_codes = np.concatenate((self._codes[touched].reshape(-1), codes))
        all_entries = np.concatenate((old.reshape(-1), -2 - np.arange(len(rows))))
        standing = np.flatnonzero(all_entries != -1)
        order = standing[stable_argsort(all_codes[standing])]
        order = order[stable_argsort(all_slots[order])]
        place = position_in_group(all_slots[order])
        stays = place < width
        gone = all_entries[order[~stays]]
        order, place = order[stays], place[stays]
        entries, of = all_entries[order], all_slots[order]
        fresh = np.flatnonzero(entries < 0)
        coming = rows[-2 - entries[fresh]]
        entries[fresh] = self._rows.append([c.take(coming) for c in batch.columns], len(coming))
        self._entries[touched] = -1
        self._codes[touched] = _NONE_CODE
        self._entries[of, place] = entries
        self._codes[of, place] = all_codes[order]
        yield from self._changes(old, self._entries[touched])
        gone = gone[gone >= 0]
        if len(gone):
            self._rows.free(gone)

    def _changes(self, old: np.ndarray, new: np.ndarray) -> Iterator[Batch]:
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
            entries, kinds, ranks = after, np.where(had, AFTER, INSERT), rank
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
            held = self._entries[due].reshape(-1)
            self._rows.free(held[held >= 0])
            self._entries[due], self._codes[due] = -1, _NONE_CODE
            self._keys.free(due)
        return iter(())

    # -- state: as the general Top-N writes it ---------------------------------------------

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        of, place = np.nonzero(self._entries >= 0)
        entries = self._entries[of, place]
        keys = [self._rows.stores[i].take(entries) for i in self.spec.partition]
        order = in_group_order(np.arange(len(entries)), keys, self.ctx.max_parallelism)
        entries, place = entries[order], place[order]
        columns = self._rows.take(entries)
        keys = [columns[i] for i in self.spec.partition]
        names = [*(f"key{i}" for i in range(len(keys)))]
        names += [f"{i}.{name}" for i, name in enumerate(self._schema.names)]
        block = keyed_block(
            keys,
            [*columns, Column(_LONG, place + 1)],
            [*names, "place"],
            n=len(entries),
            max_parallelism=self.ctx.max_parallelism,
            kind="top-n",
            in_order=True,
        )
        return OperatorSnapshot(keyed={"rows": block})

    def _restore(self, restored: RestoredState) -> None:
        k = len(self.spec.partition)
        types = [*(self._schema.types[i] for i in self.spec.partition), *self._schema.types, _LONG]
        columns, n = restored_columns(restored.keyed.get("rows", []), types)
        if not n:
            return
        rows, place = columns[k:-1], columns[-1].values - 1
        slots = self._partitions(Batch(self._schema, rows, num_rows=n))
        self._entries[slots, place] = self._rows.append(rows, n)
        key = self.spec.order[0]
        self._codes[slots, place] = single_key_codes(rows[key.index], key)
        self._ttl.touch(distinct_slots(slots, self._keys.high), self._keys.high)
