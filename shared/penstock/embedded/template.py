"""The services' template as a cluster's supervisor sees it: it has services forked, and waits for their ends.

The supervisor is a thread without an event loop, so this side is synchronous; ``runtime/service_template.py`` is the
other.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import ExternalError
from penstock.messages.forking import ChildExited, Forked, ForkFailed, ForkService, FromTemplate
from penstock.processes import ProcessHandle, die_with_parent_after_exec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_PACKAGE = "penstock_services."
_ARGV = (sys.executable, "-P", "-m", "penstock.runtime.service_template")
_MAX_PACKET_BYTES = 64 * 1024
#: How long a template may take until it has forked: against hanging only.
_FORK_TIMEOUT_S = 120.0
#: How long a template may take to tell how a process has ended that it forked: against hanging only.
_STATUS_TIMEOUT_S = 10.0
#: How often a service is tried to be forked, when templates end.
_ATTEMPTS = 3


def is_service(argv: Sequence[str]) -> bool:
    """Whether a command line starts a service of this installation, and nothing around it."""
    return list(argv[:3]) == [sys.executable, "-P", "-m"] and argv[3].startswith(_PACKAGE)


class ForkedProcess:
    """A service that a template has forked; its methods are those of ``subprocess.Popen``."""

    def __init__(self, template: ServiceTemplate, pid: int) -> None:
        self._template = template
        self.pid = pid
        self.returncode: int | None = None
        try:
            self._handle: ProcessHandle | None = ProcessHandle(pid)
        except ProcessLookupError:  # it has ended at once
            self._handle = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        self._template.take_answers()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end; returns the exit code. Raises subprocess.TimeoutExpired after ``timeout`` seconds."""
        handle = self._handle
        if self.poll() is None and handle is not None:
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            if not poll.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        deadline = time.monotonic() + _STATUS_TIMEOUT_S
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise ExternalError(f"the services' template does not tell how process {self.pid} ended")
            time.sleep(0.001)
        return code

    def send_signal(self, number: int) -> None:
        """Sends a signal, if the process has not ended."""
        if self.returncode is None and self._handle is not None:
            self._handle.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, if it has not ended."""
        self.send_signal(signal.SIGKILL)

    def ended(self, code: int) -> None:
        """Called by the template's owner, once."""
        self.returncode = code
        if self._handle is not None:
            self._handle.close()


class ServiceTemplate:
    """Starts a template with the first service, and again when it has ended. ``log``: the file for what the template
    itself prints. Any thread may ask; the thread that calls ``fork`` must outlive all services."""

    def __init__(self, env: Mapping[str, str], log: Path) -> None:
        self._env = dict(env)
        self._log = log
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket | None = None
        self._running: dict[int, ForkedProcess] = {}
        self._orders = 0

    def fork(self, argv: Sequence[str], log_fd: int) -> ForkedProcess:
        """Starts a service (``is_service(argv)``) whose output goes to ``log_fd``. Raises ExternalError if no
        template can fork it."""
        with self._lock:
            for _ in range(_ATTEMPTS):
                if self._sock is None:
                    self._start()
                if (forked := self._forked(argv, log_fd)) is not None:
                    return forked
        raise ExternalError(
            "the process that services are forked from ends before it has forked one",
            where=" ".join(argv),
            remedy=f"see the log in {self._log}",
        )

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*_ARGV, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env,
                pass_fds=[theirs.fileno()],
                process_group=0,
                preexec_fn=die_with_parent_after_exec,
            )
        self._sock = ours

    def _forked(self, argv: Sequence[str], log_fd: int) -> ForkedProcess | None:
        """None if the template has ended."""
        assert self._sock is not None
        self._orders += 1
        order = ForkService(order=str(self._orders), package=argv[3], arguments=list(argv[4:]))
        null = os.open(os.devnull, os.O_RDONLY)
        try:
            socket.send_fds(self._sock, [msgspec.msgpack.encode(order)], [null, log_fd, log_fd])
        except (BrokenPipeError, ConnectionResetError):
            self._ended()
            return None
        finally:
            os.close(null)
        deadline = time.monotonic() + _FORK_TIMEOUT_S
        while self._sock is not None:
            match self._next(max(0.0, deadline - time.monotonic())):
                case Forked(order=order.order, pid=pid):
                    return self._running[pid]
                case ForkFailed(error=error):
                    raise ExternalError(f"a service cannot be forked: {error}", where=" ".join(argv))
            if time.monotonic() > deadline:
                self.close()
                raise ExternalError(f"the services' template does not answer within {_FORK_TIMEOUT_S:.0f} s")
        return None

    def take_answers(self) -> None:
        """Takes what the template has sent meanwhile, without waiting."""
        with self._lock:
            while self._sock is not None and self._next(0.0) is not None:
                pass

    def _next(self, timeout_s: float) -> FromTemplate | None:
        """The next answer; None if there is none in time, or the template has ended."""
        assert self._sock is not None
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        if not poll.poll(timeout_s * 1000):
            return None
        try:
            data = self._sock.recv(_MAX_PACKET_BYTES)
        except ConnectionResetError:
            data = b""
        if not data:
            self._ended()
            return None
        message: FromTemplate = msgspec.msgpack.decode(data, type=FromTemplate)
        match message:
            case Forked(pid=pid):
                self._running[pid] = ForkedProcess(self, pid)
            case ChildExited(pid=pid, status=status):
                self._running.pop(pid).ended(os.waitstatus_to_exitcode(status))
        return message

    def _ended(self) -> None:
        """The template has ended, and the kernel has killed what it had forked."""
        assert self._process is not None
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        self._process.kill()
        self._process.wait()
        while self._running:
            self._running.popitem()[1].ended(-signal.SIGKILL)

    def close(self) -> None:
        """Ends the template, and with it every service that it has forked."""
        with self._lock:
            if self._sock is not None:
                self._ended()
