"""Process functions with keyed state and timers, and reduce without a window.

A batch is sorted by key first (the order of a key's rows does not change), so that a key's state stays in the
processor's cache. A record that raises under ``skip`` or ``dead-letter`` has no effect: its state changes, timers and
outputs are undone. In mode BATCH all rows are processed by event time, then all timers fire under the last watermark;
``reduce`` emits the value of each key once, at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.columnar.hashing import hash_columns, key_groups
from penstock.columnar.python_values import normalizer, records, tuples
from penstock.columnar.sorting import stable_argsort
from penstock.config import LEVELDB_CACHE_ENTRIES, STATE_BACKEND, is_batch
from penstock.errors import UnsupportedError
from penstock.operators.batch_inputs import BatchInputs, function_state
from penstock.operators.emitter import Emitter
from penstock.operators.operator import MAX_WATERMARK, MIN_WATERMARK, Operator
from penstock.operators.operator_state import FunctionState
from penstock.operators.output_tag import type_of
from penstock.operators.process_context import (
    MAX_LONG,
    ProcessContext,
    TimeDomain,
    TimerService,
    to_ms,
    to_us,
)
from penstock.operators.user_code import RuntimeContext, UserFunction
from penstock.snapshots.contract import OperatorSnapshot
from penstock.state.backends import make_backend
from penstock.state.blocks import KeyLayout
from penstock.state.broadcast import BroadcastStates
from penstock.state.descriptors import ValueStateDescriptor
from penstock.types import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.jobgraph.specs import KeyedProcessSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState
    from penstock.state.key_groups import KeyGroups
    from penstock.types import Schema

#: The most rows of an output batch; longer outputs of timers or functions are split.
OUTPUT_ROWS = 16_384
#: The number of timers that fire before live values may be written back to the state backend.
TIMERS = 1_024
#: Batches below this many rows are not sorted by key: sorting would cost more than it saves.
_SORT_ROWS = 1_024


class KeyedProcessOperator(Operator):
    """Runs a process function, co-process function or reduce function over keyed inputs."""

    def __init__(self, spec: KeyedProcessSpec) -> None:
        self._spec = spec

    # -- life -----------------------------------------------------------------------------

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        spec = self._spec
        keyed_input = ctx.input_schemas[0]
        space = KeyLayout(tuple(keyed_input.fields[i].type for i in spec.keys[0]), ctx.max_parallelism)
        self._backend = self.keep(
            make_backend(
                STATE_BACKEND.read(ctx.config) if space.types else "hashmap",
                space,
                now_ms=ctx.now_ms,
                uid=ctx.uid,
                local_dir=ctx.local_dir,
                undo=spec.on_error != "fail",
                cache_entries=LEVELDB_CACHE_ENTRIES.read(ctx.config),
                epochs=ctx.epochs,
                memory=ctx.memory,
                config=ctx.config,
            )
        )
        self._broadcast = BroadcastStates(ctx.uid) if spec.kind == "broadcast-process" else None
        self._batch = is_batch(ctx.config)
        in_order = ctx.rows_in_order or not (space.types or self._broadcast is not None)
        waits = self._batch and not in_order
        if restored is not None:
            self._backend.restore(function_state(restored, self.ctx.name, waits=waits))
            if self._broadcast is not None:
                self._broadcast.restore(restored)
        self._waiting = BatchInputs(self, spec.keys, restored) if waits else None
        self._timers = TimerService(self._backend, ctx.now_ms, ctx.wake_at)
        self._function = self.hold(UserFunction(ctx, spec.function, spec.on_error))
        self._emit = Emitter(ctx.output_schema, self._function.where, spec.tags)
        self._context = ProcessContext(
            self._backend,
            self._timers,
            self._emit.side_output,
            self._broadcast.state if self._broadcast is not None else None,
        )
        self._on_timer: Callable[[int, ProcessContext], Any] | None = None
        self._calls = self._make_calls()
        runtime = RuntimeContext(ctx, self._backend)
        self._state = FunctionState(self._function, ctx, restored, runtime)
        self._function.open(runtime)
        self._wake()

    def _make_calls(self) -> list[Callable[[Any, ProcessContext], Any]]:
        """For each input a callable (value, ctx) -> outputs or None."""
        method = self._function.method
        match self._spec.kind:
            case "process":
                return [method("process_element")]
            case "co-process":
                return [method("process_element1"), method("process_element2")]
            case "broadcast-process":
                return [method("process_element"), method("process_broadcast_element")]
            case "reduce" | "aggregate":
                reduction = _Reduction(self._function.object, self._backend, self.ctx.output_schema)
                if self._batch:
                    self._on_timer = reduction.at_the_end
                return [reduction.keep if self._batch else reduction.run]
        raise UnsupportedError(f"process operator of kind '{self._spec.kind}'", expected="process, reduce, …")

    # -- records ----------------------------------------------------------------------------

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        if batch.kinds is not None and batch.kinds.any():
            raise UnsupportedError(
                "a process function over an updating stream",
                expected="an append-only input",
                got="updates or deletes",
                where=f"operator '{self.ctx.name}'",
                remedy="keep the newest row per key before it, or write the query so that it only appends",
            )
        if self._waiting is not None:
            self._waiting.add(input_index, batch)
        else:
            yield from self._rows(input_index, batch)

    def _rows(self, input_index: int, batch: Batch) -> Iterator[Output]:
        indices = self._spec.keys[input_index] if input_index < len(self._spec.keys) else ()
        if indices:
            batch = self._sorted(batch, indices)
            columns = [batch.columns[i] for i in indices]
            keys = tuples(columns)
            groups = key_groups(hash_columns(columns), self.ctx.max_parallelism)
            self._backend.begin_batch(keys, groups.tolist())
        else:
            keys = [None] * batch.num_rows
        if self._spec.per == "batch":
            yield from self._per_batch(input_index, batch, keys)
        else:
            limits = self._spec.record_columns
            rows = records(batch, limits[input_index] if limits else None)
            yield from self._per_record(self._calls[input_index], keys, rows, batch.time_list())
        self._backend.end_batch()

    def _sorted(self, batch: Batch, indices: Sequence[int]) -> Batch:
        """The rows sorted stably by key, if that is cheap: the key is one integer column."""
        if batch.num_rows < _SORT_ROWS or len(indices) != 1:
            return batch
        column = batch.columns[indices[0]]
        if not column.is_numpy or column.values.dtype.kind != "i" or column.valid is not None:
            return batch
        return batch.take(stable_argsort(column.values))

    def _per_record(
        self,
        call: Callable[[Any, ProcessContext], Any],
        keys: list[Any],
        rows: list[Any],
        times: list[int | None],
    ) -> Iterator[Output]:
        at, n = 0, len(rows)
        while at < n:
            done = self._run(call, keys, rows, times, at)
            at = done
            yield from self._emit.flush()

    def _run(
        self,
        call: Callable[[Any, ProcessContext], Any],
        keys: list[Any],
        rows: list[Any],
        times: list[int | None],
        at: int,
    ) -> int:
        """Process rows from ``at`` on until the output is full or all are done; return the next index."""
        emit, context, scope = self._emit, self._context, self._backend.scope
        items, stamps, fixed = emit.items, emit.times, emit.fixed
        journal = self._backend.journal
        context.domain = None
        todo = (
            zip(keys[at:], rows[at:], times[at:], strict=True) if at else zip(keys, rows, times, strict=True)
        )
        index = at
        mark: Any = None
        try:
            for key, row, time in todo:
                scope.key = key
                context.time_us = emit.side_time = time
                if journal is not None:
                    mark = emit.mark()
                result = call(row, context)
                if result is not None:
                    items.extend(result if fixed is None else map(fixed, result))
                    missing = len(items) - len(stamps)
                    if missing == 1:
                        stamps.append(time)
                    elif missing:
                        stamps.extend([time] * missing)
                        if len(items) >= OUTPUT_ROWS:
                            index += 1
                            break
                index += 1
                if journal is not None:
                    journal.commit()
        except Exception as err:
            if journal is not None:
                journal.rollback()
                emit.undo(mark)
            self._function.failed(err, rows[index], _method_name(call))
            index += 1
        if journal is not None:
            journal.commit()
        return index

    def _per_batch(self, input_index: int, batch: Batch, keys: list[Any]) -> Iterator[Output]:
        """Call the function once per key, with the key's rows of the batch as one Arrow record batch."""
        call = self._calls[input_index]
        order: dict[Any, list[int]] = {}
        for i, key in enumerate(keys):
            order.setdefault(key, []).append(i)
        limits = self._spec.record_columns
        for key, indices in order.items():
            part = batch.take(np.array(indices))
            width = limits[input_index] if limits else len(part.columns)
            rows = part.select(range(width)).to_external_arrow()
            time = max((x for x in part.time_list() if x is not None), default=None)
            yield from self._per_record(call, [key], [rows], [time])

    # -- time -----------------------------------------------------------------------------------

    def absorb(self, groups: KeyGroups, rows: RestoredState) -> None:
        super().absorb(groups, rows)
        self._wake()

    @property
    def next_event_timer(self) -> int | None:
        """The time (µs) of the earliest event-time timer; None if there is none."""
        return self._backend.event_timers.next_time

    def _wake(self) -> None:
        """Ask to be woken at the earliest processing-time timer."""
        next_time = self._backend.processing_timers.next_time
        if next_time is not None:
            self.ctx.wake_at(next_time)

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        if self._batch:
            if watermark != MAX_WATERMARK:
                return
            yield from self._waiting_rows()
            self._timers.quiesced = True
        self._timers.watermark = watermark
        for count, (time, key) in enumerate(self._backend.event_timers.due(watermark), 1):
            yield from self._fire(TimeDomain.EVENT_TIME, key, time, to_ms(time))
            if count % TIMERS == 0:
                self._backend.end_batch()
        yield from self._emit.flush()
        self._backend.end_batch()
        if self._batch:
            yield from self._by_clock(MAX_WATERMARK)

    def _waiting_rows(self) -> Iterator[Output]:
        if self._waiting is None:
            return
        first = 1 if self._broadcast is not None else None
        for index, batch in self._waiting.drain(first):
            yield from self._rows(index, batch)

    def on_processing_time(self, now_ms: int) -> Iterator[Output]:
        return iter(()) if self._batch else self._by_clock(now_ms)

    def _by_clock(self, now_ms: int) -> Iterator[Output]:
        queue = self._backend.processing_timers
        # Outputs of a processing-time timer get an event time just above the watermark, so they are not late.
        watermark = self._timers.watermark
        stamp = None if watermark in (MIN_WATERMARK, MAX_WATERMARK) else watermark + 1
        for count, (time, key) in enumerate(queue.due(now_ms), 1):
            yield from self._fire(TimeDomain.PROCESSING_TIME, key, stamp, time)
            if count % TIMERS == 0:
                self._backend.end_batch()
        yield from self._emit.flush()
        self._wake()
        self._backend.end_batch()

    def _fire(self, domain: TimeDomain, key: Any, stamp: int | None, time_ms: int) -> Iterator[Output]:
        emit, context, journal = self._emit, self._context, self._backend.journal
        self._backend.scope.key = key
        context.time_us, context.domain = to_us(time_ms), domain
        if stamp == MAX_WATERMARK:  # no row has the end of time as its event time
            stamp = None
        emit.side_time = stamp
        if self._on_timer is None:
            self._on_timer = self._function.method("on_timer")
        mark = emit.mark() if journal is not None else None
        try:
            result = self._on_timer(time_ms, context)
            if result is not None:
                emit.items.extend(result if emit.fixed is None else map(emit.fixed, result))
            emit.stamp(stamp)
        except Exception as err:
            if journal is not None and mark is not None:
                journal.rollback()
                emit.undo(mark)
            self._function.failed(err, {"timer": time_ms, "key": key}, "on_timer")
        if journal is not None:
            journal.commit()
        if len(emit.items) >= OUTPUT_ROWS:
            yield from emit.flush()

    # -- checkpoints ------------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        lists, unions = self._state.snapshot(checkpoint_id)
        if self._broadcast is not None:
            unions.update(self._broadcast.snapshot(self.ctx.subtask_index))
        cut = self._cut(unions)
        cut.lists.update(lists)
        return cut

    def on_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._state.completed(checkpoint_id)

    def on_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._state.aborted(checkpoint_id)


def _method_name(call: Any) -> str:
    return getattr(call, "__name__", type(call).__name__)


class _Reduction:
    """reduce without a window. ``run`` emits the key's new value for each record; ``keep`` only updates it, and
    ``at_the_end`` emits the values.
    """

    def __init__(self, function: Any, backend: Any, schema: Schema) -> None:
        self._combine = getattr(function, "reduce", function)
        self._normalize = normalizer(schema)
        self._state = backend.state(ValueStateDescriptor("reduced", type_of(schema)))

    def run(self, value: Any, context: ProcessContext) -> tuple[Any]:
        old = self._state.value()
        if old is not None:
            value = self._combine(old, value)
            if self._normalize is not None:
                value = self._normalize(value)
        self._state.update(value)
        return (value,)

    def keep(self, value: Any, context: ProcessContext) -> None:
        context.timer_service().register_event_time_timer(MAX_LONG)
        self.run(value, context)

    def at_the_end(self, timestamp: int, context: ProcessContext) -> tuple[Any]:
        return (self._state.value(),)
