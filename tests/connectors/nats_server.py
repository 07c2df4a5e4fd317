"""A real nats-server for tests: started in a folder of its own, stopped by its own id."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from penstock.reserving import port_of, reserve_port


def _binary():
    beside = Path(sys.executable).parent / "nats-server"
    return str(beside) if beside.exists() else shutil.which("nats-server")


class NatsServer:
    def __init__(self, folder):
        self._port = reserve_port()
        self.port = port_of(self._port)
        self.url = f"nats://127.0.0.1:{self.port}"
        self._folder = Path(folder)
        self._process = None

    def start(self):
        argv = [_binary(), "-js", "-sd", str(self._folder), "-a", "127.0.0.1", "-p", str(self.port)]
        self._process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self):
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
        self._port.close()

    @property
    def pid(self):
        return self._process.pid

    async def client(self):
        import nats

        async with asyncio.timeout(120):
            while True:
                try:
                    return await nats.connect(self.url, allow_reconnect=False, connect_timeout=1)
                except (OSError, nats.errors.Error):
                    await asyncio.sleep(0.02)
        raise AssertionError(os.strerror(110))
