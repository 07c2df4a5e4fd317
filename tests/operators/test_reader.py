"""The reader of a source: what it says of time before and after splits are assigned."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from penstock.connectors.base import Split
from penstock.jobgraph.assignments import ASSIGNMENT_SCHEMA
from penstock.jobgraph.specs import SourceSpec
from penstock.jobgraph.specs.parts import WatermarkSpec
from penstock.metrics import MetricGroup
from penstock.operators.operator import MIN_WATERMARK, OperatorContext
from penstock.operators.sources import SourceOperator, SplitState
from penstock.snapshots.contract import RestoredState
from penstock.types import Batch, Schema
from penstock.types import logical as t

SCHEMA = Schema.of(("at", t.TimestampType(3)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "one.csv").write_text("2025-01-01 00:00:00\n")
    return tmp_path


async def reader(folder: Path, *, splits: list[Split] | None) -> SourceOperator:
    """The second of two readers, restored from a snapshot in which the two had ``splits`` (None: no snapshot)."""
    spec = SourceSpec(
        connector="filesystem",
        options={"connector": "filesystem", "path": str(folder), "format": "csv"},
        schema=SCHEMA,
        projection=(0,),
        watermark=WatermarkSpec(rowtime=0),
    )
    restored = None
    if splits is not None:
        states = [msgspec.json.encode(SplitState(split)) for split in splits]
        restored = RestoredState(checkpoint_id=1, unions={"splits": states, "arrival": [b"0", b"0"]})
    operator = SourceOperator(spec)
    ctx = OperatorContext(
        job_id="j", job_name="j", vertex_id="v", uid="u", name="source", subtask_index=1, parallelism=2,
        max_parallelism=128, attempt=1, input_schemas=[ASSIGNMENT_SCHEMA], output_schema=SCHEMA, config={},
        metrics=MetricGroup(), key_groups=(64, 127), local_dir=folder, now_ms=lambda: 0,
        wake_at=lambda at: None, function={}.__getitem__, run=asyncio.to_thread,
    )  # fmt: skip
    operator.open(ctx, restored)
    await operator.start()
    return operator


async def test_a_reader_of_a_snapshot_older_than_the_first_discovery_holds_the_watermark(folder):
    """Found by the simulation's seed 149: a savepoint was taken before any split was known. The reader that got
    its splits second was idle for a moment, the watermark rose past its rows, and they were dropped as late."""
    operator = await reader(folder, splits=[])
    assert operator.position(1000) == (MIN_WATERMARK, False)
    owned = (1, msgspec.json.encode(Split("a", {"path": str(folder / "one.csv")})).decode())
    assert list(operator.process(0, Batch.of(ASSIGNMENT_SCHEMA, [owned]))) == []
    assert operator.position(2000) == (MIN_WATERMARK, False)
    await operator.stop()


async def test_a_reader_is_idle_at_once_if_another_reader_gets_all_splits(folder):
    operator = await reader(folder, splits=[])
    other = (0, msgspec.json.encode(Split("a", {})).decode())
    assert list(operator.process(0, Batch.of(ASSIGNMENT_SCHEMA, [other]))) == []
    assert operator.position(1000) == (MIN_WATERMARK, True)
    await operator.stop()


async def test_a_reader_of_a_source_without_splits_is_idle_after_the_timeout(folder):
    """The first split may come later: with rows that another input of a join must not overtake."""
    operator = await reader(folder, splits=[])
    operator.inputs_idle()
    assert operator.position(1000) == (MIN_WATERMARK, False)
    assert operator.position(5999) == (MIN_WATERMARK, False)
    assert operator.position(6200) == (MIN_WATERMARK, True)
    await operator.stop()


async def test_a_reader_without_a_split_is_idle_at_once_if_the_snapshot_knows_splits(folder):
    operator = await reader(folder, splits=[Split("a", {"path": str(folder / "one.csv")})])
    assert operator.position(1000) == (MIN_WATERMARK, True)
    await operator.stop()


async def test_a_new_reader_is_not_idle_before_the_first_assignment(folder):
    operator = await reader(folder, splits=None)
    assert operator.position(1000) == (MIN_WATERMARK, False)
    await operator.stop()
