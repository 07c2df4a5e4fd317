"""A supervised set of child processes: they start together, are restarted when they end, are stopped
together, and never outlive their parent."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from penstock.embedded.template import ForkedProcess, ServiceTemplate, is_service
from penstock.errors import ExternalError
from penstock.processes import die_with_parent_after_exec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


@dataclass
class Child:
    """One process. ``starts``: how often it was started. ``started_at``: its last start, in seconds of
    ``time.monotonic``."""

    name: str
    argv: Sequence[str]
    log: Path
    restart: bool = True
    process: subprocess.Popen[bytes] | ForkedProcess | None = None
    starts: int = 0
    started_at: float = 0.0
    history: list[str] = field(default_factory=list)

    @property
    def pid(self) -> int | None:
        """The process id; None before the first start."""
        return self.process.pid if self.process else None

    def tail(self, lines: int = 12) -> str:
        """The last lines of the process's log, for error messages; empty without a log."""
        try:
            text = self.log.read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])


class ProcessSet:
    """Children that one thread starts and watches (PR_SET_PDEATHSIG follows the thread that forks, not the
    process).

    A child that is a service is forked from a template, whose own log is ``template_log``. Any other child, or without
    a ``template_log`` every one, is a program that is started.

    ``on_restart(child, status)`` is called on that thread for every unexpected end, with the exit code or
    the negative number of the signal.
    """

    #: A child that ends sooner than this after its start is restarted only after a pause.
    QUICK_DEATH_S = 2.0

    def __init__(
        self,
        env: Mapping[str, str],
        on_restart: Callable[[Child, int], None],
        template_log: Path | None = None,
    ) -> None:
        self._env = dict(env)
        self._template = ServiceTemplate(env, template_log) if template_log is not None else None
        self._on_restart = on_restart
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._over = threading.Event()
        self._wake = threading.Event()
        self._to_start: list[Child] = []
        self.children: list[Child] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-processes", daemon=True)
        self._thread.start()

    def add(self, *children: Child) -> None:
        """Starts the children and returns when they have started. Raises what starting raised, such as
        OSError."""
        with self._lock:
            self.children.extend(children)
            self._to_start.extend(children)
        self._wake.set()
        while any(c.process is None for c in children) and self._error is None:
            time.sleep(0.001)
        if self._error is not None:
            raise self._error

    def remove(self, child: Child, *, grace_s: float = 5.0) -> None:
        """Ends one child and does not restart it. After ``grace_s`` seconds it is killed."""
        with self._lock:
            child.restart = False
            self.children.remove(child)
        _end([child], grace_s)

    def stop(self, order: Sequence[Sequence[str]], *, grace_s: float = 8.0) -> None:
        """Ends all children: groups of names in ``order``, then the rest. Each gets SIGTERM, and SIGKILL
        after ``grace_s``."""
        self._stopping.set()
        with self._lock:
            children = list(self.children)
        for names in order:
            _end([c for c in children if c.name.rsplit("-", 1)[0] in names], grace_s)
        _end(children, grace_s)
        if self._template is not None:
            self._template.close()
        # The thread ends last, because the kernel kills the children when the thread that forked them ends.
        self._over.set()
        self._wake.set()
        self._thread.join(timeout=grace_s)

    def _run(self) -> None:
        not_before: dict[str, float] = {}
        while not self._over.is_set():
            with self._lock:
                starting, self._to_start = self._to_start, []
            for child in starting:
                try:
                    self._start(child)
                except BaseException as err:
                    self._error = err
                    return
            with self._lock:
                ended = [c for c in self.children if c.process and c.process.poll() is not None]
            for child in ended:
                if self._stopping.is_set() or not child.restart:
                    continue
                now = time.monotonic()
                if child.name not in not_before:
                    assert child.process is not None
                    assert child.process.returncode is not None
                    self._on_restart(child, child.process.returncode)
                    quick = now - child.started_at < self.QUICK_DEATH_S
                    not_before[child.name] = now + (1.0 if quick else 0.0)
                if now >= not_before[child.name]:
                    del not_before[child.name]
                    try:
                        self._start(child)
                    except ExternalError as err:
                        # The other children must not end with this thread: it tries again.
                        with child.log.open("a") as log:
                            log.write(f"{err}\n")
                        not_before[child.name] = now + 1.0
            self._wake.wait(0.05)
            self._wake.clear()

    def _start(self, child: Child) -> None:
        with child.log.open("ab") as log:
            child.process = self._started(child, log)
        child.starts += 1
        child.started_at = time.monotonic()

    def _started(self, child: Child, log: BinaryIO) -> subprocess.Popen[bytes] | ForkedProcess:
        if self._template is not None and is_service(child.argv):
            return self._template.fork(child.argv, log.fileno())
        return subprocess.Popen(
            child.argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=self._env,
            # A terminal's Ctrl-C reaches only the parent, which then ends its children in order.
            process_group=0,
            preexec_fn=die_with_parent_after_exec,
        )


def _end(children: Sequence[Child], grace_s: float) -> None:
    alive = [c.process for c in children if c.process and c.process.poll() is None]
    for process in alive:
        process.send_signal(signal.SIGTERM)
        # A stopped process (SIGSTOP) acts on SIGTERM only once it runs again.
        process.send_signal(signal.SIGCONT)
    deadline = time.monotonic() + grace_s
    for process in alive:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
