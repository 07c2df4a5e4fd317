"""Replaces the operating system's clock, entropy and process id by the world's, for code that asks the system
directly. A whole run therefore depends only on its seed.

Services and slots get a clock as a port; libraries and measurements of durations ask the operating system.
Inside ``virtual_time`` they get the world's answers.
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


#: Marks a name that was not there before: it only hid a builtin and is removed afterwards.
_ABSENT = object()


@contextlib.contextmanager
def replaced(*wanted: tuple[Any, str, Any]) -> Iterator[None]:
    """Set each (object, attribute, value) for the time of the block. Raises AttributeError for a name that is
    neither an attribute nor a builtin."""
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
            real_sleep(seconds)  # the caller is a thread of a library, outside the simulation
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
