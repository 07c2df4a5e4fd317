"""One operator fed with far more state than it may hold, in a process of its own.

``python resident_memory.py CASE LIMIT_BYTES FOLDER NEW OLD [CURVE]`` prints a JSON object: ``digest`` of
all that came out, whatever its order within a batch; ``keys_on_disk`` at the end;
``growth_bytes``: how much this process' own memory had grown at most, measured after every
batch, since everything had been loaded and used once; ``peak_bytes``: the same at any moment,
also within a batch; ``mapped_bytes``: the same as the first of files.
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

from penstock.columnar.hashing import hash_columns
from penstock.functions.expr import AggregateCall
from penstock.jobgraph.specs import (
    DeduplicateSpec,
    GroupAggregateSpec,
    JoinSpec,
    KeyedProcessSpec,
    KeyedWindowSpec,
    OverSpec,
    SortKey,
    TopNSpec,
    WindowAggregateSpec,
    WindowSpec,
)
from penstock.operators.deduplicate import DeduplicateOperator
from penstock.operators.emitting import RECORD_TIMES
from penstock.operators.group_aggregate import make_group_aggregate
from penstock.operators.join import make_join
from penstock.operators.keyed_process import KeyedProcessOperator
from penstock.operators.keyed_window import KeyedWindowOperator
from penstock.operators.operator import MAX_WATERMARK
from penstock.operators.over import OverOperator
from penstock.operators.top_n import make_top_n
from penstock.operators.window_aggregate import make_window_aggregate
from penstock.operators.window_functions import WindowCall
from penstock.runtime.malloc import keep_freed_memory
from penstock.state.descriptors import ValueStateDescriptor
from penstock.state.memory import StateMemory
from penstock.state.process_memory import ProcessMemory
from penstock.testing.operator_harness import Subtask
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column
from penstock.types.logical import Schema
from tests.state.both_ways import tier

BIG, STR = t.BigIntType(), t.VarCharType()
N = BIG.not_null
ROWS = Schema.of(("k", BIG), ("s", STR), ("v", BIG))
TWICE = Schema((*ROWS.fields, *(t.Field(f"{f.name}2", f.type) for f in ROWS.fields)))
RANKED = Schema((*ROWS.fields, t.Field("rank", N)))
SUMS = Schema.of(("k", BIG), ("n", N), ("sum", BIG), ("last", STR))
TIME = t.TimestampType(6, False)
TEXTS = Schema.of(("last", STR))
WINDOWS = Schema.of(("k", BIG), ("n", N), ("last", STR), ("window_start", TIME), ("window_end", TIME))
VALUES = Schema.of(("k", BIG), ("values", N))
WINDOWED = Schema((*ROWS.fields, t.Field("window_start", TIME), t.Field("window_end", TIME)))
RANKED_WINDOWS = Schema((*WINDOWED.fields, t.Field("rank", N)))
RUNNING = Schema((*ROWS.fields, t.Field("n", N), t.Field("sum", BIG)))
BATCH_ROWS = 512
#: Characters of a text: few rows are much state, and a batch is less than 1 MiB.
TEXT = 1_500
PAGE_BYTES = 4096
#: Batches between two points of a curve.
CURVE_STEP = 10
#: A batch is a second; so a window is far more than may be in memory.
SECOND_US = 1_000_000
WINDOW_US = 200 * SECOND_US


def windows(window: WindowSpec) -> Any:
    return make_window_aggregate(
        WindowAggregateSpec(
            window=window, keys=(0,), window_columns=("start", "end"),
            aggregates=(AggregateCall("COUNT", (), N), AggregateCall("MAX", (1,), STR)),
        )
    )  # fmt: skip


CASES: dict[str, tuple[Any, list[Schema], Schema]] = {
    "aggregate": (
        lambda: make_group_aggregate(
            GroupAggregateSpec(
                keys=(0,),
                aggregates=(
                    AggregateCall("COUNT", (), N),
                    AggregateCall("SUM", (2,), BIG),
                    AggregateCall("MAX", (1,), STR),
                ),
            )
        ),
        [ROWS],
        SUMS,
    ),
    "distinct": (
        lambda: make_group_aggregate(
            GroupAggregateSpec(keys=(0,), aggregates=(AggregateCall("COUNT", (1,), N, distinct=True),))
        ),
        [ROWS],
        VALUES,
    ),
    "deduplicate": (
        lambda: DeduplicateOperator(DeduplicateSpec(keys=(0,), keep="last", emit_before=True)),
        [ROWS],
        ROWS,
    ),
    "top-n": (
        lambda: make_top_n(
            TopNSpec(partition=(0,), rank_column=True, rank="row_number", first=1, last=3,
                     order=(SortKey(2),), fixed_order=True)
        ),
        [ROWS],
        RANKED,
    ),
    "window-top-n": (
        lambda: make_top_n(
            TopNSpec(partition=(0,), rank_column=True, first=1, last=3, order=(SortKey(2),),
                     fixed_order=True, window=(3, 4))
        ),
        [WINDOWED],
        RANKED_WINDOWS,
    ),
    "over": (
        lambda: OverOperator(
            OverSpec(
                partition=(0,), order=(), frame="rows", preceding=2,
                aggregates=(AggregateCall("COUNT", (), N), AggregateCall("SUM", (2,), BIG)),
            )
        ),
        [ROWS],
        RUNNING,
    ),
    "join": (
        lambda: make_join(JoinSpec(kind="left", left_keys=(0,), right_keys=(0,))),
        [ROWS, ROWS],
        TWICE,
    ),
    "windows": (
        lambda: windows(WindowSpec(kind="hop", time=RECORD_TIMES, size_us=WINDOW_US, slide_us=WINDOW_US // 2)),
        [ROWS],
        WINDOWS,
    ),
    "sessions": (
        lambda: windows(WindowSpec(kind="session", time=RECORD_TIMES, gap_us=10 * SECOND_US)),
        [ROWS],
        WINDOWS,
    ),
    "python-windows": (
        lambda: KeyedWindowOperator(
            KeyedWindowSpec(
                window=WindowSpec(kind="tumble", size_us=WINDOW_US), keys=(0,), function="greatest",
                kind="aggregate",
            )
        ),
        [ROWS],
        TEXTS,
    ),
    "process": (
        lambda: KeyedProcessOperator(KeyedProcessSpec(function="latest", keys=((0,),))),
        [ROWS],
        ROWS,
    ),
}  # fmt: skip
#: Rows of one key, of those that make the state.
ROWS_OF_KEY = {"distinct": 3, "top-n": 3, "window-top-n": 3, "over": 2, "join": 2}
LEVELDB = {"state.backend.type": "leveldb"}


class Latest:
    """Emits what it had of the key, and keeps what came."""

    def open(self, context: Any) -> None:
        self.latest = context.get_state(ValueStateDescriptor("latest", STR))

    def process_element(self, value: Any, ctx: Any) -> Any:
        before = self.latest.value()
        self.latest.update(value[1])
        yield value[0], before, value[2]


class Greatest:
    """Of the texts of a window."""

    def create_accumulator(self) -> str:
        return ""

    def add(self, value: Any, accumulator: str) -> str:
        return max(accumulator, value[1])

    def get_result(self, accumulator: str) -> tuple[str]:
        return (accumulator,)


FUNCTIONS = {"latest": Latest, "greatest": lambda: WindowCall(Greatest(), None, STR)}


def rows(keys: np.ndarray, values: np.ndarray, seconds: np.ndarray, schema: Schema) -> Batch:
    filler = "x" * TEXT
    texts = pc.binary_join_element_wise(pa.array(values).cast(pa.string()), filler, "")
    columns = [Column(BIG, keys), Column(STR, texts), Column(BIG, values)]
    if schema is WINDOWED:
        starts = seconds * SECOND_US // WINDOW_US * WINDOW_US
        columns += [Column(TIME, starts), Column(TIME, starts + WINDOW_US)]
    return Batch(schema, columns, times=seconds * SECOND_US, num_rows=len(keys))


def memory_bytes() -> tuple[int, int]:
    """(of this process alone, mapped from files)."""
    _, resident, shared, *_ = Path("/proc/self/statm").read_text().split()
    return (int(resident) - int(shared)) * PAGE_BYTES, int(shared) * PAGE_BYTES


class Growth:
    """By how much the memory of this process has grown since now. ``most``: after a batch, at most; ``peak``: at any
    moment; ``mapped``: of files, after a batch."""

    def __init__(self) -> None:
        self.most = self.peak = self.mapped = 0
        self._base, self._files = memory_bytes()
        self._forget_peak()

    def look(self) -> int:
        """Bytes of this process alone, after a batch."""
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        high, files = (int(status[name].split()[0]) << 10 for name in ("VmHWM", "RssFile"))
        own, files_now = memory_bytes()
        self.most = max(self.most, own - self._base)
        self.peak = max(self.peak, own - self._base, high - files - self._base)
        self.mapped = max(self.mapped, files_now - self._files)
        self._forget_peak()
        return own - self._base

    @staticmethod
    def _forget_peak() -> None:
        """The highest resident size so far becomes the one of now."""
        Path("/proc/self/clear_refs").write_text("5")


def digest(task: Subtask) -> int:
    total = 0
    for batch in task.out:
        hashes = hash_columns(batch.columns)
        if batch.kinds is not None:
            hashes = hashes * (2 * batch.kinds.astype(np.uint64) + np.uint64(1))
        total += int(hashes.sum())
    task.out = []
    return total


def make_task(case: str, memory: StateMemory, folder: Path) -> Subtask:
    make, inputs, output = CASES[case]
    return Subtask(
        make(), inputs, output, memory=memory, local_dir=folder, config=LEVELDB,
        function=lambda name: FUNCTIONS[name](),
    )  # fmt: skip


def warm_up(case: str, folder: Path) -> None:
    """Everything is loaded and used once: Arrow, LevelDB."""
    task = make_task(case, StateMemory(400_000), folder)
    for i in range(12):
        values = np.full(BATCH_ROWS, i)
        inputs = CASES[case][1]
        task.process(rows(np.arange(BATCH_ROWS), values, values, inputs[0]), i % len(inputs))
        digest(task)
    for batch in task.operator.on_watermark(MAX_WATERMARK):
        task.out.append(batch)
    task.operator.close()


def main(
    case: str, limit_bytes: int, folder: Path, new: int, old: int, curve: TextIO | None = None
) -> dict[str, int]:
    """``new`` batches of rows that are all kept, then ``old`` ones of any of their keys. ``curve``: gets a JSON object
    a line for every ``CURVE_STEP``th batch, with what the state counted and how much the process had grown."""
    keep_freed_memory()
    random = np.random.default_rng(5)
    n, each, inputs = new * BATCH_ROWS, ROWS_OF_KEY.get(case, 1), CASES[case][1]
    keys = random.permutation(n) // each * 1_000_003
    warm_up(case, folder / "warm")
    memory = StateMemory(limit_bytes, ProcessMemory(limit_bytes))
    task = make_task(case, memory, folder)
    total, growth = 0, Growth()
    for i in range(new + old):
        values = random.integers(0, 1 << 40, BATCH_ROWS)
        at = i * BATCH_ROWS
        chosen = np.arange(at, at + BATCH_ROWS) if i < new else random.integers(0, n, BATCH_ROWS)
        task.process(rows(keys[chosen], values, chosen // BATCH_ROWS, inputs[0]), i % len(inputs))
        total = (total * 31 + digest(task)) % (1 << 61)
        own = growth.look()
        if curve is not None and i % CURVE_STEP == 0:
            sample = {"rows": at + BATCH_ROWS, "counted_bytes": memory.counted(), "growth_bytes": own}
            print(json.dumps(sample), file=curve)
    on_disk = tier(task.operator).count if hasattr(task.operator, "_keys") else -1
    for batch in task.operator.on_watermark(MAX_WATERMARK):  # windows: all of them are due
        task.out = [batch]
        total = (total + digest(task)) % (1 << 61)
        growth.look()
    task.operator.close()
    return {
        "digest": total, "growth_bytes": growth.most, "peak_bytes": growth.peak, "mapped_bytes": growth.mapped,
        "keys_on_disk": on_disk,
    }  # fmt: skip


if __name__ == "__main__":
    name, limit, where, new_batches, old_batches, *curves = sys.argv[1:]
    with open(curves[0] if curves else os.devnull, "w") as samples:
        found = main(
            name, int(limit), Path(where), int(new_batches), int(old_batches), samples if curves else None
        )
    print(json.dumps(found))
