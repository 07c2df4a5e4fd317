"""A slot's side of the process that talks to Spark for it.

The task manager keeps a warm process waiting, because its imports alone take a second. Without one, the slot
starts a process itself. Slot and process talk over a Unix socket: the job goes in as one frame, and frames
come out. When the slot closes its half, the driver interrupts its query and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.log_events import EventLog

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from asyncio.subprocess import Process

    from penstock.messages.spark import DriverJob

_log = EventLog("penstock.runtime.spark")
#: Seconds for the driver to interrupt its query before it is killed.
_GRACE_S = 5.0
_PEER = struct.Struct("3i")  # pid, uid, gid


class Driver:
    """The driver process of one job. ``log_path``: the output of the driver and of the user's code in it."""

    def __init__(
        self, reader: StreamReader, writer: StreamWriter, pid: int, log_path: Path, process: Process | None
    ) -> None:
        self._reader, self._writer = reader, writer
        self._pid, self._process = pid, process
        self.log_path = log_path

    @classmethod
    async def open(cls, spare: str, folder: Path) -> Driver:
        """``spare``: the socket of a waiting driver, if the task manager has one."""
        if spare:
            try:
                reader, writer = await asyncio.open_unix_connection(spare)
            except OSError as err:
                _log.info("spark_spare_driver_lost", error=err)
            else:
                peer = writer.get_extra_info("socket")
                credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
                pid = _PEER.unpack(credentials)[0]
                return cls(reader, writer, pid, Path(spare).with_suffix(".log"), None)
        return await cls._start(folder)

    @classmethod
    async def _start(cls, folder: Path) -> Driver:
        log_path = folder / "spark-driver.log"
        ours, theirs = socket.socketpair()
        with theirs, log_path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "penstock.spark.driver", "--fd", str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, "PENSTOCK_DRIVER_PARENT": str(os.getpid())},
            )  # fmt: skip
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        return cls(reader, writer, process.pid, log_path, process)

    async def send(self, job: DriverJob) -> None:
        """Send the job to the driver."""
        data = msgspec.json.encode(job)
        self._writer.write(len(data).to_bytes(4, "big") + data)
        await self._writer.drain()

    async def frame(self) -> bytes:
        """The next frame. IncompleteReadError or ConnectionError if the driver is gone."""
        length = int.from_bytes(await self._reader.readexactly(4), "big")
        return await self._reader.readexactly(length)

    async def outcome(self) -> str:
        """How the driver ended, as its parent process reports it; unknown if the parent does not answer."""
        if self._process is None:
            return f"process {self._pid} closed its connection"
        code = await self._process.wait()
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    async def stop(self) -> None:
        """End the driver and its query; kill it after a grace period."""
        if not self._reader.at_eof():
            if self._writer.can_write_eof():
                self._writer.write_eof()
            try:
                async with asyncio.timeout(_GRACE_S):
                    while await self._reader.read(65_536):
                        pass
            except ConnectionError:
                pass  # The driver has ended already.
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)
        self._writer.close()
        if self._process is not None:
            await self._process.wait()
        else:
            self.log_path.unlink(missing_ok=True)
