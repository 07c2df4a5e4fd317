"""map, flat_map and filter by a user's function, per record or per Arrow batch.

Per record, all columns are converted to tuples at once, and all results to columns at once, so that a record
costs little more than the call. A batch function takes and returns Arrow (an array for a stream of values, a
record batch for a stream of rows).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.columnar.emitted import fixer
from penstock.columnar.python_values import check_finished, columns_of, from_python, is_bare, records, redact
from penstock.errors import FunctionError, InternalError, UnsupportedError
from penstock.functions.python_results import result_of
from penstock.halving import by_halves, first_failing
from penstock.operators.operator import Operator
from penstock.operators.operator_state import FunctionState
from penstock.operators.process_context import MIN_LONG
from penstock.operators.user_code import RuntimeContext, UserFunction
from penstock.snapshots.contract import OperatorSnapshot
from penstock.types import Batch
from penstock.types.column import Column
from penstock.types.logical import BooleanType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph.specs import PythonSpec, RecordTimeSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState
    from penstock.types import Schema

    #: Input rows, and the result of each.
    _Part = tuple[Batch, list[Any]]

#: The most rows of an output batch of ``flat_map``.
OUTPUT_ROWS = 16_384
_BOOLEAN = BooleanType()


class PythonOperator(Operator):
    """Runs a user's map, flat_map or filter function."""

    def __init__(self, spec: PythonSpec) -> None:
        if spec.blocking:
            raise UnsupportedError(
                "blocking functions are not supported yet",
                expected="blocking = false",
                remedy="do the blocking call outside the stream, or keep it short",
            )
        self._spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        spec = self._spec
        self._function = self.hold(UserFunction(ctx, spec.function, spec.on_error))
        self._call = self._function.method(spec.kind)
        if spec.kind != "filter" and (fixed := fixer(ctx.output_schema)) is not None:
            call = self._call
            if spec.kind == "map":
                self._call = lambda row: fixed(call(row))
            else:
                self._call = lambda row: map(fixed, call(row) or ())
        runtime = RuntimeContext(ctx)
        self._state = FunctionState(self._function, ctx, restored, runtime)
        self._function.open(runtime)
        run = {"map": self._map, "filter": self._filter, "flat_map": self._flat_map}[spec.kind]
        self._run = self._per_batch if spec.per == "batch" else run

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        return self._run(batch)

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        lists, unions = self._state.snapshot(checkpoint_id)
        return OperatorSnapshot(lists=lists, unions=unions)

    def on_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._state.completed(checkpoint_id)

    def on_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._state.aborted(checkpoint_id)

    # -- per record ---------------------------------------------------------------------

    def _results(self, rows: list[Any]) -> tuple[list[Any], list[int]]:
        """(one result per row that did not fail, the indices of the rows that failed)."""
        out: list[Any] = []
        failed: list[int] = []
        call, n = self._call, len(rows)
        while (at := len(out) + len(failed)) < n:
            try:
                # ``out`` keeps the results that were computed before an exception.
                out.extend(map(call, rows[at:] if at else rows))
                if len(out) + len(failed) < n:
                    raise StopIteration("raised by the function")
            except Exception as err:
                at = len(out) + len(failed)
                self._function.failed(err, rows[at], self._spec.kind)
                failed.append(at)
        return out, failed

    def _map(self, batch: Batch) -> Iterator[Output]:
        out, failed = self._results(records(batch))
        if failed:
            batch = batch.take(np.delete(np.arange(batch.num_rows), failed))
        if out:
            yield from self._fitting(batch, out)

    def _fitting(self, batch: Batch, out: list[Any]) -> Iterator[Output]:
        """The results as columns. A result that does not fit the type is an error of its record."""
        schema = self.ctx.output_schema

        def fitting(part: _Part) -> Batch:
            return part[0].with_columns(schema, columns_of(schema, part[1], self._function.where))

        if self._spec.on_error == "fail":
            yield fitting((batch, out))
        else:
            refused = self._refused_result
            yield from by_halves((batch, out), fitting, refused, halves=_halves, errors=FunctionError)

    def _refused_result(self, row: _Part, err: Exception) -> None:
        self._refused_row(row[0], err)

    def _filter(self, batch: Batch) -> Iterator[Output]:
        out, failed = self._results(records(batch))
        check_finished(out, self._function.where)
        keep = np.fromiter(map(bool, out), np.bool_, len(out))
        if failed:
            batch = batch.take(np.delete(np.arange(batch.num_rows), failed))
        kept = batch.filter(keep)
        if kept.num_rows:
            yield kept

    def _flat_map(self, batch: Batch) -> Iterator[Output]:
        items: list[Any] = []
        parents: list[int] = []
        call = self._call
        for i, row in enumerate(records(batch)):
            before = len(items)
            try:
                result = call(row)
                if result is not None:
                    items.extend(result)
            except Exception as err:
                del items[before:]
                self._function.failed(err, row, "flat_map")
            if len(items) > before:
                parents.extend([i] * (len(items) - before))
            if len(items) >= OUTPUT_ROWS:
                yield from self._fitting(batch.take(np.array(parents)), items)
                items, parents = [], []
        if items:
            yield from self._fitting(batch.take(np.array(parents)), items)

    # -- per Arrow batch --------------------------------------------------------------------

    def _per_batch(self, batch: Batch) -> Iterator[Output]:
        if self._spec.on_error == "fail":
            try:
                out = self._call_batch(batch)
            except Exception as err:
                raise self._located(batch, err) from err
            if out.num_rows:
                yield out
            return
        for out in by_halves(batch, self._call_batch, self._refused_row, halves=Batch.halves):
            if out.num_rows:
                yield out

    def _refused_row(self, row: Batch, err: Exception) -> None:
        self._function.failed(err, records(row)[0], self._spec.kind)

    def _located(self, batch: Batch, err: Exception) -> BaseException:
        """The error, with the first row that fails by itself if there is one."""
        part, err = first_failing(batch, self._call_batch, err, halves=Batch.halves)
        # If rows fail only together, the error names none of them.
        record = records(part)[0] if part.num_rows == 1 else pa.nulls(part.num_rows)
        return self._as_function_error(err, record)

    def _as_function_error(self, err: Exception, record: Any) -> BaseException:
        return err if isinstance(err, FunctionError) else self._function.error(err, record, self._spec.kind)

    def _call_batch(self, batch: Batch) -> Batch:
        data = batch.columns[0].to_external_arrow() if is_bare(batch.schema) else batch.to_external_arrow()
        result = self._call(data)
        schema = self.ctx.output_schema
        if self._spec.kind == "filter":
            mask = _array(_BOOLEAN, result, self._function.where)
            self._check_length(len(mask), batch.num_rows)
            values = mask.values if mask.valid is None else mask.values & mask.valid
            return batch.filter(values)
        parents = None
        if isinstance(result, tuple) and len(result) == 2 and self._spec.kind == "flat_map":
            result, parents = result
        columns = batch_columns(schema, result, self._function.where)
        n = len(columns[0]) if columns else batch.num_rows
        if parents is not None:
            parents = np.asarray(parents, np.int64)
            self._check_length(len(parents), n)
            return batch.take(parents).with_columns(schema, columns)
        if self._spec.kind == "flat_map" and n != batch.num_rows:
            if batch.times is None and batch.kinds is None:
                return Batch(schema, columns, num_rows=n)
            raise FunctionError(
                "a flat_map per batch changed the number of rows of a stream with event time",
                expected="a tuple (record batch, index of each row's parent)",
                got=f"{n} rows for {batch.num_rows}",
                where=self._function.where,
            )
        self._check_length(n, batch.num_rows)
        return batch.with_columns(schema, columns)

    def _check_length(self, got: int, expected: int) -> None:
        if got != expected:
            raise FunctionError(
                "a batch function returned another number of rows",
                expected=str(expected),
                got=str(got),
                where=self._function.where,
                remedy="use flat_map when rows are added or dropped",
            )


