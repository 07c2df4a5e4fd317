"""The event loop of one simulated process: asyncio's interface on the world's time.

Ready callbacks run in asyncio's order, one round at a time; the world chooses which process runs the next
round. There are no threads: a call for an executor runs at once, and its result comes after a delay. The
hashes of tasks and futures are serial numbers, so that sets of them iterate in the same order in every run.
"""

from __future__ import annotations

import asyncio
import itertools
from asyncio import events
from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.errors import InternalError
from penstock.testing.simulation.sockets import REMOTE_S, SimSocket, StreamTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from contextvars import Context

    from penstock.testing.simulation.world import Process, World

#: The shortest and the longest duration of a call in a helper thread (seconds).
EXECUTOR_S = (0.0002, 0.004)


class SimFuture(asyncio.Future):  # type: ignore[type-arg]
    _serials = itertools.count(1)

    def __init__(self, *, loop: SimLoop) -> None:
        super().__init__(loop=loop)
        self._serial = next(SimFuture._serials)

    def __hash__(self) -> int:
        return self._serial


class SimTask(asyncio.Task):  # type: ignore[type-arg]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Needed before the parent's constructor, which puts the task into a set.
        self._serial = next(SimFuture._serials)
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self._serial


class SimLoop(asyncio.AbstractEventLoop):
    def __init__(self, world: World, process: Process) -> None:
        self.world = world
        self.process = process
        self.ready: deque[asyncio.Handle] = deque()
        #: whether the loop is in the world's list of loops that have work
        self.queued = False
        self.dead = False
        self._on_error: Callable[[Any, dict[str, Any]], Any] | None = None
        self._readers: dict[Any, Any] = {}
        #: kept until the world ends: a crash runs no ``finally``
        self.tasks: list[asyncio.Task[Any]] = []

    # -- time and callbacks ------------------------------------------------------------

    def time(self) -> float:
        return self.world.now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.ready.append(handle)
        if not self.queued:
            self.world.has_work(self)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.world.now_s + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self.world.schedule(when, self, handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass  # the timer is skipped when it is due

    def run_round(self) -> None:
        """Run the callbacks that are ready now. Callbacks that become ready meanwhile run in the next
        round."""
        events._set_running_loop(self)
        try:
            for _ in range(len(self.ready)):
                handle = self.ready.popleft()
                if not handle._cancelled:
                    handle._run()
                if self.dead:
                    return
        finally:
            events._set_running_loop(None)

    # -- tasks and futures --------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        task = SimTask(coro, loop=self, name=name or "task", context=context)
        self.tasks.append(task)
        if len(self.tasks) > 512:
            self.look_for_unheard()
            self.tasks = [t for t in self.tasks if not t.done()]
        return task

    def look_for_unheard(self) -> None:
        """Report each task that failed and whose exception nobody has retrieved."""
        for task in self.tasks:
            if task.done() and task._log_traceback:
                self.world.unhandled(self.process, {"message": str(task), "exception": task.exception()})

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()

        def run() -> None:
            if future.done():
                return
            try:
                future.set_result(func(*args))
            except Exception as err:
                future.set_exception(err)

        self.call_later(self.world.random.uniform(*EXECUTOR_S), run)
        return future

    # -- sockets --------------------------------------------------------------------------

    async def sock_connect(self, sock: Any, address: Any) -> None:
        raise OSError("simulated sockets are connected by the world")

    async def sock_accept(self, sock: Any) -> tuple[SimSocket, Any]:  # type: ignore[override]
        return await sock.accept(), None

    async def sock_recv(self, sock: Any, nbytes: int) -> bytes:
        found: bytes = await sock.receive(nbytes)
        return found

    async def sock_sendall(self, sock: Any, data: Any) -> None:
        sock.send(bytes(data))

    async def create_connection(
        self,
        protocol_factory: Callable[[], Any],
        host: Any = None,
        port: Any = None,
        *,
        sock: Any = None,
        **kwargs: Any,
    ) -> tuple[StreamTransport, Any]:
        if sock is None:
            await asyncio.sleep(self.world.random.uniform(*REMOTE_S))
            sock = self.world.dial(self.process, host, port)
        if not isinstance(sock, SimSocket):
            raise InternalError("a simulated process opened a real connection", got=repr(sock))
        protocol = protocol_factory()
        transport = StreamTransport(self, sock, protocol)
        await asyncio.sleep(0)  # until connection_made was called
        return transport, protocol

    async def create_unix_connection(
        self, protocol_factory: Callable[[], Any], path: Any = None, *, sock: Any = None, **kwargs: Any
    ) -> tuple[StreamTransport, Any]:
        return await self.create_connection(protocol_factory, sock=sock)

    async def connect_accepted_socket(
        self, protocol_factory: Callable[[], Any], sock: Any, **kwargs: Any
    ) -> tuple[StreamTransport, Any]:
        return await self.create_connection(protocol_factory, sock=sock)

    def add_reader(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., Any], *args: Any
    ) -> None:
        """Call ``callback`` when ``fd`` is readable. ``fd``: a simulated object with ``watch(notify)`` (a
        packet channel, a pidfd)."""
        self._readers[fd] = callback

        def notify() -> None:
            if self._readers.get(fd) is callback:
                self.call_soon(callback, *args)

        fd.watch(notify)

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    # -- the rest of asyncio's interface --------------------------------------------------

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.dead

    def is_closed(self) -> bool:
        return self.dead

    def set_exception_handler(self, handler: Any) -> None:
        self._on_error = handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.world.unhandled(self.process, context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.dead:
            return  # the process was killed, so its unfinished tasks are no error
        if self._on_error is not None:
            self._on_error(self, context)
        else:
            self.default_exception_handler(context)
