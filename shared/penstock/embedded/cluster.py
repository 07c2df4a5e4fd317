"""The embedded cluster: all processes of Penstock on one machine.

``EmbeddedCluster`` starts nats-server, Valkey, a folder as object store, and the four services on free
ports. It waits until every slot is registered, restarts processes that end, and leaves no process or
temporary folder behind. ``penstock up``, ``sql``, ``run`` and the tests use it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import yaml

from penstock.credentials import credentials
from penstock.embedded import servers
from penstock.embedded.processes import Child, ProcessSet
from penstock.embedded.slot_output import SlotOutput
from penstock.errors import ExternalError, SpecError
from penstock.reserving import port_of, reserve_port

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

#: Groups of processes in the order in which they are stopped. A process stops before those that it depends
#: on.
STOP_ORDER = (("dispatcher", "jobmanager"), ("taskmanager",), ("resourcemanager",), ("nats", "valkey"))
#: A guard against hanging only: a process that does not stay up is noticed much earlier.
START_TIMEOUT_S = 300.0
#: Configuration keys that arguments decide → the argument, as ``penstock up`` and ``EmbeddedCluster`` spell it.
_CHOSEN = {
    "rest.port": "--port PORT, or rest_port=PORT",
    "taskmanager.numberOfTaskSlots": "--slots NUMBER, or slots=NUMBER",
}


#: The prefix of temporary folders.
PREFIX = "penstock-"
#: A younger folder may not have locked its lock file yet.
SETTLED_S = 60.0


def sweep_temporary_folders() -> None:
    """Removes the temporary folders of clusters that were killed (SIGKILL, loss of power): those whose lock
    nobody holds."""
    for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/.lock"):
        try:
            if time.time() - lock.stat().st_mtime < SETTLED_S:
                continue  # it may have been made, but not locked yet
            with lock.open("r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
        except OSError:
            continue  # another process holds the lock, the folder is another user's, or it was removed meanwhile


@dataclass
class EmbeddedCluster:
    """A cluster on this machine; a context manager. ``rest_url`` is the address of its REST API.

    ``data_dir`` None: a temporary folder, removed at the end. Otherwise the folder is kept, and the jobs
    and JetStream streams in it survive; only one cluster at a time may use it. Ports of 0 are chosen.
    ``config``: configuration of all services. ``restart``: whether processes that end are started again;
    ``on_event`` receives a text about each.
    """

    taskmanagers: int = 1
    slots: int = 2
    jobmanagers: int = 1
    dispatchers: int = 1
    resourcemanagers: int = 1
    rest_port: int = 0
    nats_port: int = 0
    data_dir: Path | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    restart: bool = True
    on_event: Callable[[str], None] = lambda text: None
    #: Where the output of slots is shown. None: it stays in files, which ``penstock logs`` shows.
    slot_output: TextIO | None = None

    rest_url: str = field(default="", init=False)
    nats_url: str = field(default="", init=False)
    redis_url: str = field(default="", init=False)
    storage_url: str = field(default="", init=False)
    root: Path = field(default=Path(), init=False)
    _process_set: ProcessSet | None = field(default=None, init=False)
    _lock_file: TextIO | None = field(default=None, init=False)
    _following: SlotOutput | None = field(default=None, init=False)
    #: Sockets that reserve the ports of this cluster's servers from before they start until after they end.
    _reserved: list[socket.socket] = field(default_factory=list, init=False)

    def __enter__(self) -> EmbeddedCluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop()

    # -- life cycle ---------------------------------------------------------------

    def start(self) -> None:
        """Starts all processes and returns when every slot is registered.

        Raises ExternalError, with the end of the log, if a process does not stay up, and SpecError as
        ``launch`` does.
        """
        self.launch()
        try:
            self.wait_ready()
        except BaseException:
            self.stop()
            raise

    def launch(self) -> None:
        """Starts the processes without waiting for them.

        Raises SpecError for a number of processes below 1 and for a configuration key that an argument decides, and ExternalError if a port is taken, or if the
        folder is in use or cannot be written.
        """
        for name in ("taskmanagers", "slots", "jobmanagers", "dispatchers", "resourcemanagers"):
            if getattr(self, name) < 1:
                raise SpecError(f"{name} must be at least 1", got=str(getattr(self, name)))
        for key, instead in _CHOSEN.items():
            if key in self.config:
                raise SpecError(
                    f"'{key}' is chosen by the cluster's own option",
                    expected=instead,
                    got=f"{key} = {self.config[key]}",
                    where=f"configuration key '{key}'",
                    remedy=f"leave it out, and give {instead}",
                )
        for port, what in ((self.rest_port, "the REST API"), (self.nats_port, "NATS")):
            if port:
                servers.check_port(port, what)
        self._make_folder()
        nats_port = self.nats_port or self._free_port()
        redis_port = self._free_port()
        self._rest_ports = [
            (self.rest_port if i == 0 and self.rest_port else self._free_port())
            for i in range(self.dispatchers)
        ]
        self.nats_url = f"nats://127.0.0.1:{nats_port}"
        self.redis_url = f"redis://127.0.0.1:{redis_port}"
        self.storage_url = (self.root / "store").as_uri()
        scheme = "https" if self.config.get("security.ssl.rest.certificate") else "http"
        self.rest_url = f"{scheme}://127.0.0.1:{self._rest_ports[0]}"
        self._write_config()
        env = {**os.environ, "PYTHONUNBUFFERED": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process_set = ProcessSet(env, self._restarted, self.root / "log" / "template.log")
        children = [
            self._child("nats-0", servers.nats_command(nats_port, self.root / "nats", "penstock")),
            self._child("valkey-0", servers.valkey_command(redis_port, self.root / "valkey")),
        ]
        children += [self._service("resourcemanager", i) for i in range(self.resourcemanagers)]
        children += [self._service("taskmanager", i) for i in range(self.taskmanagers)]
        children += [
            self._service("dispatcher", i, f"-Drest.port={port}") for i, port in enumerate(self._rest_ports)
        ]
        children += [self._service("jobmanager", i) for i in range(self.jobmanagers)]
        self._next_taskmanager = self.taskmanagers
        self._processes.add(*children)
        if self.slot_output is not None:
            self._following = SlotOutput(self.root / "tmp", self.slot_output)

    def stop(self) -> None:
        """Ends every process and, unless ``data_dir`` was given, removes the folder."""
        if self._following is not None:
            self._following.stop()
            self._following = None
        if self._process_set is not None:
            self._process_set.stop(STOP_ORDER)
            self._process_set = None
        while self._reserved:
            self._reserved.pop().close()
        if self._lock_file is not None:
            self._lock_file.close()
            (self.root / ".lock").unlink(missing_ok=True)
            self._lock_file = None
        if self.data_dir is None and self.root != Path():
            shutil.rmtree(self.root, ignore_errors=True)

    def wait_ready(self) -> None:
        """Returns when all task managers have registered all their slots. Raises ExternalError if a process
        does not stay up, or after ``START_TIMEOUT_S``."""
        import httpx

        want = self.taskmanagers * self.slots
        deadline = time.monotonic() + START_TIMEOUT_S
        overview: dict[str, Any] = {}
        own = credentials(self.rest_url)
        with httpx.Client(
            base_url=self.rest_url, timeout=2.0, headers=own.headers(), verify=own.tls(self.rest_url)
        ) as client:
            while time.monotonic() < deadline:
                with contextlib.suppress(httpx.HTTPError, ValueError):  # the dispatcher is starting
                    answer = client.get("/overview")
                    if answer.status_code in (401, 403):
                        raise ExternalError(
                            "the cluster that starts asks for a token, and this process has none that it takes",
                            expected="PENSTOCK_TOKEN or PENSTOCK_TOKEN_FILE in the environment",
                            got=f"HTTP {answer.status_code}",
                        )
                    overview = answer.json()
                    if overview.get("slots-total", 0) >= want:
                        return
                self._check_alive()
                time.sleep(0.02)
        raise ExternalError(
            f"the cluster did not become ready within {START_TIMEOUT_S:.0f} s",
            expected=f"{want} slots",
            got=f"{overview.get('slots-total', 'no answer')}",
            remedy=f"see the logs in {self.log_dir}\n{self._tails()}",
        )

    # -- changing it ----------------------------------------------------------------

    def catch_up_output(self) -> None:
        """Show what slots have printed before this call, if the cluster shows it (``slot_output``)."""
        if self._following is not None:
            self._following.catch_up()

    def add_taskmanager(self) -> Child:
        """Starts one more task manager, without waiting until its slots are registered."""
        child = self._service("taskmanager", self._next_taskmanager)
        self._next_taskmanager += 1
        self._processes.add(child)
        return child

    def child(self, name: str) -> Child:
        """The process with this name (``taskmanager-0``, ``nats-0``). Raises KeyError if there is none."""
        for child in self._processes.children:
            if child.name == name:
                return child
        raise KeyError(name)

    @property
    def _processes(self) -> ProcessSet:
        if self._process_set is None:
            raise ExternalError("the cluster does not run", remedy="start it first")
        return self._process_set

    @property
    def children(self) -> list[Child]:
        """All processes of the cluster. Raises ExternalError if the cluster does not run."""
        return list(self._processes.children)

    @property
    def log_dir(self) -> Path:
        """The folder with a log file for each process."""
        return self.root / "log"

    # -- inside ------------------------------------------------------------------------

    def _make_folder(self) -> None:
        if self.data_dir is None:
            sweep_temporary_folders()
            self.root = Path(tempfile.mkdtemp(prefix=PREFIX))
        else:
            self.root = Path(self.data_dir).absolute()
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            for name in ("log", "store", "nats", "valkey", "tmp"):
                (self.root / name).mkdir(exist_ok=True)
            lock = (self.root / ".lock").open("w")
        except OSError as err:
            raise ExternalError(
                "the cluster's folder cannot be made or written to",
                expected="a folder that is there, or can be made, and that may be written to",
                got=f"{err.strerror or err} ({err.filename})" if err.filename else str(err),
                where=f"--data {self.data_dir}" if self.data_dir is not None else str(self.root),
                remedy="give another folder with --data"
                if self.data_dir is not None
                else "set TMPDIR to a folder that may be written to",
            ) from err
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise ExternalError(
                f"another cluster uses {self.root}",
                remedy="stop it, or give this one another folder with --data",
            ) from None
        self._lock_file = lock

    def _free_port(self) -> int:
        self._reserved.append(reserve_port())
        return port_of(self._reserved[-1])

    def _write_config(self) -> None:
        config = {
            "nats.url": self.nats_url,
            "high-availability.redis.url": self.redis_url,
            "high-availability.storageDir": self.storage_url,
            "taskmanager.numberOfTaskSlots": self.slots,
            "io.tmp.dirs": str(self.root / "tmp"),
            # ``SlotOutput`` removes files once it has shown them, so the slots must keep theirs until then.
            **({"taskmanager.slot.output.max-files": 1024} if self.slot_output is not None else {}),
            **self.config,
        }
        self.config_file = self.root / "penstock.yaml"
        self.config_file.write_text(yaml.safe_dump(config, sort_keys=True))

    def _child(self, name: str, argv: list[str]) -> Child:
        return Child(name, argv, self.root / "log" / f"{name}.log", restart=self.restart)

    def _service(self, role: str, index: int, *more: str) -> Child:
        # -P: a user's package in the working folder must not be imported instead of ours.
        argv = [sys.executable, "-P", "-m", f"penstock_services.{role}", "--config", str(self.config_file)]
        return self._child(f"{role}-{index}", [*argv, *more])

    def _restarted(self, child: Child, status: int) -> None:
        how = f"signal {-status}" if status < 0 else f"exit code {status}"
        self.on_event(f"{child.name} ended ({how}); starting it again (log: {child.log})")

    def _check_alive(self) -> None:
        for child in self._processes.children:
            died_at_once = child.starts > 3
            gone = child.process is not None and child.process.poll() is not None and not child.restart
            if died_at_once or gone:
                raise ExternalError(
                    f"{child.name} does not stay up", remedy=f"its log ends with:\n{child.tail()}"
                )

    def _tails(self) -> str:
        return "\n".join(f"-- {c.name}\n{c.tail(4)}" for c in self._processes.children)