def batch_columns(schema: Schema, result: Any, where: str) -> list[Column]:
    """The columns of a batch function's result.

    An array is a stream of values; a record batch, table, mapping or sequence of arrays is rows (by name if the
    names are the schema's).

    Raises:
        FunctionError: the result has another form, other columns or other types.
    """
    if is_bare(schema) and not isinstance(result, (pa.RecordBatch, pa.Table, dict)):
        return [_array(schema.fields[0].type, result, where)]
    if isinstance(result, (pa.RecordBatch, pa.Table)):
        parts = dict(zip(result.schema.names, result.columns, strict=True))
        arrays = list(result.columns)
    elif isinstance(result, dict):
        parts, arrays = result, list(result.values())
    elif isinstance(result, (list, tuple)):
        parts, arrays = {}, list(result)
    else:
        raise FunctionError(
            "a batch function returned neither a record batch nor arrays",
            expected=f"a pyarrow RecordBatch of {schema}",
            got=redact(result),
            where=where,
        )
    if set(parts) == set(schema.names):
        arrays = [parts[name] for name in schema.names]
    elif len(arrays) != len(schema):
        raise FunctionError(
            "a batch function returned other columns than declared",
            expected=str(schema),
            got=", ".join(map(str, parts)) or f"{len(arrays)} arrays",
            where=where,
        )
    return [
        _array(f.type, a, f"{where}, column '{f.name}'") for f, a in zip(schema.fields, arrays, strict=True)
    ]


