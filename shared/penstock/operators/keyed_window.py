"""Windows with a Python reduce, aggregate or process function, per key.

The contents of a window are keyed state under (key, window); a timer of that entry fires at the window's end.
Windows are (start, end) in µs; users see ms. Sessions merge: a list per key holds the key's open sessions. SQL
aggregates run in ``window_aggregate`` instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.columnar.hashing import hash_columns, key_groups
from penstock.columnar.python_values import records, tuples
from penstock.config import LEVELDB_CACHE_ENTRIES, STATE_BACKEND, is_batch
from penstock.errors import UnsupportedError
from penstock.operators.batch_inputs import BatchInputs, function_state
from penstock.operators.emitter import Emitter
from penstock.operators.keyed_process import OUTPUT_ROWS, TIMERS
from penstock.operators.operator import MAX_WATERMARK, MIN_WATERMARK, Operator, SideBatch
from penstock.operators.own_windows import OwnWindows, touching
from penstock.operators.process_context import to_ms
from penstock.operators.user_code import RuntimeContext, UserFunction
from penstock.operators.window_assigning import Assign, AssignBy, assigner, check_assignable, times_of
from penstock.operators.window_contents import WindowContents
from penstock.operators.window_contexts import (
    LAST_US,
    EvictorContext,
    TriggerContext,
    Window,
    WindowContext,
    cleanup_time,
    user_window,
)
from penstock.operators.window_functions import GLOBAL_END, TriggerResult, WindowCall
from penstock.operators.window_merging import MergingWindows
from penstock.state.backends import make_backend
from penstock.state.blocks import KeyLayout
from penstock.state.descriptors import ValueStateDescriptor
from penstock.state.states import Scope
from penstock.types import logical as t
from penstock.types.canonical import user_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.jobgraph.specs import KeyedWindowSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState
    from penstock.state.key_groups import KeyGroups
    from penstock.types import Batch
_MS = 1_000


class KeyedWindowOperator(Operator):
    """Runs a reduce, aggregate or process function over windows."""

    def __init__(self, spec: KeyedWindowSpec) -> None:
        check_assignable(spec.window)
        self._spec = spec

    # -- life ---------------------------------------------------------------------------------

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        spec = self._spec
        schema = ctx.input_schemas[0]
        space = KeyLayout(tuple(schema.fields[i].type for i in spec.keys), ctx.max_parallelism)
        self._backend = backend = self.keep(
            make_backend(
                STATE_BACKEND.read(ctx.config),
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
        backend.timer_namespaces = True
        self._watermark = MIN_WATERMARK
        self._batch = is_batch(ctx.config)
        waits = self._batch and not ctx.rows_in_order
        if restored is not None:
            backend.restore(function_state(restored, ctx.name, waits=waits))
        self._waiting = BatchInputs(self, [spec.keys], restored) if waits else None
        #: True at the end of the input: triggers then set no more timers.
        self._quiesced = False
        self._function = self.hold(UserFunction(ctx, spec.function, spec.on_error))
        call: WindowCall = self._function.object
        self._trigger = call.trigger
        self._emit = Emitter(ctx.output_schema, self._function.where, spec.tags)
        self._scope = Scope()
        width = spec.record_columns or len(schema)
        self._contents = WindowContents(spec.kind, call, backend, self._scope, schema.select(range(width)))
        self._evictor = call.evictor
        own = None if call.assigner is None else OwnWindows(call.assigner, ctx, backend)
        self._sessions: MergingWindows | None = None
        if spec.window.kind == "session" or (own is not None and own.merging):
            self._sessions = MergingWindows(self, touching if own is None else own.merged)
        if spec.window.kind == "count":
            self._counted = backend.state(ValueStateDescriptor("elements", t.BigIntType()))
        self._count = AssignBy(self._numbered, call.gap, None if own is None else own.assign)
        self._window_function = call.window_function
        if self._window_function is None and spec.kind == "process":
            self._window_function = call.function
        parts = [p for p in (call.function, call.window_function) if p is not None]
        self._function.open(RuntimeContext(ctx, backend), *parts)
        self._context = WindowContext(self)
        self._trigger_context = TriggerContext(self)
        #: The number of windows that fire together. With a memory limit they must be in memory at once.
        self._most_windows = TIMERS if ctx.memory.limit_bytes else OUTPUT_ROWS
        self._wake()

    def absorb(self, groups: KeyGroups, rows: RestoredState) -> None:
        super().absorb(groups, rows)
        self._wake()

    def _wake(self) -> None:
        """Ask to be woken at the earliest processing-time timer."""
        if (next_time := self._backend.processing_timers.next_time) is not None:
            self.ctx.wake_at(next_time)

    # -- records ---------------------------------------------------------------------------------

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        if batch.kinds is not None and batch.kinds.any():
            raise UnsupportedError(
                "a Python window over an updating stream",
                expected="an append-only input",
                where=f"operator '{self.ctx.name}'",
            )
        if self._waiting is not None:
            self._waiting.add(input_index, batch)
        else:
            yield from self._rows(batch)

    def _rows(self, batch: Batch) -> Iterator[Output]:
        spec = self._spec
        times = times_of(spec, batch, self.ctx)
        columns = [batch.columns[i] for i in spec.keys]
        keys = tuples(columns)
        groups = key_groups(hash_columns(columns), self.ctx.max_parallelism)
        self._backend.begin_batch(keys, groups.tolist())
        rows = records(batch, spec.record_columns or None)
        late: list[int] = []
        assign = assigner(spec.window, times, rows, self._count)
        for i, (key, row, time) in enumerate(zip(keys, rows, times.tolist(), strict=True)):
            self._guarded(row, self._element, assign, key, row, time, late, i)
            if len(self._emit.items) >= OUTPUT_ROWS:
                yield from self._emit.flush()
        yield from self._emit.flush()
        if late:
            self.ctx.metrics.inc("numLateRecords", len(late))
            if spec.late_tag is None:
                self.ctx.metrics.inc("numLateRecordsDropped", len(late))
            else:
                width = spec.record_columns or len(batch.columns)
                yield SideBatch(spec.late_tag, batch.take(np.array(late)).select(range(width)))
        self._backend.end_batch()

    def _element(self, assign: Assign, key: Any, row: Any, time: int, late: list[int], index: int) -> None:
        taken = False
        for window in assign(index, key):
            if self._is_late(window) and self._sessions is None:
                continue
            if self._sessions is not None:
                merged = self._sessions.merge(key, window)
                if merged is None:
                    continue
                window = merged
            taken = True
            self._scope.key = (key, window)
            self._contents.add(row, time // _MS)
            result = self._on_element(row, time, window)
            self._apply(result, key, window)
            self._register(key, window, cleanup_time(self._spec, window))
        if not taken:
            late.append(index)

    def _numbered(self, key: Any) -> int:
        """How many elements of ``key`` came before this one; counted on."""
        self._backend.scope.key = key
        before = self._counted.value() or 0
        self._counted.update(before + 1)
        return before

    def _is_late(self, window: Window) -> bool:
        return self._spec.event_time and cleanup_time(self._spec, window) <= self._watermark

    def _register(self, key: Any, window: Window, time: int) -> None:
        """Register a timer of (key, window) at ``time`` µs."""
        backend = self._backend
        if time == MAX_WATERMARK:
            return
        if self._spec.event_time:
            backend.event_timers.register(time, (key, window), backend.journal)
        else:
            # Rounded up, because the window must not fire before the clock reaches its end.
            time_ms = -(-(time + LAST_US) // _MS)
            backend.processing_timers.register(time_ms, (key, window), backend.journal)
            self.ctx.wake_at(time_ms)

    def _on_element(self, row: Any, time: int, window: Window) -> TriggerResult:
        if self._trigger is not None:
            return self._trigger.on_element(row, time // _MS, user_window(window), self._trigger_context)
        end = window[1] - LAST_US
        if self._spec.event_time and window[1] != GLOBAL_END:
            if end <= self._watermark:
                return TriggerResult.FIRE
            if self._spec.allowed_lateness_us:
                self._register(self._scope.key[0], window, end)
        return TriggerResult.CONTINUE

    # -- firing ------------------------------------------------------------------------------------------

    def _apply(self, result: TriggerResult, key: Any, window: Window) -> None:
        if result.fires:
            self._fire(key, window)
        if result.purges:
            self._scope.key = (key, window)
            self._contents.clear()

    def _fire(self, key: Any, window: Window) -> None:
        self._scope.key = (key, window)
        if self._contents.is_empty():
            return
        if self._evictor is None:
            self._emitted(self._contents.result(), key, window)
            return
        elements, context = self._contents.timed(), EvictorContext(self)
        shown = user_window(window)
        self._evictor.evict_before(elements, len(elements), shown, context)
        if elements or self._spec.kind == "process":
            self._emitted(self._contents.result_of([e.value for e in elements]), key, window)
        self._evictor.evict_after(elements, len(elements), shown, context)
        self._scope.key = (key, window)
        self._contents.keep(elements)

    def _emitted(self, value: Any, key: Any, window: Window) -> None:
        """Emit what the window function makes of the contents, ``value``."""
        emit = self._emit
        stamp = None if window[1] == GLOBAL_END else window[1] - _MS
        emit.side_time = stamp
        if self._window_function is None:
            emit.items.append(value if emit.fixed is None else emit.fixed(value))
        else:
            self._backend.scope.key = key
            elements = value if self._spec.kind == "process" else [value]
            context = self._context
            context.current = window
            result = self._window_function.process(user_key(key), context, elements)
            if result is not None:
                emit.items.extend(result if emit.fixed is None else map(emit.fixed, result))
        emit.stamp(stamp)

    def _clear(self, key: Any, window: Window) -> None:
        """Delete all state of a window that has ended."""
        self._scope.key = (key, window)
        self._contents.clear()
        if self._trigger is not None:
            self._trigger.clear(user_window(window), self._trigger_context)
        clear = getattr(self._window_function, "clear", None)
        if clear is not None:
            self._context.current = window
            clear(self._context)
        if self._sessions is not None:
            self._sessions.over(key, window)

    def _guarded(self, record: Any, action: Callable[..., None], *args: Any) -> None:
        """Run user code under the error policy; undo all its effects if it fails."""
        journal, emit = self._backend.journal, self._emit
        if journal is None:
            try:
                action(*args)
            except Exception as err:
                self._function.failed(err, record, "window function")
            return
        mark = emit.mark()
        try:
            action(*args)
        except Exception as err:
            journal.rollback()
            emit.undo(mark)
            self._function.failed(err, record, "window function")
        journal.commit()

    def on_watermark(self, watermark: int) -> Iterator[Output]:
        if self._batch:
            # Without a trigger no window fires before the end of the input.
            if watermark != MAX_WATERMARK and (self._trigger is not None or self._waiting is not None):
                return
            if self._waiting is not None:
                for _, batch in self._waiting.drain():
                    yield from self._rows(batch)
            self._quiesced = watermark == MAX_WATERMARK
        self._watermark = watermark
        yield from self._fire_due(self._backend.event_timers.due(watermark), self._on_timer)
        if self._quiesced:
            yield from self._fire_due(self._backend.processing_timers.due(MAX_WATERMARK), self._on_clock)

    def _fire_due(self, due: Iterator[tuple[int, Any]], action: Callable[..., None]) -> Iterator[Output]:
        """Fire windows, a bounded number at a time, so that only the contents of these are in memory."""
        for count, (time, (key, window)) in enumerate(due, 1):
            self._guarded(window, action, time, key, window)
            if count % self._most_windows == 0 or len(self._emit.items) >= OUTPUT_ROWS:
                yield from self._emit.flush()
                self._backend.end_batch()
        yield from self._emit.flush()
        self._backend.end_batch()

    def _sets_no_timers(self, window: Window) -> bool:
        """Whether triggers may set no timers: at the end of the input, or they would fire in a global window
        for ever."""
        return self._quiesced or (self._watermark == MAX_WATERMARK and window[1] == GLOBAL_END)

    def _on_timer(self, time: int, key: Any, window: Window) -> None:
        if self._sessions is not None and self._sessions.is_merged_away(key, window):
            return
        self._scope.key = (key, window)
        end = window[1] - LAST_US
        if self._trigger is not None:
            # A trigger's timers are in ms; the timer of the window's end has the window's last ms.
            at_ms = user_window(window).max_timestamp() if time == end else to_ms(time)
            result = self._trigger.on_event_time(at_ms, user_window(window), self._trigger_context)
            self._apply(result, key, window)
        elif time == end:
            self._fire(key, window)
        if time >= cleanup_time(self._spec, window):
            self._clear(key, window)

    def on_processing_time(self, now_ms: int) -> Iterator[Output]:
        if self._batch:
            return
        queue = self._backend.processing_timers
        yield from self._fire_due(queue.due(now_ms), self._on_clock)
        self._wake()

    def _on_clock(self, time_ms: int, key: Any, window: Window) -> None:
        if self._sessions is not None and self._sessions.is_merged_away(key, window):
            return
        self._scope.key = (key, window)
        over = not self._spec.event_time and time_ms * _MS >= window[1]
        if self._trigger is not None:
            at_ms = min(time_ms, user_window(window).max_timestamp()) if over else time_ms
            result = self._trigger.on_processing_time(at_ms, user_window(window), self._trigger_context)
            self._apply(result, key, window)
        elif over:
            self._fire(key, window)
        if over:
            self._clear(key, window)

    def finish(self) -> Iterator[Output]:
        """Fire each processing-time window that is still open at the end of a bounded input, once.

        Triggers set no timers meanwhile, because these would repeat until the end of time.
        """
        if not self._spec.event_time:
            self._quiesced = True
            yield from self._fire_due(self._backend.processing_timers.due(MAX_WATERMARK), self._on_clock)
