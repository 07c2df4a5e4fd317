"""The task manager's Spark: one Spark Connect server, started when a slot first needs it.

It is kept for the next jobs and dies with this process. The service only starts ``python -m
penstock.spark.server``; that module knows Spark.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import signal
import socket
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.log_events import EventLog
from penstock.reserving import port_of, reserve_port
from penstock_services.common.template import describe_status

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock_services.common.processes import SystemSpawner

_log = EventLog("penstock.taskmanager.spark")

#: Seconds between two checks whether an unused server may end.
_LOOK_S = 5.0
#: The longest path of a Unix socket in bytes, without the closing NUL.
_SOCKET_PATH_CHARS = 107
_TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class SparkAddress:
    """How a slot reaches the server. ``log_path``: the log to show if it cannot."""

    port: int
    ui_port: int
    token: str
    pid: int
    log_path: str
    #: The socket of a driver that waits for a slot; "" if there is none.
    driver: str = ""
    driver_pid: int = 0

    def settings(self) -> dict[str, str]:
        """The configuration that is added to a deployment."""
        return {
            "spark.server.port": str(self.port),
            "spark.server.ui": f"http://127.0.0.1:{self.ui_port}",
            "spark.server.token": self.token,
            "spark.server.pid": str(self.pid),
            "spark.server.log": self.log_path,
            "spark.server.driver": self.driver,
        }


class SparkServer:
    """The server. ``cores``: n of local[n]. ``memory``: the Java heap, in Java's notation. ``idle_s``:
    seconds without use after which the server ends (0: never)."""

    def __init__(
        self, spawner: SystemSpawner, folder: Path, *, cores: int, memory: str, idle_s: float
    ) -> None:
        self._spawner = spawner
        self._folder = folder
        self._cores, self._memory, self._idle_s = cores, memory, idle_s
        self._address: SparkAddress | None = None
        self._watch: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._users = 0
        self._unused_since_s = 0.0
        #: (pid, socket) of a driver that is ready for the next job.
        self._spare: tuple[int, str] | None = None
        self._spares = itertools.count(1)
        #: The process ids of all drivers that run.
        self._drivers: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._readying = False

    @property
    def pid(self) -> int | None:
        """The process id of the server, or None."""
        return None if self._address is None else self._address.pid

    def rss_bytes(self) -> int:
        """The resident memory of the server in bytes; 0 if there is none."""
        try:
            with open(f"/proc/{self.pid}/statm") as file:
                return int(file.read().split()[1]) * _PAGE_BYTES
        except OSError:
            return 0

    async def acquire(self) -> SparkAddress:
        """The server's address, for a slot that is about to start; the server may still be starting. The
        caller gives it back with ``release``. Raises ExternalError if the server cannot be started."""
        async with self._starting:
            if self._address is None:
                self._address = await self._start()
        self._users += 1
        spare, self._spare = self._spare, None
        return (
            self._address if spare is None else replace(self._address, driver_pid=spare[0], driver=spare[1])
        )

    def release(self, address: SparkAddress) -> None:
        """A slot no longer needs the server. A driver may now be made ready for the next slot."""
        self._users -= 1
        if address.driver and os.path.exists(address.driver):
            # The slot never connected to this driver, and no other slot will.
            self._spawner.kill(address.driver_pid, signal.SIGKILL)
        self._unused_since_s = asyncio.get_running_loop().time()
        if self._address is not None and self._spare is None and not self._readying:
            self._readying = True
            task = asyncio.create_task(self._keep_spare(self._address))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _keep_spare(self, server: SparkAddress) -> None:
        """Keeps one driver ready until it ends: because a slot took it and is done, or with the server. The
        driver first ends what killed drivers left in Spark."""
        path = self._folder / f"driver-{next(self._spares)}.sock"
        if len(str(path)) > _SOCKET_PATH_CHARS:
            self._readying = False
            _log.info("spark_spare_driver_skipped", reason="the path of its socket is too long", path=path)
            return
        log_path = path.with_suffix(".log")
        try:
            with log_path.open("wb") as log:
                argv = [sys.executable, "-P", "-m", "penstock.spark.driver"]
                argv += ["--server", f"sc://localhost:{server.port}", "--server-pid", str(server.pid)]
                environment = {**os.environ, _TOKEN_VARIABLE: server.token}
                pid = await self._spawner.spawn(
                    [*argv, "--listen", str(path)], environment, stderr=log.fileno()
                )
        except PenstockError as err:  # the next job starts a driver itself
            _log.warning("spark_spare_driver_failed", error=err.message)
            return
        finally:
            self._readying = False
        self._spare = pid, str(path)
        self._drivers.add(pid)
        await self._spawner.wait(pid)
        self._drivers.discard(pid)
        given = self._spare != (pid, str(path))
        if not given:
            self._spare = None
        _clear(path, log_path, given)

    def _end_spare(self) -> None:
        if self._spare is not None:
            self._spawner.kill(self._spare[0], signal.SIGKILL)

    async def _start(self) -> SparkAddress:
        self._folder.mkdir(parents=True, exist_ok=True)
        log_path, token = self._folder / "server.log", secrets.token_hex(16)
        held = reserve_port(), reserve_port()
        port, ui_port = map(port_of, held)
        argv = [sys.executable, "-P", "-m", "penstock.spark.server"]
        argv += ["--port", str(port), "--ui-port", str(ui_port), "--cores", str(self._cores)]
        argv += ["--memory", self._memory, "--folder", str(self._folder)]
        try:
            with log_path.open("ab") as log:
                environment = {**os.environ, _TOKEN_VARIABLE: token}
                pid = await self._spawner.spawn(argv, environment, stderr=log.fileno(), group=True)
        except BaseException:
            _close(held)
            raise
        _log.info("spark_server_started", server_pid=pid, port=port, cores=self._cores, log=log_path)
        self._unused_since_s = asyncio.get_running_loop().time()
        self._watch = asyncio.create_task(self._watched(pid, held))
        return SparkAddress(port, ui_port, token, pid, str(log_path))

    async def _watched(self, pid: int, held: Sequence[socket.socket]) -> None:
        """Watches the server until it ends, by itself or because no slot needs it any more. ``held``: its
        ports."""
        ended = asyncio.create_task(self._spawner.wait(pid))
        try:
            while not ended.done():
                await asyncio.wait({ended}, timeout=_LOOK_S)
                if not ended.done() and self._unused():
                    _log.info("spark_server_stopping", unused_s=self._idle_s)
                    self._spawner.kill(pid, signal.SIGTERM)
                    self._address = None  # the next job starts another
                    self._end_spare()
                    await asyncio.wait({ended})
        finally:
            _close(held)
        # The Python workers of its streams would otherwise wait for it for a quarter of an hour.
        self._spawner.kill_group(pid)
        if self._address is not None and self._address.pid == pid:
            self._address = None
            _log.error("spark_server_lost", server_pid=pid, status=describe_status(ended.result()))

    def _unused(self) -> bool:
        unused_s = asyncio.get_running_loop().time() - self._unused_since_s
        return self._address is not None and not self._users and 0 < self._idle_s < unused_s

    async def stop(self) -> None:
        """Ends the server. Its scratch files are removed, because nothing in them is needed after a session."""
        address, self._address = self._address, None
        for pid in [*self._drivers, *([] if address is None else [address.pid])]:
            self._spawner.kill(pid, signal.SIGKILL)
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._watch is not None:
            await asyncio.wait({self._watch})


def _close(held: Sequence[socket.socket]) -> None:
    for port in held:
        port.close()


def _clear(path: Path, log_path: Path, given: bool) -> None:
    """Cleans up after a driver's end. A driver that served a slot has removed its socket, and the slot reads
    its log."""
    if not given or path.exists():
        path.unlink(missing_ok=True)
        log_path.unlink()
