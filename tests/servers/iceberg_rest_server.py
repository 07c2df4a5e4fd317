"""Apache Iceberg's own REST catalog, over a SQLite database and a folder, for those who send its token."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from penstock.processes import die_with_parent_after_exec
from penstock.reserving import port_of, reserve_port
from tests.servers import cache

TOKEN = "token-of-the-test-catalog"
_JVM = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
#: Java compiles the program when it starts it.
_PROGRAM = Path(__file__).parent / "iceberg_rest" / "LoopbackCatalog.java"


def missing() -> str | None:
    """Why the server cannot run here, in words for a skipped test; None: it can."""
    if why := cache.missing("iceberg_rest"):
        return why
    return None if shutil.which("javac") else "Iceberg's REST catalog needs a Java with its compiler"


class IcebergRestServer:
    """``options``: those of a catalog and of a table. What it answered to is in its database, also after ``kill``."""

    def __init__(self, folder: Path) -> None:
        self._reserved = reserve_port()
        self.port = port_of(self._reserved)
        self.uri = f"http://127.0.0.1:{self.port}"
        self._folder = folder
        self.options = {"catalog-type": "rest", "uri": self.uri, "token": TOKEN}
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "warehouse").mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        """Starts it and waits until it answers."""
        log = self._folder / "catalog.log"
        jars = ":".join(map(str, cache.jars("iceberg_rest")))
        given = [str(self.port), TOKEN, str(self._folder / "catalog.db"), f"file://{self._folder}/warehouse"]
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                ["java", *_JVM, "-cp", jars, str(_PROGRAM), *given], stdout=out, stderr=out, cwd=self._folder,
                preexec_fn=die_with_parent_after_exec,
            )  # fmt: skip
        while True:
            if self._process.poll() is not None:
                raise RuntimeError(f"Iceberg's catalog ended: {log.read_text()[-2000:]}")
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.2)

    def kill(self) -> None:
        """As a power cut would."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        self._reserved.close()
