"""A checkpoint that was aborted is not written to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.jobgraph import JobVertex
from penstock.messages.slot import TaskDescriptor
from penstock.runtime.checkpoints import SnapshotWriter
from penstock.runtime.environment import Environment
from penstock.snapshots.contract import KeyedBlock, OperatorSnapshot, PendingBlock
from penstock.state.epochs import Epochs
from penstock.store.memory import MemoryStore


class Pieces(PendingBlock):
    """Takes three slices to copy and has three pieces; tells ``reached`` how far it is."""

    def __init__(self, reached: Callable[[str], None]) -> None:
        self._reached = reached
        self._slices = 0
        self.discarded = False

    def copy(self, more: Callable[[], bool]) -> bool:
        self._slices += 1
        self._reached(f"slice {self._slices}")
        return self._slices == 3

    def block(self) -> KeyedBlock:
        raise AssertionError("it is written in pieces")

    def pieces(self) -> Iterator[KeyedBlock]:
        for n in (1, 2, 3):
            self._reached(f"piece {n}")
            rows = pa.record_batch([pa.array(np.random.default_rng(n).bytes(80_000))], names=["x"])
            yield KeyedBlock(rows, np.zeros(rows.num_rows, np.int32))

    def discard(self) -> None:
        self.discarded = True


ALL = ["slice 1", "slice 2", "slice 3", "piece 1", "piece 2", "piece 3"]


@pytest.mark.parametrize(
    ("abort_at", "final", "seen"),
    [
        ("slice 1", False, ALL[:1]),
        ("slice 3", False, ALL[:3]),
        ("piece 2", False, ALL[:5]),
        ("piece 3", False, ALL),
        ("", False, ALL),
        ("piece 1", True, ALL),
    ],
)
async def test_an_aborted_checkpoint_is_not_written_on(
    tmp_path: Path, abort_at: str, final: bool, seen: list[str]
) -> None:
    store = MemoryStore()
    environment = Environment(
        job_id="j", job_name="j", job_attempt=1, config={}, local_dir=tmp_path, store=store,
        function=lambda name: None,
    )  # fmt: skip
    vertex = JobVertex(id="v", name="v", operators=(), parallelism=1, max_parallelism=8)
    task = TaskDescriptor(execution_id="v:0", vertex_id="v", subtask_index=0, attempt=1, restore=())
    writer = SnapshotWriter(environment, vertex, task, Epochs())
    steps: list[str] = []

    def reached(step: str) -> None:
        steps.append(step)
        if step == abort_at:
            writer.aborted(7)

    block = Pieces(reached)
    writer.begin(7, "checkpoint")
    handle = await writer.write(7, {"op": OperatorSnapshot(keyed={"s": block})}, final=final)
    environment.helper.close()
    assert steps == seen
    aborted = bool(abort_at) and not final
    assert (handle is None, block.discarded, store.objects == {}) == (aborted, aborted, aborted)
