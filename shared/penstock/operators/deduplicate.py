"""Deduplication: the first or last row of each key, by event time or by arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.key_index import KeyIndex
from penstock.columnar.sorting import (
    first_of_each,
    group_bounds,
    is_sorted,
    last_of_each,
    stable_argsort_by,
)
from penstock.columnar.store import grown, make_store
from penstock.errors import SpecError, UnsupportedError
from penstock.operators.changes import AFTER, INSERT, change_batch, typed
from penstock.operators.emitting import (
    batch_pieces,
    event_times,
    pieces,
    restored_watermark,
    watermark_state,
)
from penstock.operators.open_windows import OpenWindows, WindowKeyOrder
from penstock.operators.operator import MIN_WATERMARK, Operator
from penstock.snapshots.contract import OperatorSnapshot
from penstock.snapshots.keyed_blocks import restored_columns
from penstock.state.cold_tier import (
    ColdTier,
    MovableTable,
    Resident,
    make_changes,
    one_row_each,
)
from penstock.state.tables import StateTable
from penstock.state.time_to_live import TimeToLive
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from penstock.jobgraph.specs import DeduplicateSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState

_LONG = t.BigIntType(False)
_NO_ROW = MIN_WATERMARK


class DeduplicateOperator(Operator):
    """Keeps one row a key.

    What is kept of a row is what will be asked for: of the first by arrival no more than
    its key; its key and time where nobody behind wants the row that was replaced; else the
    whole row. With ``window`` the row comes out, once, when its window closes.
    """

    def __init__(self, spec: DeduplicateSpec) -> None:
        self.spec = spec
        self._key_order = WindowKeyOrder(spec.keys, spec.window)
        self._keys_only = spec.keep == "first" and spec.time is None and spec.window is None
        self._keeps_rows = not self._keys_only and (spec.emit_before or spec.window is not None)

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        self._schema = ctx.input_schemas[0]
        self._keys = KeyIndex([self._schema.types[i] for i in self._key_order.columns])
        self._stores = [make_store(x) for x in self._schema.types] if self._keeps_rows else []
        # By key slot: time of the row kept; _NO_ROW where there is none.
        self._times = np.full(1024, _NO_ROW, np.int64)
        self._windows = OpenWindows()
        self._watermark = restored_watermark(restored)
        self._ttl = TimeToLive(self.spec.ttl_ms, ctx)
        evicts = self._key_order.can_evict(ctx, self._keys.types)
        self._changes = make_changes(ctx, evicts=evicts)
        self._table = self._state_table()
        self._tier = self._cold_tier() if evicts else Resident(ctx, self._nbytes)
        if restored is not None:
            self._restore(restored)
        ctx.metrics.gauge("numKeysInState", lambda: len(self._keys))
        ctx.metrics.gauge("stateBytes", self._nbytes)

    def _nbytes(self) -> int:
        each = 12.0 if self._keys_only else 28.0 + sum(s.row_bytes for s in self._stores)
        return self._keys.live_bytes + int(each * len(self._keys))

    def _cold_tier(self) -> ColdTier:
        types = [*(self._schema.types if self._keeps_rows else ()), *(() if self._keys_only else (_LONG,))]
        table = MovableTable(self._changes, types, one_row_each, read=self._kept, load=self._load)
        if self.spec.window is not None:
            return self._windows.tier(
                self.ctx, self._keys, table, self._key_order, drop=self._drop, nbytes=self._nbytes,
                stored_bounds=True,
            )  # fmt: skip
        if self._ttl.ttl_ms:
            table.times, table.touched = self._ttl.times, self._ttl.came_back
        return ColdTier(self.ctx, self._keys, [table], drop=self._drop, nbytes=self._nbytes)

    def close(self) -> None:
        if hasattr(self, "_tier"):
            self._tier.close()

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        signs = batch.signs()
        if signs is not None and (signs < 0).any():
            raise UnsupportedError(
                "deduplication needs an append-only input",
                expected="rows of kind +I or +U",
                got="−U or −D",
                where=self.ctx.name,
                remedy="this query should plan to a Top-N: report it",
            )
        batch = batch.with_kinds(None)
        if self.spec.window is not None:
            late = event_times(batch, self.spec.window[1], self.ctx) - 1 <= self._watermark
            if late.any():
                self.ctx.metrics.inc("numLateRecordsDropped", int(late.sum()))
                batch = batch.filter(~late)
                if not batch.num_rows:
                    return
        slots, new = self._keys.upsert([batch.columns[i] for i in self._key_order.columns], batch.num_rows)
        new = self._tier.fetch(new)
        self._ttl.touch(slots, self._keys.high)
        yield from self._update(batch, slots, new)
        self._tier.used(slots)
        self._tier.make_room(len(new))

    def _update(self, batch: Batch, slots: np.ndarray, new: np.ndarray) -> Iterator[Output]:
        if self._keys_only:
            if len(new):
                self._changes.write(new)
                rows = np.flatnonzero(np.isin(slots, new))
                rows = rows[first_of_each(slots[rows])]
                yield self._shown(batch, rows, None)
            return
        self._times = grown(self._times, self._keys.high, _NO_ROW)
        rows, times = self._best(batch, slots)
        targets = slots[rows]
        kept = self._times[targets]
        had = kept != _NO_ROW
        wins = None
        if self.spec.keep == "first":
            wins = ~had if self.spec.time is None else ~had | (times < kept)
        elif self.spec.time is not None:
            wins = times >= kept
        if wins is not None and not wins.all():
            rows, times, targets, had = rows[wins], times[wins], targets[wins], had[wins]
        if not len(rows):
            return
        self._changes.write(targets)
        out = None
        if not self._keeps_rows:
            out = self._shown(batch, rows, had)
        else:
            come = [c.take(rows) for c in batch.columns]
            if self.spec.window is None:
                before = (
                    self._take(targets)
                    if had.any()
                    else [Column.nulls(x, len(rows)) for x in self._schema.types]
                )
                out = change_batch(
                    self.ctx.output_schema, before, come, had, np.ones(len(rows), np.bool_),
                    emit_before=self.spec.emit_before,
                )  # fmt: skip
            self._put(targets, come)
        self._times[targets] = times
        if out is not None:
            yield from batch_pieces(out)

    def _shown(self, batch: Batch, rows: np.ndarray, had: np.ndarray | None) -> Batch:
        """The batch's ``rows`` as they come out: +U where the key ``had`` one before."""
        if len(rows) < batch.num_rows or not is_sorted(rows):
            batch = batch.take(rows)
        kinds = np.where(had, AFTER, INSERT) if had is not None and had.any() else None
        schema = self.ctx.output_schema
        return batch.with_columns(schema, typed(schema, batch.columns)).with_kinds(kinds)

    def _best(self, batch: Batch, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The batch's best row of each key, and its time (0 by arrival)."""
        first = self.spec.keep == "first"
        if self.spec.time is None:
            rows = first_of_each(slots) if first else last_of_each(slots)
            return rows, np.zeros(len(rows), np.int64)
        times = event_times(batch, self.spec.time, self.ctx)
        # Among equal times the first row is "first", the last one "last".
        if is_sorted(times):
            rows = first_of_each(slots) if first else last_of_each(slots)
            return rows, times[rows]
        order = stable_argsort_by(slots, times)
        bounds = group_bounds(slots[order])
        rows = np.sort(order[bounds[:-1]] if first else order[bounds[1:] - 1])
        return rows, times[rows]

    def _put(self, slots: np.ndarray, columns: Sequence[Column]) -> None:
        high = self._keys.high
        for store, column in zip(self._stores, columns, strict=True):
            store.put(slots, column, high)
        if self.spec.window is not None:
            self._windows.opened(slots, columns[self.spec.window[1]].values, high)

    def _take(self, slots: np.ndarray) -> list[Column]:
        high = self._keys.high
        out = []
        for store, type_ in zip(self._stores, self._schema.types, strict=True):
            # A key of this very batch has no stored row yet: make sure its slot exists.
            store.put(np.empty(0, np.int64), Column.nulls(type_, 0), high)
            out.append(store.take(slots))
        return out

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        if watermark <= self._watermark:
            return
        self._watermark = watermark
        if self.spec.window is None or not self._windows.any_due(watermark):
            return
        schema = self.ctx.output_schema
        due = self._windows.due(watermark, self._keys.high)
        for part in pieces(due, self._tier.piece_keys):
            yield Batch(schema, typed(schema, self._take(part)), num_rows=len(part))
        self._free(due)
        for piece in self._windows.due_on_disk(watermark):
            yield Batch(schema, typed(schema, piece.tables[0].columns[:-1]), num_rows=len(piece))
        self._windows.passed(self._keys.high)

    def on_processing_time(self, now_ms: int) -> Iterator[Output]:
        self._free(self._ttl.due(now_ms))
        if not self._tier.expire(self._ttl.swept_ms):
            self.ctx.wake_at(now_ms + 1)
        return iter(())

    def _free(self, slots: np.ndarray) -> None:
        self._changes.free(slots)
        self._drop(slots)

    def _drop(self, slots: np.ndarray) -> None:
        self._ttl.forget(slots)
        for store in self._stores:
            store.clear(slots)
        if not self._keys_only:
            self._times[slots] = _NO_ROW
        if self.spec.window is not None:
            self._windows.forget(slots)
        self._keys.free(slots)

    # -- state -------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        unions = watermark_state(self._watermark) if self.spec.window else {}
        return OperatorSnapshot(keyed={"rows": self._table.cut()}, unions=unions)

    def _state_table(self) -> StateTable:
        names = [f"key{i}" for i in range(len(self._key_order.columns))]
        if self._keeps_rows:
            names += [f"{i}.{name}" for i, name in enumerate(self._schema.names)]
        if not self._keys_only:
            names.append("time")
        return StateTable(
            "rows", self._read, names=names, kind="deduplicate",
            max_parallelism=self.ctx.max_parallelism, changes=self._changes,
        )  # fmt: skip

    def _read(self, slots: np.ndarray) -> tuple[list[Column], list[Column]]:
        keys, bounds = self._key_order.split(self._keys.keys(slots))
        return keys, [*bounds, *self._kept(slots)]

    def _kept(self, slots: np.ndarray) -> list[Column]:
        """What is kept beside the key."""
        rows = self._take(slots) if self._keeps_rows else []
        return rows if self._keys_only else [*rows, Column(_LONG, self._times[slots])]

    def _load(self, slots: np.ndarray, columns: Sequence[Column]) -> np.ndarray:
        self._changes.write(slots)
        if self._keeps_rows:
            self._put(slots, columns[:-1])
        if not self._keys_only:
            self._times = grown(self._times, self._keys.high, _NO_ROW)
            self._times[slots] = columns[-1].values
        return slots

    def _restore(self, restored: RestoredState) -> None:
        for batch in restored.keyed.get("rows", []):
            if batch.num_rows:
                self._put_back(batch)
                self._tier.settle()

    def _put_back(self, batch: pa.RecordBatch) -> None:
        k = len(self._key_order.stored)
        types = [self._schema.types[i] for i in self._key_order.stored]
        # Who reads the result may have changed since: rows that are no longer asked for are
        # left out, rows that were not kept cannot be made up.
        with_rows = f"0.{self._schema.names[0]}" in batch.schema.names
        if self._keeps_rows and not with_rows:
            raise SpecError(
                "the snapshot holds no rows to retract",
                expected="the whole last row of each key, as the query now needs rows before an update",
                got="keys and times only: the query that wrote it gave updates without them",
                where=self.ctx.name,
                remedy="keep a sink that takes updates by key, or start without this operator's state",
            )
        if with_rows:
            types += self._schema.types
        if not self._keys_only:
            types.append(_LONG)
        columns, n = restored_columns([batch], types)
        slots, _ = self._keys.upsert(self._key_order.of_stored(columns[:k]), n)
        self._ttl.touch(slots, self._keys.high)
        kept = [] if self._keys_only else columns[-1:]
        self._load(slots, [*(columns[k:-1] if self._keeps_rows else ()), *kept])
