"""An operator twice: one that may hold nearly nothing in memory, with checkpoints and restores at
any moment, and one that holds everything and is left in peace. They give the same."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from penstock.snapshots.contract import PendingBlock
from penstock.state.cold_tier import Resident
from penstock.testing.operator_harness import Cluster, Subtask
from penstock.types.batch import Batch
from penstock.types.logical import Schema


def tier(operator: Any) -> Resident:
    """Where an operator's keys go when memory is short."""
    return operator._keys.tier


def changes(cluster: Cluster) -> Any:
    """What came out since, late rows included, whatever the order of its keys."""
    out: Counter = Counter()
    for subtask in cluster.subtasks:
        out.update((kind, row) for batch in subtask.out for kind, row in batch.rows())
        out.update(("late", row) for row in subtask.side_rows("late"))
        subtask.out, subtask.side = [], {}
    return out


class BothWays:
    """``taken(cluster)``: what came out since it was last asked, as it is compared."""

    def __init__(
        self, make: Any, keys: list[tuple[int, ...]], inputs: list[Schema], output: Schema, *, folder: Path,
        limit_bytes: int, random: np.random.Generator, taken: Any = changes, function: Any = None,
    ) -> None:  # fmt: skip
        self.random, self._taken = random, taken
        self.large = Cluster(make, keys, inputs, output, 1, function=function)
        self.small = Cluster(
            make, keys, inputs, output, 1, limit_bytes=limit_bytes, folder=folder, checkpoint_every=0,
            function=function,
        )  # fmt: skip
        self._cuts: list[tuple[Subtask, Any]] = []

    @property
    def operators(self) -> list[Any]:
        """Those that may hold nearly nothing."""
        return [subtask.operator for subtask in self.small.subtasks]

    def process(self, batch: Batch, side: int = 0) -> None:
        for cluster in (self.small, self.large):
            cluster.process(batch, side)

    def watermark(self, watermark: int) -> None:
        for cluster in (self.small, self.large):
            cluster.watermark(watermark)

    def processing_time(self, now_ms: int) -> None:
        for cluster in (self.small, self.large):
            for subtask in cluster.subtasks:
                subtask.processing_time(now_ms)

    def finish(self) -> None:
        self._end_cuts()
        for cluster in (self.small, self.large):
            cluster.finish()

    def checkpoints(self, act: int, *, rescales: bool = True) -> None:
        """``act``: 0 begins a checkpoint that goes on while batches come, 1 and 2 complete or abort
        it, 3 takes one, 4 restores at some parallelism, from the checkpoint or by
        handing key groups over; others do nothing."""
        match act:
            case 0 if not self._cuts:
                self._cuts = [(s, s.begin()) for s in self.small.subtasks]
                for _, snapshot in self._cuts:
                    for block in snapshot.keyed.values():
                        if isinstance(block, PendingBlock):
                            budget = iter([True])
                            block.copy(lambda budget=budget: next(budget, False))
            case 1 | 2:
                self._end_cuts()
            case 3 if not self._cuts:
                for subtask in self.small.subtasks:
                    subtask.checkpoint()
            case 4 if not self._cuts and rescales:
                self.same()
                small, parallelism = self.small, int(self.random.integers(1, 4))
                moves = self.random.random() < 0.5
                self.small = small.hand_over(parallelism) if moves else small.rescale(parallelism)

    def same(self) -> Any:
        """What both gave."""
        expected = self._taken(self.large)
        assert self._taken(self.small) == expected
        return expected

    def _end_cuts(self) -> None:
        for subtask, snapshot in self._cuts:
            (subtask.complete if self.random.random() < 0.5 else subtask.abort)(snapshot)
        self._cuts = []
