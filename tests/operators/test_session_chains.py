"""Sessions killed at random moments: what was written as a base and deltas comes back whole, at any parallelism.

A killed cluster loses everything since its last complete checkpoint, output too. The next one restores that
checkpoint's chains and is fed from there, as sources are. Together they give what an undisturbed run gives.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from penstock.columnar.hashing import key_group_range
from penstock.functions.expr import AggregateCall
from penstock.jobgraph.specs import KeyedWindowSpec, WindowAggregateSpec, WindowSpec, WindowTableSpec
from penstock.messages.slot import StateHandle
from penstock.operators.keyed_window import KeyedWindowOperator
from penstock.operators.window_aggregate import make_window_aggregate
from penstock.operators.window_functions import WindowCall
from penstock.operators.window_table import make_window_table
from penstock.snapshots.contract import OperatorSnapshot, RestoredState
from penstock.snapshots.restoring import SnapshotChain, Source, restore
from penstock.testing.operator_harness import MAX_PARALLELISM, Cluster, Subtask
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.logical import Schema

BIG, STR = t.BigIntType(), t.VarCharType()
N = BIG.not_null
INPUT = Schema.of(("k", STR), ("ts", N), ("v", BIG))
S = 1_000_000
GAP_US = 5 * S
KEYS = [f"key-{i}" for i in range(12)]


class Collected:
    """Emits key, window and the sorted values; keeps a count a window."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        window = context.window()
        values = sorted(x if isinstance(x, int) else x.v for x in elements)
        yield key, window.start, window.end, repr(values)


class Sum:
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + value.v

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, a: int, b: int) -> int:
        return a + b


@dataclass(frozen=True)
class Case:
    """An operator with sessions."""

    make: Any
    out: Schema
    function: Any = None


def python(kind: str, call: WindowCall, **more: Any) -> Case:
    spec = KeyedWindowSpec(
        window=WindowSpec(kind="session", gap_us=GAP_US), keys=(0,), function="f", kind=kind, **more
    )
    out = Schema.of(("k", STR), ("ws", BIG), ("we", BIG), ("values", STR))
    return Case(lambda: KeyedWindowOperator(spec), out, lambda name: call)


SPEC = WindowAggregateSpec(
    window=WindowSpec(kind="session", time=1, gap_us=GAP_US), keys=(0,), late_tag="late",
    window_columns=("start", "end"),
    aggregates=(
        AggregateCall("COUNT", (), N), AggregateCall("SUM", (2,), BIG), AggregateCall("MAX", (2,), BIG),
        AggregateCall("COUNT", (2,), N, distinct=True),
    ),
)  # fmt: skip
TABLE = WindowTableSpec(window=WindowSpec(kind="session", time=1, gap_us=GAP_US), keys=(0,))
CASES = {
    "aggregated": Case(
        lambda: make_window_aggregate(SPEC),
        Schema.of(("k", STR), ("c", N), ("s", BIG), ("m", BIG), ("d", N), ("ws", N), ("we", N)),
    ),
    "rows with their session": Case(
        lambda: make_window_table(TABLE),
        Schema.of(
            *((f.name, f.type) for f in INPUT.fields),
            ("window_start", t.TimestampType(3)),
            ("window_end", t.TimestampType(3)),
            ("window_time", t.TimestampType(3)),
        ),
    ),
    "a Python function": python("process", WindowCall(None, Collected(), t.RowType(INPUT.fields), None)),
    "a Python aggregate": python("aggregate", WindowCall(Sum(), Collected(), BIG, None), late_tag="late"),
}


class Steps:
    """Batches and watermarks, the same at every asking."""

    def __init__(self, seed: int, n: int) -> None:
        pick = np.random.default_rng(seed)
        now, self._steps = 0, []
        for _ in range(n):
            rows = [
                (str(pick.choice(KEYS)), max(0, now + int(pick.integers(-4, 6))) * S, int(pick.integers(9)))
                for _ in range(int(pick.integers(1, 12)))
            ]
            batch = Batch.of(INPUT, rows, times=[time for _, time, _ in rows])
            self._steps.append((batch, (now - int(pick.integers(0, 5))) * S))
            now += int(pick.integers(0, 3))

    def __len__(self) -> int:
        return len(self._steps)

    def feed(self, cluster: Cluster, step: int) -> None:
        batch, watermark = self._steps[step]
        cluster.process(batch)
        cluster.watermark(watermark)


def output(cluster: Cluster) -> Counter[Any]:
    out = Counter(row for subtask in cluster.subtasks for row in subtask.rows())
    out.update(("late", row) for subtask in cluster.subtasks for row in subtask.side_rows("late"))
    return out


@dataclass
class Completed:
    """A complete checkpoint: before which step it was taken, and what had come out until then."""

    step: int
    out: Counter[Any]
    handles: list[StateHandle]


def started(case: Case, parallelism: int, last: Completed | None) -> Cluster:
    states: list[RestoredState | None] | None = None
    if last is not None:
        states = [
            asyncio.run(
                restore(last.handles, "u", key_group_range(i, parallelism, MAX_PARALLELISM), i, parallelism)
            )
            for i in range(parallelism)
        ]
    return Cluster(
        case.make, [(0,)], [INPUT], case.out, parallelism, states, checkpoint_every=0, function=case.function
    )


async def deltas(handle: StateHandle) -> int:
    """How many objects of a chain hold a delta of some state."""
    chain = await SnapshotChain.open(handle, Source(None))
    states = [[s for op in reader.footer.operators for s in op.states] for reader in chain.readers]
    return sum(any(state.delta for state in found) for found in states)


@pytest.mark.parametrize("seed", [1, *(pytest.param(i, marks=pytest.mark.soak) for i in (2, 3))])
@pytest.mark.parametrize("name", CASES)
def test_killed_sessions_come_back_from_a_base_and_deltas(name: str, seed: int) -> None:
    case, steps = CASES[name], Steps(seed, 60)
    straight = started(case, 1, None)
    for step in range(len(steps)):
        steps.feed(straight, step)
    straight.finish()
    want = output(straight)
    assert want.total() > 40

    pick = np.random.default_rng(seed + 100)
    last: Completed | None = None
    chains, parallelisms = [], []
    before: Counter[Any] = Counter()
    cluster, step = started(case, 2, None), 0
    while step < len(steps):
        act = pick.random()
        if act < 0.2 and last is not None:
            for subtask in cluster.subtasks:
                subtask.operator.close()
            chains += [asyncio.run(deltas(handle)) for handle in last.handles]
            parallelisms.append((len(last.handles), int(pick.choice([1, 2, 3]))))
            cluster, step, before = started(case, parallelisms[-1][1], last), last.step, last.out
        elif act < 0.7:
            cuts = [begun(subtask) for subtask in cluster.subtasks]
            at, out = step, before + output(cluster)
            for _ in range(int(pick.integers(3))):  # while it is written
                if step < len(steps):
                    steps.feed(cluster, step)
                    step += 1
            if pick.random() < 0.2:
                for cut in cuts:
                    Subtask.abort(cut)
            else:
                handles = [s.complete(cut) for s, cut in zip(cluster.subtasks, cuts, strict=True)]
                last = Completed(at, out, handles)
        if step < len(steps):
            steps.feed(cluster, step)
            step += 1
    cluster.finish()
    assert before + output(cluster) == want
    assert len(parallelisms) >= 4
    assert any(old != new for old, new in parallelisms)
    assert max(chains) >= 2


def begun(subtask: Subtask) -> OperatorSnapshot:
    """The barrier at one subtask."""
    subtask._take(subtask.operator.prepare_checkpoint(1))
    return subtask.begin()
