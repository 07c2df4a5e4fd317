"""What reaches past its ports for a clock, for entropy or for its process id gets the
world's: a whole run depends on nothing but its seed.

Services and slots are given their clocks; libraries, and measurements of how long a step
takes, ask the operating system. While ``virtual_time`` is entered, they ask the world.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import random
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from penstock.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.testing.simulation.world import World


#: A name that hides a builtin is taken away again.
_ABSENT = object()


@contextlib.contextmanager
def replaced(*wanted: tuple[Any, str, Any]) -> Iterator[None]:
    """(object, attribute, value) for the time of the block. AttributeError for a name that
    is neither there nor a builtin."""
    for target, name, _ in wanted:
        if not hasattr(builtins, name):
            getattr(target, name)
    before = [(target, name, getattr(target, name, _ABSENT)) for target, name, _ in wanted]
    try:
        for target, name, value in wanted:
            setattr(target, name, value)
        yield
    finally:
        for target, name, value in reversed(before):
            if value is _ABSENT:
                delattr(target, name)
            else:
                setattr(target, name, value)


@contextlib.contextmanager
def virtual_time(world: World) -> Iterator[None]:
    entropy = random.Random(world.seed)
    real_pid, real_host = os.getpid(), socket.gethostname()
    world_thread, real_sleep = threading.get_ident(), time.sleep

    def sleep(seconds: float) -> None:
        if threading.get_ident() != world_thread:
            real_sleep(seconds)  # a thread of a library that something else has loaded
            return
        raise InternalError("a simulated process blocks in time.sleep")

    def pid() -> int:
        return world.current.pid if world.current is not None else real_pid

    def host() -> str:
        return world.current.host if world.current is not None else real_host

    def processor_s() -> float:
        return world.current.cpu_s if world.current is not None else 0.0

    state = random.getstate()
    random.seed(world.seed)
    try:
        with replaced(
            (time, "time", lambda: world.wall_ms(world.current) / 1000),
            (time, "time_ns", lambda: world.wall_ms(world.current) * 1_000_000),
            (time, "monotonic", lambda: world.now_s),
            (time, "monotonic_ns", lambda: int(world.now_s * 1e9)),
            (time, "perf_counter", world.look_at_processor_clock),
            (time, "perf_counter_ns", lambda: int(world.look_at_processor_clock() * 1e9)),
            (time, "process_time", processor_s),
            (time, "thread_time", processor_s),
            (time, "sleep", sleep),
            (os, "urandom", entropy.randbytes),
            (random, "_urandom", entropy.randbytes),
            (os, "getpid", pid),
            (socket, "gethostname", host),
        ):
            yield
    finally:
        random.setstate(state)
