"""Segments: rows on their way between stages, in an order that a stream might have had."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from penstock.jobgraph import Broadcast, Forward, Global, Hash, JobEdge, Rebalance
from penstock.operators.operator import MIN_WATERMARK
from penstock.runtime.elements import Watermark
from penstock.spark.backfill_edges import (
    LEAST_ROWS,
    SEGMENT_ROWS,
    SegmentReader,
    SegmentWriter,
    record_batch,
    records_of,
)
from penstock.types import Batch, Schema
from penstock.types import logical as t

SCHEMA = Schema.of(("n", t.BigIntType()))


def rows(*values: int) -> Batch:
    return Batch.of(SCHEMA, [(v,) for v in values])


def writer(partitioning: object, consumers: int = 2, producer: int = 0) -> SegmentWriter:
    edge = JobEdge(
        id="e", source="a", source_operator=0, target="b", target_gate=0, partitioning=partitioning, schema=SCHEMA
    )  # fmt: skip
    return SegmentWriter(edge, 4, consumers, 128, producer, "run")


def read(made: SegmentWriter) -> list[tuple[int, int, list[int]]]:
    """(target, watermark, rows) of every segment."""
    made.finish()
    out = []
    for record in records_of([record_batch(made.taken())]):
        [(gate, watermark, batch)] = SegmentReader({4: (1, SCHEMA)}).batches([record])
        assert gate == 1
        out.append((record[1], watermark, [r[0] for r in batch.to_pylist()]))
    return sorted(out)


@pytest.mark.parametrize(
    ("partitioning", "producer", "targets"),
    [
        (Forward(), 5, {1: [1, 2, 3, 4]}),
        (Global(), 5, {0: [1, 2, 3, 4]}),
        (Broadcast(), 0, {0: [1, 2, 3, 4], 1: [1, 2, 3, 4]}),
        (Rebalance(), 1, {0: [3, 4], 1: [1, 2]}),
    ],
)
def test_where_rows_go(partitioning: object, producer: int, targets: dict[int, list[int]]) -> None:
    made = writer(partitioning, producer=producer)
    made.write(rows(1, 2))
    made.write(rows(3, 4))
    assert {target: values for target, _, values in read(made)} == targets


def test_a_key_goes_to_one_target() -> None:
    made = writer(Hash((0,)), consumers=3)
    made.write(rows(*range(50), *range(50)))
    found = read(made)
    assert len(found) == 3
    assert sorted(v for _, _, values in found for v in values) == sorted([*range(50), *range(50)])
    assert all(values.count(v) == 2 for _, _, values in found for v in values)


def test_a_small_segment_keeps_its_place_when_time_rises() -> None:
    made = writer(Global())
    made.write(rows(1))
    made.emit(Watermark(10))
    made.write(rows(2))
    assert read(made) == [(0, MIN_WATERMARK, [1, 2])]


def test_a_large_one_ends_there() -> None:
    made = writer(Global())
    made.write(rows(*range(LEAST_ROWS)))
    made.emit(Watermark(10))
    made.write(rows(7))
    assert [(w, len(values)) for _, w, values in read(made)] == [(MIN_WATERMARK, LEAST_ROWS), (10, 1)]
    assert made.watermark == 10


def test_small_segments_are_read_together_from_the_time_of_the_first() -> None:
    made = writer(Global())
    for n in range(3):
        made.emit(Watermark(n))
        made.write(rows(*range(LEAST_ROWS)))
    made.finish()
    [(gate, watermark, batch)] = SegmentReader({4: (0, SCHEMA)}).batches(made.taken())
    assert (gate, watermark, batch.num_rows) == (0, 0, 3 * LEAST_ROWS)


def test_a_segment_has_a_greatest_size() -> None:
    made = writer(Global())
    made.write(rows(*range(SEGMENT_ROWS)))
    assert len(made.taken()) == 1
