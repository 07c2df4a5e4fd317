"""A watermark strategy in the middle of a plan: watermarks from the event times of the rows that pass.

They replace the watermarks of the input, except the last one. The operator cannot know whether a quiet input
has more rows, so its output becomes idle after ``idle_timeout_ms`` without a row, as in Flink.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.columnar.python_values import records
from penstock.functions.evaluate import compile_expr
from penstock.jobgraph.specs import RecordTimeSpec
from penstock.operators.idleness import Idleness
from penstock.operators.operator import MAX_WATERMARK, MIN_WATERMARK, Operator, WatermarkMaker
from penstock.operators.process_context import MIN_LONG
from penstock.operators.user_code import UserFunction
from penstock.operators.watermark_generator import WatermarkGenerator, WatermarkOutput, generator_of
from penstock.operators.watermarks import EventTimes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.jobgraph.specs import AssignWatermarksSpec
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState
    from penstock.types.batch import Batch


class AssignWatermarksOperator(WatermarkMaker):
    """Forwards rows and emits watermarks computed from their event times every ``interval_ms``."""

    def __init__(self, spec: AssignWatermarksSpec) -> None:
        self._spec = spec
        self._times: Operator | None = None
        self._highest = MIN_WATERMARK
        self._watermark = MIN_WATERMARK
        self._idle = False
        self._last_row_ms = 0
        self._rows = False
        self._function: UserFunction | None = None
        self._generator: WatermarkGenerator | None = None
        self._said = WatermarkOutput()

    @property
    def per_record(self) -> bool:
        """Whether a watermark may rise between two outputs."""
        return self._generator is not None

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        spec = self._spec
        self._event_times = EventTimes(
            spec.watermark, lambda e: compile_expr(e, ctx.function, ctx.input_schemas[0])
        )
        if spec.timestamp_function is not None:
            from penstock.operators.python import RecordTimeOperator

            self._times = RecordTimeOperator(
                RecordTimeSpec(kind="function", function=spec.timestamp_function)
            )
            self._times.open(ctx, None)
        if spec.generator is not None:
            self._function = self.hold(UserFunction(ctx, spec.generator))
            self._generator = generator_of(self._function)
        now_ms = ctx.now_ms()
        self._last_row_ms = now_ms
        ctx.wake_at(now_ms + spec.watermark.interval_ms)

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        if self._generator is not None:
            yield from self._told(batch, self._generator)
            return
        if self._times is None:
            yield self._seen(batch)
            return
        for out in self._times.process(input_index, batch):
            yield self._seen(out)  # type: ignore[arg-type]

    def _told(self, batch: Batch, generator: WatermarkGenerator) -> Iterator[Output]:
        """Show the rows to the generator. The rows up to one at which it raises the watermark go on before that."""
        self._rows = True
        said, start = self._said, 0
        rows = records(batch)
        for i, (row, time) in enumerate(zip(rows, batch.time_list(), strict=True), 1):
            before = said.watermark
            self._call(generator.on_event, row, row, MIN_LONG if time is None else time // 1000, said)
            if said.watermark > before:
                # The chain reads the watermark behind the rows that are yielded here.
                self._watermark, self._idle = said.watermark, said.idle
                yield batch.slice(start, i - start)
                start = i
        if start < len(rows):
            yield batch.slice(start)

    def _call(self, method: Callable[..., None], record: Any, *args: Any) -> None:
        try:
            method(*args)
        except Exception as err:
            assert self._function is not None
            raise self._function.error(err, record, method.__name__) from err

    def _seen(self, batch: Batch) -> Batch:
        highest = self._event_times.highest(batch) if batch.num_rows else None
        if highest is not None and highest > self._highest:
            self._highest = highest
        self._rows = True
        return batch

    def on_processing_time(self, now_ms: int) -> Iterator[Output]:
        if self._generator is not None:
            self._call(self._generator.on_periodic_emit, None, self._said)
            self._highest = self._said.watermark
        if self._rows:
            self._rows = False
            self._last_row_ms = now_ms
            self._idle = False
        elif 0 < self._spec.watermark.idle_timeout_ms <= now_ms - self._last_row_ms:
            self._idle = True
        self._idle = self._idle or self._said.idle
        self._watermark = max(self._watermark, self._highest)
        self.ctx.wake_at(now_ms + self._spec.watermark.interval_ms)
        return iter(())

    def current_watermark(self) -> int:
        return self._watermark

    def idle(self) -> bool:
        return self._idle

    @property
    def idle_as(self) -> Idleness:
        return Idleness.IDLE if self._spec.watermark.idle_source or self._said.idle else Idleness.QUIET

    def output_watermark(self, watermark: int) -> int:
        return MAX_WATERMARK if watermark == MAX_WATERMARK else self._watermark

    def close(self) -> None:
        super().close()
        if self._times is not None:
            self._times.close()
