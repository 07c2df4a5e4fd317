"""OVER at the end of a bounded input: any order and frame, ranks, shifts and aggregates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.accumulators import CellAccumulator
from penstock.columnar.frames import Layout, running
from penstock.columnar.key_index import KeyIndex
from penstock.columnar.sorting import sort_indices
from penstock.operators.changes import typed
from penstock.operators.emitting import batch_pieces
from penstock.operators.joining import bounded_slices, take_all
from penstock.operators.operator import Operator
from penstock.state.aggregates import AggregateSet
from penstock.state.ranked_rows import Gathered, cancelled
from penstock.state.waiting_order import by_hash
from penstock.state.waiting_rows import WaitingRows
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.functions.expr import AggregateCall
    from penstock.jobgraph.specs import OverFinalSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState
    from penstock.types.batch import Batch

_PLACES = {"ROW_NUMBER", "RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST", "NTILE"}
_SHIFTS = {"LAG", "LEAD"}
#: The number of rows in frames that are aggregated at a time.
_PAIRS = 262_144


class OverFinalOperator(Operator):
    """Keeps all rows, retractions included, until the input ends; then emits each row with its results."""

    def __init__(self, spec: OverFinalSpec) -> None:
        self.spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        self._schema = ctx.input_schemas[0]
        partition = self.spec.partition
        self._rows = self.keep(
            WaitingRows(
                ctx, "rows", self._schema, partition, by_hash(partition), kind="over", spills=bool(partition)
            )
        )
        self._rows.restore(restored)

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        self._rows.add(batch)
        return iter(())

    def _standing(self, rows: Batch) -> Batch:
        """The rows that were not retracted."""
        signs, rows = rows.signs(), rows.with_kinds(None)
        if signs is None or not (signs < 0).any():
            return rows
        all_of_them = np.zeros(rows.num_rows, np.int64)
        stands, unmatched = cancelled(Gathered(all_of_them, all_of_them, list(rows.columns)), signs, None)
        if unmatched:
            self.ctx.metrics.inc("numUnmatchedRetractions", unmatched)
        return rows.filter(stands)

    def finish(self) -> Iterator[Output]:
        for rows in self._rows.due():
            yield from self._results(self._standing(rows))

    def _results(self, rows: Batch) -> Iterator[Output]:
        """The output for rows of whole partitions."""
        if not rows.num_rows:
            return
        types = self._schema.types
        keys = KeyIndex([types[i] for i in self.spec.partition])
        slots, _ = keys.upsert([rows.columns[i] for i in self.spec.partition], rows.num_rows)
        order = sort_indices(rows.columns, self.spec.order, first=slots)
        rows, slots = rows.take(order), slots[order]
        layout = Layout.of(rows.columns, self.spec.order, slots)
        results = [self._result(call, layout, rows) for call in self.spec.aggregates]
        schema = self.ctx.output_schema
        yield from batch_pieces(rows.with_columns(schema, typed(schema, [*rows.columns, *results])))

    def _result(self, call: AggregateCall, layout: Layout, rows: Batch) -> Column:
        if call.function in _PLACES:
            buckets = call.constants[:1]
            return Column(call.type, getattr(layout, call.function.lower())(*buckets))
        if call.function in _SHIFTS:
            return _shifted(call, layout, rows)
        start, end = self._frame(layout, rows)
        return self._aggregate(call, rows, layout, start, end)

    def _frame(self, layout: Layout, rows: Batch) -> tuple[np.ndarray, np.ndarray]:
        spec = self.spec
        if spec.frame == "rows":
            return layout.rows_frame(spec.preceding, spec.following)
        key = spec.order[0] if spec.order else None
        column = rows.columns[key.index] if key is not None else None
        return layout.range_frame(spec.preceding, spec.following, column, key)

    def _aggregate(
        self, call: AggregateCall, rows: Batch, layout: Layout, start: np.ndarray, end: np.ndarray
    ) -> Column:
        from_low, to_high = (start == layout.low).all(), (end == layout.high).all()
        if from_low or to_high:
            state = AggregateSet([call], self._schema.types, function=self.ctx.function)
            if isinstance(state.accumulators[0], CellAccumulator):
                return self._running(state, rows, layout, start, end, backwards=not from_low)
        # Equal frames (whole partitions, the peers of one value) are aggregated once.
        again = np.zeros(len(layout), np.bool_)
        again[1:] = (start[1:] == start[:-1]) & (end[1:] == end[:-1])
        distinct = np.flatnonzero(~again)
        frame_of = np.cumsum(~again) - 1
        if from_low:
            return self._prefixes(call, rows, layout, end, distinct).take(frame_of)
        start, end = start[distinct], end[distinct]
        parts: list[Column] = []
        counts = end - start
        for part in bounded_slices(np.maximum(counts, 1), limit=_PAIRS):
            length = counts[part]
            shift = np.cumsum(length) - length
            inputs = np.arange(int(length.sum())) + np.repeat(start[part] - shift, length)
            targets = np.repeat(np.arange(len(length)), length)
            parts.append(self._added(call, take_all(rows.columns, inputs), targets, len(length)))
        return Column.concat(parts).take(frame_of)

    def _running(
        self,
        state: AggregateSet,
        rows: Batch,
        layout: Layout,
        start: np.ndarray,
        end: np.ndarray,
        *,
        backwards: bool,
    ) -> Column:
        """Aggregates of frames that start or end with their partition, by a segmented scan from that edge."""
        n = len(layout)
        [accumulator] = state.accumulators
        assert isinstance(accumulator, CellAccumulator)
        columns, groups, at = list(rows.columns), layout.low, end - 1
        if backwards:
            columns, groups, at = take_all(columns, np.arange(n)[::-1]), layout.low[::-1], n - 1 - start
        state.reset(np.arange(n), n)
        state.add(np.arange(n), list(columns), None)
        longest = int((layout.high - layout.low).max())
        for i, ufunc in enumerate(accumulator.combine):
            accumulator.cells[i][:n] = running(ufunc, accumulator.cells[i][:n], groups, longest)
        empty = start == end
        [values] = state.results(np.where(empty, 0, at))
        if not empty.any():
            return values
        nothing = self._added(state.calls[0], (), np.empty(0, np.int64), 1)
        return Column.concat([values, nothing]).take(np.where(empty, n, np.arange(n)))

    def _prefixes(
        self, call: AggregateCall, rows: Batch, layout: Layout, end: np.ndarray, distinct: np.ndarray
    ) -> Column:
        """Aggregates of frames that start with their partition and have ascending ends.

        One running aggregate per partition is read whenever an end is reached.
        """
        state = AggregateSet([call], self._schema.types, function=self.ctx.function)
        first, last = layout.low[distinct], end[distinct]
        state.reset(np.arange(len(rows)), len(rows))
        done = first.copy()
        done[1:] = np.where(first[1:] == first[:-1], last[:-1], first[1:])
        parts: list[Column] = []
        # Round k adds the rows of the k-th frame of every partition and reads the results.
        opens = np.flatnonzero(np.append(True, first[1:] != first[:-1]))
        sizes = np.diff(np.append(opens, len(first)))
        round_of = np.arange(len(first)) - np.repeat(opens, sizes)
        sequence = np.argsort(round_of, kind="stable")
        bounds = np.searchsorted(round_of[sequence], np.arange(int(sizes.max(initial=0)) + 1))
        for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            chosen = sequence[low:high]
            length = last[chosen] - done[chosen]
            shift = np.cumsum(length) - length
            inputs = np.arange(int(length.sum())) + np.repeat(done[chosen] - shift, length)
            targets = np.repeat(first[chosen], length)
            if len(inputs):
                state.add(targets, take_all(rows.columns, inputs), None)
            parts.append(state.results(first[chosen])[0])
        back = np.empty(len(first), np.int64)
        back[sequence] = np.arange(len(first))
        return Column.concat(parts).take(back)

    def _added(self, call: AggregateCall, columns: Sequence[Column], targets: np.ndarray, n: int) -> Column:
        state = AggregateSet([call], self._schema.types, function=self.ctx.function)
        state.reset(np.arange(n), n)
        if len(targets):
            state.add(targets, list(columns), None)
        return state.results(np.arange(n))[0]


def _shifted(call: AggregateCall, layout: Layout, rows: Batch) -> Column:
    """LAG and LEAD: the value the given number of rows (IGNORE NULLS: of values) before or after, else the default."""
    by = int(call.constants[0])
    argument = rows.columns[call.args[0]]
    at = layout.shifted(-by if call.function == "LAG" else by, argument.valid if call.ignore_nulls else None)
    values = argument.take_or_null(at)
    if len(call.args) == 1:
        return values
    default = rows.columns[call.args[1]].cast_type(values.type)
    both = Column.concat([values.cast_type(call.type), default.cast_type(call.type)])
    return both.take(np.where(at >= 0, np.arange(len(at)), len(at) + np.arange(len(at))))
