"""Barriers that overtake at the gates, as tables: what is handled first, what is recorded.

A script pushes "channel:element" (``u5``: barrier 5 that overtakes, ``b5``: one that does
not); ``!`` does what the task does: events before the barrier, then the barrier overtakes;
``.`` polls all. Channels in ``kept`` are not overtaken.
"""

from __future__ import annotations

import pytest

from penstock.operators.idleness import Idleness
from penstock.runtime.channels import BarrierAligned, GateBatch, GateEnded, GateEvent, GateStatus
from penstock.runtime.elements import END_OF_INPUT, IDLE, STATUSES, Barrier, Element, Watermark
from penstock.runtime.gates import InputGates
from penstock.runtime.outputs import MAX_OWED_BYTES, OutputChannel, Outputs
from penstock.types import Batch, Schema
from penstock.types.logical import BigIntType

SCHEMA = Schema.of(("x", BigIntType(nullable=False)))


def element(text: str) -> Element:
    match text[0]:
        case "r":
            return Batch.of(SCHEMA, [(int(text[1:]),)])
        case "w":
            return Watermark(int(text[1:]))
        case "u":
            return Barrier(int(text[1:]), 0, patience_ms=0)
        case "b":
            return Barrier(int(text[1:]), 0)
    return {"i": IDLE, "a": STATUSES[Idleness.ACTIVE], "e": END_OF_INPUT}[text]


def shown(event: GateEvent | Element) -> str:
    match event:
        case GateBatch(batch=batch) | (Batch() as batch):
            return "r" + ",".join(str(v) for v in sorted(batch.columns[0].values.tolist()))
        case BarrierAligned(barrier=barrier):
            return f"b{barrier.checkpoint_id}"
        case GateEnded():
            return "e"
        case GateStatus(idle=idle):
            return "i" if idle else "a"
        case _:
            return f"w{event.value}" if hasattr(event, "value") else ("i" if event.idle else "a")  # type: ignore[union-attr]


def run(shape: list[int], kept: set[int], script: str) -> tuple[list[str], list[list[str]], bool]:
    """(events, what each channel had in flight at the last overtaking, all of it recorded)."""
    gates = InputGates([[f"g{g}c{c}" for c in range(n)] for g, n in enumerate(shape)])
    channels = [c for gate in gates.channels for c in gate]
    for index in kept:
        channels[index].overtakable = False
    out: list[str] = []
    recording = None
    for step in [*script.split(), "."]:
        if step == ".":
            while (event := gates.poll(100)) is not None:
                out.append(shown(event))
        elif step == "!":
            while gates.urgent and (event := gates.urge(100)) is not None:
                out.append(shown(event))
            if gates.may_overtake:
                barrier, _, recording = gates.overtake()
                out.append(f"u{barrier.checkpoint_id}")
        elif step[0] == "x":
            gates.abort(int(step[1:]))
        else:
            channel, text = step.split(":")
            channels[int(channel)].push(element(text), 64)
    content = [[shown(e) for e in c.elements] for c in recording.content] if recording else []
    return out, content, recording is not None and recording.done


TABLE = [
    # what is queued before the barrier is recorded, and handled afterwards all the same
    ([1], set(), "0:r1 0:w3 0:r2 0:u1 0:r9 !", ["u1", "r1", "w3", "r2", "r9"], [["r1", "w3", "r2"]], True),
    # a channel without its barrier is recorded until it comes
    ([2], set(), "0:u1 1:r1 ! 1:r2 0:r8 1:u1 1:r9", ["u1", "r1,2,8", "r9"], [[], ["r1", "r2"]], True),
    ([2], set(), "0:u1 1:r1 !", ["u1", "r1"], [[], ["r1"]], False),
    # … or until it ends
    ([2], set(), "0:u1 ! 1:r2 1:e", ["u1", "r2"], [[], ["r2"]], True),
    ([2], set(), "1:r1 1:e 0:u1 !", ["u1", "r1"], [[], ["r1"]], True),
    # rows behind the barrier are not in flight
    ([2], set(), "0:u1 0:r7 1:r1 1:u1 1:r8 !", ["u1", "r1,7", "r8"], [[], ["r1"]], True),
    # a channel that is not overtaken: what is before its barrier is handled first
    ([1, 1], {0}, "1:u1 0:r1 0:w2 0:u1 0:r9 1:r5 !", ["r1", "w2", "u1", "r9", "r5"], [[]], True),
    # … and nothing can be done before its barrier is there: all goes on
    ([1, 1], {0}, "1:r4 1:u1 0:r1 ! .", ["r4", "r1"], [], False),
    ([1, 1], {0}, "1:r4 1:u1 0:r1 ! . 0:u1", ["r4", "r1", "b1"], [], False),
    # aligned in time: nothing is left to overtake
    ([2], set(), "0:u1 1:u1 . !", ["b1"], [], False),
    # an aligned barrier is given when the task asks late
    ([1], set(), "0:r1 0:u1 ! .", ["u1", "r1"], [["r1"]], True),
    # an older barrier among the rows is of no importance
    ([1], set(), "0:b1 0:r1 0:u2 x1 !", ["u2", "r1"], [["r1"]], True),
    # aborted: it overtakes no more
    ([2], set(), "0:u1 1:r1 x1 ! 1:u1", ["r1"], [], False),
    # the newer replaces the older
    ([2], set(), "0:u1 0:r5 1:r1 0:u2 !", ["u2", "r1,5"], [["r5"], ["r1"]], False),
]


@pytest.mark.parametrize(("shape", "kept", "script", "events", "content", "done"), TABLE)
def test_overtaking(shape, kept, script, events, content, done) -> None:
    assert run(shape, kept, script) == (events, content, done)


def test_the_watermark_before_the_content_is_kept() -> None:
    gates = InputGates([["a", "b"]])
    a, b = gates.channels[0]
    for channel, value in ((a, 3), (b, 4)):
        channel.push(Watermark(value), 1)
    b.push(IDLE, 1)
    while gates.poll(10) is not None:
        pass
    b.push(element("r1"), 64)
    a.push(element("u1"), 64)
    _, _, recording = gates.overtake()
    assert [(c.watermark, c.idle) for c in recording.content] == [(3, False), (4, True)]


def test_a_barrier_with_less_patience_counts() -> None:
    announced = []
    gates = InputGates([["a", "b"]], on_announced=announced.append)
    a, b = gates.channels[0]
    a.push(Barrier(1, 100, patience_ms=50), 1)
    b.push(Barrier(1, 100, patience_ms=0), 1)
    assert [x.overtakes_at_ms for x in announced] == [150, 100]
    assert gates.announced is not None
    assert gates.announced.patience_ms == 0


def test_outputs_push_on_without_credit() -> None:
    sent: list[Element] = []

    def push(e: Element) -> int:
        sent.append(e)
        return 100

    outputs = Outputs()
    channel = OutputChannel(outputs, push, 50)
    from penstock.runtime.outputs import EdgeWriter

    outputs.edges.append(EdgeWriter(None, [channel]))  # type: ignore[arg-type]
    channel.emit(Watermark(1))
    channel.append(element("r1"))  # type: ignore[arg-type]
    channel.emit(Watermark(2))
    assert len(sent) == 1
    assert outputs.blocked
    outputs.emit(Barrier(1, 0, patience_ms=0))
    outputs.push_on()
    assert [type(e).__name__ for e in sent] == ["Watermark", "Batch", "Watermark", "Barrier"]
    assert not outputs.blocked
    assert channel.credit == 50 - 400
    assert not outputs.overdrawn
    channel.credit = -MAX_OWED_BYTES - 1
    assert outputs.overdrawn
