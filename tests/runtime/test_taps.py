"""Taps: what is sampled, how much of the time it may take, what is never shown, and when it ends."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.jobgraph import Forward, Hash
from penstock.jobgraph.specs import UnionSpec
from penstock.messages.slot import TaskStateChanged
from penstock.messages.states import ExecutionState
from penstock.messages.taps import EdgeTapped, Tap, TapEdge
from penstock.runtime import taps
from penstock.runtime.outputs import EdgeWriter, OutputChannel, Outputs
from penstock.runtime.partitioners import make_partitioner
from penstock.runtime.sampled_rows import Reservoir
from penstock.runtime.shown_rows import MAX_ITEMS, MAX_TEXT, shower
from penstock.runtime.taps import MAX_TAPS, Taps, writers_of
from penstock.testing import GraphBuilder
from penstock.testing.slots import TestTaskManager
from penstock.types import Batch, Schema
from penstock.types.logical import BigIntType, VarCharType

SCHEMA = Schema.of(("k", BigIntType(nullable=False)), ("s", VarCharType()))


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_every_row_has_the_same_chance(batch: int) -> None:
    """Of 1,000 rows 10 are chosen, 2,000 times: each tenth of the stream is hit 2,000 times, give or take."""
    hits: Counter[int] = Counter()
    for seed in range(2_000):
        reservoir, sample = Reservoir(10, Random(seed)), {}
        for start in range(0, 1_000, batch):
            for place, row in reservoir.offer(min(batch, 1_000 - start)):
                sample[place] = start + row
        assert (len(sample), reservoir.seen) == (10, 1_000)
        hits.update(row // 100 for row in sample.values())
    assert all(1_780 < hits[tenth] < 2_220 for tenth in range(10)), hits


@pytest.mark.parametrize("n", [0, 1, 9, 10])
def test_a_short_stream_is_sampled_whole_and_in_order(n: int) -> None:
    assert Reservoir(10, Random(1)).offer(n) == [(i, i) for i in range(n)]


def test_random_numbers_at_the_ends_of_their_range() -> None:
    for value in (0.0, 1 - 2**-53):
        random = Random(1)
        random.random = lambda value=value: value  # type: ignore[method-assign]
        assert len(Reservoir(2, random).offer(100)) >= 2


class Unshowable:
    def __str__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("n", 5, 5),
        ("n", 2**70, str(2**70)),
        ("n", float("nan"), "NaN"),
        ("s", None, None),
        ("s", "a" * 600, "a" * MAX_TEXT + "… (600 characters)"),
        ("s", "half \ud800", "half \\ud800"),
        ("s", "nats://ann:pw@host/x", "nats://******@host/x"),
        ("password", "hunter2", "******"),
        ("password", None, None),
        ("user_iban", "DE1", "******"),
        ("d", {"api_key": "x", "a": 1, "Iban": 3}, {"api_key": "******", "a": 1, "Iban": "******"}),
        ("l", list(range(60)), [*range(MAX_ITEMS), "… 10 more"]),
        ("o", Unshowable(), "<Unshowable that cannot be shown: ValueError>"),
    ],
)
def test_what_is_shown_of_a_value(name: str, value: Any, shown: Any) -> None:
    show = shower(Schema.of((name, VarCharType())), ["*iban"])
    assert show((value,)) == [shown]


def test_a_large_row_is_cut() -> None:
    schema = Schema.of(*((f"c{i}", VarCharType()) for i in range(40)))
    shown = shower(schema, [])(["x" * 400] * 40)
    assert shown == ["x" * 100 + "… (400 characters)"] * 40


class Bench:
    """A writer of one edge whose rows go nowhere, with a clock that stands still unless it is set."""

    def __init__(self) -> None:
        self.now_s = 0.0
        outputs = Outputs(time_s=lambda: self.now_s)
        channel = OutputChannel(outputs, lambda element: 0, 1 << 40)
        partitioner = make_partitioner(
            Forward(), subtask_index=0, channels=1, max_parallelism=128, function=lambda name: None
        )
        self.writer = EdgeWriter(partitioner, [channel])
        self.taps = Taps(lambda: self.now_s, Random(7))
        self.edges = writers_of([("e", SCHEMA, 3, self.writer)])

    def write(self, start: int, n: int) -> None:
        self.writer.write(Batch.of(SCHEMA, [(i, f"row {i}") for i in range(start, start + n)]))

    def pull(self, tap_id: str = "t", *, rows: int = 5, lease_ms: int = 5_000, edge: str = "e") -> EdgeTapped:
        tap = Tap(tap_id=tap_id, edge_id=edge, rows=rows, lease_ms=lease_ms)
        return self.taps.pull(TapEdge(request_id="r", tap=tap), self.edges)


def test_rows_since_the_last_request() -> None:
    bench = Bench()
    bench.write(0, 3)
    assert bench.pull().rows == (), "nobody looked before"
    bench.write(10, 3)
    found = bench.pull()
    assert found.columns == (("k", "BIGINT NOT NULL"), ("s", "STRING"))
    assert [(r.subtask, r.kind, r.time_us, r.values) for r in found.rows] == [
        (3, "+I", None, [i, f"row {i}"]) for i in (10, 11, 12)
    ]
    bench.write(0, 1_000)
    found = bench.pull()
    assert (len(found.rows), found.passed, found.unseen) == (5, 1_000, 0)
    keys = [row.values[0] for row in found.rows]
    assert keys == sorted(keys)
    assert bench.pull().rows == ()


def test_a_tap_ends_when_it_is_closed_or_nobody_asks() -> None:
    bench = Bench()
    assert bench.writer.taps == ()
    bench.pull("a")
    bench.pull("b")
    assert len(bench.writer.taps) == 2
    bench.pull("a", lease_ms=0)
    assert len(bench.writer.taps) == 1
    bench.now_s = 4.9
    bench.taps.expire()
    assert len(bench.writer.taps) == 1
    bench.now_s = 5.1
    bench.taps.expire()
    assert bench.writer.taps == ()


def test_other_edges_and_too_many_taps() -> None:
    bench = Bench()
    assert bench.pull(edge="other") == EdgeTapped(request_id="r")
    for i in range(MAX_TAPS):
        assert not bench.pull(str(i)).failure
    assert "taps are open in the slot already" in bench.pull("one more").failure


def test_looking_takes_no_more_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look takes 10 ms here, in 1,000 s: 0.4 % of the time are 400 looks of 10 ms. Other batches pass unseen."""
    bench = Bench()
    bench.pull()
    looks = 0
    real = taps.EdgeTap._sample

    def slow(tap: taps.EdgeTap, subtask: int, batch: Batch) -> None:
        nonlocal looks
        looks += 1
        bench.now_s += 0.01
        real(tap, subtask, batch)

    monkeypatch.setattr(taps.EdgeTap, "_sample", slow)
    for i in range(10_000):
        bench.now_s += 0.1
        bench.write(i, 1)
    found = bench.pull()
    assert 350 <= looks <= 420
    assert (found.passed, found.unseen) == (looks, 10_000 - looks)


