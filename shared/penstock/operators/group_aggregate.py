"""Aggregation without windows: one updating row per key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.grouping import group_rows
from penstock.errors import InternalError, UnsupportedError
from penstock.operators.changes import change_batch, typed
from penstock.operators.emitting import pieces
from penstock.operators.joining import take_all
from penstock.operators.operator import Operator
from penstock.state.aggregates import AggregateSet
from penstock.state.cells import NumberCells
from penstock.state.key_space import KeySpace
from penstock.state.slot_table import aggregate_cells
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph.specs import GroupAggregateSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState
    from penstock.state.slot_table import CellsCompared

_LONG = t.BigIntType(False)


def make_group_aggregate(spec: GroupAggregateSpec) -> Operator:
    """The operator of a ``GroupAggregateSpec``: ``LocalGroupAggregateOperator`` or ``KeyedAggregateOperator``,
    by its phase."""
    return LocalGroupAggregateOperator(spec) if spec.phase == "local" else KeyedAggregateOperator(spec)


class KeyedAggregateOperator(Operator):
    """The phases ``single`` and ``global``.

    A batch changes each of its keys once: the operator emits the difference between the key's row before and after the
    batch. If the input retracts, a key that has no rows left is deleted (−D) and its state is freed.
    """

    def __init__(self, spec: GroupAggregateSpec) -> None:
        self.spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        spec, schema = self.spec, ctx.input_schemas[0]
        # The results of a bounded input are emitted at its end, all keys at once, so the keys stay in memory.
        self._keys = self.keep(
            KeySpace(
                ctx, [schema.types[i] for i in spec.keys], kind="group-aggregate", ttl_ms=spec.ttl_ms,
                evicts=not spec.bounded_final,
            )
        )  # fmt: skip
        types = list(spec.local_types) if spec.phase == "global" else schema.types
        self._aggregates = AggregateSet(spec.aggregates, types, retracts=spec.retracts, function=ctx.function)
        #: The number of input rows of each key that were not retracted; used only if the input retracts.
        self._rows = NumberCells("rows", _LONG)
        self._cells = aggregate_cells(self._keys, self._aggregates, self._rows)
        self._keys.restore(restored)

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        spec, out = self.spec, list[Batch]()
        signs = self._signs(batch)
        with self._cells.compare([batch.columns[i] for i in spec.keys], batch.num_rows) as cells:
            old = None if spec.bounded_final else self._aggregates.results(cells.touched)
            self._add(cells.slots, batch, signs)
            if spec.retracts:
                has = self._rows.values[cells.touched] > 0
            else:
                has = np.ones(len(cells.touched), np.bool_)
            if old is not None:
                out = self._changes(cells, old, has)
            if not has.all():
                unmatched = int((~has & ~cells.had).sum())
                if unmatched:
                    self.ctx.metrics.inc("numUnmatchedRetractions", unmatched)
                cells.free(cells.touched[~has])
        yield from out

    def _add(self, slots: np.ndarray, batch: Batch, signs: np.ndarray | None) -> None:
        """Add rows, or the partial results of a local phase, to the cells of their keys."""
        retracts = self.spec.retracts
        if self.spec.phase == "global":
            at = len(self.spec.keys)
            width = len(self._aggregates.partial_types)
            self._aggregates.merge(slots, batch.columns[at : at + width])
            if retracts:
                np.add.at(self._rows.values, slots, batch.columns[at + width].values)
        else:
            self._aggregates.add(slots, batch.columns, signs)
            if retracts:
                np.add.at(self._rows.values, slots, 1 if signs is None else signs.astype(np.int64))

    def _changes(self, cells: CellsCompared, old: list[Column], has: np.ndarray) -> list[Batch]:
        """The changes of this batch. ``old``: results before it; ``has``: mask of the keys that have rows after it."""
        out, touched = [], cells.touched
        for part in pieces(np.arange(len(touched))):
            whole = len(part) == len(touched)
            changed = change_batch(
                self.ctx.output_schema,
                self._row(touched[part], old if whole else [c.take(part) for c in old]),
                self._row(touched[part], self._aggregates.results(touched[part])),
                cells.had[part],
                has[part],
                emit_before=self.spec.emit_before,
            )
            if changed is not None:
                out.append(changed)
        return out

    def _signs(self, batch: Batch) -> np.ndarray | None:
        signs = batch.signs()
        if signs is None or (signs > 0).all():
            return None
        if not self.spec.retracts:
            raise InternalError(
                "a retraction reached an aggregation that was planned for an append-only input",
                expected="rows of kind +I or +U",
                got="−U or −D",
                where=self.ctx.name,
                remedy="this is a fault of the planner: report the query",
            )
        return signs

    def _row(self, slots: np.ndarray, results: list[Column]) -> list[Column]:
        return [*self._keys.keys(slots), *results]

    def finish(self) -> Iterator[Output]:
        if not self.spec.bounded_final:
            return
        if not self.spec.keys and not len(self._keys):
            # In SQL the aggregate of an empty input is one row. Only one subtask owns the global key.
            if self.ctx.key_groups[0] > 0 or self.ctx.key_groups[1] < 0:
                return
            with self._cells.touch([], 1):
                pass
        slots = self._keys.slots()
        for part in pieces(slots):
            columns = typed(self.ctx.output_schema, self._row(part, self._aggregates.results(part)))
            yield Batch(self.ctx.output_schema, columns, num_rows=len(part))


class LocalGroupAggregateOperator(Operator):
    """The phase ``local``: turns each batch into partial accumulators per key. It has no state.

    Output: keys, accumulator columns, and if the input retracts a BIGINT with the net number of rows.
    """

    def __init__(self, spec: GroupAggregateSpec) -> None:
        self.spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        schema = ctx.input_schemas[0]
        self._key_types = [schema.types[i] for i in self.spec.keys]
        self._aggregates = AggregateSet(
            self.spec.aggregates, schema.types, retracts=self.spec.retracts, function=ctx.function
        )
        if not self._aggregates.columnar:
            raise UnsupportedError(
                "these aggregates cannot be split in a local and a global phase",
                expected="aggregates for which functions.accumulators.accumulator_types is not None",
                got=", ".join(c.function for c in self.spec.aggregates),
                where=ctx.name,
                remedy="plan this aggregation in a single phase",
            )

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        keys = [batch.columns[i] for i in self.spec.keys]
        slots, rows = group_rows(keys, batch.num_rows)
        out = np.arange(len(rows))
        self._aggregates.reset(out, len(rows))
        signs = batch.signs()
        self._aggregates.add(slots, batch.columns, signs)
        columns = [*take_all(keys, rows), *self._aggregates.partials(out)]
        if self.spec.retracts:
            weights = None if signs is None else signs.astype(np.float64)
            counts = np.bincount(slots, weights, minlength=len(rows)).astype(np.int64)
            columns.append(Column(_LONG, counts))
        columns = typed(self.ctx.output_schema, columns)
        yield Batch(self.ctx.output_schema, columns, num_rows=len(rows))
