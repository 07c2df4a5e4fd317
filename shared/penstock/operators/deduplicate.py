"""Deduplication: the first or last row of each key, by event time or by arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.sorting import (
    first_of_each,
    group_bounds,
    is_sorted,
    last_of_each,
    stable_argsort_by,
)
from penstock.errors import SpecError, UnsupportedError
from penstock.operators.changes import AFTER, INSERT, change_batch, typed
from penstock.operators.emitting import (
    batch_pieces,
    event_times,
    pieces,
    restored_watermark,
    watermark_state,
)
from penstock.operators.operator import MIN_WATERMARK, Operator
from penstock.snapshots.keyed_blocks import restored_columns
from penstock.state.cells import NumberCells, RowCells
from penstock.state.key_space import KeySpace
from penstock.state.slot_table import CellTable
from penstock.state.window_keys import WindowKeySpace
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from penstock.jobgraph.specs import DeduplicateSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import OperatorSnapshot, RestoredState
    from penstock.state.slot_table import Parsed
    from penstock.state.touched import Touched
    from penstock.types.logical import Schema

_LONG = t.BigIntType(False)
_NO_ROW = MIN_WATERMARK


class DeduplicateOperator(Operator):
    """Keeps one row per key: the first or the last, by event time or by arrival. Input must be append-only.

    State holds only what later rows need: the key (first row by arrival), the key and the time (if no operator
    downstream needs the replaced row), or the whole row. With ``window`` the row is emitted once, when its
    window closes.
    """

    def __init__(self, spec: DeduplicateSpec) -> None:
        self.spec = spec
        self._keys_only = spec.keep == "first" and spec.time is None and spec.window is None
        self._keeps_rows = not self._keys_only and (spec.emit_before or spec.window is not None)

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        spec, schema = self.spec, ctx.input_schemas[0]
        self._windows: WindowKeySpace | None = None
        if spec.window is None:
            self._key_columns: tuple[int, ...] = spec.keys
            types = [schema.types[i] for i in spec.keys]
            self._keys = self.keep(KeySpace(ctx, types, kind="deduplicate", ttl_ms=spec.ttl_ms))
        else:
            self._keys = self._windows = self.keep(
                WindowKeySpace(
                    ctx, schema.types, spec.keys, spec.window, kind="deduplicate", stored_bounds=True
                )
            )
            self._key_columns = self._windows.columns
        #: The event time of each key's row; _NO_ROW if the key has no row.
        self._times = NumberCells("time", _LONG, _NO_ROW)
        times = () if self._keys_only else (self._times,)
        self._rows = _KeptRows(self._keys, schema, times, with_rows=self._keeps_rows)
        self._watermark = restored_watermark(restored)
        self._keys.restore(restored)

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
        with self._keys.touch([batch.columns[i] for i in self._key_columns], batch.num_rows) as keys:
            out = self._first_rows(batch, keys) if self._keys_only else self._update(batch, keys.slots)
        if out is not None:
            yield from batch_pieces(out)

    def _first_rows(self, batch: Batch, keys: Touched) -> Batch | None:
        """The first row of each key that is new in this batch; None if no key is new."""
        if not len(keys.new):
            return None
        self._rows.put(keys.new, [])
        rows = np.flatnonzero(np.isin(keys.slots, keys.new))
        return self._shown(batch, rows[first_of_each(keys.slots[rows])], None)

    def _update(self, batch: Batch, slots: np.ndarray) -> Batch | None:
        """Store the best row of each key if it beats the stored one; return the changes."""
        rows, times = self._best(batch, slots)
        targets = slots[rows]
        kept = self._times.values[targets]
        had = kept != _NO_ROW
        wins = None
        if self.spec.keep == "first":
            wins = ~had if self.spec.time is None else ~had | (times < kept)
        elif self.spec.time is not None:
            wins = times >= kept
        if wins is not None and not wins.all():
            rows, times, targets, had = rows[wins], times[wins], targets[wins], had[wins]
        if not len(rows):
            return None
        if not self._keeps_rows:
            self._rows.put(targets, [Column(_LONG, times)])
            return self._shown(batch, rows, had)
        come, out = [c.take(rows) for c in batch.columns], None
        if self.spec.window is None:
            types = batch.schema.types
            stored = self._rows.read(targets)[:-1] if had.any() else _nulls(types, len(rows))
            out = change_batch(
                self.ctx.output_schema, stored, come, had, np.ones(len(rows), np.bool_),
                emit_before=self.spec.emit_before,
            )  # fmt: skip
        self._rows.put(targets, [*come, Column(_LONG, times)])
        return out

    def _shown(self, batch: Batch, rows: np.ndarray, had: np.ndarray | None) -> Batch:
        """The batch's ``rows`` as output: +U for a row whose key ``had`` a row before, else +I."""
        if len(rows) < batch.num_rows or not is_sorted(rows):
            batch = batch.take(rows)
        kinds = np.where(had, AFTER, INSERT) if had is not None and had.any() else None
        schema = self.ctx.output_schema
        return batch.with_columns(schema, typed(schema, batch.columns)).with_kinds(kinds)

    def _best(self, batch: Batch, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(row number of the batch's best row of each key, its event time in µs or 0 by arrival)."""
        first = self.spec.keep == "first"
        if self.spec.time is None:
            rows = first_of_each(slots) if first else last_of_each(slots)
            return rows, np.zeros(len(rows), np.int64)
        times = event_times(batch, self.spec.time, self.ctx)
        # Of rows with equal times, the first to arrive is "first" and the last to arrive is "last".
        if is_sorted(times):
            rows = first_of_each(slots) if first else last_of_each(slots)
            return rows, times[rows]
        order = stable_argsort_by(slots, times)
        bounds = group_bounds(slots[order])
        rows = np.sort(order[bounds[:-1]] if first else order[bounds[1:] - 1])
        return rows, times[rows]

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        if watermark <= self._watermark:
            return
        self._watermark = watermark
        windows = self._windows
        if windows is None or not windows.any_due(watermark):
            return
        schema = self.ctx.output_schema
        due = windows.due(watermark)
        for part in pieces(due, windows.tier.piece_keys):
            yield Batch(schema, typed(schema, self._rows.read(part)[:-1]), num_rows=len(part))
        windows.free(due)
        for piece in windows.due_on_disk(watermark):
            yield Batch(schema, typed(schema, piece.tables[0].columns[:-1]), num_rows=len(piece))
        windows.passed()

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return self._cut(watermark_state(self._watermark) if self.spec.window else None)


class _KeptRows(CellTable):
    """The state per key: the whole row, its time, both, or only the key."""

    def __init__(
        self, space: KeySpace, schema: Schema, times: Sequence[NumberCells], *, with_rows: bool
    ) -> None:
        names = [f"{i}.{name}" for i, name in enumerate(schema.names)]
        rows = [RowCells(names, schema.types)] if with_rows else []
        super().__init__(space, "rows", [*rows, *times])
        self._schema, self._first_name, self._keeps_rows = schema, names[0], with_rows

    def parsed(self, blocks: Sequence[pa.RecordBatch]) -> Parsed:
        # The query may have changed since the snapshot. Stored rows that it no longer needs are ignored; rows
        # that it now needs but the snapshot lacks are an error.
        stored = {self._first_name in block.schema.names for block in blocks if block.num_rows}
        if self._keeps_rows and False in stored:
            raise SpecError(
                "the snapshot holds no rows to retract",
                expected="the whole last row of each key, as the query now needs rows before an update",
                got="keys and times only: the query that wrote it gave updates without them",
                where=self.space.ctx.name,
                remedy="keep a sink that takes updates by key, or start without this operator's state",
            )
        if self._keeps_rows or True not in stored:
            return super().parsed(blocks)
        key_types, row_types = self.space.stored_types, self._schema.types
        columns, n = restored_columns(blocks, [*key_types, *row_types, *self.types])
        k = len(key_types)
        return self.space.of_stored(columns[:k]), columns[k + len(row_types) :], n


def _nulls(types: Sequence[t.LogicalType], n: int) -> list[Column]:
    return [Column.nulls(x, n) for x in types]
