"""What may be counted of a process whose memory is to stay near a limit."""

from __future__ import annotations

import numpy as np

from penstock.state.memory import StateMemory
from penstock.state.process_memory import ProcessMemory, private_bytes

LIMIT = 1_000_000


class Process:
    """Takes ``before`` bytes, and ``times`` what is counted besides."""

    def __init__(self, before: int = 5_000_000, times: float = 1.0, fixed: int = 0) -> None:
        self.before, self.times, self.fixed = before, times, fixed
        self.counted = 0

    def private(self) -> int:
        return self.before + (int(self.counted * self.times) + self.fixed if self.counted else 0)


def settled(process: Process, memory: ProcessMemory, wanted: int = 10 * LIMIT) -> int:
    """What is counted at last, when all that may be is."""
    for _ in range(20_000):
        process.counted = min(wanted, memory.allowed(process.counted))
    return process.counted


def test_state_takes_the_limit_where_nothing_else_grows() -> None:
    process = Process()
    memory = ProcessMemory(LIMIT, process.private)
    assert 0.7 * LIMIT < settled(process, memory) < LIMIT
    assert process.private() - process.before <= LIMIT


def test_what_the_process_takes_besides_is_left_to_it() -> None:
    process = Process(times=2.0)
    memory = ProcessMemory(LIMIT, process.private)
    assert 0.3 * LIMIT < settled(process, memory) < 0.5 * LIMIT
    assert process.private() - process.before <= LIMIT


def test_it_grows_again_when_the_process_has_room() -> None:
    process = Process(times=2.0)
    memory = ProcessMemory(LIMIT, process.private)
    small = settled(process, memory)
    process.times = 1.1
    assert settled(process, memory) > 1.5 * small


def test_a_quarter_of_the_limit_is_always_allowed() -> None:
    process = Process(fixed=50 * LIMIT)
    memory = ProcessMemory(LIMIT, process.private)
    assert settled(process, memory) == LIMIT // 4


def test_less_is_not_asked_for_before_the_last_has_gone() -> None:
    process = Process(times=3.0)
    memory = ProcessMemory(LIMIT, process.private)
    process.counted = 600_000
    allowed = memory.allowed(600_000)
    assert allowed < 350_000
    assert [memory.allowed(600_000) for _ in range(5)] == [allowed] * 5


def test_a_system_that_does_not_tell_has_the_limit() -> None:
    memory = ProcessMemory(LIMIT, lambda: None)
    assert memory.allowed(10 * LIMIT) == LIMIT


def test_holders_give_up_what_the_process_has_too_much() -> None:
    process = Process(times=4.0)
    memory = StateMemory(LIMIT, ProcessMemory(LIMIT, process.private))
    process.counted = 600_000
    holder = memory.add("rows", lambda: process.counted, evicts=True)
    assert memory.excess(holder) > 300_000
    assert StateMemory(LIMIT).excess(StateMemory(LIMIT).add("rows", lambda: 600_000, evicts=True)) == 0


def test_private_bytes_are_those_of_the_process() -> None:
    before = private_bytes()
    if before is None:
        return  # No /proc on this system.
    filled = np.ones(64 << 20, np.uint8)
    after = private_bytes()
    assert after is not None
    assert after - before > 0.9 * filled.nbytes
