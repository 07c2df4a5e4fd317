"""Async scalar functions: one coroutine per row, or one per batch; many run at a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.config import ASYNC_OPERATIONS, ASYNC_TIMEOUT_MS
from penstock.errors import FunctionError
from penstock.functions.evaluate import compile_expr
from penstock.functions.python_calls import call_failed, python_values, result_column, user_callable
from penstock.functions.vector import as_column
from penstock.operators.asking import AskingOperator, Failed, each
from penstock.operators.changes import typed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.functions.expr import PythonCall
    from penstock.jobgraph.specs import AsyncCalcSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState
    from penstock.types.batch import Batch
    from penstock.types.column import Column


class AsyncCalcOperator(AskingOperator):
    """Calls async functions for the rows of a batch. Rows keep their order: a batch is emitted when all its
    results exist."""

    def __init__(self, spec: AsyncCalcSpec) -> None:
        self._spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        self._calls = [
            (
                call,
                user_callable(call, ctx.function),
                [compile_expr(a, ctx.function, ctx.input_schemas[0]) for a in call.args],
            )
            for call in self._spec.calls
        ]
        self._at_once = ASYNC_OPERATIONS.read(ctx.config)
        self._timeout_s = ASYNC_TIMEOUT_MS.read(ctx.config) / 1000

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        n = batch.num_rows
        questions, given = [], []
        for call, function, args in self._calls:
            values = [arg(batch) for arg in args]
            if call.per == "batch":
                rows = [tuple(as_column(v, n).to_external_arrow() for v in values)]
            else:
                rows = list(zip(*(python_values(v, n) for v in values), strict=True)) if values else [()] * n
            questions.append(each(function, rows, at_once=self._at_once, timeout_s=self._timeout_s))
            given.append(rows)
        answers = yield from self.ask(_all(questions))
        failures = self._failures(answers, given, n)
        columns = self._columns(answers, given, failures, n)
        for row, error in failures.items():
            self._set_aside(error, batch, row)
        kept = _others(failures, n)
        if not len(kept):
            return
        rows_kept = batch if len(kept) == n else batch.take(kept)
        schema = self.ctx.output_schema
        yield rows_kept.with_columns(schema, typed(schema, [*rows_kept.columns, *columns]))

    def _failures(
        self, answers: list[list[Any]], given: list[list[tuple[Any, ...]]], n: int
    ) -> dict[int, FunctionError]:
        """The first error of each row that has one. An error of a call per batch is an error of all its rows."""
        out: dict[int, FunctionError] = {}
        for (call, _, _), answer, rows in zip(self._calls, answers, given, strict=True):
            for i, value in enumerate(answer):
                if isinstance(value, Failed):
                    batch_call = call.per == "batch"
                    error = self._error(call, value.error, None if batch_call else rows[i], n)
                    for row in range(n) if batch_call else (i,):
                        out.setdefault(row, error)
        return out

    def _columns(
        self,
        answers: list[list[Any]],
        given: list[list[tuple[Any, ...]]],
        failures: dict[int, FunctionError],
        n: int,
    ) -> list[Column]:
        """The result columns of the rows without a failure.

        Unless the policy is "fail", a row whose result does not fit its type is added to ``failures``.
        """
        while len(kept := _others(failures, n)):
            try:
                return [
                    _column(call, answer, rows, kept, n)
                    for (call, _, _), answer, rows in zip(self._calls, answers, given, strict=True)
                ]
            except FunctionError:
                if self._spec.on_error == "fail" or not (found := self._misfits(answers, given, kept, n)):
                    raise
                failures.update(found)
        return []

    def _misfits(
        self, answers: list[list[Any]], given: list[list[tuple[Any, ...]]], kept: np.ndarray, n: int
    ) -> dict[int, FunctionError]:
        """The first error of each row whose result does not fit. A call per batch makes it an error of all its rows."""
        out: dict[int, FunctionError] = {}
        for (call, _, _), answer, rows in zip(self._calls, answers, given, strict=True):
            for part in [kept] if call.per == "batch" else kept.reshape(-1, 1):
                try:
                    _column(call, answer, rows, part, n)
                except FunctionError as error:
                    for row in part.tolist():
                        out.setdefault(row, error)
        return out

    def _error(
        self, call: PythonCall, error: Exception, record: tuple[Any, ...] | None, n: int
    ) -> FunctionError:
        if isinstance(error, FunctionError):
            return error
        return call_failed(call, error, record, None if record is not None else f"it was given {n} rows")

    def _set_aside(self, error: FunctionError, batch: Batch, row: int) -> None:
        """Apply the policy to a row that failed: raise the error, or count the row and report it."""
        if self._spec.on_error == "fail":
            raise error
        self.ctx.metrics.inc("numRecordsInErrors")
        if self.ctx.report_error is not None:
            self.ctx.report_error(error, batch.slice(row, 1).to_pylist()[0])


def _others(failures: dict[int, FunctionError], n: int) -> np.ndarray:
    return np.setdiff1d(np.arange(n), list(failures))


def _column(
    call: PythonCall, answer: list[Any], rows: list[tuple[Any, ...]], kept: np.ndarray, n: int
) -> Column:
    """The results of one call for the rows ``kept`` of ``n`` rows, as a column."""
    if call.per == "batch":
        arrays = rows[0]
        column = result_column(call, answer[0], n, lambda row: tuple(a[row].as_py() for a in arrays))
        return column.take(kept) if len(kept) < n else column
    places = kept.tolist()
    return result_column(call, [answer[i] for i in places], len(places), lambda row: rows[places[row]])


async def _all(questions: list[Any]) -> list[list[Any]]:
    return list(await asyncio.gather(*questions))
