"""The world of a simulation: virtual time, processes, one seeded random generator, trace and digest.

Time stands still while any process has work, and jumps to the next timer when none has. If several processes
have work, the seed picks the next one. Computing takes time, too: each look at the processor's clock charges
some time to the process, and its next round begins when that time is over.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import itertools
import random
from typing import TYPE_CHECKING, Any

from penstock.errors import InternalError
from penstock.testing.simulation.loop import SimLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from penstock.ports import Clock
    from penstock.testing.simulation.sockets import SimSocket

#: Wall clock at the beginning of every world (ms since the epoch).
START_MS = 1_750_000_000_000
#: Exit code of a process that was killed.
KILLED = -9


class Violation(Exception):
    """An invariant does not hold."""


class Process:
    """A simulated process. ``host``: where it runs; ``children`` die with it.

    ``exit_code``: None while it lives; negative for a signal.
    """

    def __init__(self, world: World, name: str, host: str, parent: Process | None) -> None:
        self.world = world
        self.name = name
        self.host = host
        self.pid = next(world.pids)
        self.parent = parent
        self.children: list[Process] = []
        self.loop = SimLoop(world, self)  # type: ignore[abstract]
        self.exit_code: int | None = None
        #: the deviation of its host's wall clock
        self.clock_offset_ms = 0
        self.paused = False
        self.busy_until_s = 0.0
        #: processor time charged in this round
        self.spent_s = 0.0
        self.cpu_s = 0.0
        #: called (outside of any process) when it has ended
        self.on_exit: list[Callable[[], None]] = []
        if parent is not None:
            parent.children.append(self)

    @property
    def alive(self) -> bool:
        return self.exit_code is None

    def descendants(self) -> list[Process]:
        """The living processes below this one."""
        found = [child for child in self.children if child.alive]
        return found + [below for child in found for below in child.descendants()]

    def __repr__(self) -> str:
        return self.name


class SimClock:
    """The clock as one process uses it."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def now_ms(self) -> int:
        return self._process.world.wall_ms(self._process)

    def monotonic_ms(self) -> float:
        return self._process.world.now_s * 1000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


#: Above the ids of all real processes (on Linux below 2**22), so that looking up a simulated process in /proc
#: never finds a real process with the same id.
FIRST_PID = 2**22 + 1


