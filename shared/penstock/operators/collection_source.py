"""A source whose rows are part of the plan."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.functions.evaluate import compile_expr
from penstock.operators.drivers import SourceDriver
from penstock.operators.operator import MIN_WATERMARK
from penstock.operators.watermarks import EventTimes
from penstock.snapshots.contract import OperatorSnapshot
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from penstock.jobgraph.specs import CollectionSourceSpec
    from penstock.operators.operator import OperatorContext
    from penstock.snapshots.contract import RestoredState


class CollectionSourceOperator(SourceDriver):
    """Subtask 0 emits the rows of the plan. State: the list ``position`` (number of the next row)."""

    def __init__(self, spec: CollectionSourceSpec) -> None:
        super().__init__()
        self._spec = spec
        self._at = 0
        self._stopped = False

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        self._rows = Batch.empty(ctx.output_schema)
        if ctx.subtask_index == 0:
            with pa.ipc.open_stream(base64.b64decode(self._spec.data)) as reader:
                parts = [Batch.from_arrow(ctx.output_schema, rb) for rb in reader]
            if parts:
                self._rows = Batch.concat(parts)
            if restored is not None:
                self._at = max((int(p) for p in restored.lists.get("position", [])), default=0)
        self._event_times = None
        self._watermark = MIN_WATERMARK
        if self._spec.watermark is not None:
            self._event_times = EventTimes(self._spec.watermark, lambda e: compile_expr(e, ctx.function))

    def poll(self) -> Batch | None:
        if self._at >= self._rows.num_rows or self._stopped:
            return None
        batch = self._rows.slice(self._at, self.budget.rows)
        self._at += batch.num_rows
        if self._event_times is not None:
            highest = self._event_times.highest(batch)
            self._watermark = max(self._watermark, MIN_WATERMARK if highest is None else highest)
        return batch

    async def wait(self) -> None: ...

    def position(self, now_ms: int) -> tuple[int, bool]:
        return self._watermark, False

    def ended(self) -> bool:
        return self._stopped or self._at >= self._rows.num_rows

    def stop_reading(self) -> None:
        self._stopped = True

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        if self.ctx.subtask_index:
            return OperatorSnapshot()
        return OperatorSnapshot(lists={"position": [str(self._at).encode()]})
