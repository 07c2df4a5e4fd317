"""A window aggregation that may hold nearly nothing in memory gives what one gives that holds
everything, after every batch and watermark, with checkpoints and restores in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.functions.expr import AggregateCall
from penstock.jobgraph import Hash
from penstock.jobgraph.specs import WatermarkSpec, WindowAggregateSpec, WindowSpec
from penstock.operators import window_pieces
from penstock.operators.window_aggregate import make_window_aggregate
from penstock.state import cold_runs, cold_tier, pane_space
from penstock.testing import GraphBuilder, JobHarness, MemoryTable
from penstock.testing.operator_harness import Cluster
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column
from penstock.types.logical import Schema
from tests.state.both_ways import BothWays, tier

BIG, STR, TIME = t.BigIntType(), t.VarCharType(), t.TimestampType(6)
N = BIG.not_null
S = 1_000_000  # µs
#: Row time, then the window that windowed input carries.
ROWS = Schema.of(
    ("k", STR), ("v", BIG), ("s", STR), ("t", TIME.not_null), ("ws", TIME.not_null), ("we", TIME.not_null)
)
BOUNDS = (("window_start", TIME.not_null), ("window_end", TIME.not_null))
TUMBLE, HOP, CUMULATE = ("tumble", 10 * S, 0), ("hop", 12 * S, 4 * S), ("cumulate", 12 * S, 3 * S)
GAPS, SESSION = ("hop", 4 * S, 6 * S), ("session", 3 * S, 0)


def call(name: str, *args: int, type_: t.LogicalType = BIG, **more: Any) -> AggregateCall:
    return AggregateCall(name, args, type_, **more)


SUMS = (call("COUNT", type_=N), call("SUM", 1), call("MIN", 1), call("MAX", 2, type_=STR))
REMEMBERED = (
    call("COUNT", 1, type_=N, distinct=True), call("LISTAGG", 2, type_=STR), call("FIRST_VALUE", 1),
    call("LAST_VALUE", 2, type_=STR),
)  # fmt: skip
RETRACTED = (call("COUNT", type_=N), call("MIN", 1), call("MAX", 2, type_=STR), call("LISTAGG", 2, type_=STR))
PYTHON = (call("longest", 2, type_=STR, python="longest"),)


def case(window: tuple[str, int, int], calls: tuple[AggregateCall, ...], **more: Any) -> Any:
    kind, size, slide = window
    time = None if more.get("windowed_input") else 3
    if kind == "session":
        spread = WindowSpec(kind=kind, time=time, gap_us=size)
    else:
        spread = WindowSpec(kind=kind, time=time, size_us=size, slide_us=slide)
    spec = WindowAggregateSpec(
        window=spread, keys=more.pop("keys", (0, 1)),
        aggregates=calls, window_columns=("start", "end"), late_tag="late", **more,
    )  # fmt: skip
    fields = [(ROWS.fields[i].name, ROWS.types[i]) for i in spec.keys]
    out = Schema.of(*fields, *((f"a{i}", c.type) for i, c in enumerate(calls)), *BOUNDS)
    return spec, out


CASES: dict[str, Any] = {
    "tumble, sums": case(TUMBLE, SUMS),
    "tumble, remembered values": case(TUMBLE, REMEMBERED),
    "hop, sums": case(HOP, SUMS),
    "hop, sums of one key column": case(HOP, SUMS, keys=(0,)),
    "hop, remembered values": case(HOP, REMEMBERED),
    "hop with gaps, sums": case(GAPS, SUMS),
    "hop, a user's function": case(HOP, PYTHON),
    "cumulate, sums": case(CUMULATE, SUMS),
    "cumulate, distinct": case(CUMULATE, REMEMBERED[:1]),
    "tumble with retractions": case(TUMBLE, RETRACTED, retracts=True),
    "hop with retractions": case(HOP, RETRACTED, retracts=True),
    "tumble, late rows allowed": case(TUMBLE, SUMS, allowed_lateness_us=9 * S),
    "hop, late rows allowed": case(HOP, REMEMBERED, allowed_lateness_us=9 * S),
    "cumulate, late rows allowed": case(CUMULATE, SUMS, allowed_lateness_us=9 * S),
    "sessions, sums": case(SESSION, SUMS),
    "sessions, sums of one key column": case(SESSION, SUMS, keys=(0,)),
    "sessions, remembered values": case(SESSION, REMEMBERED),
    "sessions, a user's function": case(SESSION, PYTHON),
    "sessions with retractions": case(SESSION, RETRACTED, retracts=True),
    "windows of the input": case(TUMBLE, SUMS, windowed_input=(4, 5)),
    "windows of the input, remembered values": case(TUMBLE, REMEMBERED, windowed_input=(4, 5)),
}


class Longest:
    def create_accumulator(self) -> list[str]:
        return [""]

    def accumulate(self, acc: list[str], text: str | None) -> None:
        acc[0] = max(acc[0], text or "")

    def merge(self, acc: list[str], others: list[list[str]]) -> None:
        for other in others:
            self.accumulate(acc, other[0])

    def get_value(self, acc: list[str]) -> str:
        return acc[0]


class Source:
    """Random rows around a moving time; where they are retracted, only what stands is."""

    def __init__(self, random: np.random.Generator, retracts: bool) -> None:
        self.random, self.retracts = random, retracts
        self.now = 0
        self.standing: list[tuple] = []

    def batch(self) -> Batch:
        rows, kinds = [], []
        for _ in range(int(self.random.integers(1, 24))):
            if self.retracts and self.standing and self.random.random() < 0.3:
                rows.append(self.standing.pop(int(self.random.integers(len(self.standing)))))
                kinds.append(3)
                continue
            key, value = int(self.random.integers(0, 12)), int(self.random.integers(0, 4))
            time = self.now + int(self.random.integers(-14, 20)) * S
            start = time // (5 * S) * 5 * S
            size = int(self.random.integers(1, 3)) * 5 * S
            text = None if value == 3 else f"text-{self.random.integers(3)}-{value}"
            name = None if key == 11 else f"key-{key}"
            rows.append((name, value if key % 2 else None, text, time, start, start + size))
            kinds.append(0)
            self.standing.append(rows[-1])
        self.now += int(self.random.integers(0, 2)) * S
        return made(rows, kinds if self.retracts else None)

    def watermark(self) -> int:
        """What closed is not retracted any more: the rows would be late."""
        watermark = self.now - int(self.random.integers(0, 12)) * S
        self.standing = [row for row in self.standing if row[3] > watermark + 12 * S]
        return watermark


def made(rows: list[tuple], kinds: list[int] | None) -> Batch:
    plain = Schema(tuple(t.Field(f.name, N if f.type == TIME.not_null else f.type) for f in ROWS.fields))
    batch = Batch.of(plain, rows, kinds=kinds)
    columns = [Column(x, c.values, c.valid) for c, x in zip(batch.columns, ROWS.types, strict=True)]
    return batch.with_columns(ROWS, columns)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is moved, merged and given up in the smallest of pieces."""
    monkeypatch.setattr(cold_tier, "_EVICT_KEYS", 4)
    monkeypatch.setattr(cold_tier, "MOST_KEYS", 3)
    monkeypatch.setattr(cold_tier, "LEAST_KEYS", 2)
    monkeypatch.setattr(cold_runs, "_DROP_KEYS", 2)
    monkeypatch.setattr(window_pieces, "_LEAST_KEYS", 1)
    monkeypatch.setattr(pane_space, "_LOOSE", 2)
    monkeypatch.setattr("penstock.state.memory.HARD", 1e9)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(1))
