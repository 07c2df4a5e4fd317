"""Deduplication: the first or last row of each key, by event time or by arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import UnsupportedError
from penstock.runtime.kernels.key_index import KeyIndex
from penstock.runtime.kernels.keyed_state import in_group_order, keyed_block, restored_columns
from penstock.runtime.kernels.sorting import first_of_each, group_bounds, last_of_each, stable_argsort
from penstock.runtime.kernels.store import grown, make_store
from penstock.runtime.operator import MAX_WATERMARK, Operator, OperatorSnapshot
from penstock.runtime.operators.changes import TimeToLive, change_batch, typed
from penstock.runtime.operators.emitting import (
    batch_pieces,
    event_times,
    pieces,
    restored_watermark,
    watermark_state,
)
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph.specs import DeduplicateSpec
    from penstock.runtime.operator import OperatorContext, Output, RestoredState

_LONG = t.BigIntType(False)


class DeduplicateOperator(Operator):
    """Keeps one row a key. The first by arrival needs no more than the keys themselves and
    is append-only; the others update. With ``window`` the row comes out, once, when its
    window closes."""

    def __init__(self, spec: DeduplicateSpec) -> None:
        self.spec = spec
        window = () if spec.window is None else spec.window
        self._key_columns = (*spec.keys, *(i for i in window if i not in spec.keys))
        self._keys_only = spec.keep == "first" and spec.time is None and spec.window is None

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        self._schema = ctx.input_schemas[0]
        self._keys = KeyIndex([self._schema.types[i] for i in self._key_columns])
        self._stores = [] if self._keys_only else [make_store(x) for x in self._schema.types]
        self._times = np.zeros(1024, np.int64)
        self._ends = np.full(1024, MAX_WATERMARK, np.int64)
        self._next_end = MAX_WATERMARK
        self._watermark = restored_watermark(restored)
        self._ttl = TimeToLive(self.spec.ttl_ms, ctx)
        if restored is not None:
            self._restore(restored)
        ctx.metrics.gauge("numKeysInState", lambda: len(self._keys))

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
        slots, new = self._keys.upsert([batch.columns[i] for i in self._key_columns], batch.num_rows)
        fresh = np.zeros(self._keys.high, np.bool_)
        fresh[new] = True
        self._ttl.touch(slots, self._keys.high)
        if self._keys_only:
            if len(new):
                candidates = np.flatnonzero(fresh[slots])
                rows = candidates[first_of_each(slots[candidates])]
                yield batch.take(rows).with_columns(self.ctx.output_schema, self._typed(batch, rows))
            return
        rows, times = self._best(batch, slots)
        targets = slots[rows]
        had = ~fresh[targets]
        self._times = grown(self._times, self._keys.high)
        if self.spec.keep == "first":
            wins = ~had if self.spec.time is None else ~had | (times < self._times[targets])
        else:
            wins = np.ones(len(rows), np.bool_)
            if self.spec.time is not None:
                wins = ~had | (times >= self._times[targets])
        if not wins.all():
            rows, times, targets, had = rows[wins], times[wins], targets[wins], had[wins]
        if not len(rows):
            return
        out = None
        if self.spec.window is None:
            before = (
                self._take(targets) if had.any() else [Column.nulls(x, len(rows)) for x in self._schema.types]
            )
            come = [c.take(rows) for c in batch.columns]
            out = change_batch(
                self.ctx.output_schema, before, come, had, np.ones(len(rows), np.bool_),
                emit_before=self.spec.emit_before,
            )  # fmt: skip
        self._put(targets, [c.take(rows) for c in batch.columns], times)
        if out is not None:
            yield from batch_pieces(out)

    def _typed(self, batch: Batch, rows: np.ndarray) -> list[Column]:
        return typed(self.ctx.output_schema, [c.take(rows) for c in batch.columns])

    def _best(self, batch: Batch, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The batch's best row of each key, and its time (0 by arrival)."""
        if self.spec.time is None:
            rows = first_of_each(slots) if self.spec.keep == "first" else last_of_each(slots)
            return rows, np.zeros(len(rows), np.int64)
        times = event_times(batch, self.spec.time, self.ctx)
        order = stable_argsort(times)
        order = order[stable_argsort(slots[order])]
        bounds = group_bounds(slots[order])
        # Among equal times the first row is "first", the last one "last".
        rows = order[bounds[:-1]] if self.spec.keep == "first" else order[bounds[1:] - 1]
        return rows, times[rows]

    def _put(self, slots: np.ndarray, columns: list[Column], times: np.ndarray) -> None:
        high = self._keys.high
        for store, column in zip(self._stores, columns, strict=True):
            store.put(slots, column, high)
        self._times = grown(self._times, high)
        self._times[slots] = times
        if self.spec.window is not None:
            ends = columns[self.spec.window[1]].values
            self._ends = grown(self._ends, high, MAX_WATERMARK)
            self._ends[slots] = ends
            self._next_end = min(self._next_end, int(ends.min()))

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
        if self.spec.window is None or self._next_end - 1 > watermark:
            return
        ends = self._ends[: self._keys.high]
        due = np.flatnonzero((ends - 1 <= watermark) & (ends != MAX_WATERMARK))
        due = due[stable_argsort(ends[due])]
        for part in pieces(due):
            schema = self.ctx.output_schema
            yield Batch(schema, typed(schema, self._take(part)), num_rows=len(part))
        self._ends[due] = MAX_WATERMARK
        self._free(due)
        self._next_end = int(self._ends[: self._keys.high].min())

    def on_processing_time(self, now_ms: int) -> Iterator[Output]:
        self._free(self._ttl.due(now_ms))
        return iter(())

    def _free(self, slots: np.ndarray) -> None:
        for store in self._stores:
            store.clear(slots)
        self._keys.free(slots)

    # -- state -------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        slots = self._keys.live_slots()
        grouped = self._keys.keys(slots)[: len(self.spec.keys)]
        slots = in_group_order(slots, grouped, self.ctx.max_parallelism)
        columns = [] if self._keys_only else self._take(slots)
        keys = self._keys.keys(slots)
        grouped = keys[: len(self.spec.keys)]
        names = [f"key{i}" for i in range(len(self._key_columns))]
        payload = [*keys[len(self.spec.keys) :]]
        if not self._keys_only:
            payload += [*columns, Column(_LONG, self._times[slots])]
            names += [f"{i}.{name}" for i, name in enumerate(self._schema.names)] + ["time"]
        block = keyed_block(
            grouped, payload, names, n=len(slots),
            max_parallelism=self.ctx.max_parallelism, kind="deduplicate", in_order=True,
        )  # fmt: skip
        unions = watermark_state(self._watermark) if self.spec.window else {}
        return OperatorSnapshot(keyed={"rows": block}, unions=unions)

    def _restore(self, restored: RestoredState) -> None:
        k = len(self._key_columns)
        types = [self._schema.types[i] for i in self._key_columns]
        if not self._keys_only:
            types += [*self._schema.types, _LONG]
        columns, n = restored_columns(restored.keyed.get("rows", []), types)
        if not n:
            return
        slots, _ = self._keys.upsert(columns[:k], n)
        self._ttl.touch(slots, self._keys.high)
        if not self._keys_only:
            self._put(slots, columns[k:-1], columns[-1].values)