def _array(type_: Any, values: Any, where: str) -> Column:
    try:
        if isinstance(values, np.ndarray):
            values = pa.array(values)
        if isinstance(values, (pa.Array, pa.ChunkedArray)):
            if pa.types.is_floating(values.type) or pa.types.is_nested(values.type):
                # Arrow alone would truncate the value.
                return result_of(type_, values)
            return Column.from_arrow(type_, values)
        return from_python(type_, list(values))
    except (pa.ArrowException, TypeError, ValueError, ArithmeticError) as err:
        raise FunctionError(
            "a batch function returned values of another type",
            expected=str(type_),
            got=f"{redact(values)}: {err}",
            where=where,
        ) from err


class RecordTimeOperator(Operator):
    """Copies event times between the records' hidden time and a column, as ``RecordTimeSpec`` says."""

    def __init__(self, spec: RecordTimeSpec) -> None:
        self._spec = spec

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        self._function: UserFunction | None = None
        if self._spec.function is not None:
            self._function = self.hold(UserFunction(ctx, self._spec.function))
            self._extract = self._function.method("extract_timestamp")
            self._function.open(RuntimeContext(ctx))

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        match self._spec.kind:
            case "append":
                yield self._append(batch)
            case "assign":
                yield self._assign(batch)
            case "function":
                yield self._by_function(batch)

    def _append(self, batch: Batch) -> Batch:
        if batch.times is None or not batch.timed:
            raise UnsupportedError(
                "records without event time reach an event-time operation",
                expected="assign_timestamps_and_watermarks(…) with a timestamp assigner before it",
                got="records without timestamps",
                where=f"operator '{self.ctx.name}'",
            )
        schema = self.ctx.output_schema
        return batch.with_columns(schema, [*batch.columns, Column(schema.fields[-1].type, batch.times)])

    def _assign(self, batch: Batch) -> Batch:
        index = self._spec.column
        if index is None:
            raise InternalError("RecordTimeSpec 'assign' without a column")
        column = batch.columns[index]
        if column.valid is not None:
            row = int(np.flatnonzero(~column.valid)[0])
            raise FunctionError(
                f"NULL as event time in column '{batch.schema.names[index]}'",
                expected="a time in every record",
                got=f"record {redact(records(batch.slice(row, 1))[0])}",
                where=f"operator '{self.ctx.name}'",
                remedy="filter such records out before assign_timestamps_and_watermarks",
            )
        times = column.values.astype(np.int64, copy=False)
        if self._spec.unit_us != 1:
            times = times * self._spec.unit_us
        columns = batch.columns
        if self._spec.drop:
            columns = tuple(c for i, c in enumerate(columns) if i != index)
        return batch.with_columns(self.ctx.output_schema, columns).with_times(times)

    def _by_function(self, batch: Batch) -> Batch:
        assert self._function is not None
        rows = records(batch)
        before = [MIN_LONG if time is None else time // 1000 for time in batch.time_list()]
        times: list[int] = []
        try:
            times.extend(map(self._extract, rows, before))
            stamps = np.array(times, dtype=np.int64) if times else np.zeros(0, np.int64)
        except Exception as err:
            raise self._function.error(
                err, rows[min(len(times), len(rows) - 1)], "extract_timestamp"
            ) from err
        if len(stamps) != len(rows):
            raise self._function.error(
                StopIteration("raised by the function"), rows[len(times)], "extract_timestamp"
            )
        return batch.with_columns(self.ctx.output_schema, batch.columns).with_times(stamps * 1000)


def _halves(part: _Part) -> tuple[_Part, _Part] | None:
    batch, out = part
    if len(out) < 2:
        return None
    half = len(out) // 2
    return (batch.slice(0, half), out[:half]), (batch.slice(half), out[half:])
