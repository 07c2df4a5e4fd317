"""Deduplication and Top-N by window: what lies on disk comes out when its window closes, as what
stayed in memory does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.jobgraph.specs import DeduplicateSpec, SortKey, TopNSpec
from penstock.operators.deduplicate import DeduplicateOperator
from penstock.operators.top_n import make_top_n
from penstock.state import cold_runs, cold_tier
from penstock.testing.operator_harness import Cluster
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column
from penstock.types.logical import Schema
from tests.state.both_ways import BothWays, tier

BIG, STR, TIME = t.BigIntType(), t.VarCharType(), t.TimestampType(6)
N = BIG.not_null
#: Windows of two lengths, in seconds: some have the same end.
SIZES = (10, 20)
ROWS = Schema.of(
    ("k", STR), ("ws", TIME.not_null), ("v", BIG), ("we", TIME.not_null), ("s", STR), ("t", BIG), ("n", N)
)
RANKED = Schema((*ROWS.fields, t.Field("rank", N)))
WINDOW = (1, 3)
BY_V, BY_S, BY_N = SortKey(2, descending=True, nulls_first=False), SortKey(4), SortKey(6)


def deduplicate(**spec: Any) -> Any:
    made = DeduplicateSpec(window=WINDOW, **{"keys": (0,), **spec})
    return lambda: DeduplicateOperator(made), made.keys, ROWS, False


def top(**spec: Any) -> Any:
    made = TopNSpec(window=WINDOW, rank_column=True, **{"partition": (0,), **spec})
    return lambda: make_top_n(made), made.partition, RANKED, made.retracts


CASES: dict[str, Any] = {
    "first row": deduplicate(keep="first"),
    "first row by time": deduplicate(keep="first", time=5),
    "last row": deduplicate(keep="last"),
    "last row by time, of two key columns": deduplicate(keep="last", time=5, keys=(0, 2)),
    "last row, the window among the keys": deduplicate(keep="last", keys=(3, 0, 1)),
    "top 2": top(last=2, order=(BY_V,), fixed_order=True),
    "top 2 of two columns, the window in the partition": top(
        last=2, order=(BY_V, BY_S, BY_N), partition=(1, 0)
    ),
    "second and third": top(first=2, last=3, order=(BY_N,), fixed_order=True),
    "rank": top(last=2, order=(BY_V, BY_S), rank="rank"),
    "dense rank with retractions": top(last=2, order=(BY_V,), rank="dense_rank", retracts=True),
}


class Source:
    """Random rows around a moving time; where they are retracted, only what stands is."""

    def __init__(self, random: np.random.Generator, retracts: bool) -> None:
        self.random, self.retracts = random, retracts
        self.now = self.number = 0
        self.standing: list[tuple] = []

    def batch(self) -> Batch:
        rows, kinds = [], []
        for _ in range(int(self.random.integers(1, 24))):
            if self.retracts and self.standing and self.random.random() < 0.3:
                rows.append(self.standing.pop(int(self.random.integers(len(self.standing)))))
                kinds.append(3)
                continue
            key, value = int(self.random.integers(0, 12)), int(self.random.integers(0, 4))
            time = self.now + int(self.random.integers(-40, 40))
            size = SIZES[int(self.random.integers(len(SIZES)))]
            self.number += 1
            rows.append(
                (
                    None if key == 11 else f"key-{key}", time // size * size, None if value == 3 else value,
                    time // size * size + size, f"text-{value % 2}", time, self.number,
                )
            )  # fmt: skip
            kinds.append(0)
            self.standing.append(rows[-1])
        self.now += int(self.random.integers(0, 4))
        return made(rows, kinds if self.retracts else None)

    def watermark(self) -> int:
        """What closed is not retracted any more: the rows would be late."""
        watermark = self.now - int(self.random.integers(0, 30))
        self.standing = [row for row in self.standing if row[3] - 1 > watermark]
        return watermark


def made(rows: list[tuple], kinds: list[int] | None = None) -> Batch:
    plain = Schema(tuple(t.Field(f.name, N if f.type == TIME.not_null else f.type) for f in ROWS.fields))
    batch = Batch.of(plain, rows, kinds=kinds)
    columns = [Column(x, c.values, c.valid) for c, x in zip(batch.columns, ROWS.types, strict=True)]
    return batch.with_columns(ROWS, columns)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is moved, read and given up in the smallest of pieces."""
    monkeypatch.setattr(cold_tier, "_EVICT_KEYS", 4)
    monkeypatch.setattr(cold_tier, "MOST_KEYS", 3)
    monkeypatch.setattr(cold_tier, "LEAST_KEYS", 2)
    monkeypatch.setattr(cold_runs, "_DROP_KEYS", 2)
    monkeypatch.setattr("penstock.state.memory.HARD", 1e9)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_equals_what_stays_in_memory(tmp_path: Path, name: str, seed: int) -> None:
    make, keys, out, retracts = CASES[name]
    random = np.random.default_rng([seed, list(CASES).index(name)])
    source = Source(random, retracts)
    both = BothWays(make, [keys], [ROWS], out, folder=tmp_path, limit_bytes=3_000, random=random)
    on_disk = rows = 0
    for _ in range(25):
        both.process(source.batch())
        on_disk = max(on_disk, *(tier(operator).count for operator in both.operators))
        act = int(random.integers(8))
        both.checkpoints(act)
        if act > 4:
            both.watermark(source.watermark())
        rows += both.same().total()
    assert on_disk > 10
    assert rows > 20
    both.finish()
    both.same()
    assert all(tier(operator).count == len(operator._keys) == 0 for operator in both.operators)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", ["last row by time, of two key columns", "top 2"])
def test_deltas_follow_the_changes_and_a_closed_window_leaves_nothing(tmp_path: Path, name: str) -> None:
    make, keys, out, _ = CASES[name]
    small = Cluster(
        make, [keys], [ROWS], out, 1, limit_bytes=20_000, folder=tmp_path, checkpoint_every=0
    )  # fmt: skip
    task, random = small.subtasks[0], np.random.default_rng(0)
    for at in range(0, 60, 10):
        for part in range(10):
            texts = [random.bytes(32).hex() for _ in range(60)]
            small.process(made([(f"key-{i}-{part}", at, i, at + 10, texts[i], at, i) for i in range(60)]))
    held = tier(task.operator)
    assert held.count > 2_500
    assert len(held.runs()) == 6
    whole = task.checkpoint()
    assert whole.size_bytes > 65_536  # else every snapshot is whole
    # A key comes back, changes and goes again.
    small.process(made([("key-7-3", 20, 9, 30, "new", 29, 99)]))
    small.process(made([(f"key-{i}-0", 50, i, 60, f"text-{i}", 0, i) for i in range(60)]))
    delta = task.checkpoint()
    assert delta.size_bytes < whole.size_bytes / 10
    small.watermark(49)  # one window is left
    assert held.count + len(task.operator._keys) == 600
    assert held.runs() == [(50, 60)]
    small = small.rescale(2)
    restored = [s.operator for s in small.subtasks]
    assert sum(tier(o).count + len(o._keys) for o in restored) == 600
    assert all(tier(o).count > 100 for o in restored)
    small.subtasks[0].out.clear()
    small.finish()
    # (Of 60 keys there are two rows.)
    assert sum(batch.num_rows for batch in small.out()) == (660 if name == "top 2" else 600)
