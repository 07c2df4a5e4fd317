"""``AsyncDataStream``: an asynchronous function of each record, many calls at a time.

The calls run in the event loop of the slot. Records whose answers have not come yet are state: a checkpoint has the
records, and a restart calls the function for them again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.columnar.python_values import columns_of, records
from penstock.errors import FunctionError
from penstock.halving import by_halves
from penstock.operators.async_queue import AsyncQueue, Entry
from penstock.operators.drivers import PausingOperator
from penstock.operators.operator import MAX_WATERMARK, MIN_WATERMARK, WatermarkHolder
from penstock.operators.user_code import RuntimeContext, UserFunction
from penstock.snapshots.contract import OperatorSnapshot
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.jobgraph.specs import AsyncWaitSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState

#: The most rows of an output batch.
OUTPUT_ROWS = 16_384
_IN_FLIGHT = "in-flight"


class AsyncWaitOperator(PausingOperator, WatermarkHolder):
    """Calls ``async_invoke`` for every record; at most ``capacity`` records wait for their answers at a time."""

    def __init__(self, spec: AsyncWaitSpec) -> None:
        self._spec = spec
        self._queue = AsyncQueue(ordered=spec.ordered)
        self._tasks: set[asyncio.Task[None]] = set()
        self._watermark = MIN_WATERMARK
        self._input_watermark = MIN_WATERMARK
        #: True while the operator waits in the middle of its input until something may come out.
        self._pausing = False

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        self._function = self.hold(UserFunction(ctx, self._spec.function, self._spec.on_error))
        self._function.open(RuntimeContext(ctx), self._function.object.function)
        self._ask = self._function.object.ask
        self._progress = asyncio.Event()
        self._restored = [] if restored is None else restored.lists.get(_IN_FLIGHT, [])
        ctx.metrics.gauge("asyncRecordsInFlight", lambda: len(self._queue))

    async def start(self) -> None:
        for item in self._restored:
            with pa.ipc.open_stream(item) as reader:
                batch = Batch.from_arrow(self.ctx.input_schemas[0], reader.read_next_batch())
            self._begin(batch, 0, records(batch)[0])
        self._restored = []

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- calls ---------------------------------------------------------------------------------

    def _begin(self, batch: Batch, row: int, record: Any) -> None:
        entry = Entry(batch, row)
        self._queue.add(entry)
        task = asyncio.get_running_loop().create_task(self._call(entry, record))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _call(self, entry: Entry, record: Any) -> None:
        try:
            entry.answer = await self._ask(record)
        except Exception as err:
            entry.error = err
        self._queue.finish(entry)
        self._progress.set()
        self.ctx.wake_at(self.ctx.now_ms())

    def ready(self) -> bool:
        return not self._pausing or self._queue.has_ready()

    async def wait_ready(self) -> None:
        while not self.ready():
            self._progress.clear()
            await self._progress.wait()

    def _pause(self) -> Iterator[Output]:
        """Let the task wait until something may come out."""
        self._pausing = True
        while not self._queue.has_ready():
            yield Batch.empty(self.ctx.output_schema)
        self._pausing = False

    # -- rows ----------------------------------------------------------------------------------

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        for row, record in enumerate(records(batch)):
            while len(self._queue) >= self._spec.capacity:
                yield from self._pause()
                yield from self._next()
            self._begin(batch, row, record)
        yield from self._emit(self._queue.take())

    def _next(self) -> Iterator[Output]:
        """What may come out now: records, else a watermark, of which the chain is told at the next wake."""
        found = self._queue.take()
        if not found and (mark := self._queue.pass_mark()) is not None:
            self._watermark = mark
            self.ctx.wake_at(self.ctx.now_ms())
        yield from self._emit(found)

    def on_processing_time(self, now_ms: int) -> Iterator[Output]:
        yield from self._emit(self._queue.take())
        mark = self._queue.pass_mark()
        if mark is not None:
            self._watermark = mark
            if self._queue.has_ready():
                self.ctx.wake_at(now_ms)

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        self._input_watermark = watermark
        if watermark == MAX_WATERMARK:
            yield from self._drain()
        if len(self._queue):
            self._queue.mark(watermark)
        else:
            while self._queue.pass_mark() is not None:
                pass
            self._watermark = watermark

    def output_watermark(self, watermark: int) -> int:
        return self._watermark

    def released_watermark(self) -> int:
        return self._watermark

    def on_idle(self) -> Iterator[Output]:
        yield from self._drain()
        self._watermark = self._input_watermark
        self.ctx.wake_at(self.ctx.now_ms())

    def finish(self) -> Iterator[Output]:
        yield from self._drain()

    def _drain(self) -> Iterator[Output]:
        while len(self._queue):
            yield from self._pause()
            yield from self._next()

    # -- results -------------------------------------------------------------------------------

    def _emit(self, entries: Sequence[Entry]) -> Iterator[Output]:
        """The results of the entries, each with the event time of its record."""
        items: list[Any] = []
        rows: list[int] = []
        of: Batch | None = None
        for entry in entries:
            if entry.error is not None:
                record = records(entry.batch.slice(entry.row, 1))[0]
                self._function.failed(entry.error, record, "async_invoke")
                continue
            if of is not None and (entry.batch is not of or len(items) >= OUTPUT_ROWS):
                yield from self._fitting(of, rows, items)
                items, rows = [], []
            of = entry.batch
            items.extend(entry.answer)
            rows.extend([entry.row] * len(entry.answer))
        if of is not None:
            yield from self._fitting(of, rows, items)

    def _fitting(self, batch: Batch, rows: list[int], items: list[Any]) -> Iterator[Output]:
        if not items:
            return
        schema, where = self.ctx.output_schema, self._function.where

        def made(part: tuple[list[int], list[Any]]) -> Batch:
            parents = batch.take(np.array(part[0], np.int64))
            return parents.with_columns(schema, columns_of(schema, part[1], where))

        def refused(part: tuple[list[int], list[Any]], err: Exception) -> None:
            record = records(batch.slice(part[0][0], 1))[0]
            self._function.failed(err, record, "async_invoke")

        if self._spec.on_error == "fail":
            yield made((rows, items))
        else:
            yield from by_halves((rows, items), made, refused, halves=_halves, errors=FunctionError)

    # -- state -----------------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        return OperatorSnapshot(
            lists={_IN_FLIGHT: [_encoded(e.batch.slice(e.row, 1)) for e in self._queue.waiting()]}
        )


def _encoded(row: Batch) -> bytes:
    arrow = row.to_arrow()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, arrow.schema) as writer:
        writer.write_batch(arrow)
    return sink.getvalue().to_pybytes()


def _halves(part: tuple[list[int], list[Any]]) -> Any:
    rows, items = part
    if len(items) < 2:
        return None
    middle = len(items) // 2
    return (rows[:middle], items[:middle]), (rows[middle:], items[middle:])
