"""The environment that the tasks of a slot share."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.clocks import SteadyClock
from penstock.log_events import EventLog
from penstock.runtime.credit import CreditPool
from penstock.state.memory import StateMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from penstock.log_events import Log
    from penstock.messages.slot import StorageSettings
    from penstock.ports import Store


def wall_clock_ms() -> int:
    """The wall clock in ms since the epoch. It goes back when somebody sets the clock back."""
    return time.time_ns() // 1_000_000


#: The clock of processing time. It never goes back, so that watermarks and timers do not stand still when the
#: wall clock is set back.
processing_time_ms = SteadyClock(wall_clock_ms, lambda: time.monotonic() * 1000).now_ms


class Helper:
    """The slot's one helper thread, for long calls that release the interpreter's lock."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, call: Callable[[], Any]) -> Any:
        """Call ``call`` in the helper thread and return its result."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="penstock-helper")
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def close(self) -> None:
        """Drop the calls that wait, without waiting for the one that runs."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


@dataclass(slots=True)
class Environment:
    """What all tasks of one slot and job attempt share.

    ``function``: loads an entry of the job's function table. ``helper``: the helper thread.
    """

    job_id: str
    job_name: str
    job_attempt: int
    config: Mapping[str, str]
    local_dir: Path
    store: Store | None
    function: Callable[[str], Any]
    #: The settings by which another process opens the store.
    storage: StorageSettings | None = None
    helper: Helper = field(default_factory=Helper)
    now_ms: Callable[[], int] = processing_time_ms
    #: A clock that never goes back, for durations.
    time_s: Callable[[], float] = time.perf_counter
    credits: CreditPool = field(default_factory=CreditPool)
    #: The memory that the state of all tasks may take.
    memory: StateMemory = field(default_factory=StateMemory)
    #: The task manager's folder for copies of snapshots; it outlives the slot.
    local_state_dir: Path | None = None
    #: Writes into the task manager's log.
    log: Log = EventLog("penstock.runtime").log
