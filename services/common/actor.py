"""Actors: each has a bounded mailbox and a pure core, and runs under a supervisor.

The actor's loop takes one event at a time, gives it to the core, and carries out the effects: those of
``penstock_services.common.core`` itself, the others by the shell's ``perform``, whose result (an event or
None) goes back to the core. An awaitable result runs beside the loop; a plain one is handled at once, in
order.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.clocks import SteadyClock
from penstock.errors import InternalError
from penstock.log_events import EventLog
from penstock_services.common.core import After, Answer, Asked, CancelTimer, EffectFailed, Tick

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.ports import Clock
    from penstock_services.common.core import Core

_log = EventLog("penstock.actor")

#: The default size of a mailbox, in events.
MAILBOX = 1024


@dataclass(eq=False)
class _KeyedTimer:
    """One ``After`` with a key. After it has fired, it waits in the mailbox itself: until the loop takes it
    out it can still be cancelled or replaced, and is then dropped."""

    key: str
    event: Any
    sleeping: asyncio.Task[None] | None = None


class Actor:
    """A mailbox, a core, and the loop that connects them.

    ``perform(effect)`` returns an event, None, or an awaitable of either. ``mailbox``: its size in events.
    ``tick_ms``: how often the core gets ``Tick()`` (0: never).
    """

    def __init__(
        self,
        name: str,
        core: Core,
        perform: Callable[[Any], Any],
        clock: Clock,
        *,
        mailbox: int = MAILBOX,
        tick_ms: int = 0,
    ) -> None:
        self.name = name
        self.core = core
        self._perform = perform
        self._clock = clock
        #: The core's time. It never goes back, so that no wait becomes longer when the wall clock is set
        #: back.
        self._steady = SteadyClock(clock.now_ms, clock.monotonic_ms)
        self._mailbox: asyncio.Queue[Any] = asyncio.Queue(mailbox)
        self._tick_ms = tick_ms
        self._tokens = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        #: Key → timer, until the event of the timer is handled.
        self._timers: dict[str, _KeyedTimer] = {}
        self._stopped = False

    # -- from outside -----------------------------------------------------------------

    async def tell(self, event: Any) -> None:
        """Puts an event into the mailbox; waits while the mailbox is full. Raises InternalError if the actor
        has ended."""
        self._check()
        await self._mailbox.put(event)

    def try_tell(self, event: Any) -> bool:
        """Puts an event into the mailbox. Returns False, without taking the event, if the mailbox is full.
        Raises InternalError if the actor has ended."""
        self._check()
        try:
            self._mailbox.put_nowait(event)
        except asyncio.QueueFull:
            return False
        return True

    async def ask(self, message: Any) -> Any:
        """Sends ``Asked`` and returns the reply of its ``Answer``. Raises the reply if it is an exception,
        and InternalError if the actor ends."""
        self._check()
        token = next(self._tokens)
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[token] = reply
        try:
            await self._mailbox.put(Asked(token, message))
            return await reply
        finally:
            self._asked.pop(token, None)

    def _check(self) -> None:
        if self._stopped:
            raise InternalError(f"the actor '{self.name}' has ended", where=self.name)

    # -- the loop ---------------------------------------------------------------------

    async def run(self) -> None:
        """Runs until it is cancelled or the core raises. Everything it started ends with it."""
        ticking = asyncio.create_task(self._tick()) if self._tick_ms else None
        try:
            while True:
                self._handle(await self._mailbox.get())
        finally:
            self._stopped = True
            ended = InternalError(f"the actor '{self.name}' has ended", where=self.name)
            for reply in self._asked.values():
                if not reply.done():
                    reply.set_exception(ended)
            tasks = [*self._tasks, *([ticking] if ticking else ())]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _handle(self, event: Any) -> None:
        if isinstance(event, _KeyedTimer):
            if self._timers.get(event.key) is not event:
                return  # cancelled or replaced after it had fired
            del self._timers[event.key]
            event = event.event
        events = deque((event,))
        while events:
            for effect in self.core.step(events.popleft(), self._steady.now_ms()):
                match effect:
                    case Answer(token, reply):
                        self._answer(token, reply)
                    case After(delay_ms, later, key):
                        self._start_timer(delay_ms, later, key)
                    case CancelTimer(key):
                        self._cancel_timer(key)
                    case _:
                        self._do(effect, events)

    def _answer(self, token: int, reply: Any) -> None:
        waiting = self._asked.get(token)
        if waiting is None or waiting.done():
            return  # the asker has given up
        if isinstance(reply, BaseException):
            waiting.set_exception(reply)
        else:
            waiting.set_result(reply)

    def _do(self, effect: Any, events: deque[Any]) -> None:
        try:
            result = self._perform(effect)
        except Exception as err:
            _log.exception("effect_failed", actor=self.name, effect=type(effect).__name__)
            events.append(EffectFailed(effect, err))
            return
        if inspect.isawaitable(result):
            self._spawn(self._finish(effect, result))
        elif result is not None:
            events.append(result)

    async def _finish(self, effect: Any, result: Awaitable[Any]) -> None:
        try:
            event = await result
        except asyncio.CancelledError:
            raise
        except Exception as err:
            _log.warning("effect_failed", actor=self.name, effect=type(effect).__name__, error=err)
            event = EffectFailed(effect, err)
        if event is not None:
            await self._mailbox.put(event)

    def _spawn(self, coroutine: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _start_timer(self, delay_ms: int, event: Any, key: str | None) -> None:
        async def fire(message: Any) -> None:
            await self._clock.sleep(delay_ms / 1000)
            await self._mailbox.put(message)

        if key is None:
            self._spawn(fire(event))
            return
        self._cancel_timer(key)
        timer = self._timers[key] = _KeyedTimer(key, event)
        timer.sleeping = self._spawn(fire(timer))

    def _cancel_timer(self, key: str) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None and timer.sleeping is not None:
            timer.sleeping.cancel()

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(self._tick_ms / 1000)
            await self._mailbox.put(Tick())


# -- supervision ---------------------------------------------------------------------------


@dataclass(frozen=True)
class RestartPolicy:
    """At most ``max_restarts`` within ``within_ms``, with growing pauses; then escalate."""

    max_restarts: int = 5
    within_ms: int = 60_000
    first_backoff_ms: int = 50
    max_backoff_ms: int = 5_000


#: Any failure of the child escalates at once.
ESCALATE = RestartPolicy(max_restarts=0)


class Supervisor:
    """Starts children, restarts them when they fail, or fails itself.

    A child is a function that returns a new coroutine each time it is started (a new actor with a new core:
    no broken state is kept). A child that returns is done.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self._clock = clock
        self._children: dict[str, asyncio.Task[None]] = {}
        self._failure: asyncio.Event = asyncio.Event()
        self._error: BaseException | None = None

    @property
    def children(self) -> list[str]:
        """The names of the children that run."""
        return sorted(self._children)

    def start(
        self, name: str, run: Callable[[], Awaitable[None]], policy: RestartPolicy | None = None
    ) -> None:
        """Starts a child. Raises InternalError if a child with this name runs already."""
        if name in self._children:
            raise InternalError(f"'{self.name}' has a child '{name}' already", where=self.name)
        task = asyncio.get_running_loop().create_task(self._supervise(name, run, policy or RestartPolicy()))
        self._children[name] = task

        def forget(done: asyncio.Task[None]) -> None:
            if self._children.get(name) is done:
                del self._children[name]

        task.add_done_callback(forget)

    async def stop(self, name: str) -> None:
        """Cancels a child and waits for its end; no error if it does not exist."""
        task = self._children.pop(name, None)
        while task is not None and not task.done():
            # More than once: before Python 3.12 asyncio.wait_for, which libraries use, may swallow a
            # cancellation that meets its own end.
            task.cancel()
            await asyncio.wait([task], timeout=1.0)

    async def failed(self) -> BaseException:
        """Waits until a child's failure escalates; returns it."""
        await self._failure.wait()
        assert self._error is not None
        return self._error

    async def close(self) -> None:
        """Ends all children, the one that started last first."""
        for name in reversed(list(self._children)):
            await self.stop(name)

    async def _supervise(self, name: str, run: Callable[[], Awaitable[None]], policy: RestartPolicy) -> None:
        failures: deque[float] = deque()
        while True:
            try:
                await run()
                return
            except asyncio.CancelledError:
                raise
            except Exception as err:
                now = self._clock.monotonic_ms()
                while failures and failures[0] < now - policy.within_ms:
                    failures.popleft()
                if len(failures) >= policy.max_restarts:
                    _log.exception("child_given_up", supervisor=self.name, child=name)
                    self._error = self._error or err
                    self._failure.set()
                    return
                pause_ms = min(policy.first_backoff_ms * 2 ** len(failures), policy.max_backoff_ms)
                failures.append(now)
                _log.exception("child_restarting", supervisor=self.name, child=name, delay_ms=round(pause_ms))
            await self._clock.sleep(pause_ms / 1000)
