"""A reader is told of a complete checkpoint with the positions of that very checkpoint."""

from __future__ import annotations

import pytest

from penstock.connectors.base import Split
from penstock.testing import GraphBuilder, JobHarness, MemoryTable
from penstock.testing.memory import MemoryReader
from penstock.types import Batch, Schema
from penstock.types.logical import BigIntType

SCHEMA = Schema.of(("n", BigIntType(nullable=False)))


async def test_positions_are_those_of_the_checkpoint_and_not_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[int, list[Split]] = {}
    cuts: list[list[Split]] = []
    snapshot = MemoryReader.snapshot

    def noted_snapshot(self: MemoryReader) -> list[Split]:
        cuts.append(snapshot(self))
        return cuts[-1]

    monkeypatch.setattr(MemoryReader, "snapshot", noted_snapshot)
    monkeypatch.setattr(
        MemoryReader, "on_checkpoint_complete", lambda self, id, positions: told.update({id: list(positions)})
    )
    source = MemoryTable("in", SCHEMA, [[Batch.of(SCHEMA, [(i,) for i in range(100)])]], batch_rows=10)
    builder = GraphBuilder()
    builder.collect(builder.source("memory", SCHEMA, {"name": "in"}))
    source.release(20)
    async with JobHarness(builder.build()) as job:
        await job.until(
            lambda: any(split.position == 20 for reader in source._readers for split in snapshot(reader))
        )
        first = await job.checkpoint()
        source.release(60)
        second = await job.checkpoint()
        await job.until(lambda: {first.checkpoint_id, second.checkpoint_id} <= told.keys())
    assert [told[first.checkpoint_id], told[second.checkpoint_id]] == cuts[:2]
    assert [split.position for split in cuts[0]] == [20]
