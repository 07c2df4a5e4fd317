"""Input gates: alignment of barriers as tables, merging of batches, watermarks, ends.

A script is a list of pushes "channel:element"; its result is the sequence of events.
"""

from __future__ import annotations

import pytest

from penstock.errors import InternalError
from penstock.operators.idleness import Idleness
from penstock.runtime.channels import (
    BarrierAligned,
    GateBatch,
    GateEnded,
    GateEvent,
    GateStatus,
    GateWatermark,
)
from penstock.runtime.elements import END_OF_INPUT, IDLE, STATUSES, Barrier, Element, Watermark
from penstock.runtime.gates import MERGE_ROWS, InputGates
from penstock.types import Batch, Schema
from penstock.types.logical import BigIntType

SCHEMA = Schema.of(("x", BigIntType(nullable=False)))


def rows(*values: int) -> Batch:
    return Batch.of(SCHEMA, [(v,) for v in values])


def element(text: str) -> Element:
    kind, rest = text[0], text[1:]
    match kind:
        case "r":
            return rows(*(int(v) for v in rest.split(",")))
        case "w":
            return Watermark(int(rest))
        case "b":
            return Barrier(int(rest), 0)
        case "i":
            return IDLE
        case "a":
            return STATUSES[Idleness.ACTIVE]
        case "e":
            return END_OF_INPUT
    raise AssertionError(text)


def shown(event: GateEvent) -> str:
    match event:
        case GateBatch(gate=g, batch=batch):
            return f"{g}r" + ",".join(str(v) for v in batch.columns[0].values.tolist())
        case GateWatermark(gate=g, value=value):
            return f"{g}w{value}"
        case GateStatus(gate=g, idle=idle):
            return f"{g}{'i' if idle else 'a'}"
        case GateEnded(gate=g):
            return f"{g}e"
        case BarrierAligned(barrier=barrier):
            return f"b{barrier.checkpoint_id}"


def run(shape: list[int], script: str, *, exactly_once: bool = True, max_rows: int = 1000) -> list[str]:
    """Push all, then poll all. Channels are numbered over all gates; ``.`` polls in between,
    ``xN`` aborts checkpoint N."""
    gates = InputGates(
        [[f"g{g}c{c}" for c in range(n)] for g, n in enumerate(shape)], exactly_once=exactly_once
    )
    channels = [c for gate in gates.channels for c in gate]
    out: list[str] = []

    def drain() -> None:
        while (event := gates.poll(max_rows)) is not None:
            out.append(shown(event))

    for step in script.split():
        if step == ".":
            drain()
        elif step[0] == "x":
            gates.abort(int(step[1:]))
        else:
            channel, text = step.split(":")
            channels[int(channel)].push(element(text), 64)
    drain()
    return out


ALIGNMENT = [
    # one channel: a barrier is aligned when it comes
    ([1], "0:r1 0:b1 0:r2", ["0r1", "b1", "0r2"]),
    # what is behind the barrier of a fast channel waits for the slow one
    ([2], "0:b1 0:r9 1:r1 . 1:b1 1:r2", ["0r1", "b1", "0r2,9"]),
    # rows before the barrier of every channel come before it
    ([2], "0:r1 1:r2 0:b1 1:r3 1:b1", ["0r1,2,3", "b1"]),
    # over two gates
    ([1, 1], "0:b1 0:r9 . 1:r1 1:b1", ["1r1", "b1", "0r9"]),
    # a channel that ended does not take part
    ([2], "0:e 1:b1 1:r1", ["b1", "0r1"]),
    # … also when it ends during the alignment
    ([2], "1:b1 1:r1 . 0:r5 0:e", ["0r5", "b1", "0r1"]),
    # a newer barrier: the older checkpoint was given up, its channels are released
    ([2], "0:b1 0:r9 . 1:b2 1:r8 0:b2", ["0r9", "b2", "0r8"]),
    # the old barrier that comes late is ignored
    ([2], "0:b2 . 1:b1 1:b2", ["b2"]),
    # an abort releases what waited; its barriers are ignored afterwards
    ([2], "0:b1 0:r9 . x1 1:b1 1:r8", ["0r9", "0r8"]),
    ([2], "x3 0:b3 1:b3 0:b4 1:b4", ["b4"]),
    # two checkpoints one after the other
    ([2], "0:b1 0:b2 1:b1 1:b2", ["b1", "b2"]),
    # several on their way: one that is given up takes no other with it
    ([2], "0:b1 0:r9 . x2 1:r1 1:b1 0:b2 1:b2 0:b3 1:b3", ["0r1", "b1", "0r9", "b3"]),
    ([2], "0:b1 0:b2 0:b3 . x1 1:b1 1:b2 1:b3", ["b2", "b3"]),
    ([2], "0:b1 0:b2 0:b3 . x3 1:b1 1:b2 1:b3", ["b1", "b2"]),
    # watermarks are behind the barrier like rows
    ([2], "0:b1 0:w5 1:w7 . 1:b1", ["b1", "0w5"]),
]


