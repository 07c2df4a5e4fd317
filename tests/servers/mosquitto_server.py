"""A real Mosquitto in a folder of its own, on a free port of the loopback: never a system service."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from penstock.processes import die_with_parent_after_exec
from penstock.reserving import port_of, reserve_port
from tests.servers.postgres_server import account

_PATIENCE_S = 60


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin")


def missing() -> str | None:
    """Why no Mosquitto can run here, in words for a skipped test; None: it can."""
    if _program("mosquitto") is None:
        return "Mosquitto is not installed: apt-get install mosquitto (make test-servers does it as root)"
    return None


class MosquittoServer:
    """A Mosquitto. ``url``: its address, the same over ``stop_politely`` and ``start``. ``more``: lines of its configuration
    beside the listener's.

    Mosquitto writes what it holds to the disk when it ends; one that is killed has lost it.
    """

    def __init__(self, *more: str) -> None:
        self._reserved = reserve_port()
        self.port = port_of(self._reserved)
        self.url = f"mqtt://127.0.0.1:{self.port}"
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-mosquitto-"))
        self._as: dict[str, Any] = {}
        user = account("mosquitto") if os.getuid() == 0 else None
        if user is not None:
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        lines = [
            f"listener {self.port} 127.0.0.1", *more, "persistence true", f"persistence_location {self.folder}/",
            "max_queued_messages 0", "max_packet_size 1000000",
        ]  # fmt: skip
        if not any(line.startswith("allow_anonymous") for line in more):
            lines.append("allow_anonymous true")
        (self.folder / "mosquitto.conf").write_text("\n".join(lines) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it and waits until it answers."""
        program = _program("mosquitto")
        assert program is not None
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [program, "-c", str(self.folder / "mosquitto.conf")], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self.folder, preexec_fn=die_with_parent_after_exec, **self._as,
            )  # fmt: skip
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(
                        f"Mosquitto does not start: {(self.folder / 'server.log').read_text()[-2000:]}"
                    ) from None
                time.sleep(0.02)

    def stop_politely(self) -> None:
        """Ends it; what it holds is there again after ``start``."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(_PATIENCE_S)

    def kill(self) -> None:
        """As a power cut would; what it held is lost."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        self._reserved.close()
        shutil.rmtree(self.folder, ignore_errors=True)
