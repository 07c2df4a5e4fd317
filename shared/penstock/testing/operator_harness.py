"""Drives one operator in a test with batches, watermarks, snapshots and restores."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from penstock.columnar.hashing import hash_columns, key_group_range, key_groups, subtask_of_key_group
from penstock.messages.slot import StateHandle, StateLink
from penstock.metrics import MetricGroup
from penstock.operators.drivers import AsyncOperator, PausingOperator
from penstock.operators.operator import MAX_WATERMARK, Operator, OperatorContext, SideBatch
from penstock.snapshots.contract import OperatorSnapshot, RestoredState
from penstock.snapshots.restoring import restore
from penstock.snapshots.writing import write_snapshot
from penstock.state.key_groups import KeyGroups
from penstock.state.keyed_state import collected
from penstock.state.memory import StateMemory
from penstock.types.batch import KIND_SIGN, Batch
from penstock.types.logical import Schema

MAX_PARALLELISM = 128


class Subtask:
    """One operator instance and the batches that it has emitted."""

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
        memory: StateMemory | None = None,
        local_dir: Path | None = None,
        config: dict[str, str] | None = None,
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
            input_schemas=inputs, output_schema=output, config=config or {}, metrics=self.metrics,
            key_groups=key_group_range(index, parallelism, MAX_PARALLELISM), local_dir=local_dir or Path("."),
            memory=memory or StateMemory(),
            now_ms=lambda: self.now_ms, wake_at=self.wakes.append, function=function, run=asyncio.to_thread,
        )  # fmt: skip
        self._ctx = ctx
        self.key_groups = KeyGroups.range(*ctx.key_groups, MAX_PARALLELISM)
        #: Snapshot objects of its chain, newest first; all but the last are deltas.
        self._links: list[StateLink] = []
        self._since = self._upto = 0
        operator.open(ctx, restored)
        #: The event loop of an operator that awaits something.
        self._loop: asyncio.AbstractEventLoop | None = None
        if isinstance(operator, AsyncOperator):
            self._loop = asyncio.new_event_loop()
            self._loop.run_until_complete(operator.start())

    def close(self) -> None:
        """Stop and close the operator."""
        if self._loop is not None and isinstance(self.operator, AsyncOperator):
            self._loop.run_until_complete(self.operator.stop())
            self._loop.close()
        self.operator.close()

    def checkpoint(self) -> StateHandle:
        """Take a snapshot, as a delta after the earlier ones. Output that the operator emits before the
        barrier is collected first."""
        self._take(self.operator.prepare_checkpoint(1))
        return self.complete(self.begin())

    def begin(self) -> OperatorSnapshot:
        """The barrier arrives: the operator cuts its state, and nothing is copied yet."""
        self._upto = self._ctx.epochs.begin(self._since)
        return self.operator.snapshot(len(self._links) + 1)

    def complete(self, snapshot: OperatorSnapshot) -> StateHandle:
        """Write the snapshot and confirm its checkpoint."""
        if snapshot.pending is not None:
            assert self._loop is not None
            snapshot.lists.update(self._loop.run_until_complete(snapshot.pending))
            snapshot.pending = None
        number = len(self._links) + 1
        self._since = self._ctx.epochs.confirmed = self._upto
        data = write_snapshot({"u": snapshot.copied()}, checkpoint_id=number, key_groups=self._ctx.key_groups)
        self._links.insert(0, StateLink(checkpoint_id=number, inline=data, size_bytes=len(data)))
        return StateHandle(
            vertex_id="v", subtask_index=self._ctx.subtask_index, checkpoint_id=number, inline=data,
            size_bytes=len(data), key_groups=self._ctx.key_groups, chain=tuple(self._links[1:]),
        )  # fmt: skip

    @staticmethod
    def abort(snapshot: OperatorSnapshot) -> None:
        """The checkpoint of ``begin`` has failed: release what is pending."""
        snapshot.abandon()

    def _take(self, outputs: Any) -> None:
        if self._loop is None:
            self._collect(outputs)
        else:
            self._loop.run_until_complete(self._awaited(outputs))

    async def _awaited(self, outputs: Any) -> None:
        """As a task does: after an empty batch it waits until the operator is ready."""
        for item in outputs:
            if (
                isinstance(self.operator, PausingOperator)
                and not isinstance(item, SideBatch)
                and not item.num_rows
            ):
                await self.operator.wait_ready()
            else:
                self._collect([item])

    def _collect(self, outputs: Any) -> None:
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

    def rows(self) -> list[tuple[Any, ...]]:
        return [row for batch in self.out for row in batch.to_pylist()]

    def changes(self) -> list[tuple[str, tuple[Any, ...]]]:
        return [(kind.short, row) for batch in self.out for kind, row in batch.rows()]

    def side_rows(self, tag: str) -> list[tuple[Any, ...]]:
        return [row for batch in self.side.get(tag, []) for row in batch.to_pylist()]


def materialized(outputs: list[Batch], key: Sequence[int] = ()) -> Counter[tuple[Any, ...]]:
    """The changelog's final rows; a retraction of a row that is not there fails. ``key``: the columns by which a new row
    replaces an older one, if the changelog has no rows of kind −U."""
    state: Counter[tuple[Any, ...]] = Counter()
    newest: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for batch in outputs:
        kinds = np.zeros(batch.num_rows, np.uint8) if batch.kinds is None else batch.kinds
        for sign, row in zip(KIND_SIGN[kinds].tolist(), batch.to_pylist(), strict=True):
            row = tuple(repr(v) if isinstance(v, (list, dict)) else v for v in row)
            if key:
                place = tuple(row[k] for k in key)
                state[newest.pop(place, row)] = 0
                if sign > 0:
                    newest[place] = row
            state[row] += sign if sign > 0 or not key else 0
            assert state[row] >= 0, f"unmatched retraction of {row}"
            if not state[row]:
                del state[row]
    return +state


class Cluster:
    """``parallelism`` subtasks fed by key group, restorable at any other parallelism.
    ``limit_bytes``: the memory limit of each subtask's state; ``folder``: for the state above the limit;
    ``checkpoint_every``: number of batches between two checkpoints."""

    def __init__(self, make: Any, keys: list[tuple[int, ...]], inputs: list[Schema], output: Schema,
                 parallelism: int, states: list[RestoredState | None] | None = None, *,
                 limit_bytes: int = 0, folder: Path | None = None, checkpoint_every: int = 3,
                 function: Any = None) -> None:  # fmt: skip
        self.make, self.keys, self.inputs, self.output = make, keys, inputs, output
        self.limit_bytes, self.folder, self.checkpoint_every = limit_bytes, folder, checkpoint_every
        self.function = function
        self._batches = 0
        self.subtasks = [
            Subtask(
                make(), inputs, output, index=i, parallelism=parallelism,
                restored=states[i] if states else None, memory=StateMemory(limit_bytes), function=function,
                local_dir=None if folder is None else folder / str(i),
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
        # Regular checkpoints make ``rescale`` restore a chain of deltas.
        self._batches += 1
        if self.checkpoint_every and self._batches % self.checkpoint_every == 1:
            for subtask in self.subtasks:
                subtask.checkpoint()

    def watermark(self, watermark: int) -> None:
        for subtask in self.subtasks:
            subtask.watermark(watermark)

    def finish(self) -> None:
        for subtask in self.subtasks:
            subtask.finish()

    def close(self) -> None:
        for subtask in self.subtasks:
            subtask.close()

    def out(self) -> list[Batch]:
        return [batch for subtask in self.subtasks for batch in subtask.out]

    def rescale(self, parallelism: int) -> Cluster:
        """Snapshot all subtasks and restore the state, from their chains of deltas, at
        another parallelism; the output so far is kept."""
        out = self._next(self._states(parallelism))
        for old in self.subtasks:
            old.close()
        return out

    def hand_over(self, parallelism: int) -> Cluster:
        """As ``rescale``, but rows of key groups move from one running subtask to another, as when a running
        job is rescaled. Only state without a key comes from the checkpoint."""
        states = self._states(parallelism)
        out = self._next([None if s is None else replace(s, keyed={}, schemas={}) for s in states])
        everything = KeyGroups.all(MAX_PARALLELISM)
        for old in self.subtasks:
            given = old.operator.state
            for new in out.subtasks:
                groups = old.key_groups & new.key_groups
                moved = collected(given.export(groups))
                given.mask(groups)
                new.operator.absorb(groups, moved)
                while not given.drop(iter([True, False]).__next__):
                    pass
            assert not list(given.export(everything - old.key_groups)), "rows of foreign key groups"
            old.close()
        return out

    def _states(self, parallelism: int) -> list[RestoredState | None]:
        handles = [s.checkpoint() for s in self.subtasks]
        return [
            asyncio.run(
                restore(handles, "u", key_group_range(i, parallelism, MAX_PARALLELISM), i, parallelism)
            )
            for i in range(parallelism)
        ]

    def _next(self, states: list[RestoredState | None]) -> Cluster:
        """A cluster with one subtask for each of ``states``, and the output so far."""
        folder = None if self.folder is None else self.folder / "next"
        out = Cluster(
            self.make, self.keys, self.inputs, self.output, len(states), states,
            limit_bytes=self.limit_bytes, folder=folder, checkpoint_every=self.checkpoint_every,
            function=self.function,
        )  # fmt: skip
        out.subtasks[0].out = self.out() + out.subtasks[0].out
        for old in self.subtasks:
            for tag, batches in old.side.items():
                out.subtasks[0].side.setdefault(tag, []).extend(batches)
        return out
