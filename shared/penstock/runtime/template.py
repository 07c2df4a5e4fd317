"""The template: a process that only imports modules, and forks slots.

``python -m penstock.runtime.template <fd>``; ``fd`` is a SOCK_SEQPACKET socket on which the task manager
sends ``ForkSlot`` with two descriptors and receives ``FromTemplate``.

The template must have only one thread, because libraries that have started threads hang in a forked child
(measured). So it runs no kernel, opens no store, makes no event loop and imports no user module. When its
socket closes, the template exits, and its slots end with it (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import os

# Set before NumPy and Arrow are imported: NumPy's BLAS and Arrow's jemalloc would start threads in this
# process.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
# By default Arrow gives memory back after 10 ms, and every batch then pays for fresh pages: a fifth of the
# CPU time of jobs with much state.
os.environ.setdefault("MIMALLOC_PURGE_DELAY", "1000")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import contextlib
import gc
import importlib
import pkgutil
import select
import signal
import socket
import sys
import time
import traceback
from pathlib import Path

import msgspec

from penstock.messages.slot import ForkFailed, ForkSlot, SlotExited, SlotForked, TemplateReady
from penstock.processes import die_with_parent
from penstock.runtime.malloc import keep_freed_memory
from penstock.runtime.output_files import OutputFiles
from penstock.runtime.pandas_probe import probe_without_pandas

#: Modules imported before the first fork, so that slots share them. Polars is not among them, because its
#: import starts a thread; a function that uses Polars imports it in the slot.
PRELOAD = (
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.ipc",
    "uvloop",
    "obstore",
    "obstore.store",
    "penstock.runtime.slot",
    "penstock.functions.evaluate",
)
PRELOAD_PACKAGES = ("penstock.runtime", "penstock.functions")
#: Modules imported one by one while no slot is requested. A slot that is forked earlier imports the ones that
#: its job needs.
PRELOAD_LATER = (
    "cloudpickle",
    "zoneinfo",
    "plyvel",
    "nats",
    "pyarrow.csv",
    "pyarrow.json",
    "pyarrow.parquet",
    "pyarrow.dataset",
)
PRELOAD_LATER_PACKAGES = ("penstock.connectors", "penstock.formats")
#: Milliseconds without a command before the first of these imports, and before each further one.
_QUIET_MS, _NEXT_MS = 1000, 20


def preload() -> None:
    """Imports what slots need, and does nothing else."""
    for name in PRELOAD:
        importlib.import_module(name)
        if name == "pyarrow":
            probe_without_pandas()
    for package in PRELOAD_PACKAGES:
        for name in modules_of(package):
            importlib.import_module(name)


def modules_of(package_name: str) -> list[str]:
    """The names of all modules below a package, without this module."""
    package = importlib.import_module(package_name)
    found = pkgutil.walk_packages(package.__path__, package_name + ".")
    return [m.name for m in found if m.name != "penstock.runtime.template"]


class Template:
    """The template's loop: it forks slots on command and reports their ends to the task manager."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._wakeup_read, self._wakeup_write = os.pipe()
        self._children: set[int] = set()

    def serve(self, import_ms: float) -> None:
        """Serves until the task manager closes its end."""
        for fd in (self._wakeup_read, self._wakeup_write):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wakeup_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Ctrl-C reaches the whole foreground process group: the task manager decides what ends.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        gc.collect()
        gc.freeze()
        self._send(TemplateReady(pid=os.getpid(), import_ms=import_ms))
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        poll.register(self._wakeup_read, select.POLLIN)
        later = [*PRELOAD_LATER, *PRELOAD_LATER_PACKAGES]
        quiet_ms: int | None = _QUIET_MS
        while True:
            ready = dict(poll.poll(quiet_ms))
            if not ready:
                quiet_ms = self._import_one(later)
                continue
            if later:
                quiet_ms = _QUIET_MS
            if self._wakeup_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wakeup_read, 4096)
                self._reap()
            if self._sock.fileno() in ready and not self._take_order():
                return

    @staticmethod
    def _import_one(later: list[str]) -> int | None:
        """Imports the next module of ``later``. Returns the pause (ms) before the one after it; None after
        the last."""
        name = later.pop(0)
        try:
            if name in PRELOAD_LATER_PACKAGES:
                later.extend(modules_of(name))
            else:
                importlib.import_module(name)
        except Exception:
            # The error is not fatal here: a slot that needs the module will report it.
            traceback.print_exc()
        if later:
            return _NEXT_MS
        gc.collect()
        gc.freeze()
        return None

    def _take_order(self) -> bool:
        data, fds, _, _ = socket.recv_fds(self._sock, 65536, 8)
        if not data:
            return False
        order = msgspec.msgpack.decode(data, type=ForkSlot)
        try:
            if len(fds) != 2:
                raise ValueError(f"fork-slot needs 2 file descriptors, got {len(fds)}")
            pid = self._fork(order, fds)
        except (OSError, ValueError) as err:
            self._send(ForkFailed(allocation_id=order.allocation_id, error=str(err)))
        else:
            self._children.add(pid)
            self._send(SlotForked(allocation_id=order.allocation_id, pid=pid))
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _fork(self, order: ForkSlot, fds: list[int]) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        # -- the child: whatever happens, it never returns into the template's loop
        code = 1
        try:
            die_with_parent(parent)
            self._become_child(order)
            from penstock.runtime import slot

            control, fd_channel = (socket.socket(fileno=os.dup(fd)) for fd in fds)
            for fd in fds:
                os.close(fd)
            code = slot.main(control, fd_channel, order.allocation_id, order.local_dir)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _become_child(self, order: ForkSlot) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._sock.close()
        os.close(self._wakeup_read)
        os.close(self._wakeup_write)
        OutputFiles(Path(order.log_path), order.log_max_bytes, order.log_max_files).take_over()
        Path(order.local_dir).mkdir(parents=True, exist_ok=True)

    def _reap(self) -> None:
        while self._children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            self._children.discard(pid)
            self._send(SlotExited(pid=pid, status=status))

    def _send(self, message: msgspec.Struct) -> None:
        # The task manager is gone: the next recv ends the loop.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._sock.send(msgspec.msgpack.encode(message))


def main(argv: list[str]) -> int:
    """The entry point of the process; returns its exit code."""
    if len(argv) != 2 or not argv[1].isdigit():
        print(f"usage: {argv[0]} <fd of a SOCK_SEQPACKET socket>", file=sys.stderr)  # noqa: T201
        return 2
    die_with_parent(os.getppid())
    sock = socket.socket(fileno=int(argv[1]))
    keep_freed_memory()
    started = time.perf_counter()
    preload()
    Template(sock).serve((time.perf_counter() - started) * 1000)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
