"""What the stateful operators take, against another copy of the code, by CPU time.

    python -m bench.operator_state --against ../other-checkout [--only group] [--rounds 7]

Each round runs every case in a process of its own with either copy, one right after the other, in an
order that alternates. Printed is the median of the rounds' ratios: above 1, this copy is dearer.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from penstock.functions.expr import AggregateCall
from penstock.jobgraph import specs
from penstock.operators.factory import make_operator
from penstock.testing.operator_harness import Subtask
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column
from penstock.types.logical import Schema

HERE = Path(__file__).resolve().parent.parent
BIG, TIME = t.BigIntType(), t.TimestampType(6, False)
N = BIG.not_null
ROWS = Schema.of(("k", BIG), ("v", BIG), ("t", TIME))
TWICE = Schema((*ROWS.fields, *(t.Field(f"{f.name}2", f.type) for f in ROWS.fields)))
CALLS = (AggregateCall("COUNT", (), N), AggregateCall("SUM", (1,), BIG), AggregateCall("MAX", (1,), BIG))
FIELDS = (("n", N), ("s", BIG), ("m", BIG))
BATCH, BATCHES, KEYS, SECOND = 4_096, 150, 40_000, 1_000_000


def _windows(kind: str, **more: int) -> tuple[Any, Schema, int]:
    spec = specs.WindowAggregateSpec(
        window=specs.WindowSpec(kind=kind, time=2, **more), keys=(0,), aggregates=CALLS,
        window_columns=("start", "end"),
    )  # fmt: skip
    return spec, Schema.of(("k", BIG), *FIELDS, ("ws", TIME), ("we", TIME)), 1


def _top(**more: Any) -> tuple[Any, Schema, int]:
    spec = specs.TopNSpec(partition=(0,), order=(specs.SortKey(1),), last=3, rank_column=True, **more)
    return spec, Schema((*ROWS.fields, t.Field("rank", N))), 1


def _join(kind: str, **more: Any) -> tuple[Any, Schema, int]:
    return specs.JoinSpec(kind=kind, left_keys=(0,), right_keys=(0,), **more), TWICE, 2


CASES: dict[str, tuple[Any, Schema, int]] = {
    "group aggregate": (
        specs.GroupAggregateSpec(keys=(0,), aggregates=CALLS), Schema.of(("k", BIG), *FIELDS), 1
    ),
    "group aggregate, upserts": (
        specs.GroupAggregateSpec(keys=(0,), aggregates=CALLS, emit_before=False),
        Schema.of(("k", BIG), *FIELDS), 1,
    ),
    "group aggregate, distinct": (
        specs.GroupAggregateSpec(keys=(0,), aggregates=(AggregateCall("COUNT", (1,), N, distinct=True),)),
        Schema.of(("k", BIG), ("d", N)), 1,
    ),
    "tumble": _windows("tumble", size_us=10 * SECOND),
    "hop": _windows("hop", size_us=10 * SECOND, slide_us=2 * SECOND),
    "session": _windows("session", gap_us=SECOND),
    "inner join": _join("inner"),
    "left join": _join("left"),
    "interval join": _join("inner", interval=(2, 2, -SECOND, SECOND)),
    "top rows": _top(fixed_order=True),
    "ranking": _top(rank="rank"),
    "first row": (specs.DeduplicateSpec(keys=(0,), keep="first"), ROWS, 1),
    "last row": (specs.DeduplicateSpec(keys=(0,), keep="last", time=2), ROWS, 1),
    "normalize": (specs.NormalizeSpec(keys=(0,)), ROWS, 1),
    "intersect": (specs.SetOperationSpec(kind="intersect", all=True), ROWS, 2),
    "over": (
        specs.OverSpec(partition=(0,), order=(specs.SortKey(2),), aggregates=CALLS[1:2]),
        Schema((*ROWS.fields, t.Field("s", BIG))), 1,
    ),
    "over, 3 rows": (
        specs.OverSpec(
            partition=(0,), order=(specs.SortKey(2),), aggregates=CALLS[1:2], frame="rows", preceding=3
        ),
        Schema((*ROWS.fields, t.Field("s", BIG))), 1,
    ),
}  # fmt: skip


def run(name: str) -> float:
    """CPU seconds of the calls of one case, without making its rows."""
    spec, output, inputs = CASES[name]
    subtask = Subtask(make_operator(spec), [ROWS] * inputs, output)
    random = np.random.default_rng(7)
    spent = 0.0
    for i in range(BATCHES):
        keys = random.integers(0, KEYS, BATCH) * 1_000_003
        times = np.sort(random.integers(0, SECOND, BATCH)) + i * SECOND
        values = random.integers(0, 1_000_000, BATCH)
        columns = [Column(BIG, keys), Column(BIG, values), Column(TIME, times)]
        batch = Batch(ROWS, columns, num_rows=BATCH)
        began = time.process_time()
        subtask.process(batch, i % inputs)
        subtask.watermark((i + 1) * SECOND - SECOND // 2)
        spent += time.process_time() - began
        subtask.out.clear()
    began = time.process_time()
    subtask.finish()
    return spent + time.process_time() - began


def _child(root: Path, name: str) -> float:
    path = os.pathsep.join((str(root / "shared"), str(root)))
    command = [sys.executable, str(HERE / "bench" / "operator_state.py"), "--run", name]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, check=True, capture_output=True, text=True
    )
    return float(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="the root of another copy of the code")
    parser.add_argument("--only", default="", help="cases whose names contain this")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        print(json.dumps(run(given.run)))
        return
    if given.against is None:
        parser.error("--against is missing: the root of the copy of the code to compare with")
    print(f"{'case':28} {'here ms':>9} {'other ms':>9} {'ratio':>6}   of each round")
    for name in CASES:
        if given.only not in name:
            continue
        mine, others = [], []
        for number in range(given.rounds):
            for root, found in ((HERE, mine), (given.against, others))[:: 1 if number % 2 else -1]:
                found.append(_child(root, name))
        ratios = [a / b for a, b in zip(mine, others, strict=True)]
        shown = " ".join(f"{x:.2f}" for x in ratios)
        print(
            f"{name:28} {1000 * min(mine):9.0f} {1000 * min(others):9.0f} {statistics.median(ratios):6.3f}"
            f"   {shown}",
            flush=True,
        )


if __name__ == "__main__":
    main()