def test_equals_what_stays_in_memory(tmp_path: Path, name: str, seed: int) -> None:
    spec, out = CASES[name]
    random = np.random.default_rng([seed, list(CASES).index(name)])
    source = Source(random, spec.retracts)

    def make() -> Any:
        return make_window_aggregate(spec)

    both = BothWays(
        make, [spec.keys], [ROWS], out, folder=tmp_path, limit_bytes=10_000, random=random,
        function=lambda name: Longest(),
    )  # fmt: skip
    # (Sessions that merge are merged in the order in which they began to be held.)
    rescales = not (spec.window.kind == "session" and "LISTAGG" in str(spec.aggregates))
    on_disk = rows = 0
    for _ in range(20):
        both.process(source.batch())
        on_disk = max(on_disk, *(tier(operator).count for operator in both.operators))
        act = int(random.integers(9))
        both.checkpoints(act, rescales=rescales)
        if act > 4:
            both.watermark(source.watermark())
        rows += both.same().total()
    assert on_disk > 3
    assert rows > 20
    both.finish()
    both.same()
    for operator in both.operators:
        held = len(operator._sessions) if spec.window.kind == "session" else len(operator._cells)
        assert tier(operator).count == held == len(operator._keys) == 0


@pytest.mark.usefixtures("tiny")
def test_a_window_that_closed_leaves_disk_and_snapshots(tmp_path: Path) -> None:
    spec, out = CASES["hop, remembered values"]
    small = Cluster(
        lambda: make_window_aggregate(spec), [spec.keys], [ROWS], out, 1, limit_bytes=10_000,
        folder=tmp_path, checkpoint_every=0,
    )  # fmt: skip
    for second in range(0, 40, 4):
        rows = [(f"key-{i}", i, f"text-{i}", second * S, 0, S) for i in range(30)]
        small.process(made(rows, None))
    task = small.subtasks[0]
    held = tier(task.operator)
    assert held.count > 200
    task.checkpoint()
    small.watermark(47 * S)  # one window is left, of the last pane
    assert held.count + len(task.operator._cells) == 30
    assert len(held._disk._blooms) == 1
    small = small.rescale(2)
    restored = [s.operator for s in small.subtasks]
    assert sum(tier(o).count + len(o._cells) for o in restored) == 30
    small.subtasks[0].out.clear()
    small.finish()
    assert sum(batch.num_rows for batch in small.out()) == 30


