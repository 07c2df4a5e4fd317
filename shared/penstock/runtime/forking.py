"""The loop of a template: a process that only imports modules, and forks processes on command.

A template has a SOCK_SEQPACKET socket, on which its service sends orders with descriptors and receives
``FromTemplate``. It must have only one thread, because libraries that have started threads hang in a forked
child (measured). So it runs no kernel, opens no store, makes no event loop and imports no user module. When
its socket closes, the template exits, and what it has forked ends with it (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import abc
import contextlib
import gc
import importlib
import os
import pkgutil
import select
import signal
import socket
import sys
import traceback
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from penstock.messages.forking import ChildExited, Forked, ForkFailed, TemplateReady, TemplateStale
from penstock.processes import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Iterable

Order = TypeVar("Order", bound=msgspec.Struct)

#: Milliseconds without an order before the first module of ``later`` is imported, and before each further one.
_QUIET_MS, _NEXT_MS = 1000, 20
_MAX_PACKET_BYTES = 64 * 1024
_MOST_DESCRIPTORS = 8


#: The environment that this process was started with.
STARTED_WITH = dict(os.environ)
#: To be set before NumPy and Arrow are imported: it keeps NumPy's BLAS and Arrow's jemalloc from starting threads.
WITHOUT_THREADS = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "OMP_NUM_THREADS": STARTED_WITH.get("OMP_NUM_THREADS", "1"),
}


def modules_of(package_name: str, besides: Iterable[str] = ()) -> list[str]:
    """The names of all modules below a package, without those of ``besides``."""
    package = importlib.import_module(package_name)
    found = pkgutil.walk_packages(package.__path__, package_name + ".")
    return [m.name for m in found if m.name not in besides]


class ForkServer(abc.ABC, Generic[Order]):
    """Forks processes on command and reports their ends to the service. ``later``: modules, and packages that
    end in ``.*``, that are imported one by one while nothing is ordered."""

    #: The type of an order, and how many descriptors accompany it.
    order_type: type[Order]
    descriptors: int

    def __init__(self, sock: socket.socket, later: Iterable[str] = ()) -> None:
        self._sock = sock
        self._later = list(later)
        self._wakeup_read, self._wakeup_write = os.pipe()
        self._children: set[int] = set()

    @abc.abstractmethod
    def name_of(self, order: Order) -> str:
        """What the answers call the order."""

    @abc.abstractmethod
    def run(self, order: Order, fds: list[int]) -> int:
        """What the forked process does; its exit code. ``fds``: the descriptors of the order."""

    def prepare(self, order: Order) -> None:
        """Called in the template before it forks. Raises Stale if this template must not fork any more."""

    def serve(self, import_ms: float) -> None:
        """Serves until the service closes its end. ``import_ms``: how long the imports took."""
        for fd in (self._wakeup_read, self._wakeup_write):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wakeup_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Ctrl-C reaches the whole foreground process group: the service decides what ends.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        gc.collect()
        gc.freeze()
        self._send(TemplateReady(pid=os.getpid(), import_ms=import_ms))
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        poll.register(self._wakeup_read, select.POLLIN)
        quiet_ms = _QUIET_MS if self._later else None
        while True:
            ready = dict(poll.poll(quiet_ms))
            if not ready:
                quiet_ms = self._import_one()
                continue
            if self._later:
                quiet_ms = _QUIET_MS
            if self._wakeup_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wakeup_read, 4096)
                self._reap()
            if self._sock.fileno() in ready and not self._take_order():
                return

    def _import_one(self) -> int | None:
        """Imports the next module of ``later``. Returns the pause (ms) before the one after it; None after
        the last."""
        name = self._later.pop(0)
        try:
            if name.endswith(".*"):
                self._later.extend(modules_of(name.removesuffix(".*")))
            else:
                importlib.import_module(name)
        except Exception:
            # The error is not fatal here: a process that needs the module will report it.
            traceback.print_exc()
        if self._later:
            return _NEXT_MS
        gc.collect()
        gc.freeze()
        return None

    def _take_order(self) -> bool:
        data, fds, _, _ = socket.recv_fds(self._sock, _MAX_PACKET_BYTES, _MOST_DESCRIPTORS)
        if not data:
            return False
        order = msgspec.msgpack.decode(data, type=self.order_type)
        name = self.name_of(order)
        try:
            if len(fds) != self.descriptors:
                raise ValueError(
                    f"an order of this kind needs {self.descriptors} file descriptors, got {len(fds)}"
                )
            self.prepare(order)
            pid = self._fork(order, fds)
        except Stale as err:
            self._send(TemplateStale(order=name, changed=str(err)))
        except Exception as err:
            self._send(ForkFailed(order=name, error=f"{type(err).__name__}: {err}"))
        else:
            self._children.add(pid)
            self._send(Forked(order=name, pid=pid))
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _fork(self, order: Order, fds: list[int]) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        # -- the child: whatever happens, it never returns into the template's loop
        code = 1
        try:
            die_with_parent(parent)
            self._leave_template()
            code = self.run(order, fds)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _leave_template(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._sock.close()
        os.close(self._wakeup_read)
        os.close(self._wakeup_write)

    def _reap(self) -> None:
        while self._children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            self._children.discard(pid)
            self._send(ChildExited(pid=pid, status=status))

    def _send(self, message: msgspec.Struct) -> None:
        # The service is gone: the next recv ends the loop.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._sock.send(msgspec.msgpack.encode(message))


class Stale(Exception):
    """The code that this template has imported has changed. Its text: one of the files."""


def socket_of(argv: list[str]) -> socket.socket | None:
    """The socket whose descriptor is the template's only argument. None, with a word on standard error, if
    there is none. From here on this process dies with its service."""
    if len(argv) != 2 or not argv[1].isdigit():
        print(f"usage: {argv[0]} <fd of a SOCK_SEQPACKET socket>", file=sys.stderr)  # noqa: T201
        return None
    die_with_parent(os.getppid())
    return socket.socket(fileno=int(argv[1]))
