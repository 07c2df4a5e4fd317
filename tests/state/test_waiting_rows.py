"""Rows that wait on disk come out as those that wait in memory, whatever happens meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import ExternalError
from penstock.functions.expr import AggregateCall, InputRef
from penstock.functions.registry import make_call
from penstock.jobgraph.specs import (
    JoinSpec,
    OverFinalSpec,
    OverSpec,
    SortKey,
    SortSpec,
    TemporalJoinSpec,
    TemporalSortSpec,
    WindowJoinSpec,
)
from penstock.operators.join import make_join
from penstock.operators.operator import MAX_WATERMARK
from penstock.operators.over import OverOperator
from penstock.operators.over_final import OverFinalOperator
from penstock.operators.sort import SortOperator, TemporalSortOperator
from penstock.operators.temporal_join import TemporalJoinOperator
from penstock.operators.window_join import WindowJoinOperator
from penstock.state import cold_tier, waiting_rows
from penstock.state.memory import StateMemory
from penstock.testing.operator_harness import Cluster, Subtask
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.logical import Schema
from tests.state.both_ways import BothWays, changes, tier

BIG, STR, TIME = t.BigIntType(), t.VarCharType(), t.TimestampType(6)
N = BIG.not_null
#: Key, text, value, time, and the window of that time; rows are told apart by their number.
ROWS = Schema.of(("k", BIG), ("s", STR), ("v", BIG), ("t", TIME.not_null), ("ws", N), ("we", N), ("n", N))
TWICE = Schema((*ROWS.fields, *(t.Field(f"{f.name}2", f.type.with_nullable(True)) for f in ROWS.fields)))
V, T, S = SortKey(2, descending=True, nulls_first=False), SortKey(3), SortKey(1)
WINDOW = 20


def more(*calls: AggregateCall) -> Schema:
    return Schema((*ROWS.fields, *(t.Field(f"a{i}", c.type) for i, c in enumerate(calls))))


def sort(*, retracts: bool = False, **spec: Any) -> Any:
    return lambda: SortOperator(SortSpec(order=(V, S), **spec)), [()], ROWS, retracts


def temporal_sort() -> Any:
    return lambda: TemporalSortOperator(TemporalSortSpec(time=3, order=(V,))), [()], ROWS, False


def temporal_join(kind: str) -> Any:
    spec = TemporalJoinSpec(kind=kind, left_keys=(0,), right_keys=(0,), left_time=3, right_time=3)
    return lambda: TemporalJoinOperator(spec), [(0,), (0,)], TWICE, False


def interval_join(kind: str, low: int, high: int) -> Any:
    condition = make_call("<>", [InputRef(2, BIG), InputRef(9, BIG)])
    spec = JoinSpec(
        kind=kind, left_keys=(0,), right_keys=(0,), interval=(3, 3, low, high), condition=condition
    )
    output = ROWS if kind in ("semi", "anti") else TWICE
    return lambda: make_join(spec), [(0,), (0,)], output, False


def window_join(kind: str) -> Any:
    spec = WindowJoinSpec(kind=kind, left_keys=(0,), right_keys=(0,), left_window=(4, 5), right_window=(4, 5))
    output = ROWS if kind in ("semi", "anti") else TWICE
    return lambda: WindowJoinOperator(spec), [(0,), (0,)], output, False


def over(order: SortKey, **spec: Any) -> Any:
    calls = (AggregateCall("COUNT", (), N), AggregateCall("SUM", (2,), BIG))
    spec = OverSpec(partition=(0,), order=(order, SortKey(6)), aggregates=calls, **spec)
    return lambda: OverOperator(spec), [(0,)], more(*calls), False


def over_final(*, retracts: bool = False) -> Any:
    calls = (AggregateCall("ROW_NUMBER", (), N), AggregateCall("SUM", (2,), BIG))
    spec = OverFinalSpec(
        partition=(0,), order=(T, SortKey(6)), aggregates=calls, frame="rows", preceding=2, following=1
    )
    return lambda: OverFinalOperator(spec), [(0,)], more(*calls), retracts


CASES: dict[str, Any] = {
    "sort": sort(),
    "sort with retractions": sort(retracts=True),
    "sort with a limit": sort(offset=7, limit=60),
    "temporal sort": temporal_sort(),
    **{f"{kind} temporal join": temporal_join(kind) for kind in ("inner", "left")},
    **{f"{kind} window join": window_join(kind) for kind in ("inner", "full", "semi", "anti")},
    **{f"{kind} interval join": interval_join(kind, -30, 15) for kind in ("inner", "full", "semi", "anti")},
    "left interval join with what follows": interval_join("left", 5, 40),
    "running sums": over(T, frame="range", preceding=None),
    "sums of three rows": over(T, frame="rows", preceding=2),
    "sums of a while": over(T, frame="range", preceding=15),
    "sums by value": over(V, frame="rows", preceding=None),
    "sums in frames that look ahead": over_final(),
    "sums of rows that stand": over_final(retracts=True),
}
#: The order of these cases' rows is the result.
ORDERED = [name for name in CASES if "sort" in name]
LATE = 12


class Rows:
    """Random rows around a time that goes on; of each input, those that stand."""

    def __init__(self, random: np.random.Generator, retracts: bool) -> None:
        self.random, self.retracts = random, retracts
        self.now = self.number = 0
        self.standing: list[tuple] = []

    def batch(self, *, versions: bool) -> Batch:
        rows: list[tuple] = []
        kinds: list[int] = []
        self.now += int(self.random.integers(0, 12))
        for _ in range(int(self.random.integers(1, 24))):
            if self.retracts and self.standing and self.random.random() < 0.3:
                rows.append(self.standing.pop(int(self.random.integers(len(self.standing)))))
                kinds.append(3)
                continue
            at = max(self.now + int(self.random.integers(-2 * LATE, 3 * LATE)), 0)
            key, value = int(self.random.integers(0, 12)), int(self.random.integers(0, 5))
            start = at // WINDOW * WINDOW
            self.number += 1
            number = self.number if not self.retracts else self.number % 7
            key, text = None if key == 11 else key, None if value == 4 else f"text-{value % 2}"
            row = (key, text, None if value == 3 else value, at, start, start + WINDOW, number)
            rows.append(row)
            kinds.append(3 if versions and self.random.random() < 0.2 else 0)
            self.standing.append(row)
        plain = Schema(tuple(t.Field(f.name, N) if f.name == "t" else f for f in ROWS.fields))
        out = Batch.of(plain, rows, kinds=kinds if self.retracts or versions else None)
        return out.with_columns(ROWS, [c.cast_type(x) for c, x in zip(out.columns, ROWS.types, strict=True)])


def in_order(cluster: Cluster) -> list:
    rows = [change for batch in cluster.out() for change in batch.rows()]
    for subtask in cluster.subtasks:
        subtask.out = []
    return rows


def on_disk(cluster: Cluster) -> int:
    gauges = [s.metrics.gauges for s in cluster.subtasks]
    return sum(
        int(read() or 0) for g in gauges for name, read in g.items() if name.startswith("numRowsOnDisk")
    )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_equals_what_stays_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, seed: int
) -> None:
    monkeypatch.setattr(cold_tier, "_EVICT_KEYS", 2)
    monkeypatch.setattr(waiting_rows, "_LEAST_BLOCK_BYTES", 1)
    monkeypatch.setattr("penstock.state.memory.HARD", 1e9)
    make, keys, output, retracts = CASES[name]
    random = np.random.default_rng(seed)
    source = Rows(random, retracts)
    both = BothWays(
        make, keys, [ROWS] * len(keys), output, folder=tmp_path, limit_bytes=3_000, random=random,
        taken=in_order if name in ORDERED else changes,
    )  # fmt: skip
    most = 0
    for _ in range(25):
        side = int(random.integers(len(keys)))
        both.process(source.batch(versions="temporal join" in name and side == 1), side)
        most = max(most, on_disk(both.small))
        act = int(random.integers(10))
        both.checkpoints(act)
        if act in (5, 6):
            both.watermark(source.now - LATE)
        both.same()
    both.finish()
    both.same()
    assert most > 10
    if "temporal join" not in name:  # whose last versions stay
        assert on_disk(both.small) == 0


def test_a_delta_holds_what_came_and_nothing_that_lay_on_disk(tmp_path: Path) -> None:
    make, _, output, _ = CASES["temporal sort"]
    memory = StateMemory(20_000)
    task = Subtask(make(), [ROWS], output, memory=memory, local_dir=tmp_path)
    source = Rows(np.random.default_rng(0), retracts=False)
    source.now = 1_000
    while task.metrics.gauges["numRowsOnDisk.rows"]() < 1_000:
        task.process(source.batch(versions=False))
    whole = task.checkpoint()
    task.process(source.batch(versions=False))
    delta = task.checkpoint()
    assert delta.size_bytes < whole.size_bytes / 5
    nothing = task.checkpoint()
    assert nothing.size_bytes < delta.size_bytes
    assert memory.limit_bytes > task.operator._log.nbytes


def test_what_cannot_be_split_is_refused_by_name(tmp_path: Path) -> None:
    spec = OverFinalSpec(
        partition=(), order=(T,), aggregates=(AggregateCall("ROW_NUMBER", (), N),), frame="rows",
        preceding=None, following=None,
    )  # fmt: skip
    task = Subtask(
        OverFinalOperator(spec), [ROWS], more(AggregateCall("ROW_NUMBER", (), N)),
        memory=StateMemory(5_000), local_dir=tmp_path,
    )  # fmt: skip
    source = Rows(np.random.default_rng(0), retracts=False)
    batch = source.batch(versions=False)
    with pytest.raises(ExternalError, match="OverFinalOperator"):
        task.process(Batch.concat([batch] * 200))


def test_no_time_is_left_behind_at_the_end(tmp_path: Path) -> None:
    make, _, output, _ = CASES["sums of a while"]
    task = Subtask(make(), [ROWS], output, memory=StateMemory(20_000), local_dir=tmp_path)
    source = Rows(np.random.default_rng(1), retracts=False)
    for _ in range(40):
        task.process(source.batch(versions=False))
    task.watermark(MAX_WATERMARK)
    assert len(task.operator._pending) == 0
    assert len(task.operator._frames) == tier(task.operator).count == 0
