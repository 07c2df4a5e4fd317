"""Workers as processes of this machine.

The machine's process table decides what runs: a worker is a process whose environment contains
``PENSTOCK_WORKER=<cluster>/<id>``. A file for each id, made before its process is started and removed when
the id is no longer wanted, prevents a second use of the id and tells which workers have ended. Both
outlive the provider, so that any number of providers, one after another or at once, see the same workers.
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

#: The environment variable that marks a worker.
WORKER_VARIABLE = "PENSTOCK_WORKER"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
#: Seconds from SIGTERM to SIGKILL. A task manager that stops in an orderly way needs less.
GRACE_S = 20.0
#: Seconds between two checks of a process that is being started.
_SOON_S = 0.001
#: Seconds after which a process that is being started is no longer waited for.
_STARTED_S = 5.0


class _Record(msgspec.Struct, kw_only=True):
    """The stored record of an id. ``stopping_s``: when the worker was first told to end, in seconds since
    1970."""

    profile: WorkerProfile
    stopping_s: float | None = None


def taskmanager_command(
    worker_id: str, profile: WorkerProfile, config: Mapping[str, str], folder: Path
) -> list[str]:
    """The command line of a task manager with this id and profile, for a cluster with the configuration
    ``config``.

    The configuration is written to a file in ``folder`` that only this user may read: it contains
    passwords, and every user of the machine sees a command line.
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
    """Workers that are processes of this machine; see ``penstock.providers.api.ResourceProvider``.

    ``folder``: for the worker files and logs of this cluster, shared by all its providers on the machine.
    ``command(worker id, profile)``: the command line to start. ``grace_s``: seconds from SIGTERM to
    SIGKILL, which a later ``ensure`` sends.
    """

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
        #: Processes that this object has started. It must poll them, so that none stays as a zombie.
        self._children: list[subprocess.Popen[bytes]] = []
        folder.mkdir(parents=True, exist_ok=True)

    async def ensure(self, wanted: Mapping[str, WorkerProfile]) -> None:
        """See ``ResourceProvider.ensure``. Raises ExternalError if a process cannot be started."""
        for worker_id, profile in wanted.items():
            _check(worker_id, profile)
        await asyncio.to_thread(self._ensure, dict(wanted))

    async def list(self) -> Mapping[str, WorkerPhase]:
        """See ``ResourceProvider.list``."""
        return await asyncio.to_thread(self._list)

    async def close(self) -> None:
        """See ``ResourceProvider.close``."""
        self._reap()

    # -- blocking ------------------------------------------------------------------------------

    def _ensure(self, wanted: Mapping[str, WorkerProfile]) -> None:
        with self._alone():
            running, records = self._running(), self._records()
            for worker_id in wanted.keys() - records.keys():
                # The file is written first: a crash in between leaves an id that counts as ended, never two
                # workers.
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
                    self._forget(worker_id)  # it was told to end, and has ended
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
                    start_new_session=True,  # the worker outlives this process
                )
            except OSError as err:
                raise ExternalError(
                    f"worker '{worker_id}' cannot be started",
                    expected="a command that this machine can run",
                    got=str(err),
                    remedy="check the command, memory and limits; the worker counts as ended",
                ) from err
        self._children.append(child)
        # Until the kernel has executed the command, the process has no environment and would count as ended.
        # (A worker whose command clears its environment does count as ended.)
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
        """Worker id → ids of its processes, by the environment with which they were started."""
        self._reap()
        found: dict[str, set[int]] = {}
        for folder in Path("/proc").glob("[0-9]*"):
            pid = int(folder.name)
            if (name := self._named(pid)) is not None:
                found.setdefault(name, set()).add(pid)
        return found

    def _named(self, pid: int) -> str | None:
        """The id of the worker that the process is; None if it is no worker of this cluster or has ended."""
        begin = f"{WORKER_VARIABLE}={self._cluster}/".encode()
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            status = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return None  # the process has ended or belongs to another user
        name = next((e.removeprefix(begin) for e in environment if e.startswith(begin)), None)
        # A worker's child processes inherit its environment. Only the leader of the session counts.
        leads = status[0] != b"Z" and int(status[3]) == pid
        return os.fsdecode(name) if name is not None and leads else None

    def _reap(self) -> None:
        self._children = [child for child in self._children if child.poll() is None]

    # -- files ---------------------------------------------------------------------------------

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Holds the lock of the cluster's providers on this machine. The kernel releases it when a process
        dies."""
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
    """A provider of task managers on this machine that have the cluster's configuration ``config``.

    Raises SpecError without ``resourcemanager.provider.process.dir``, the folder for its files.
    """
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
