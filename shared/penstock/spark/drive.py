"""Penstock's own operators over the rows of one Spark partition, on an executor.

An operator without an equivalent in Spark runs here: the operator of the streaming engine itself, so that the
result is the same. For an operator that uses event time, rows come sorted by it. Before each slice of rows
the watermark rises to just below the slice's first row, and at the end to ``MAX_WATERMARK``, so no row is
late. A changelog is compacted to the rows that remain.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import InternalError
from penstock.jobgraph.specs import KeyedProcessSpec
from penstock.metrics import MetricGroup
from penstock.operators.drivers import PausingOperator
from penstock.operators.factory import make_operator
from penstock.operators.keyed_process import KeyedProcessOperator
from penstock.operators.operator import MAX_WATERMARK, MIN_WATERMARK, Operator, OperatorContext, SideBatch
from penstock.snapshots.contract import RestoredState
from penstock.spark.compaction import compacted
from penstock.spark.errors import carried
from penstock.spark.partition_program import (
    LONG,
    MAX_PARALLELISM,
    Program,
    Step,
    load_job_functions,
    partition_index,
)
from penstock.spark.typemap import from_spark_array, spark_arrow_type, to_spark_array
from penstock.types.batch import KIND_SIGN, NO_TIME, Batch
from penstock.types.column import Column

#: ``__input`` of a row that is no input row and only keeps a partition from being empty.
MARKER = -1

Tagged = tuple[str | None, Batch]


def runner(program: Program) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Makes the function for ``mapInArrow`` that runs a program over a partition."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return carried(Driver(program).run(batches), program.steps[0].name)

    return run


class Driver:
    """Drives one program over one partition."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.operators: list[Operator] = []
        self._watermark = MIN_WATERMARK
        self._first_output: list[Batch] = []
        #: The loop in which operators await async functions and look-ups.
        self._loop = asyncio.new_event_loop()

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the operators over a partition's batches; yield the output."""
        with tempfile.TemporaryDirectory(prefix="penstock-spark-") as folder:
            self._open(Path(folder))
            try:
                for rows in batches:
                    if rows.num_rows:
                        yield from self._out(self._rows(rows))
                yield from self._out(self._finish())
            finally:
                self.close()

    def close(self) -> None:
        """Stop and close all operators."""
        for operator in self.operators:
            if isinstance(operator, PausingOperator):
                self._loop.run_until_complete(operator.stop())
            operator.close()
        self._loop.close()

    # -- life ----------------------------------------------------------------------------------

    def _open(self, folder: Path, restored: RestoredState | None = None) -> None:
        load = load_job_functions(self.program.job)
        index = partition_index()
        for number, step in enumerate(self.program.steps):
            operator = make_operator(step.spec)
            local = folder / str(number)
            local.mkdir()
            operator.open(self._context(step, index, local, load), None if number else restored)
            self.operators.append(operator)
            if isinstance(operator, PausingOperator):
                self._loop.run_until_complete(operator.start())

    def _context(self, step: Step, index: int, folder: Path, load: Callable[[str], Any]) -> OperatorContext:
        job = self.program.job
        return OperatorContext(
            job_id=job.job_name, job_name=job.job_name, vertex_id=step.uid, uid=step.uid, name=step.name,
            subtask_index=index, parallelism=index + 1, max_parallelism=MAX_PARALLELISM, attempt=1,
            input_schemas=step.inputs, output_schema=step.output, config=job.config, metrics=MetricGroup(reported=False),
            key_groups=(0, MAX_PARALLELISM - 1), local_dir=folder, now_ms=_now_ms, wake_at=_never,
            function=load, report_error=_report, run=_run_here, rows_in_order=True,
        )  # fmt: skip

    def _finish(self) -> Iterator[Tagged]:
        first = self.operators[0]
        for i in range(len(self.program.steps[0].inputs)):
            yield from self._through(0, first.end_input(i))
        yield from self._advance(MAX_WATERMARK)
        if self.program.compact is not None:
            self._first_output += [b for b in first.finish() if isinstance(b, Batch) and b.num_rows]
            yield from self._through(0, compacted(self._first_output, self.program.compact), settled=True)
        else:
            yield from self._through(0, first.finish())
        for i in range(1, len(self.operators)):
            yield from self._through(i, self.operators[i].finish())

    # -- rows ----------------------------------------------------------------------------------

    def _rows(self, rows: pa.RecordBatch) -> Iterator[Tagged]:
        inputs = self.program.steps[0].inputs
        at = sum(len(x) for x in inputs)
        which = order = None
        if len(inputs) > 1 or self.program.marked:
            which = np.asarray(rows.column(at))
            at += 1
        if self.program.ordered:
            order = from_spark_array(LONG, rows.column(at))
            at += 1
        times = _times(rows.column(at)) if self.program.timed else None
        for low, high in _runs(which, rows.num_rows):
            index = 0 if which is None else int(which[low])
            if index == MARKER:
                continue
            batch = self._batch(rows.slice(low, high - low), index, times, low, high)
            stamps = None if order is None else order.slice(low, high - low)
            for part, first in self._slices(index, batch, stamps):
                if first is not None and first - 1 > self._watermark:
                    yield from self._advance(first - 1)
                yield from self._through(0, self.operators[0].process(index, part))

    def _batch(
        self, rows: pa.RecordBatch, index: int, times: np.ndarray | None, low: int, high: int
    ) -> Batch:
        inputs = self.program.steps[0].inputs
        offset = sum(len(x) for x in inputs[:index])
        schema = inputs[index]
        columns = [from_spark_array(x, rows.column(offset + i)) for i, x in enumerate(schema.types)]
        return Batch(
            schema, columns, num_rows=rows.num_rows, times=None if times is None else times[low:high]
        )

    def _slices(self, index: int, batch: Batch, order: Column | None) -> Iterator[tuple[Batch, int | None]]:
        """Cuts a batch into slices. Yields each with the event time of its first row (None: no event
        time)."""
        if order is None:
            yield batch, None
            return
        unknown = 0 if order.valid is None else int((~order.valid).sum())  # NULLs are sorted to the front
        if unknown:
            yield batch.slice(0, unknown), None
        stamps = order.values
        if not self.program.exact_timers:
            if unknown < batch.num_rows:
                yield batch.slice(unknown), int(stamps[unknown])
            return
        at = unknown
        spec = self.program.steps[0].spec
        assert isinstance(spec, KeyedProcessSpec)
        keys = spec.keys[index] if index < len(spec.keys) else ()
        values = list(zip(*(batch.columns[k].storage_list() for k in keys), strict=True))
        while at < batch.num_rows:
            end = self._until(at, values, stamps)
            yield batch.slice(at, end - at), int(stamps[at])
            at = end

    def _until(self, at: int, keys: list[Any], stamps: np.ndarray) -> int:
        """The end of the slice that begins at ``at``. A slice has each key once, and no row after a pending
        timer."""
        n = len(stamps)
        # Timers before the first row do not count: they fire before the slice, when the watermark rises to
        # just below its first row.
        first = self.operators[0]
        assert isinstance(first, KeyedProcessOperator)
        pending = first.next_event_timer
        limit = None if pending is None or pending < stamps[at] else pending
        if not keys:
            return at + 1
        seen = {repr(keys[at])}
        end = at + 1
        while end < n and (limit is None or stamps[end] <= limit):
            key = repr(keys[end])
            if key in seen:
                break
            seen.add(key)
            end += 1
        return end

    # -- outputs -------------------------------------------------------------------------------

    def _advance(self, watermark: int) -> Iterator[Tagged]:
        self._watermark = watermark
        for i, operator in enumerate(self.operators):
            yield from self._through(i, operator.on_watermark(watermark))
            watermark = operator.output_watermark(watermark)

    def _through(self, index: int, outputs: Any, *, settled: bool = False) -> Iterator[Tagged]:
        """Passes the outputs of operator ``index`` through the operators after it."""
        last = index == len(self.operators) - 1
        for item in self._pulled(self.operators[index], outputs):
            if isinstance(item, SideBatch):
                if last and item.tag in self.program.tags:
                    yield item.tag, item.batch
            elif not item.num_rows:
                continue
            elif index == 0 and self.program.compact is not None and not settled:
                self._first_output.append(item)
            elif last:
                yield None, item
            else:
                yield from self._through(index + 1, self.operators[index + 1].process(0, item))

    def _pulled(self, operator: Operator, outputs: Any) -> Iterator[Any]:
        """The outputs of an operator. If it awaits something, its generator runs in the loop."""
        if not isinstance(operator, PausingOperator):
            yield from outputs
            return
        iterator = iter(outputs)
        while True:
            item = self._loop.run_until_complete(_next(iterator))
            if item is _END:
                return
            if isinstance(item, Batch) and not item.num_rows:
                self._loop.run_until_complete(operator.wait_ready())
            else:
                yield item

    def _out(self, outputs: Iterator[Tagged]) -> Iterator[pa.RecordBatch]:
        names, types = self.program.layout()
        for tag, batch in outputs:
            if batch.kinds is not None and (KIND_SIGN[batch.kinds] < 0).any():
                raise InternalError(
                    f"operator '{self.program.steps[-1].name}' took rows back where it should only add",
                    expected="rows of kind +I", got="a changelog", remedy="this is a fault of ours: report the query",
                )  # fmt: skip
            yield self._record_batch(tag, batch, names, types)

    def _record_batch(
        self, tag: str | None, batch: Batch, names: list[str], types: list[Any]
    ) -> pa.RecordBatch:
        program, n = self.program, batch.num_rows
        arrays = []
        main = len(program.output)
        if tag is None:
            arrays += [
                to_spark_array(_as(c, x)) for c, x in zip(batch.columns, program.output.types, strict=True)
            ]
        else:
            arrays += [pa.nulls(n, spark_arrow_type(x)) for x in types[:main]]
        for name in program.tags:
            side = program.steps[-1].sides[name]
            if name == tag:
                arrays += [to_spark_array(_as(c, x)) for c, x in zip(batch.columns, side.types, strict=True)]
            else:
                arrays += [pa.nulls(n, spark_arrow_type(x)) for x in side.types]
        if program.tags:
            number = 0 if tag is None else program.tags.index(tag) + 1
            arrays.append(pa.array(np.full(n, number, np.int64)))
        if program.out_timed:
            times = batch.times_or_none()
            arrays.append(pa.array(times, mask=times == NO_TIME))
        if not arrays:
            arrays.append(pa.nulls(n, pa.bool_()))
        return pa.RecordBatch.from_arrays(arrays, names=names)


def _as(column: Column, type_: Any) -> Column:
    return column if column.type == type_ else column.cast_type(type_)


def _runs(which: np.ndarray | None, n: int) -> Iterator[tuple[int, int]]:
    """The ranges [low, high) of consecutive rows that belong to one input."""
    if which is None:
        yield 0, n
        return
    edges = np.flatnonzero(np.diff(which)) + 1
    bounds = [0, *edges.tolist(), n]
    yield from itertools.pairwise(bounds)


def _times(array: pa.Array) -> np.ndarray | None:
    """The event times of records (``NO_TIME`` for a record without one); None if no record has an event
    time."""
    if array.null_count == len(array):
        return None
    return array.fill_null(NO_TIME).to_numpy(zero_copy_only=False)


_END = object()


async def _next(iterator: Iterator[Any]) -> Any:
    return next(iterator, _END)


async def _run_here(call: Callable[[], Any]) -> Any:
    return call()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _never(_: int) -> None:
    """Ignores a request to be woken: a batch job does not wait. Processing-time timers fire at the end in
    mode BATCH, otherwise never."""


def _report(error: BaseException, record: Any) -> None:
    # Spark keeps the workers' standard error with the task's log.
    sys.stderr.write(f"penstock: a record was left out: {error}\n")