@pytest.mark.usefixtures("tiny")
def test_sessions_of_the_clock_end_in_time_wherever_they_lie(tmp_path: Path) -> None:
    window = WindowSpec(kind="session", gap_us=3 * S)
    spec = WindowAggregateSpec(window=window, keys=(0,), aggregates=SUMS, window_columns=("start", "end"))
    out = CASES["sessions, sums of one key column"][1]
    small = Cluster(
        lambda: make_window_aggregate(spec), [(0,)], [ROWS], out, 1, limit_bytes=10_000, folder=tmp_path,
        checkpoint_every=0,
    )  # fmt: skip
    for second in range(3):
        small.subtasks[0].now_ms = 1_000 * second
        small.process(made([(f"key-{second}-{i}", i, f"text-{i}", 0, 0, S) for i in range(30)], None))
    small = small.rescale(1)
    task = small.subtasks[0]
    assert tier(task.operator).count > 60
    task.out.clear()
    came: dict[int, int] = {}
    while task.wakes:
        at = min(task.wakes)
        task.wakes.clear()
        task.processing_time(at)
        came[at] = sum(batch.num_rows for batch in task.out)
    # (A restored operator looks once at its sessions.)
    assert came == {0: 0, 3_000: 30, 4_000: 60, 5_000: 90}
    assert tier(task.operator).count == 0


@pytest.mark.parametrize("window", [HOP, SESSION], ids=["hop", "session"])
async def test_a_job_goes_on_from_windows_on_disk(
    monkeypatch: pytest.MonkeyPatch, window: tuple[str, int, int]
) -> None:
    """A checkpoint in the middle, and a restore at another parallelism."""
    monkeypatch.setattr("penstock.state.memory.HARD", 100)  # so small a state comes in lumps
    kind, size, slide = window
    at = np.arange(30_000)
    events = Schema.of(("k", BIG), ("v", BIG), ("t", TIME.not_null))
    batch = Batch(events, [Column(BIG, at % 3_000), Column(BIG, at), Column(TIME.not_null, at * 400)])
    source = MemoryTable("events", events, [[batch]], batch_rows=500)
    time = WindowSpec(kind=kind, time=2, size_us=size, slide_us=slide, gap_us=S)
    calls = (call("COUNT", type_=N), call("SUM", 1))
    spec = WindowAggregateSpec(window=time, keys=(0,), aggregates=calls, window_columns=("start", "end"))
    builder = GraphBuilder()
    read = builder.source("memory", events, {"name": "events"}, watermark=WatermarkSpec(rowtime=2))
    out = Schema.of(("k", BIG), ("n", N), ("sum", BIG), *BOUNDS)
    vertex = builder.vertex(spec, out, inputs=[(read, Hash((0,)))], parallelism=2, uid="window")
    builder.collect(vertex)
    graph = builder.build()
    async with JobHarness(graph, parallelism=1) as plain:
        expected = (await plain.wait()).rows
    config = {"state.backend.memory.per-slot": "24kb"}
    source.release(12_000)
    async with JobHarness(graph, parallelism=2, config=config) as job:
        tasks = [x for x in job.deployment.tasks.values() if x.vertex.operators[0].uid == "window"]
        await job.until(lambda: sum(x.records_in for x in tasks) == 12_000)
        checkpoint = await job.checkpoint()
        operators = [operator for task in job.metrics().values() for operator in task.operators]
        assert sum(operator.gauges.get("numKeysOnDisk") or 0 for operator in operators) > 100
    source.release()
    async with JobHarness(graph, parallelism=3, config=config, restore=checkpoint, store=job.store) as again:
        result = await again.wait()
    assert sorted(result.rows) == sorted(expected)
    assert len(expected) > 3_000
