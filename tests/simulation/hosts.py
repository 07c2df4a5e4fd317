"""What a task manager asks of its host, simulated: the template, slot processes, pidfds,
the data port's sockets, folders. The task manager's shell and the slot's are the real ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

import penstock.connectors.filesystem.sink
import penstock.connectors.nats.exactly_once
import penstock.runtime.checkpoints
import penstock.runtime.control_channel
import penstock.runtime.network.hub
import penstock.runtime.slot
import penstock.runtime.slot_reports
import penstock.state.bloom
import penstock.state.memory
import penstock.state.tables
import penstock_services.dispatcher.service
import penstock_services.taskmanager.data_port
import penstock_services.taskmanager.service
import penstock_services.taskmanager.slot
from penstock.api import restore_check
from penstock.clocks import SteadyClock
from penstock.errors import ExternalError, UnsupportedError
from penstock.runtime.environment import Environment
from penstock.testing.simulation import (
    Listener,
    PacketChannel,
    Process,
    SimDisk,
    SimSocket,
    World,
    socket_pair,
)
from penstock.testing.simulation.intercept import replaced
from penstock_services.dispatcher.planning import CHECK_MODULE, Planner
from penstock_services.taskmanager.data_port import DataPort
from penstock_services.taskmanager.template import ForkedSlot

#: Real files lie in memory where the machine has such a folder: their disk is not simulated.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
#: From the order to the forked process, and until it has its loop.
FORK_S = (0.004, 0.03)


class Hosts:
    """Data ports by address, and the folder that slots keep their files in."""

    def __init__(self, world: World, store_of: Callable[[Process], Any], folder: Path) -> None:
        self.world = world
        self.store_of = store_of
        self.folder = folder
        self.listeners: dict[tuple[str, int], Listener] = {}
        self.ports = iter(range(40_000, 60_000))
        #: open data connections: (connecting end, its process, task manager's process)
        self.connections: list[SimSocket] = []
        world.dial = self.connect

    def me(self) -> Process:
        assert self.world.current is not None
        return self.world.current

    def listen(self, process: Process, host: str, port: int) -> Listener:
        listener = self.listeners[(host, port)] = Listener(process)
        return listener

    def connect(self, process: Process, host: str, port: int) -> SimSocket:
        listener = self.listeners.get((host, port))
        if listener is None:
            raise ConnectionRefusedError(f"nobody listens on {host}:{port}")
        return listener.connect(process)

    async def dial(self, address: Any) -> SimSocket:
        """From slot to slot."""
        sock = self.connect(self.me(), address.host, address.port)
        self.connections.append(sock)
        return sock


class SimTemplate:
    """In place of the template process: forks simulated slots, which die with it."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._process = hosts.me()
        self._template: Process | None = None
        self._slots: dict[int, Process] = {}
        self._ready = asyncio.Event()

    @property
    def pid(self) -> int | None:
        return self._template.pid if self._template is not None else None

    async def run(self) -> None:
        world, tm = self._hosts.world, self._process
        ended = asyncio.Event()

        async def main(_: Process) -> None:
            await asyncio.Event().wait()

        await asyncio.sleep(world.random.uniform(*FORK_S))
        self._template = world.spawn(f"{tm.name}:template", main, host=tm.host, parent=tm)
        self._template.on_exit.append(lambda: tm.loop.call_soon(ended.set))
        self._ready.set()
        await ended.wait()
        self._template = None
        self._ready.clear()
        raise ExternalError("the template process ended")

    async def fork(self, allocation_id: str, local_dir: str, log_path: str) -> ForkedSlot:
        world, tm = self._hosts.world, self._process
        while True:
            await self._ready.wait()
            template = self._template
            await asyncio.sleep(world.random.uniform(*FORK_S))
            if template is not None and template is self._template and template.alive:
                break  # else it died meanwhile: by the next one
        started: list[tuple[SimSocket, PacketChannel]] = []

        async def main(_: Process) -> int:
            control, fds = started[0]
            channel = await penstock.runtime.control_channel.ControlChannel.open(control)  # type: ignore[arg-type]
            slot = penstock.runtime.slot.Slot(channel, fds, allocation_id, Path(local_dir))  # type: ignore[arg-type]
            return await slot.run()

        name = f"{tm.name}/{allocation_id}-{local_dir.rsplit('-', 1)[-1]}"
        slot = world.spawn(name, main, host=tm.host, parent=template, delay_s=world.random.uniform(*FORK_S))
        control, theirs = socket_pair(world, tm, slot)
        fds = PacketChannel(slot)
        started.append((theirs, fds))
        self._slots[slot.pid] = slot
        return ForkedSlot(slot.pid, control, fds)  # type: ignore[arg-type]

    async def exit_status(self, pid: int, timeout_s: float) -> int | None:
        return self._slots[pid].exit_code


class PlannerInPlace(Planner):
    """Planner processes answer as ever, without being processes."""

    async def _run(
        self, spec: bytes, module: str, program: str, *, allowed: Sequence[str] = ("*",)
    ) -> tuple[int, bytes, bytes]:
        if module != CHECK_MODULE:
            raise UnsupportedError("simulated clients plan their jobs themselves", got=str(module))
        await asyncio.sleep(0.2)
        asked = msgspec.json.decode(spec, type=restore_check._Request)
        problems = await restore_check.check(asked.job_graph, asked.states)
        return 0, msgspec.json.encode({"problems": problems}), b""