@pytest.mark.parametrize(("shape", "script", "expected"), ALIGNMENT)
def test_alignment(shape: list[int], script: str, expected: list[str]) -> None:
    found = run(shape, script)
    assert [normal(e) for e in found] == expected


def test_behind_a_barrier_it_is_the_turn_of_whoever_waited_longest() -> None:
    """Not of whoever lies first in memory: the same run of a program is the same."""
    order = [(7 * i + 3) % 16 for i in range(16)]
    script = " ".join(f"{c}:b1 {c}:r{c} ." for c in order)
    assert run([1] * 16, script) == ["b1", *(f"{c}r{c}" for c in order)]


def normal(text: str) -> str:
    """Rows of one merged batch in order: channels of one gate have none among them."""
    gate, _, values = text.partition("r")
    return f"{gate}r" + ",".join(sorted(values.split(","), key=int)) if values else text


AT_LEAST_ONCE = [
    ([2], "0:b1 0:r9 . 1:r1 1:b1", ["0r9", "0r1", "b1"]),
    # a fast channel is several checkpoints ahead
    ([2], "0:b1 0:b2 0:b3 0:r9 . 1:b1 . 1:b2 1:r1 1:b3", ["0r9", "b1", "b2", "0r1", "b3"]),
    # one that an upstream task gave up is left behind by the next
    ([2], "0:b1 0:b2 . 1:b2 1:b1 0:r1", ["b2", "0r1"]),
    ([2], "0:b1 0:b2 . x1 1:b1 1:b2", ["b2"]),
    ([2], "0:b1 0:b2 . x2 1:b1 1:b2", ["b1"]),
    # who has ended is not waited for, in any of them
    ([2], "0:b1 0:b2 . 1:b1 1:e", ["b1", "b2"]),
    ([3], "0:b1 1:b1 0:b2 . 0:e 2:b1 1:b2 2:b2", ["b1", "b2"]),
]


@pytest.mark.parametrize(("shape", "script", "expected"), AT_LEAST_ONCE)
def test_at_least_once_does_not_wait(shape: list[int], script: str, expected: list[str]) -> None:
    assert run(shape, script, exactly_once=False) == expected


WATERMARKS = [
    ([2], "0:w5 1:w3 0:w9 1:w7", ["0w3", "0w7"]),
    ([2], "0:w5 . 1:i", ["0w5"]),
    # both idle: on to the highest, and idle in all
    ([2], "0:w5 1:w3 . 0:i 1:i", ["0w3", "0w5", "0i"]),
    # active again behind the output: does not count until it has caught up
    ([2], "0:w5 1:i . 1:a 1:w2 0:w8 . 1:w9 0:w9", ["0w5", "0w8", "0w9"]),
    ([2], "0:w5 1:w3 . 1:e 0:w6", ["0w3", "0w5", "0w6"]),
    ([2], "0:e 1:e", ["0e"]),
    ([1, 1], "0:e 1:w4", ["0e", "1w4"]),
    ([1], "0:i . 0:a 0:w1", ["0i", "0a", "0w1"]),
]


@pytest.mark.parametrize(("shape", "script", "expected"), WATERMARKS)
def test_watermarks(shape: list[int], script: str, expected: list[str]) -> None:
    assert run(shape, script) == expected


def test_small_batches_of_all_channels_are_merged() -> None:
    assert run([3], "0:r1 0:r2 1:r3 2:r4") == ["0r1,2,3,4"]


def test_a_batch_is_cut_to_the_rows_asked_for_and_nothing_is_lost() -> None:
    assert run([1], "0:r1,2,3,4,5 0:w9", max_rows=2) == ["0r1,2", "0r3,4", "0r5", "0w9"]
    assert run([2], "0:r1,2,3 1:r7,8", max_rows=4) == ["0r1,2,3,7", "0r8"]


def test_large_batches_pass_uncopied() -> None:
    gates = InputGates([["a", "b"]])
    big = rows(*range(MERGE_ROWS))
    gates.channels[0][0].push(big, 1)
    gates.channels[0][1].push(rows(1), 1)
    first = gates.poll(1_000_000)
    assert isinstance(first, GateBatch)
    assert first.batch is big


def test_nothing_may_follow_the_end() -> None:
    gates = InputGates([["a"]])
    gates.channels[0][0].push(END_OF_INPUT, 1)
    assert gates.channels[0][0].end_queued
    assert gates.poll(1) == GateEnded(0)
    with pytest.raises(InternalError, match="after the end of channel a"):
        gates.channels[0][0].push(rows(1), 1)


def test_readiness_is_told_once() -> None:
    told: list[int] = []
    gates = InputGates([["a", "b"]], on_ready=lambda: told.append(1))
    gates.channels[0][0].push(rows(1), 1)
    gates.channels[0][1].push(rows(2), 1)
    assert len(told) == 1
    gates.poll(10)
    gates.channels[0][1].push(rows(2), 1)
    assert len(told) == 2


def test_the_holder_of_the_watermark_is_named() -> None:
    gates = InputGates([["flights (1)", "flights (2)"]])
    gates.channels[0][0].push(Watermark(5), 1)
    while gates.poll(1) is not None:
        pass
    assert gates.watermark_holder() == "flights (2)"