def test_a_failure_of_the_tap_is_none_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("boom")

    bench = Bench()
    bench.pull()
    monkeypatch.setattr(taps.EdgeTap, "_sample", broken)
    bench.write(0, 1)
    assert bench.writer.taps == ()
    assert bench.writer.records_out == 1
    assert bench.pull().failure == "the rows cannot be looked at: RuntimeError: boom"


async def test_a_slot_answers_and_the_job_is_none_the_wiser(tmp_path: Path) -> None:
    b = GraphBuilder()
    source = b.values(Batch.of(SCHEMA, [(i, f"row {i}") for i in range(100)]))
    keyed = b.vertex(UnionSpec(), SCHEMA, inputs=[(source, Hash(keys=(0,)))], parallelism=1)
    b.collect(keyed)
    graph = b.build()
    tap = Tap(tap_id="t", edge_id=graph.edges[0].id, rows=5, lease_ms=5_000)
    async with TestTaskManager() as tm:
        slot = await tm.fork("slot-a")
        slot.send(TapEdge(request_id="early", tap=tap))
        assert await slot.wait_for(EdgeTapped) == EdgeTapped(request_id="early")
        locations = {"v0:0": "slot-a", "v1:0": "slot-a", "v2:0": "slot-a"}
        tm.deploy(graph, locations, store_url=tmp_path.as_uri())
        slot.send(TapEdge(request_id="1", tap=tap))
        found = await slot.wait_for(EdgeTapped, lambda m: m.request_id == "1")
        assert [name for name, _ in found.columns] == ["k", "s"]
        end = lambda m: m.vertex_id == "v2" and m.state.terminal  # noqa: E731
        assert (await slot.wait_for(TaskStateChanged, end)).state is ExecutionState.FINISHED
        slot.send(TapEdge(request_id="2", tap=tap))
        await asyncio.wait_for(slot.wait_for(EdgeTapped, lambda m: m.request_id == "2"), 60)
