"""Drives one operator in a test: batches, watermarks, snapshot and restore."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from penstock.runtime.kernels.hashing import hash_columns, key_group_range, key_groups, subtask_of_key_group
from penstock.runtime.operator import (
    MAX_WATERMARK,
    MetricGroup,
    Operator,
    OperatorContext,
    RestoredState,
    SideBatch,
)
from penstock.types.batch import KIND_SIGN, Batch
from penstock.types.logical import Schema

MAX_PARALLELISM = 128


class Subtask:
    """One operator instance and what it has emitted."""

    def __init__(
        self,
        operator: Operator,
        inputs: list[Schema],
        output: Schema,
        *,
        index: int = 0,
        parallelism: int = 1,
        restored: RestoredState | None = None,
        function: Any = None,
    ) -> None:
        self.operator = operator
        self.now_ms = 0
        self.wakes: list[int] = []
        self.out: list[Batch] = []
        self.side: dict[str, list[Batch]] = {}
        self.metrics = MetricGroup()
        ctx = OperatorContext(
            job_id="job", job_name="test", vertex_id="v", uid="u", name=type(operator).__name__,
            subtask_index=index, parallelism=parallelism, max_parallelism=MAX_PARALLELISM, attempt=1,
            input_schemas=inputs, output_schema=output, config={}, metrics=self.metrics,
            key_groups=key_group_range(index, parallelism, MAX_PARALLELISM), local_dir=Path("."),
            now_ms=lambda: self.now_ms, wake_at=self.wakes.append, function=function,
        )  # fmt: skip
        operator.open(ctx, restored)

    def _take(self, outputs: Any) -> None:
        for item in outputs:
            if isinstance(item, SideBatch):
                self.side.setdefault(item.tag, []).append(item.batch)
            else:
                assert item.num_rows > 0
                assert all(len(c) == item.num_rows for c in item.columns)
                assert [c.type for c in item.columns] == item.schema.types
                self.out.append(item)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        if batch.num_rows:
            self._take(self.operator.process(input_index, batch))

    def watermark(self, watermark: int) -> None:
        self._take(self.operator.on_watermark(watermark))

    def processing_time(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self._take(self.operator.on_processing_time(now_ms))

    def finish(self) -> None:
        self.watermark(MAX_WATERMARK)
        self._take(self.operator.finish())

    def rows(self) -> list[tuple]:
        return [row for batch in self.out for row in batch.to_pylist()]

    def changes(self) -> list[tuple[str, tuple]]:
        return [(kind.short, row) for batch in self.out for kind, row in batch.rows()]

    def side_rows(self, tag: str) -> list[tuple]:
        return [row for batch in self.side.get(tag, []) for row in batch.to_pylist()]


def materialized(outputs: list[Batch]) -> Counter:
    """The changelog's final rows; a retraction of a row that is not there fails."""
    state: Counter = Counter()
    for batch in outputs:
        kinds = np.zeros(batch.num_rows, np.uint8) if batch.kinds is None else batch.kinds
        for sign, row in zip(KIND_SIGN[kinds].tolist(), batch.to_pylist(), strict=True):
            row = tuple(repr(v) if isinstance(v, (list, dict)) else v for v in row)
            state[row] += sign
            assert state[row] >= 0, f"unmatched retraction of {row}"
            if not state[row]:
                del state[row]
    return state


class Cluster:
    """``parallelism`` subtasks fed by key group, restorable at any other parallelism."""

    def __init__(self, make: Any, keys: list[tuple[int, ...]], inputs: list[Schema], output: Schema,
                 parallelism: int, states: list[RestoredState] | None = None) -> None:  # fmt: skip
        self.make, self.keys, self.inputs, self.output = make, keys, inputs, output
        self.subtasks = [
            Subtask(
                make(), inputs, output, index=i, parallelism=parallelism,
                restored=states[i] if states else None,
            )
            for i in range(parallelism)
        ]  # fmt: skip

    def process(self, batch: Batch, input_index: int = 0) -> None:
        if not batch.num_rows:
            return
        keys = [batch.columns[i] for i in self.keys[input_index]]
        hashes = hash_columns(keys) if keys else np.zeros(batch.num_rows, np.uint64)
        owner = subtask_of_key_group(key_groups(hashes, MAX_PARALLELISM), len(self.subtasks), MAX_PARALLELISM)
        for i, subtask in enumerate(self.subtasks):
            subtask.process(batch.filter(owner == i), input_index)

    def watermark(self, watermark: int) -> None:
        for subtask in self.subtasks:
            subtask.watermark(watermark)

    def finish(self) -> None:
        for subtask in self.subtasks:
            subtask.finish()

    def out(self) -> list[Batch]:
        return [batch for subtask in self.subtasks for batch in subtask.out]

    def rescale(self, parallelism: int) -> Cluster:
        """Snapshot all subtasks and restore the state at another parallelism; what was
        emitted so far is carried along."""
        for s in self.subtasks:
            s._take(s.operator.prepare_checkpoint(1))
        snapshots = [s.operator.snapshot(1) for s in self.subtasks]
        states = []
        for i in range(parallelism):
            first, last = key_group_range(i, parallelism, MAX_PARALLELISM)
            state = RestoredState(checkpoint_id=1)
            for snap in snapshots:
                for name, block in snap.keyed.items():
                    assert (np.diff(block.key_groups) >= 0).all()
                    low, high = np.searchsorted(block.key_groups, [first, last + 1])
                    state.keyed.setdefault(name, []).append(block.batch.slice(low, high - low))
                for name, items in snap.unions.items():
                    state.unions.setdefault(name, []).extend(items)
                for name, items in snap.lists.items():
                    state.lists.setdefault(name, []).extend(items[i::parallelism])
            states.append(state)
        out = Cluster(self.make, self.keys, self.inputs, self.output, parallelism, states)
        out.subtasks[0].out = self.out() + out.subtasks[0].out
        for old in self.subtasks:
            for tag, batches in old.side.items():
                out.subtasks[0].side.setdefault(tag, []).extend(batches)
        return out
