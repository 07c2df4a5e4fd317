"""Stateless operators: filter and project, union, grouping-set expansion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.functions.expr import InputRef
from penstock.functions.watermark import set_watermark
from penstock.operators.bad_rows import leaving_out
from penstock.operators.operator import Operator
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.functions.expr import Expr
    from penstock.jobgraph.specs import CalcSpec, ExpandSpec, UnionSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState
    from penstock.types.column import Column
    from penstock.types.logical import Schema


def compile_projections(exprs: Sequence[Expr], ctx: OperatorContext) -> Callable[[Batch], list[Column]]:
    """A function from a batch to one column per expression. A column reference gives the batch's own column."""
    if all(isinstance(e, InputRef) for e in exprs):
        indices = [e.index for e in exprs if isinstance(e, InputRef)]
        return lambda batch: [batch.columns[i] for i in indices]
    from penstock.functions.evaluate import compile_projection

    return compile_projection(exprs, ctx.function, ctx.input_schemas[0])


def compile_condition(
    expr: Expr | None, ctx: OperatorContext, schema: Schema | None = None
) -> Callable[[Batch], np.ndarray] | None:
    """A function from a batch to a boolean mask (NULL counts as FALSE); None if there is no condition.

    ``schema``: the batch's columns, which errors of rows name.
    """
    if expr is None:
        return None
    from penstock.functions.evaluate import compile_predicate

    return compile_predicate(expr, ctx.function, schema)


class CalcOperator(Operator):
    """Filters by the condition, then projects. Row kinds and event times do not change."""

    def __init__(self, spec: CalcSpec) -> None:
        self.spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        self._condition = compile_condition(self.spec.condition, ctx, ctx.input_schemas[0])
        self._projections: Callable[[Batch], list[Column]] | None = None
        if self.spec.projections is not None:
            self._projections = compile_projections(self.spec.projections, ctx)
            # A filter copies every column that it keeps, so only the columns that a projection reads are copied.
            self._needed = _needed_columns(self.spec.projections)
        self._run = leaving_out(ctx, self.spec.on_error, self._apply)
        #: µs; None before the first.
        self._watermark: int | None = None

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        self._watermark = watermark
        return iter(())

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        return self._run(batch)

    def _apply(self, batch: Batch) -> Iterator[Batch]:
        set_watermark(self._watermark)
        if self._condition is not None:
            mask = self._condition(batch)
            if not mask.all():
                kept = np.flatnonzero(mask)
                if not len(kept):
                    return
                batch = batch.take(kept) if self._projections is None else self._take(batch, kept)
        if self._projections is None:
            yield batch.with_columns(self.ctx.output_schema, batch.columns)
            return
        yield _project(batch, self.ctx, self._projections)

    def _take(self, batch: Batch, rows: np.ndarray) -> Batch:
        """The given rows. Columns that no projection reads are not copied; their contents are not used."""
        columns: list[Column] = [
            c.take(rows) if i in self._needed else c for i, c in enumerate(batch.columns)
        ]
        return Batch(
            batch.schema,
            columns,
            kinds=None if batch.kinds is None else batch.kinds[rows],
            times=None if batch.times is None else batch.times[rows],
            num_rows=len(rows),
        )


class UnionOperator(Operator):
    """Emits all rows of all inputs under the output's column names."""

    def __init__(self, spec: UnionSpec) -> None:
        self.spec = spec

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        yield batch.with_columns(self.ctx.output_schema, batch.columns)


class ExpandOperator(Operator):
    """GROUPING SETS: emits the batch once for each list of projections."""

    def __init__(self, spec: ExpandSpec) -> None:
        self.spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        self._lists = [compile_projections(row, ctx) for row in self.spec.projections]

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        for projections in self._lists:
            yield _project(batch, self.ctx, projections)


def _project(batch: Batch, ctx: OperatorContext, projections: Callable[[Batch], list[Column]]) -> Batch:
    columns = []
    for field, column in zip(ctx.output_schema.fields, projections(batch), strict=True):
        columns.append(column if column.type == field.type else column.cast_type(field.type))
    return batch.with_columns(ctx.output_schema, columns)


def _needed_columns(projections: Sequence[Expr]) -> set[int]:
    from penstock.functions.expr import input_refs

    return set().union(*(input_refs(e) for e in projections)) if projections else set()
