"""Workers as processes of this machine.

What is true is the machine's process table: a worker is a process whose environment says
``PENSTOCK_WORKER=<cluster>/<id>``. A file for each id, made before its process is started and removed when
the id is no longer wanted, keeps an id from being used twice and says what has ended. Both outlive the
provider, so any number of them, one after another or at once, see the same.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import msgspec

from penstock.errors import ExternalError, SpecError
from penstock.providers.api import WorkerPhase, WorkerProfile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.providers.api import ResourceProvider

#: In the environment of every worker.
WORKER_VARIABLE = "PENSTOCK_WORKER"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
#: From SIGTERM to SIGKILL: a task manager that stops in an orderly way takes less.
GRACE_S = 20.0
#: Between looks at a process that is being started.
_SOON_S = 0.001
#: By then its environment is there.
_STARTED_S = 5.0


class _Record(msgspec.Struct, kw_only=True):
    """What is kept of an id. ``stopping_s``: when it was first told to end, seconds since the epoch."""

    profile: WorkerProfile
    stopping_s: float | None = None


def taskmanager_command(
    worker_id: str, profile: WorkerProfile, config: Mapping[str, str], folder: Path
) -> list[str]:
    """The command line of a task manager with that id, for a cluster with this configuration.

    The configuration goes into a file of ``folder`` that this user alone may read: it holds passwords, and
    a command line is seen by every user of the machine.
    """
    settings = {
        **config,
        **profile.settings,
        "taskmanager.resource-id": worker_id,
        "taskmanager.numberOfTaskSlots": str(profile.slots),
    }
    descriptor, partial = tempfile.mkstemp(dir=folder, suffix=".partial")
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(settings))  # JSON is YAML too
    path = Path(partial).rename(_config_file(folder, worker_id))
    return [sys.executable, "-P", "-m", "penstock_services.taskmanager", "--config", str(path)]


def _config_file(folder: Path, worker_id: str) -> Path:
    return folder / f"{quote(worker_id)}.yaml"


class ProcessProvider:
    """``folder``: of this cluster's worker files and logs, shared by all providers of the cluster on the
    machine. ``command(worker id, profile)``: what is started. ``grace_s``: from SIGTERM to SIGKILL."""

    def __init__(
        self,
        cluster_id: str,
        folder: Path,
        command: Callable[[str, WorkerProfile], Sequence[str]],
        *,
        grace_s: float = GRACE_S,
    ) -> None:
        self._cluster = cluster_id
        self._folder = folder
        self._command = command
        self._grace_s = grace_s
        #: Processes that this object has started: their parent is told of their end, and must ask.
        self._children: list[subprocess.Popen[bytes]] = []
        folder.mkdir(parents=True, exist_ok=True)

    async def ensure(self, wanted: Mapping[str, WorkerProfile]) -> None:
        for worker_id, profile in wanted.items():
            _check(worker_id, profile)
        await asyncio.to_thread(self._ensure, dict(wanted))

    async def list(self) -> Mapping[str, WorkerPhase]:
        return await asyncio.to_thread(self._list)

    async def close(self) -> None:
        self._reap()

    # -- blocking ------------------------------------------------------------------------------

    def _ensure(self, wanted: Mapping[str, WorkerProfile]) -> None:
        with self._alone():
            running, records = self._running(), self._records()
            for worker_id in wanted.keys() - records.keys():
                # The file first: a crash in between leaves an id that has ended, never two workers.
                self._write(worker_id, _Record(profile=wanted[worker_id]))
                if worker_id not in running:
                    self._start(worker_id, wanted[worker_id])
            for worker_id in (records.keys() | running.keys()) - wanted.keys():
                self._stop(worker_id, records.get(worker_id), running.get(worker_id, set()))

    def _list(self) -> dict[str, WorkerPhase]:
        with self._alone():
            running, records = self._running(), self._records()
            out: dict[str, WorkerPhase] = {}
            for worker_id in sorted(records.keys() | running.keys()):
                record = records.get(worker_id)
                stopping = record is None or record.stopping_s is not None
                if worker_id in running:
                    out[worker_id] = WorkerPhase.STOPPING if stopping else WorkerPhase.RUNNING
                elif stopping:
                    self._forget(worker_id)  # its end was wanted, and has come
                else:
                    out[worker_id] = WorkerPhase.ENDED
            return out

    def _start(self, worker_id: str, profile: WorkerProfile) -> None:
        environment = {**os.environ, WORKER_VARIABLE: f"{self._cluster}/{worker_id}"}
        with (self._folder / f"{quote(worker_id)}.log").open("ab") as log:
            try:
                child = subprocess.Popen(
                    list(self._command(worker_id, profile)),
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # it outlives whoever started it
                )
            except OSError as err:
                raise ExternalError(
                    f"worker '{worker_id}' cannot be started",
                    expected="a command that this machine can run",
                    got=str(err),
                    remedy="check the command, memory and limits; the worker counts as ended",
                ) from err
        self._children.append(child)
        # While the kernel is about to run the command, the process has no environment and would count as ended.
        # (A command that drops its environment never has this one; such a worker does count as ended.)
        until = time.monotonic() + _STARTED_S
        while child.poll() is None and self._named(child.pid) != worker_id and time.monotonic() < until:
            time.sleep(_SOON_S)

    def _stop(self, worker_id: str, record: _Record | None, pids: set[int]) -> None:
        if not pids:
            self._forget(worker_id)
            return
        record = record or _Record(profile=WorkerProfile())
        overdue = record.stopping_s is not None and time.time() > record.stopping_s + self._grace_s
        if record.stopping_s is None:
            record.stopping_s = time.time()
            self._write(worker_id, record)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL if overdue else signal.SIGTERM)
            except ProcessLookupError:
                continue

    def _running(self) -> dict[str, set[int]]:
        """Worker id → its processes' ids, by the environment with which they were started."""
        self._reap()
        found: dict[str, set[int]] = {}
        for folder in Path("/proc").glob("[0-9]*"):
            pid = int(folder.name)
            if (name := self._named(pid)) is not None:
                found.setdefault(name, set()).add(pid)
        return found

    def _named(self, pid: int) -> str | None:
        """The id of the worker that a process is; None if it is none, or has ended."""
        begin = f"{WORKER_VARIABLE}={self._cluster}/".encode()
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            status = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return None  # it has ended, or belongs to somebody else
        name = next((e.removeprefix(begin) for e in environment if e.startswith(begin)), None)
        # Of a worker's own processes, which inherit its environment, only the leader counts.
        leads = status[0] != b"Z" and int(status[3]) == pid
        return os.fsdecode(name) if name is not None and leads else None

    def _reap(self) -> None:
        self._children = [child for child in self._children if child.poll() is None]

    # -- files ---------------------------------------------------------------------------------

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One provider of the cluster at a time; the kernel gives the lock back when a process dies."""
        with (self._folder / "lock").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _path(self, worker_id: str) -> Path:
        return self._folder / f"{quote(worker_id)}.json"

    def _forget(self, worker_id: str) -> None:
        _config_file(self._folder, worker_id).unlink(missing_ok=True)
        self._path(worker_id).unlink(missing_ok=True)

    def _records(self) -> dict[str, _Record]:
        return {
            unquote(path.stem): msgspec.json.decode(path.read_bytes(), type=_Record)
            for path in self._folder.glob("*.json")
        }

    def _write(self, worker_id: str, record: _Record) -> None:
        path = self._path(worker_id)
        partial = path.with_suffix(".partial")
        partial.write_bytes(msgspec.json.encode(record))
        partial.rename(path)


def open_provider(cluster_id: str, config: Mapping[str, str]) -> ResourceProvider:
    """Task managers of this machine, with the cluster's configuration. Files lie in the folder that
    ``resourcemanager.provider.process.dir`` names."""
    key = "resourcemanager.provider.process.dir"
    if key not in config:
        raise SpecError(f"{key} is missing", expected="a folder for files of workers", got="no such key")
    settings = {k: v for k, v in config.items() if k != key}
    folder = Path(config[key]).absolute() / quote(cluster_id)
    return ProcessProvider(cluster_id, folder, lambda i, p: taskmanager_command(i, p, settings, folder))


def _check(worker_id: str, profile: WorkerProfile) -> None:
    if not _ID.fullmatch(worker_id):
        raise SpecError(
            "not a worker's id", expected="letters, digits, '.', '_' and '-'", got=repr(worker_id)
        )
    if profile.slots < 1:
        raise SpecError("a worker without slots", expected="1 slot or more", got=str(profile.slots))
