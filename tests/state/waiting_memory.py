"""Far more rows that wait than an operator may hold, in a process of its own.

``python waiting_memory.py CASE LIMIT_BYTES FOLDER BATCHES [CURVE]`` prints a JSON object: ``digest`` of all
that came out; ``on_disk``: the most rows (or keys) that lay there; ``growth_bytes`` and ``peak_bytes``: as
``resident_memory.py`` says.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from resident_memory import CURVE_STEP, Growth, digest

from penstock.jobgraph.specs import JoinSpec, TemporalJoinSpec, TemporalSortSpec, WindowJoinSpec
from penstock.operators.join import make_join
from penstock.operators.sort import TemporalSortOperator
from penstock.operators.temporal_join import TemporalJoinOperator
from penstock.operators.window_join import WindowJoinOperator
from penstock.runtime.malloc import keep_freed_memory
from penstock.state.memory import StateMemory
from penstock.state.process_memory import ProcessMemory
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
    def __init__(
        self, case: str, limit_bytes: int, folder: Path, batches: int, curve: TextIO | None = None
    ) -> None:
        make, self.inputs, output = CASES[case]
        self.memory = StateMemory(limit_bytes, ProcessMemory(limit_bytes) if limit_bytes else None)
        self.task = Subtask(make(), [ROWS] * self.inputs, output, memory=self.memory, local_dir=folder)
        self.batches, self.random, self.curve = batches, np.random.default_rng(5), curve
        self.on_disk = self.digest = 0
        self.growth = Growth()

    def all(self) -> dict[str, int]:
        for i in range(self.batches):
            self.task.process(rows(self.random, self.batches * BATCH_ROWS // 4), i % self.inputs)
            own = self.look()
            if self.curve is not None and i % CURVE_STEP == 0:
                sample = {"counted_bytes": self.memory.counted(), "growth_bytes": own}
                print(json.dumps({"rows": (i + 1) * BATCH_ROWS, **sample}), file=self.curve)
        for step in range(1, STEPS + 1):
            for output in self.task.operator.on_watermark(step * 3 * SPAN // STEPS):
                self.task.out.append(output)
                self.look()
        self.task.finish()
        self.look()
        self.task.operator.close()
        grown = {"growth_bytes": self.growth.most, "peak_bytes": self.growth.peak}
        return {"digest": self.digest, "on_disk": self.on_disk, **grown}

    def look(self) -> int:
        self.digest = (self.digest + digest(self.task)) % (1 << 64)
        own = self.growth.look()
        gauges = self.task.metrics.gauges
        names = [name for name in gauges if name.startswith(("numRowsOnDisk", "numKeysOnDisk"))]
        self.on_disk = max(self.on_disk, sum(int(gauges[name]() or 0) for name in names))
        return own


def main(
    case: str, limit_bytes: int, folder: Path, batches: int, curve: TextIO | None = None
) -> dict[str, int]:
    keep_freed_memory()
    Run(case, 2_000_000, folder / "warm", 12).all()
    return Run(case, limit_bytes, folder / "run", batches, curve).all()


if __name__ == "__main__":
    name, limit, where, number, *curves = sys.argv[1:]
    with open(curves[0] if curves else os.devnull, "w") as samples:
        found = main(name, int(limit), Path(where), int(number), samples if curves else None)
    print(json.dumps(found))
