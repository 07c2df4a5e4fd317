"""A real Valkey (or Redis) in a folder of its own, for tests that write to it or kill it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from penstock.embedded.servers import valkey_command
from penstock.processes import die_with_parent_after_exec
from penstock.reserving import port_of, reserve_port


class RedisServer:
    """``url``: its address. What it answered to is on the disk (``appendfsync always``), also after ``kill``."""

    def __init__(self, folder: Path, password: str = "") -> None:
        self._reserved = reserve_port()
        self.port = port_of(self._reserved)
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._password = password
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it and waits until it answers."""
        command = [*valkey_command(self.port, self._folder), "--appendfsync", "always"]
        if self._password:
            command += ["--requirepass", self._password]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, preexec_fn=die_with_parent_after_exec
            )
        import redis

        while True:
            if self._process.poll() is not None:
                raise RuntimeError(f"valkey ended: {(self._folder / 'log').read_text()[-2000:]}")
            try:
                self.client().ping()
                return
            except (redis.ConnectionError, redis.BusyLoadingError):
                time.sleep(0.02)

    def client(self) -> Any:
        import redis

        return redis.Redis(port=self.port, password=self._password or None, decode_responses=True)

    def kill(self) -> None:
        """As a power cut would."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        self._reserved.close()