class World:
    """A simulated world. ``verbose``: called with every line of the trace as it is written."""

    def __init__(self, seed: int, *, verbose: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now_s = 0.0
        self.pids = itertools.count(FIRST_PID)
        self.processes: list[Process] = []
        #: the process whose callback runs at this moment
        self.current: Process | None = None
        #: the time that one look at the processor's clock costs; random for each world
        self.look_s = self.random.choice((2e-5, 1e-4, 5e-4))
        #: connects a process to a listening socket: (process, host, port)
        self.dial: Callable[[Process, str, int], SimSocket] = _nobody_listens
        self.violation: Violation | None = None
        self.stopped = self.closed = False
        self.events = 0
        #: the last entries of the trace: (seconds, process, kind, text)
        self.story: list[tuple[float, str, str, str]] = []
        self._verbose = verbose
        self._digest = hashlib.sha256()
        self._heap: list[tuple[float, int, SimLoop | None, Any]] = []
        self._order = itertools.count()
        self._working: list[SimLoop] = []

    # -- running -----------------------------------------------------------------------

    def run(self, limit_s: float) -> None:
        """Run until ``stop`` is called. Raises Violation for a violation, and when ``limit_s`` of virtual
        time has passed."""
        working, heap = self._working, self._heap
        while not self.stopped:
            if self.violation is not None:
                raise self.violation
            if working:
                at = self.random.randrange(len(working)) if len(working) > 1 else 0
                loop = working[at]
                working[at] = working[-1]
                working.pop()
                loop.queued = False
                self._round(loop)
                continue
            if not heap:
                raise Violation("nothing will ever happen any more")
            when, _, loop_, what = heapq.heappop(heap)
            if loop_ is None:
                self.now_s = max(self.now_s, when)
                what()
            elif not (what._cancelled or loop_.dead):
                self.now_s = max(self.now_s, when)
                loop_.ready.append(what)
                if not loop_.queued:
                    self.has_work(loop_)
            if self.now_s > limit_s:
                raise Violation(f"not over after {limit_s:g} s of virtual time")
        if self.violation is not None:
            raise self.violation

    def _round(self, loop: SimLoop) -> None:
        process = loop.process
        if loop.dead or process.paused:
            return
        if process.busy_until_s > self.now_s:
            loop.queued = True  # the world runs it when its busy time is over
            self.at(process.busy_until_s, lambda: self._again(loop))
            return
        self.current = process
        self.events += 1
        try:
            loop.run_round()
        finally:
            self.current = None
        if process.spent_s:
            process.busy_until_s = self.now_s + process.spent_s
            process.cpu_s += process.spent_s
            process.spent_s = 0.0
        if loop.ready and not loop.queued:
            self.has_work(loop)

    def _again(self, loop: SimLoop) -> None:
        loop.queued = False
        if loop.ready:
            self.has_work(loop)

    def has_work(self, loop: SimLoop) -> None:
        if loop.dead or loop.process.paused:
            return
        loop.queued = True
        self._working.append(loop)

    def schedule(self, when_s: float, loop: SimLoop, handle: asyncio.TimerHandle) -> None:
        heapq.heappush(self._heap, (when_s, next(self._order), loop, handle))

    def at(self, when_s: float, call: Callable[[], Any]) -> None:
        """Run ``call`` at ``when_s``, outside of any process."""
        heapq.heappush(self._heap, (when_s, next(self._order), None, call))

    def after(self, delay_s: float, call: Callable[[], Any]) -> None:
        self.at(self.now_s + delay_s, call)

    def stop(self) -> None:
        self.stopped = True

    # -- clocks --------------------------------------------------------------------------

    def wall_ms(self, process: Process | None = None) -> int:
        offset = process.clock_offset_ms if process is not None else 0
        return START_MS + int(self.now_s * 1000) + offset

    def look_at_processor_clock(self) -> float:
        """The processor's clock in seconds, as ``time.perf_counter``. Each call charges time to the current
        process."""
        process = self.current
        if process is None:
            return self.now_s
        process.spent_s += self.look_s
        return self.now_s + process.spent_s

    # -- processes -------------------------------------------------------------------------

    def spawn(
        self,
        name: str,
        main: Callable[[Process], Coroutine[Any, Any, int | None]],
        *,
        host: str | None = None,
        parent: Process | None = None,
        delay_s: float = 0.0,
    ) -> Process:
        """Start a process. ``main(process)`` returns its coroutine, whose result is the exit code; the code
        is 1 if the coroutine raises."""
        process = Process(self, name, host or name, parent)
        self.processes.append(process)
        self.trace(name, "started", f"pid={process.pid}")

        async def run() -> None:
            try:
                code = await main(process) or 0
            except Exception as err:
                self.trace(name, "error", f"{type(err).__name__}: {err}")
                code = 1
            self.after(0.0, lambda: self._exit(process, code))

        process.loop.call_later(delay_s, lambda: process.loop.create_task(run()))
        return process

    def kill(self, process: Process) -> None:
        """Kill the process, as SIGKILL does: none of its code runs any more, not even ``finally``."""
        if process.alive:
            self.trace(process.name, "killed")
            self._exit(process, KILLED)

    def _exit(self, process: Process, code: int) -> None:
        if not process.alive:
            return
        process.exit_code = code
        process.loop.dead = True
        if code != KILLED:
            self.trace(process.name, "exited", str(code))
        for child in process.children:
            self.kill(child)  # PR_SET_PDEATHSIG
        for call in process.on_exit:
            call()

    def pause(self, process: Process) -> None:
        """Pause the process, as SIGSTOP does, while time goes on."""
        if process.alive and not process.paused:
            self.trace(process.name, "paused")
            process.paused = True

    def resume(self, process: Process) -> None:
        if process.alive and process.paused:
            self.trace(process.name, "resumed")
            process.paused = False
            if process.loop.ready:
                self.has_work(process.loop)

    def living(self, prefix: str = "") -> list[Process]:
        return [p for p in self.processes if p.alive and p.name.startswith(prefix)]

    # -- what happened -----------------------------------------------------------------------

    def trace(self, who: str, kind: str, text: str = "") -> None:
        if self.closed:
            return
        entry = (self.now_s, who, kind, text)
        self._digest.update(repr(entry).encode())
        self.story.append(entry)
        if self._verbose is not None:
            self._verbose(line(entry))

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()[:16]

    def violated(self, what: str) -> None:
        """Report that an invariant does not hold; only the first report counts."""
        self.trace("world", "violation", what)
        if self.violation is None:
            self.violation = Violation(what)

    def unhandled(self, process: Process, context: dict[str, Any]) -> None:
        err = context.get("exception")
        self.violated(f"{process.name}: nobody handled {context.get('message')}: {err!r}")

    def look_for_unheard(self) -> None:
        """Report a Violation for each failed task whose exception nobody has retrieved, except in processes
        that died."""
        for process in self.processes:
            if process.alive or process.exit_code == 0:
                process.loop.look_for_unheard()
        if self.violation is not None:
            raise self.violation

    def close(self) -> None:
        """Close the world: nothing runs and nothing is traced any more, and the memory of its processes can
        be freed."""
        self.closed = True
        for process in self.processes:
            process.loop.dead = True
        if self.current is not None:
            raise InternalError("a process closed its world")


def _nobody_listens(process: Process, host: str, port: int) -> SimSocket:
    raise ConnectionRefusedError(f"nobody listens on {host}:{port}")


def line(entry: tuple[float, str, str, str]) -> str:
    """One line of the trace."""
    seconds, who, kind, text = entry
    return f"{seconds:10.4f}  {who:<22} {kind:<10} {text}"


if TYPE_CHECKING:
    _clock: type[Clock] = SimClock
