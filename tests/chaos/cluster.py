"""The cluster that faults happen to: real servers and services, some on hosts of their own."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from penstock.embedded import EmbeddedCluster
from penstock.embedded.processes import Child
from penstock.errors import ExternalError
from penstock.reserving import port_of, reserve_port
from tests.chaos.names import Names
from tests.chaos.network import Host, Network, why_not
from tests.chaos.objectstore import ObjectStore

#: Who lives on a host of its own, by the number of the host.
HOSTS = {"taskmanager-1": 0, "taskmanager-2": 1, "jobmanager-1": 2, "resourcemanager-1": 3}
#: What the servers are called, where names can be made.
NATS_NAME, VALKEY_NAME = "nats.chaos", "valkey.chaos"
TEMPLATE_WAIT_S = 120.0
CONFIG = {
    "heartbeat.interval": "500 ms",
    "heartbeat.timeout": "5 s",
    "high-availability.lease-duration": "2 s",
    "taskmanager.slot.timeout": "5 s",
}


class ChaosCluster(EmbeddedCluster):
    """2 job managers, 2 dispatchers, 2 resource managers, 3 task managers of 2 slots; its
    object store is an imitation of S3 in this process. ``not_shown``: why hosts of their own,
    and so cut-offs, full disks and names that vanish, are impossible here; None when they are
    not."""

    def __init__(self, folder: Path, *, seed: int) -> None:
        super().__init__(
            taskmanagers=3, slots=2, jobmanagers=2, dispatchers=2, resourcemanagers=2, data_dir=folder
        )
        self.not_shown = why_not()
        self._network = Network(0 if self.not_shown else len(HOSTS))
        self._host = "127.0.0.1" if self.not_shown else self._network.address
        self._seed = seed
        self._stored = False
        self._names: Names | None = None

    def launch(self) -> None:
        self._network.make()
        if self.not_shown is None:
            self._names = Names(self.data_dir / "names", self._host, (NATS_NAME, VALKEY_NAME))
            self._names.start()
        self._store_port = reserve_port(self._host)
        self.store = ObjectStore(self._host, port_of(self._store_port), seed=self._seed)
        self.store.start()
        self._stored = True
        self.config = {
            **CONFIG,
            **{f"storage.options.{name}": value for name, value in self.store.options.items()},
            "high-availability.storageDir": self.store.url,
        }
        super().launch()

    def wait_ready(self) -> None:
        """Also until slots can be forked: on a busy machine that comes much later."""
        super().wait_ready()
        deadline = time.monotonic() + TEMPLATE_WAIT_S
        waiting = [self.child(name).log for name in self.names("taskmanager")]
        while waiting := [log for log in waiting if "template_ready" not in log.read_text()]:
            if time.monotonic() > deadline:
                raise ExternalError("slots cannot be forked", got=str(waiting))
            time.sleep(0.05)

    def stop(self) -> None:
        try:
            super().stop()
        finally:
            if self._stored:
                self.store.stop()
                self._store_port.close()
            if self._names is not None:
                self._names.stop()
            self._network.remove()

    def host_of(self, name: str) -> Host | None:
        number = HOSTS.get(name)
        return None if self.not_shown or number is None else self._network.hosts[number]

    @property
    def rest_urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self._rest_ports]

    # -- how its processes are started -----------------------------------------------------

    def _write_config(self) -> None:
        self.nats_url = self.nats_url.replace("127.0.0.1", self._host)
        self.redis_url = self.redis_url.replace("127.0.0.1", self._host)
        if self._names is not None:
            self.config["nats.url"] = self.nats_url.replace(self._host, NATS_NAME)
            self.config["high-availability.redis.url"] = self.redis_url.replace(self._host, VALKEY_NAME)
        super()._write_config()

    def _child(self, name: str, argv: list[str]) -> Child:
        host = self.host_of(name)
        role = name.rsplit("-", 1)[0]
        if role in ("nats", "valkey"):
            argv = [self._host if word == "127.0.0.1" else word for word in argv]
        if role == "valkey":
            argv = [*argv, "--protected-mode", "no"]
        if role == "taskmanager":
            address = host.address if host else self._host
            argv = [*argv, f"-Dtaskmanager.host={address}", f"-Dtaskmanager.bind-host={address}"]
        if self._names is not None:
            argv = self._names.wrap(argv)
        if host is not None:
            argv = host.wrap(argv, self.root / "tmp")
        return super()._child(name, argv)

    # -- what runs ---------------------------------------------------------------------------

    def names(self, role: str) -> list[str]:
        return sorted(c.name for c in self.children if c.name.rsplit("-", 1)[0] == role)

    def template_pids(self, taskmanager: str) -> list[int]:
        """Processes that slots are forked from, where they have forked any."""
        pid = self.child(taskmanager).pid
        return [] if pid is None else [child for child in _children(pid) if _children(child)]

    def slot_pids(self, taskmanager: str) -> list[int]:
        """Processes of allocated slots."""
        return sorted(slot for template in self.template_pids(taskmanager) for slot in _children(template))

    def working(self) -> list[str]:
        """Task managers with processes of slots."""
        return [name for name in self.names("taskmanager") if self.slot_pids(name)]

    def disk_of(self, taskmanager: str) -> Path:
        """The folder for local state of a process on a host, seen from here."""
        return Path(f"/proc/{self.child(taskmanager).pid}/root{self.root}/tmp")

    # -- what is done to it -------------------------------------------------------------------

    def signal(self, name: str, number: signal.Signals) -> None:
        """To a process by name (``jobmanager-0``) or id (``4711``); one that is gone is none."""
        pid = int(name) if name.isdigit() else self.child(name).pid
        if pid is not None and alive(pid):
            os.kill(pid, number)

    def take_down(self, name: str) -> None:
        """Kill it and do not start it again …"""
        self.child(name).restart = False
        self.signal(name, signal.SIGKILL)

    def bring_back(self, name: str) -> None:
        """… until here."""
        self.child(name).restart = True

    def forget_name(self, name: str) -> None:
        """The server dies, and its name with it …"""
        assert self._names is not None
        self._names.forget(_name_of(name))
        self.take_down(name)

    def remember_name(self, name: str) -> None:
        """… until here."""
        assert self._names is not None
        self.bring_back(name)
        self._names.remember(_name_of(name))

    def wipe_leases(self) -> None:
        """Also when it has just died: then once it is back."""
        again = Retry(ExponentialBackoff(cap=0.5), retries=60)
        with redis.Redis.from_url(self.redis_url, retry=again) as leases:
            leases.flushall()


def _name_of(server: str) -> str:
    return NATS_NAME if server.startswith("nats") else VALKEY_NAME


def _children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []  # it ended meanwhile


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
