"""Which records and watermarks may leave the queue of an asynchronous function."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.operators.async_queue import AsyncQueue, Entry


def run(steps: list[Any], *, ordered: bool) -> list[Any]:
    """``steps``: ("add", n), ("done", n), ("mark", w), "take", "pass"; gives what the takes and passes gave."""
    queue, entries, out = AsyncQueue(ordered=ordered), {}, []
    batch: Any = None
    for step in steps:
        match step:
            case ("add", n):
                entries[n] = Entry(batch, n)
                queue.add(entries[n])
            case ("done", n):
                queue.finish(entries[n])
            case ("mark", watermark):
                queue.mark(watermark)
            case "take":
                ready = queue.has_ready()
                out.append([e.row for e in queue.take()])
                assert ready or not out[-1]
            case "pass":
                out.append(queue.pass_mark())
    assert len(queue) == len(queue.waiting())
    return out


ADDED = [("add", 1), ("add", 2), ("add", 3)]


@pytest.mark.parametrize(
    ("steps", "ordered", "unordered"),
    [
        (["take", "pass"], [[], None], [[], None]),
        ([*ADDED, ("done", 3), ("done", 2), "take"], [[]], [[3, 2]]),
        ([*ADDED, ("done", 3), ("done", 1), "take", ("done", 2), "take"], [[1], [2, 3]], [[3, 1], [2]]),
        ([("mark", 9), "take", "pass"], [[], 9], [[], 9]),
        ([("add", 1), ("mark", 9), "pass", ("done", 1), "pass", "take", "pass"], [None, None, [1], 9], [None, None, [1], 9]),
        # A record behind a watermark never leaves before it.
        ([("add", 1), ("mark", 9), ("add", 2), ("done", 2), "take", ("done", 1), "take", "take", "pass", "take"],
         [[], [1], [], 9, [2]], [[], [1], [], 9, [2]]),
        ([("add", 1), ("mark", 5), ("mark", 9), ("done", 1), "take", "pass", "pass", "pass"], [[1], 5, 9, None], [[1], 5, 9, None]),
    ],
)  # fmt: skip
def test_what_may_leave(steps: list[Any], ordered: list[Any], unordered: list[Any]) -> None:
    assert run(steps, ordered=True) == ordered
    assert run(steps, ordered=False) == unordered


def test_what_waits_is_in_the_order_of_the_input() -> None:
    queue = AsyncQueue(ordered=False)
    batch: Any = None
    entries = [Entry(batch, n) for n in range(4)]
    for n, entry in enumerate(entries):
        queue.add(entry)
        if n == 1:
            queue.mark(7)
    queue.finish(entries[3])
    queue.finish(entries[0])
    assert [e.row for e in queue.take()] == [0]
    assert [e.row for e in queue.waiting()] == [1, 2, 3]
