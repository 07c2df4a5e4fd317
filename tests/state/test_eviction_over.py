"""OVER with bounded frames: the rows that later frames look back to lie on disk with their partition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.functions.expr import AggregateCall
from penstock.jobgraph.specs import OverSpec, SortKey
from penstock.operators.operator import MAX_WATERMARK
from penstock.operators.over import OverOperator
from penstock.snapshots.contract import RestoredState
from penstock.state import cold_tier
from penstock.state.memory import StateMemory
from penstock.state.row_log import Part, RowForm
from penstock.testing.operator_harness import Cluster, Subtask
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column
from penstock.types.logical import Schema
from tests.state.both_ways import BothWays, tier

BIG, STR, TIME = t.BigIntType(), t.VarCharType(), t.TimestampType(6)
N = BIG.not_null
ROWS = Schema.of(("k", BIG), ("s", STR), ("v", BIG), ("t", TIME.not_null), ("n", N))
CALLS = (
    AggregateCall("COUNT", (), N), AggregateCall("SUM", (2,), BIG), AggregateCall("MAX", (1,), STR),
    AggregateCall("COUNT", (2,), N, distinct=True),
)  # fmt: skip
BY_TIME = (SortKey(3), SortKey(4))


def over(**spec: Any) -> Any:
    made = OverSpec(**{"partition": (0,), "order": BY_TIME, "aggregates": CALLS, **spec})
    types = [call.type for call in made.aggregates] + [BIG.with_nullable(True) for _ in made.lags]
    out = Schema((*ROWS.fields, *(t.Field(f"a{i}", x) for i, x in enumerate(types))))
    return lambda: OverOperator(made), made.partition, out


CASES: dict[str, Any] = {
    "three rows": over(frame="rows", preceding=2),
    "three rows of two key columns": over(frame="rows", preceding=2, partition=(0, 1)),
    "three rows as they come": over(frame="rows", preceding=2, order=()),
    "a while": over(frame="range", preceding=40),
    "a while, with equal times": over(frame="range", preceding=40, order=BY_TIME[:1]),
    "values before": over(frame="rows", preceding=3, aggregates=(), lags=((2, 1, None), (2, 3, 4))),
    "values before, without NULLs": over(
        frame="rows",
        preceding=2,
        aggregates=(),
        lags=((2, 2, None), (4, 2, None), (2, 1, 4)),
        skipping=(0, 2),
    ),
}


class Source:
    def __init__(self, random: np.random.Generator) -> None:
        self.random = random
        self.now = self.number = 0

    def batch(self) -> Batch:
        rows = []
        self.now += int(self.random.integers(0, 6))
        for _ in range(int(self.random.integers(1, 24))):
            key, value = int(self.random.integers(0, 30)), int(self.random.integers(0, 5))
            self.number += 1
            time = self.now + int(self.random.integers(-15, 15)) - 200
            key, text = None if key == 29 else key, None if value == 4 else f"text-{value % 2}"
            rows.append((key, text, None if value == 3 else value, time, self.number))
        return made(rows)


def made(rows: list[tuple]) -> Batch:
    plain = Schema(tuple(t.Field(f.name, N if f.name == "t" else f.type) for f in ROWS.fields))
    batch = Batch.of(plain, rows)
    columns = [Column(x, c.values, c.valid) for c, x in zip(batch.columns, ROWS.types, strict=True)]
    return batch.with_columns(ROWS, columns)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_equals_what_stays_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, seed: int
) -> None:
    monkeypatch.setattr(cold_tier, "_EVICT_KEYS", 4)
    monkeypatch.setattr(cold_tier, "_EXPIRE_KEYS", 2)
    monkeypatch.setattr(cold_tier, "MOST_KEYS", 3)
    monkeypatch.setattr(cold_tier, "LEAST_KEYS", 2)
    monkeypatch.setattr("penstock.state.memory.HARD", 1e9)
    make, keys, out = CASES[name]
    random = np.random.default_rng([seed, list(CASES).index(name)])
    source = Source(random)
    both = BothWays(make, [keys], [ROWS], out, folder=tmp_path, limit_bytes=3_000, random=random)
    on_disk = rows = now = 0
    for _ in range(40):
        both.process(source.batch())
        act = int(random.integers(9))
        both.checkpoints(act)
        if act > 4:
            both.watermark(source.now - 215)
            on_disk = max(on_disk, *(tier(operator).count for operator in both.operators))
        if act == 8:
            both.processing_time(now := now + 1)
        rows += both.same().total()
    assert on_disk > 10
    assert rows > 200
    both.finish()
    both.same()
    if "while" in name:  # no time is left behind
        assert all(len(operator._frames) == tier(operator).count == 0 for operator in both.operators)


def filled(tmp_path: Path, name: str) -> tuple[Cluster, Subtask]:
    """2,000 partitions, some of whose rows lie on disk."""
    make, keys, out = CASES[name]
    small = Cluster(
        make, [keys], [ROWS], out, 1, limit_bytes=300_000, folder=tmp_path, checkpoint_every=0
    )  # fmt: skip
    for at in range(4):
        for part in range(8):
            rows = [(i, 12 * f"text-{i}", i, 10 * at, i) for i in range(250 * part, 250 * part + 250)]
            small.process(made(rows))
        small.watermark(10 * at)
    return small, small.subtasks[0]


@pytest.mark.parametrize("name", ["three rows", "a while"])
def test_deltas_follow_the_changes(tmp_path: Path, name: str) -> None:
    small, task = filled(tmp_path, name)
    held = tier(task.operator)
    assert held.count > 1_000
    whole = task.checkpoint()
    assert whole.size_bytes > 65_536  # else every snapshot is whole
    # Keys come back, change and go again.
    small.process(made([(i, "new", 9, 35, 9) for i in range(20)]))
    small.watermark(35)
    delta = task.checkpoint()
    assert delta.size_bytes < whole.size_bytes / 10
    restored = small.rescale(3)
    held = [s.operator for s in restored.subtasks]
    assert sum(tier(o).count + len(o._keys) for o in held) == 2_000
    restored.subtasks[0].out.clear()
    restored.process(made([(i, "last", 1, 40, 10) for i in range(2_000)]))
    restored.watermark(40)
    counts = {row[0]: row[5] for batch in restored.out() for row in batch.to_pylist()}
    expected = {True: 3, False: 3} if name == "three rows" else {True: 6, False: 5}
    assert counts == {i: expected[i < 20] for i in range(2_000)}


def test_what_is_not_looked_back_to_leaves_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_tier, "_EXPIRE_KEYS", 100)
    small, task = filled(tmp_path, "a while")
    operator = task.operator
    small.process(made([(0, "late", 0, 1_000, 0)]))
    small.watermark(1_000)
    assert len(operator._frames) == 1
    assert tier(operator).count > 100  # the sweep goes on at the next times
    while task.wakes:
        task.wakes.clear()
        task.processing_time(task.now_ms + 1)
    assert tier(operator).count == 0
    small.watermark(MAX_WATERMARK)
    assert len(operator._frames) == len(operator._keys) == 0


def test_history_of_an_older_version_comes_back_in_its_order() -> None:
    """It stood in a snapshot as a log of rows: their kind and time behind them, without a place."""
    make, keys, out = CASES["three rows"]
    rows = made([(1, "a", 5, 10, 1), (2, "b", 6, 11, 2), (1, "c", 7, 12, 3)])
    form = RowForm(ROWS, keys, "over", 128)
    blocks = [
        form.block([Part(part, np.arange(part.num_rows), np.ones(part.num_rows, np.int32))], sort=True)
        for part in (rows.slice(0, 2), rows.slice(2, 1))
    ]
    restored = RestoredState(1, keyed={"history": [block.batch for block in blocks]})
    task = Subtask(make(), [ROWS], out, restored=restored, memory=StateMemory())
    task.process(made([(1, "d", 1, 20, 4), (1, "e", 2, 21, 5)]))
    task.finish()
    assert [row[5:8] for row in task.rows()] == [(3, 13, "d"), (3, 10, "e")]
