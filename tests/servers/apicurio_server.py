"""A real Confluent-compatible schema registry, Apicurio, which keeps its schemas in memory."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import httpx

from penstock.processes import die_with_parent_after_exec
from penstock.reserving import port_of, reserve_port
from tests.servers import cache

_JVM = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


class ApicurioServer:
    """``url``: of the interface that Confluent's clients use."""

    def __init__(self, folder: Path) -> None:
        self._reserved = reserve_port()
        self.port = port_of(self._reserved)
        self.url = f"http://127.0.0.1:{self.port}/apis/ccompat/v7"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        """Starts it and waits until it answers."""
        (runner,) = (jar for jar in cache.jars("apicurio") if jar.name.endswith("-runner.jar"))
        log = self._folder / "registry.log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                ["java", *_JVM, f"-Dquarkus.http.port={self.port}", "-Dquarkus.http.host=127.0.0.1", "-jar", str(runner)],
                stdout=out, stderr=out, cwd=self._folder, preexec_fn=die_with_parent_after_exec,
                env={k: v for k, v in os.environ.items() if not k.startswith(("QUARKUS_", "APICURIO_"))},
            )  # fmt: skip
        while True:
            if self._process.poll() is not None:
                raise RuntimeError(f"Apicurio ended: {log.read_text()[-2000:]}")
            try:
                if httpx.get(f"{self.url}/subjects").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.2)

    def pause(self) -> None:
        """It keeps its connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
        self._reserved.close()
