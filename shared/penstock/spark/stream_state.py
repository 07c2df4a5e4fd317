"""Stateful operators in Structured Streaming: our operators, with their state in Spark's state store.

Keys are spread over a fixed number of *groups*, and Spark keys the stream by group. The state of a group is
one snapshot of our operator (the format of docs/state-format.md). It is restored before the rows of a
micro-batch and taken again after them, so all state of the operator is kept. Rows travel as Arrow: they are
packed by group before Spark's shuffle and unpacked after it.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from penstock.columnar.hashing import hash_columns
from penstock.messages.slot import StateHandle
from penstock.operators.operator import MIN_WATERMARK
from penstock.snapshots.contract import OperatorSnapshot, RestoredState
from penstock.snapshots.restoring import restore
from penstock.snapshots.writing import write_snapshot
from penstock.spark.drive import Driver
from penstock.spark.errors import carried
from penstock.spark.partition_program import Program
from penstock.spark.typemap import from_spark_array
from penstock.types.batch import Batch
from penstock.types.column import Column
from penstock.types.logical import BigIntType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql.streaming.stateful_processor import (
        ExpiredTimerInfo,
        StatefulProcessorHandle,
        TimerValues,
    )

    from penstock.types.logical import Schema

#: This number must never change, because a restarted query finds its state by group.
GROUPS = 16
_RANGE = (0, 127)


def packer(
    schema: Schema, keys: tuple[int, ...], index: int, timed: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Makes a function for ``mapInArrow`` that turns rows of input ``index`` into (group, payload).

    The columns are the schema's, then ``__time`` if ``timed``.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in batches:
            if not rows.num_rows:
                continue
            columns = [from_spark_array(schema.types[k], rows.column(k)) for k in keys]
            hashes = hash_columns(columns) if columns else np.zeros(rows.num_rows, np.uint64)
            groups = (hashes % np.uint64(GROUPS)).astype(np.int32)
            found = np.unique(groups)
            payloads = [
                bytes([index]) + _encoded(rows.take(pa.array(np.flatnonzero(groups == g))))
                for g in found.tolist()
            ]
            yield pa.record_batch([pa.array(found), pa.array(payloads, pa.binary())], names=["g", "payload"])

    return lambda batches: carried(run(batches), "rows on their way to state")


def unpacker(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A function for ``mapInArrow``: payloads → rows."""
    for rows in batches:
        for payload in rows.column(0).to_pylist():
            with pa.ipc.open_stream(payload) as reader:
                yield from reader


def _encoded(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return sink.getvalue().to_pybytes()


class StreamDriver(Driver):
    """One group's operator for one micro-batch."""

    def __init__(self, program: Program, state: bytes | None, folder: Path) -> None:
        super().__init__(program)
        self._open(folder, _restored(program, state))

    def rows(self, payload: bytes) -> Iterator[pa.RecordBatch]:
        """Process rows of an input, which the payload's first byte names; yield the output."""
        index = payload[0]
        schema = self.program.steps[0].inputs[index]
        with pa.ipc.open_stream(pa.py_buffer(payload)[1:]) as reader:
            for rows in reader:
                columns = [from_spark_array(x, rows.column(i)) for i, x in enumerate(schema.types)]
                times = None
                if self.program.timed:
                    stamps: Column = from_spark_array(BigIntType(), rows.column(len(schema)))
                    times = stamps.values if stamps.valid is None else None
                batch = Batch(schema, columns, num_rows=rows.num_rows, times=times)
                yield from self._out(self._through(0, self.operators[0].process(index, batch)))

    def advance(self, watermark: int) -> Iterator[pa.RecordBatch]:
        """Processes a risen watermark (µs); yields the output."""
        yield from self._out(self._advance(watermark))

    def snapshot(self) -> bytes:
        """The state as the bytes of a snapshot."""
        uid = self.program.steps[0].uid
        taken: OperatorSnapshot = self.operators[0].snapshot(1).copied()
        return write_snapshot({uid: taken}, checkpoint_id=1, key_groups=_RANGE)


def _restored(program: Program, state: bytes | None) -> RestoredState | None:
    if state is None:
        return None
    handle = StateHandle(
        vertex_id="", subtask_index=0, checkpoint_id=1, inline=state, size_bytes=len(state), key_groups=_RANGE
    )
    return asyncio.run(restore([handle], program.steps[0].uid, _RANGE, 0, 1))


class GroupProcessor(StatefulProcessor):
    """Spark calls it for each group, with the group's rows and when the watermark has moved."""

    def __init__(self, program: Program, timed: bool) -> None:
        self._program = program
        self._timed = timed

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Spark: open the state of a task's groups."""
        self._handle = handle
        self._state = handle.getValueState("operator", "data binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        """Spark: process rows of one group."""
        return self._run([bytes(row.payload) for row in rows], timerValues)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        """Spark: event time has passed a timer of one group."""
        return self._run([], timerValues)

    def _run(self, payloads: list[bytes], timers: TimerValues) -> Iterator[Row]:
        return carried(self._rows(payloads, timers), self._program.steps[0].name)

    def _rows(self, payloads: list[bytes], timers: TimerValues) -> Iterator[Row]:
        found = self._state.get()
        with tempfile.TemporaryDirectory(prefix="penstock-spark-") as folder:
            driver = StreamDriver(self._program, None if found is None else bytes(found[0]), Path(folder))
            try:
                for payload in payloads:
                    for out in driver.rows(payload):
                        yield Row(payload=_encoded(out))
                watermark_ms = timers.getCurrentWatermarkInMs() if self._timed else 0
                if watermark_ms > 0:
                    # After Spark's watermark w rows at w may still come; after ours they may not.
                    for out in driver.advance(max(watermark_ms * 1000 - 1, MIN_WATERMARK)):
                        yield Row(payload=_encoded(out))
                self._state.update((driver.snapshot(),))
            finally:
                driver.close()
        if self._timed:
            # The timer makes Spark call this group again when the watermark moves on.
            self._handle.registerTimer(max(watermark_ms, 0) + 1)

    def close(self) -> None:
        """Do nothing: no resource is held between calls."""
