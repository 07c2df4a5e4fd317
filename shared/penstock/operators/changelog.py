"""Changelog operators: an upsert stream becomes a full changelog; a keyed sink's input gets its order back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.grouping import distinct
from penstock.columnar.sorting import group_bounds, last_of_each, position_in_group, stable_argsort
from penstock.operators.changes import change_batch
from penstock.operators.emitting import batch_pieces
from penstock.operators.operator import Operator
from penstock.state.cells import RowCells
from penstock.state.key_space import KeySpace
from penstock.state.ranked_rows import Gathered, RankedRows, cancelled
from penstock.state.slot_table import CellTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph.specs import MaterializeSpec, NormalizeSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState
    from penstock.types.batch import Batch


class NormalizeOperator(Operator):
    """Turns an upsert changelog (+I, +U, −D by key) into a changelog of whole rows, with −U if ``emit_before``.

    It drops a −D of an unknown key, and a row that equals the stored row. An emitted −D has the columns of the
    stored row, even if the input has only its key.
    """

    def __init__(self, spec: NormalizeSpec) -> None:
        self.spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        spec, schema = self.spec, ctx.input_schemas[0]
        self._keys = self.keep(
            KeySpace(ctx, [schema.types[i] for i in spec.keys], kind="normalize", ttl_ms=spec.ttl_ms)
        )
        rows = RowCells([f"{i}.{name}" for i, name in enumerate(schema.names)], schema.types)
        self._rows = CellTable(self._keys, "rows", [rows])
        self._keys.restore(restored)

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        with self._keys.touch([batch.columns[i] for i in self.spec.keys], batch.num_rows) as keys:
            rows = last_of_each(keys.slots)
            targets = keys.slots[rows]
            fresh = np.zeros(self._keys.high, np.bool_)
            fresh[keys.new] = True
            signs = batch.signs()
            had = ~fresh[targets]
            has = np.ones(len(rows), np.bool_) if signs is None else signs[rows] > 0
            old = self._rows.read(targets)
            come = [c.take(rows) for c in batch.columns]
            out = change_batch(self.ctx.output_schema, old, come, had, has, emit_before=self.spec.emit_before)
            self._rows.put(targets[has], [c.filter(has) for c in come])
            keys.free(targets[~has])
        if out is not None:
            yield from batch_pieces(out)


class MaterializeOperator(Operator):
    """The upsert materialiser: keeps all rows of a key in order of arrival; the last one is the key's value.

    It emits +I, +U and −D by key, so that a late −U of an older row cannot delete a newer row in the sink.
    """

    def __init__(self, spec: MaterializeSpec) -> None:
        self.spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        spec, schema = self.spec, ctx.input_schemas[0]
        self._keys = self.keep(
            KeySpace(ctx, [schema.types[i] for i in spec.keys], kind="materialize", ttl_ms=spec.ttl_ms)
        )
        self._rows = RankedRows(self._keys, "rows", schema, spec.keys)
        self._keys.restore(restored)
        ctx.metrics.gauge("numRowsInState", lambda: len(self._rows))

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        with self._keys.touch([batch.columns[i] for i in self.spec.keys], batch.num_rows) as keys:
            slots = keys.slots
            touched = distinct(slots)
            rows = self._rows.gather(touched, slots, batch.columns)
            signs = np.ones(len(rows.entries), np.int8)
            given = batch.signs()
            if given is not None:
                signs[rows.entries < 0] = given[stable_argsort(slots)]
            stands, unmatched = cancelled(rows, signs, None, newest_first=True)
            if unmatched:
                self.ctx.metrics.inc("numUnmatchedRetractions", unmatched)
            old = self._last(rows.partitions, rows.entries >= 0, touched)
            new = self._last(rows.partitions, stands, touched)
            out = change_batch(
                self.ctx.output_schema,
                [c.take_or_null(old) for c in rows.columns],
                [c.take_or_null(new) for c in rows.columns],
                old >= 0,
                new >= 0,
                emit_before=False,
            )
            self._store(rows, stands)
            keys.free(touched[new < 0])
        if out is not None:
            yield from batch_pieces(out)

    def _store(self, rows: Gathered, stands: np.ndarray) -> None:
        """Store the rows that were not retracted, each at its position in its key's order."""
        kept = np.flatnonzero(stands)
        places = position_in_group(rows.partitions[kept])
        self._rows.remove(rows.entries[(rows.entries >= 0) & ~stands])
        stored = rows.entries[kept] >= 0
        self._rows.move(rows.entries[kept[stored]], places[stored])
        fresh = kept[~stored]
        self._rows.add(rows.partitions[fresh], [c.take(fresh) for c in rows.columns], places[~stored])

    def _last(self, partitions: np.ndarray, mask: np.ndarray, touched: np.ndarray) -> np.ndarray:
        """The number of the last row of each touched partition among the rows in ``mask``; -1 if there is none."""
        rows = np.flatnonzero(mask)
        out = np.full(len(touched), -1)
        if len(rows):
            last = rows[group_bounds(partitions[rows])[1:] - 1]
            out[np.searchsorted(touched, partitions[last])] = last
        return out