class SimProcessHandle:
    """What ``penstock.processes.ProcessHandle`` is for a process of the machine."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def watch(self, notify: Callable[[], None]) -> None:
        if self.process.alive:
            # Never at once: whoever kills it is in the midst of something.
            self.process.on_exit.append(lambda: self.process.world.after(0.0001, notify))
        else:
            notify()

    def kill(self) -> None:
        if self.process.alive:
            self.process.world.kill(self.process)

    def close(self) -> None: ...


class _Namespace:
    """A module with some names replaced."""

    def __init__(self, module: Any, **names: Any) -> None:
        self.__dict__.update(names)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class SimDataPort(DataPort):
    """The real one on a simulated listening socket."""

    hosts: Hosts

    def open(self, host: str, port: int, unix_path: Path) -> None:
        me = self.hosts.me()
        self.port, self.unix_path = next(self.hosts.ports), None
        listener = self.hosts.listen(me, me.host, self.port)
        self._listening.append(listener)  # type: ignore[arg-type]


class SimFolders:
    """``Folders`` without locks: who holds them is another process here."""

    def __init__(self, hosts: Hosts, taskmanager_id: str) -> None:
        #: as told to others: the same in every run
        self.path = Path("/simulated") / taskmanager_id
        self._real = hosts.folder / taskmanager_id

    def socket_path(self) -> Path:
        return self.path / "data.sock"

    def slot(self, job_id: str, allocation_id: str, number: int) -> tuple[Path, Path]:
        name = f"{allocation_id}-{number}"
        return self._real / "slots" / name, self._real / f"{job_id}.{name}.log"

    def remove_slot(self, local_dir: Path) -> None: ...

    def remove(self) -> None: ...


class _NoCollector:
    """The collector belongs to the process that runs the world."""

    def start(self) -> None: ...

    def freeze(self) -> None: ...

    def tick(self, *, idle: bool) -> bool:
        return False


@contextlib.contextmanager
def simulated_hosts(
    world: World, store_of: Callable[[Process], Any], disk: SimDisk, limits: Mapping[str, int]
) -> Iterator[Hosts]:
    """For the time of the block, task managers and slots live on simulated hosts.
    ``limits``: constants of ``runtime.checkpoints`` that make small states behave as large
    ones do."""
    with tempfile.TemporaryDirectory(prefix="penstock-sim-", dir=MEMORY) as folder:
        hosts = Hosts(world, store_of, Path(folder))
        by_pid = {}

        def process_handle(pid: int) -> SimProcessHandle:
            found = by_pid.get(pid) or next((p for p in world.processes if p.pid == pid), None)
            if found is None or not found.alive:
                raise ProcessLookupError(pid)
            return SimProcessHandle(found)

        async def send_packet(channel: Any, data: bytes, fds: Any = ()) -> None:
            channel.put(data, list(fds))

        def recv_fds(channel: PacketChannel, *_: Any) -> tuple[bytes, list[Any], int, None]:
            data, sockets = channel.take()
            return data, sockets, 0, None

        def data_port(*args: Any) -> SimDataPort:
            port = SimDataPort(*args)
            port.hosts = hosts
            return port

        def no_dump(*_: Any, **__: Any) -> None: ...

        slot, tm = penstock.runtime.slot, penstock_services.taskmanager

        def environment(**given: Any) -> Environment:
            process = hosts.me()
            clock = SteadyClock(lambda: world.wall_ms(process), lambda: world.now_s * 1000)
            return Environment(time_s=world.look_at_processor_clock, now_ms=clock.now_ms, **given)

        with replaced(
            (slot, "open_store", lambda url, options: store_of(hosts.me())),
            (slot, "Environment", environment),
            (slot, "Collector", _NoCollector),
            (slot, "rss_bytes", lambda: 100_000_000),
            (
                slot,
                "faulthandler",
                _Namespace(None, dump_traceback_later=no_dump, cancel_dump_traceback_later=no_dump),
            ),
            (slot, "socket", _Namespace(socket, recv_fds=recv_fds, socket=lambda fileno: fileno)),
            (penstock.runtime.slot_reports, "print", no_dump),
            (penstock.runtime.network.hub, "open_socket", hosts.dial),
            (penstock.connectors.filesystem.sink, "open_files", lambda path, _: (disk, path)),
            *((penstock.runtime.checkpoints, name, value) for name, value in limits.items()),
            (penstock.connectors.nats.exactly_once, "BATCH_ROWS", 7),  # several batches a checkpoint
            # Tables are copied in many pieces, with steps between them.
            (penstock.state.tables, "_FIRST_ROWS", 4),
            (penstock.state.tables, "_LEAST_ROWS", 2),
            (penstock.state.tables, "_MOST_ROWS", 8),
            # A memory of a few rows is far too small all the time, and its filters are small.
            (penstock.state.memory, "HARD", 1e6),
            (penstock.state.bloom, "_FIRST_KEYS", 16),
            (tm.slot, "ProcessHandle", process_handle),
            (tm.slot, "send_packet", send_packet),
            (penstock_services.dispatcher.service, "Planner", PlannerInPlace),
            (tm.service, "Template", lambda _, bound, sandbox: SimTemplate(hosts)),
            (tm.service, "DataPort", data_port),
            (tm.service, "Folders", lambda _, name: SimFolders(hosts, name)),
            (tm.service, "advertised_host", lambda *_: hosts.me().host),
        ):
            yield hosts
