"""The reader of a source.

The enumerator (``enumerator``, parallelism 1) broadcasts assignments (``jobgraph.assignments``) and is idle
otherwise. A reader reads its splits through the connector and makes watermarks per split. Checkpoints hold the
positions of all splits; after a restore the splits are assigned to the readers again, sorted by id.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.connectors.base import Split, TableInfo
from penstock.connectors.registry import get_connector
from penstock.functions.evaluate import compile_expr
from penstock.halving import by_halves
from penstock.operators.bad_records import BadRecords
from penstock.operators.connector_context import source_context
from penstock.operators.drivers import SourceDriver
from penstock.operators.idleness import Idleness
from penstock.operators.operator import MIN_WATERMARK
from penstock.operators.replaying import Replaying
from penstock.operators.source_changes import by_key, check_updates, computed_upserts
from penstock.operators.watermarks import EventTimes, SplitWatermarks
from penstock.snapshots.contract import OperatorSnapshot
from penstock.types.batch import Batch
from penstock.types.column import Column
from penstock.types.logical import BigIntType, Schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.connectors.base import Fetched, SourceReader
    from penstock.jobgraph.specs import SourceSpec
    from penstock.operators.letters import Letter
    from penstock.operators.operator import OperatorContext, Output
    from penstock.snapshots.contract import RestoredState


class SourceOperator(SourceDriver):
    """Reads the splits that are assigned to its subtask. State: union ``splits`` ({split, watermark} JSON) and
    list ``arrival``."""

    def __init__(self, spec: SourceSpec) -> None:
        super().__init__()
        self._spec = spec
        self._reader: SourceReader | None = None
        self._before_start: list[Split] = []
        self._assignments_known = False
        self._assignments_ended = False
        self._assigned = asyncio.Event()
        self._finished: set[str] = set()
        self._mine: set[str] = set()
        #: Splits that the connector reads after all others: they do not hold the watermark back yet.
        self._dormant: set[str] = set()
        self._arrival = 0
        self._stopped = False
        #: Whether the reader is being closed, or was.
        self._over = False
        #: The split whose rows were polled last, for errors.
        self._split_id = ""
        #: The positions in each checkpoint that is neither complete nor aborted.
        self._cuts: dict[int, list[Split]] = {}
        self._watermarks = SplitWatermarks(spec.watermark.idle_timeout_ms if spec.watermark else 0)
        self._interval_ms = spec.watermark.interval_ms if spec.watermark else 200
        self._position = (MIN_WATERMARK, False)
        self._position_at_ms = -(2**62)

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        spec = self._spec
        self._replaying = Replaying(spec, BadRecords(ctx, spec.on_error))
        self._event_times = None
        if spec.watermark is not None:
            self._event_times = EventTimes(spec.watermark, lambda e: compile_expr(e, ctx.function))
        self._computed = None
        if spec.computed is not None:
            self._computed = [compile_expr(e, ctx.function) for e in spec.computed]
        if restored is not None:
            self._restore(restored)
        ctx.metrics.gauge("pendingRecords", self._pending)
        ctx.metrics.gauge("currentEmitEventTimeLag", self._lag_ms)

    def _restore(self, restored: RestoredState) -> None:
        known = [msgspec.json.decode(item, type=SplitState) for item in restored.unions.get("splits", [])]
        known.sort(key=lambda state: state.split.id)
        now_ms = self.ctx.now_ms()
        for index, state in enumerate(known):
            if index % self.ctx.parallelism == self.ctx.subtask_index:
                self._before_start.append(state.split)
                self._mine.add(state.split.id)
                self._watermarks.add(state.split.id, now_ms)
                self._watermarks.rows(state.split.id, state.watermark, now_ms)
        arrivals = [int(item) for item in restored.unions.get("arrival", [])]
        self._arrival = max(arrivals, default=0)
        # No split anywhere means that the snapshot is older than the first discovery: this reader is not idle
        # before the enumerator has assigned splits, otherwise the other readers' watermark makes its rows late.
        self._assignments_known = bool(known)
        if len(self._mine) < len(known):
            self._watermarks.others_have_splits()

    async def start(self) -> None:
        spec = self._spec
        connector = get_connector(spec.connector)
        self._reader = connector.reader(TableInfo(spec.schema, spec.options))
        context = source_context(
            self.ctx,
            schema=spec.schema,
            options=spec.options,
            projection=spec.projection,
            metadata=spec.metadata,
            pushed=spec.pushed,
            on_error=spec.on_error,
            bad_record=self._replaying.record,
            bad_message=self._replaying.message,
        )
        self._source_ctx = context
        await self._reader.open(context)
        if spec.on_error == "dead-letter":
            self._replaying.open(self._reader, context)
        if self._before_start:
            self._reader.add_splits(self._before_start)
            for split in self._before_start:
                if self._reader.dormant(split.id):
                    self._dormant.add(split.id)
                    self._watermarks.finished(split.id)

    # -- assignments -----------------------------------------------------------------

    def process(self, input_index: int, batch: Batch) -> Iterator[Output]:
        owners, splits = batch.columns[0].values.tolist(), batch.columns[1].to_pylist()
        mine = [
            msgspec.json.decode(split, type=Split)
            for owner, split in zip(owners, splits, strict=True)
            if owner == self.ctx.subtask_index
        ]
        self._assignments_known = True
        if len(mine) < len(splits):
            self._watermarks.others_have_splits()
        fresh = [split for split in mine if split.id not in self._mine]
        if fresh:
            assert self._reader is not None
            self._reader.add_splits(fresh)
            for split in fresh:
                self._mine.add(split.id)
                if self._reader.dormant(split.id):
                    self._dormant.add(split.id)
                else:
                    self._watermarks.add(split.id, self.ctx.now_ms())
            self._assigned.set()
        return iter(())

    def inputs_idle(self) -> None:
        self._assignments_known = True

    def end_input(self, input_index: int) -> Iterator[Output]:
        self._assignments_known = self._assignments_ended = True
        return iter(())

    # -- rows --------------------------------------------------------------------------

    def poll(self) -> Batch | None:
        reader = self._reader
        assert reader is not None
        if self._stopped or not self._mine:
            return None
        self._source_ctx.batch_rows = self.budget.rows
        fetched = reader.poll()
        batch = None if fetched is None else self._rows(fetched)
        # This comes last, because a split that ended with these rows no longer counts for the watermark.
        self._note_finished()
        return batch

    def _note_finished(self) -> None:
        assert self._reader is not None
        if len(self._finished) < len(self._mine):
            for split in self._reader.finished_splits() - self._finished:
                self._finished.add(split)
                self._watermarks.finished(split)
        if self._dormant:
            for split in [d for d in self._dormant if not self._reader.dormant(d)]:
                self._dormant.discard(split)
                self._watermarks.add(split, self.ctx.now_ms())

    def _rows(self, fetched: Fetched) -> Batch:
        batch, self._split_id = self._numbered(fetched.batch), fetched.split_id
        keyed = self._spec.changelog == "retract" and bool(self._spec.changelog_keys)
        if keyed:
            check_updates(batch, self.ctx.name)
        out = self._compute(batch)
        if keyed:
            out = by_key(out, self._spec.changelog_keys, drops_before=self._spec.drops_before)
        highest = None
        if self._event_times is not None and out.num_rows:
            highest = self._event_times.highest(out)
        self._watermarks.rows(fetched.split_id, highest, self.ctx.now_ms())
        return out

    def _numbered(self, batch: Batch) -> Batch:
        """The rows with their order of arrival, if the plan needs it."""
        if not self._spec.arrival:
            return batch
        first = self._arrival
        self._arrival += batch.num_rows
        steps = np.arange(first, self._arrival, dtype=np.int64)
        values = steps * self.ctx.parallelism + self.ctx.subtask_index
        return _append(batch, Column(BigIntType(nullable=False), values))

    async def replayed(self, letters: Sequence[Letter]) -> list[Batch]:
        """The rows of dead letters, as the source emits them. They move no watermark. A letter that fails again is
        set aside again."""
        found = await self._replaying.rows(letters)
        return [self._compute(self._numbered(batch)) for batch in found if batch.num_rows]

    def _compute(self, batch: Batch) -> Batch:
        """The final columns. A row whose expression fails is handled like a bad record."""
        computed = self._computed
        schema = self.ctx.output_schema
        if computed is None:
            return batch.with_columns(schema, batch.columns)

        known = self._spec.known_of_deletes

        def compute(part: Batch) -> Batch:
            if known is not None:
                return computed_upserts(part, schema, computed, known)
            return part.with_columns(schema, [f(part) for f in computed])

        def refused(row: Batch, err: Exception) -> None:
            self._replaying.row(err, row, f"split {self._split_id}, computed columns")

        if self._spec.on_error == "fail":
            return compute(batch)
        parts = list(by_halves(batch, compute, refused, halves=Batch.halves))
        return Batch.concat(parts) if parts else Batch.empty(schema)

    async def wait(self) -> None:
        assert self._reader is not None
        if not self._mine or self._finished >= self._mine:
            self._assigned.clear()
            await self._assigned.wait()
        else:
            await self._reader.wait()

    def ended(self) -> bool:
        if self._stopped:
            return True
        return self._assignments_ended and self._finished >= self._mine

    def stop_reading(self) -> None:
        self._stopped = True

    # -- time --------------------------------------------------------------------------

    def position(self, now_ms: int) -> tuple[int, bool]:
        if now_ms - self._position_at_ms < self._interval_ms:
            return self._position
        self._position_at_ms = now_ms
        assert self._reader is not None
        watermark, idle = self._watermarks.evaluate(now_ms, self._reader.caught_up)
        if self._spec.watermark is None:
            watermark = MIN_WATERMARK
            idle = False
        # After the last assignment a reader ends with its own splits; it does not wait for other readers.
        over = self._assignments_ended and self._finished >= self._mine
        self._position = (watermark, idle and self._assignments_known and not over)
        return self._position

    @property
    def idle_as(self) -> Idleness:
        watermark = self._spec.watermark
        return Idleness.IDLE if watermark is None or watermark.idle_source else Idleness.QUIET

    def next_position_ms(self, now_ms: int) -> int | None:
        if self._spec.watermark is None:
            return None
        return self._position_at_ms + self._interval_ms

    def not_polled(self, for_ms: int) -> None:
        self._watermarks.not_asked(for_ms)

    def away(self) -> str | None:
        return None if self._reader is None or self._over else self._reader.away()

    def watermark_holder(self) -> str | None:
        split = self._watermarks.holder()
        return None if split is None else f"split {split}"

    def begins_us(self, batch: Batch) -> int | None:
        """The highest watermark (µs) that makes none of the batch's rows late; None without event time."""
        return None if self._event_times is None or not batch.num_rows else self._event_times.lowest(batch)

    @property
    def reached_us(self) -> int | None:
        """The highest watermark (µs) that the rows read so far allow; None without event time."""
        return self._watermarks.newest_us

    def _pending(self) -> int | None:
        return None if self._reader is None else self._reader.pending_records()

    def _lag_ms(self) -> int | None:
        """The difference (ms) between the clock and the newest event time that was read."""
        newest_us = self._watermarks.newest_us
        return None if newest_us is None else self.ctx.now_ms() - newest_us // 1000

    # -- state -------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        assert self._reader is not None
        values = self._watermarks.values()
        positions = self._reader.snapshot()
        self._cuts[checkpoint_id] = positions
        states = [SplitState(s, values.get(s.id)) for s in positions]
        return OperatorSnapshot(
            unions={
                "splits": [msgspec.json.encode(state) for state in states],
                "arrival": [str(self._arrival).encode()],
            }
        )

    def on_checkpoint_complete(self, checkpoint_id: int) -> None:
        assert self._reader is not None
        positions = self._cuts.get(checkpoint_id, [])
        self._cuts = {at: cut for at, cut in self._cuts.items() if at > checkpoint_id}
        self._reader.on_checkpoint_complete(checkpoint_id, positions)

    async def stop(self) -> None:
        self._over = True
        if self._reader is not None:
            await self._reader.close()


class SplitState(msgspec.Struct, frozen=True):
    """The position of a split in a checkpoint, with its watermark (µs)."""

    split: Split
    watermark: int | None = None


def _append(batch: Batch, column: Column) -> Batch:
    from penstock.types.logical import Field

    schema = Schema((*batch.schema.fields, Field("__arrival", column.type)))
    return batch.with_columns(schema, [*batch.columns, column])
