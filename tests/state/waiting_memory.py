"""Far more rows that wait than an operator may hold, in a process of its own.

``python waiting_memory.py CASE LIMIT_BYTES FOLDER BATCHES`` prints a JSON object: ``digest`` of all
that came out; ``on_disk``: the most rows (or keys) that lay there; ``growth_bytes``: how much this
process' own memory had grown at most, since everything had been loaded and used once.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from resident_memory import digest, memory_bytes

from penstock.jobgraph.specs import JoinSpec, TemporalJoinSpec, TemporalSortSpec, WindowJoinSpec
from penstock.operators.join import make_join
from penstock.operators.sort import TemporalSortOperator
from penstock.operators.temporal_join import TemporalJoinOperator
from penstock.operators.window_join import WindowJoinOperator
from penstock.runtime.malloc import keep_freed_memory
from penstock.state.memory import StateMemory
from penstock.testing.operator_harness import Subtask
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column
from penstock.types.logical import Schema

BIG, STR = t.BigIntType(), t.VarCharType()
N, TIME = BIG.not_null, t.TimestampType(6).not_null
ROWS = Schema.of(("k", BIG), ("s", STR), ("t", TIME), ("start", N), ("end", N))
TWICE = Schema((*ROWS.fields, *(t.Field(f"{f.name}2", f.type.with_nullable(True)) for f in ROWS.fields)))
BATCH_ROWS, TEXT = 128, 6_000
#: All rows lie within so many µs, and wait until they all came.
SPAN, WINDOW = 1_000_000, 500_000
STEPS = 20

CASES: dict[str, tuple[Any, int, Schema]] = {
    "sort": (lambda: TemporalSortOperator(TemporalSortSpec(time=2)), 1, ROWS),
    "temporal-join": (
        lambda: TemporalJoinOperator(
            TemporalJoinSpec(kind="left", left_keys=(0,), right_keys=(0,), left_time=2, right_time=2)
        ),
        2,
        TWICE,
    ),
    "window-join": (
        lambda: WindowJoinOperator(
            WindowJoinSpec(
                kind="full", left_keys=(0,), right_keys=(0,), left_window=(3, 4), right_window=(3, 4)
            )
        ),
        2,
        TWICE,
    ),
    "interval-join": (
        lambda: make_join(
            JoinSpec(kind="left", left_keys=(0,), right_keys=(0,), interval=(2, 2, -SPAN, SPAN))
        ),
        2,
        TWICE,
    ),
}


def rows(random: np.random.Generator, keys: int) -> Batch:
    at, key = random.integers(0, SPAN, BATCH_ROWS), random.integers(0, keys, BATCH_ROWS)
    start = at // WINDOW * WINDOW
    texts = pc.binary_join_element_wise(pa.array(at).cast(pa.string()), "x" * TEXT, "")
    columns = [Column(BIG, key), Column(STR, texts), Column(TIME, at), Column(N, start)]
    return Batch(ROWS, [*columns, Column(N, start + WINDOW)], num_rows=BATCH_ROWS)


class Run:
    def __init__(self, case: str, limit_bytes: int, folder: Path, batches: int) -> None:
        make, self.inputs, output = CASES[case]
        self.task = Subtask(
            make(), [ROWS] * self.inputs, output, memory=StateMemory(limit_bytes), local_dir=folder
        )
        self.batches, self.random = batches, np.random.default_rng(5)
        self.base, self.most, self.on_disk, self.digest = memory_bytes()[0], 0, 0, 0

    def all(self) -> dict[str, int]:
        for i in range(self.batches):
            self.task.process(rows(self.random, self.batches * BATCH_ROWS // 4), i % self.inputs)
            self.look()
        for step in range(1, STEPS + 1):
            for output in self.task.operator.on_watermark(step * 3 * SPAN // STEPS):
                self.task.out.append(output)
                self.look()
        self.task.finish()
        self.look()
        self.task.operator.close()
        return {"digest": self.digest, "on_disk": self.on_disk, "growth_bytes": self.most}

    def look(self) -> None:
        self.digest = (self.digest + digest(self.task)) % (1 << 64)
        self.most = max(self.most, memory_bytes()[0] - self.base)
        gauges = self.task.metrics.gauges
        names = [name for name in gauges if name.startswith(("numRowsOnDisk", "numKeysOnDisk"))]
        self.on_disk = max(self.on_disk, sum(int(gauges[name]() or 0) for name in names))


def main(case: str, limit_bytes: int, folder: Path, batches: int) -> dict[str, int]:
    keep_freed_memory()
    Run(case, 2_000_000, folder / "warm", 12).all()
    return Run(case, limit_bytes, folder / "run", batches).all()


if __name__ == "__main__":
    name, limit, where, number = sys.argv[1:]
    print(json.dumps(main(name, int(limit), Path(where), int(number))))
