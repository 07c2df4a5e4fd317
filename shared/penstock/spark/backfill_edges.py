"""Carries rows from one stage of a backfill to the next: in segments, through Spark's shuffle.

A *segment* holds consecutive output rows of one subtask for one subtask behind an edge, in the encoding of
the streaming engine's channels; Spark sees a few columns and a payload. ``watermark`` is the watermark of the
output when the segment's first row was made. A consumer takes the segments of its producers in the order of
these watermarks and lets its own watermark rise with them, so it does what it would do in a stream. ``run``
names the run of the producer: Spark may repeat a task, and only one run counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.jobgraph import Forward, Global
from penstock.operators.operator import MIN_WATERMARK
from penstock.runtime.elements import Watermark
from penstock.runtime.network.frames import BATCH, ElementDecoder, encode_element
from penstock.runtime.partitioners import make_partitioner
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.jobgraph import JobEdge
    from penstock.runtime.elements import Control
    from penstock.types.logical import Schema

#: ``edge`` of a record whose ``payload`` is the report of a subtask at its end (JSON).
REPORT = -1
COLUMNS = (
    "edge int, target int, watermark bigint, producer int, seq bigint, run string, flags int, payload binary"
)
_ARROW = pa.schema(
    [
        ("edge", pa.int32()), ("target", pa.int32()), ("watermark", pa.int64()), ("producer", pa.int32()),
        ("seq", pa.int64()), ("run", pa.string()), ("flags", pa.int32()), ("payload", pa.binary()),
    ]
)  # fmt: skip
#: Records sorted by these columns are in an order that a stream could have.
ORDER = ("target", "watermark", "producer", "seq")
#: The size in rows at which a segment is closed, and of a batch that is made of segments.
SEGMENT_ROWS = 16_384
#: A segment with at least this many rows is closed when the watermark rises.
LEAST_ROWS = 512

Record = tuple[int, int, int, int, int, str, int, bytes]


def record_batch(records: list[Record]) -> pa.RecordBatch:
    """The records of segments as an Arrow record batch."""
    columns = list(zip(*records, strict=True))
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def records_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Record]:
    """The records of segments in Arrow record batches."""
    for rows in batches:
        yield from zip(*(column.to_pylist() for column in rows.columns), strict=True)


class SegmentWriter:
    """Takes the place of a task's edge writer. ``number``: the edge's number in the graph; ``consumers``: the
    number of subtasks behind the edge."""

    def __init__(
        self, edge: JobEdge, number: int, consumers: int, max_parallelism: int, producer: int, run: str
    ) -> None:
        self._number, self._producer, self._run = number, producer, run
        match edge.partitioning:
            case Forward():
                self._targets = [producer % consumers]
            case Global():
                self._targets = [0]
            case _:
                self._targets = list(range(consumers))
        self._partitioner = make_partitioner(
            edge.partitioning,
            subtask_index=producer,
            channels=len(self._targets),
            max_parallelism=max_parallelism,
        )
        #: target → (watermark at the first row, batches, rows)
        self._open: dict[int, tuple[int, list[Batch], int]] = {}
        self._seq = 0
        self.watermark = MIN_WATERMARK
        self._records: list[Record] = []

    def write(self, batch: Batch) -> None:
        """Add rows to the open segments of the subtasks that they belong to."""
        for channel, rows in self._partitioner.partition(batch):
            target = self._targets[channel]
            since, parts, n = self._open.get(target, (self.watermark, [], 0))
            if n >= LEAST_ROWS and since < self.watermark:
                self._seal(target)
                since, parts, n = self.watermark, [], 0
            parts.append(rows)
            self._open[target] = (since, parts, n + rows.num_rows)
            if n + rows.num_rows >= SEGMENT_ROWS:
                self._seal(target)

    def emit(self, element: Control) -> None:
        """Notes a watermark; other control elements are ignored."""
        # An open segment keeps its older watermark: rows may always be ahead of the watermark.
        if isinstance(element, Watermark):
            self.watermark = element.value

    def finish(self) -> None:
        """Close all open segments."""
        for target in list(self._open):
            self._seal(target)

    def taken(self) -> list[Record]:
        """The segments that were closed since the last call."""
        out, self._records = self._records, []
        return out

    def _seal(self, target: int) -> None:
        since, parts, _ = self._open.pop(target)
        kind, flags, payload = encode_element(Batch.concat(parts))
        assert kind == BATCH
        self._records.append(
            (self._number, target, since, self._producer, self._seq, self._run, flags, bytes(payload))
        )
        self._seq += 1


class SegmentReader:
    """Turns segments back into batches. ``gates``: edge number → (gate, schema)."""

    def __init__(self, gates: dict[int, tuple[int, Schema]]) -> None:
        self._gates = {edge: (gate, ElementDecoder(schema)) for edge, (gate, schema) in gates.items()}

    def batches(self, records: Iterable[Record]) -> Iterator[tuple[int, int, Batch]]:
        """The batches of the records, in order: (gate, watermark in µs before the rows, rows). Small
        neighbouring segments of a gate are merged."""
        held: list[Batch] = []
        rows, at = 0, (-1, MIN_WATERMARK)
        for edge, _, watermark, _, _, _, flags, payload in records:
            gate, decoder = self._gates[edge]
            batch: Any = decoder.decode(BATCH, flags, payload)
            if held and (gate != at[0] or rows + batch.num_rows > SEGMENT_ROWS):
                yield *at, Batch.concat(held)
                held, rows = [], 0
            if not held:
                at = (gate, watermark)
            held.append(batch)
            rows += batch.num_rows
        if held:
            yield *at, Batch.concat(held)
