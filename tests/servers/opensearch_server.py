"""A real OpenSearch node in a folder of its own, from its Maven artifacts."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from penstock.processes import die_with_parent_after_exec
from penstock.reserving import port_of, reserve_port
from tests.servers import cache

_JVM = ["-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


class OpenSearchServer:
    """``url``: its address. What it answered to is on the disk, also after ``kill``."""

    def __init__(self, folder: Path) -> None:
        self._reserved = [reserve_port(), reserve_port()]
        self.port, self._transport = (port_of(r) for r in self._reserved)
        self.url = f"http://127.0.0.1:{self.port}"
        self._folder = folder
        (folder / "config").mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it and waits until it answers."""
        source = Path(__file__).with_name("opensearch") / "OneNode.java"
        path = os.pathsep.join(map(str, cache.jars("opensearch")))
        words = [str(self._folder), str(self.port), str(self._transport)]
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["java", *_JVM, "-cp", path, str(source), *words],
                stdout=log, stderr=log, cwd=self._folder, preexec_fn=die_with_parent_after_exec,
            )  # fmt: skip
        import httpx

        while True:
            if self._process.poll() is not None:
                raise RuntimeError(f"OpenSearch ended: {(self._folder / 'server.log').read_text()[-2000:]}")
            try:
                health = httpx.get(
                    f"{self.url}/_cluster/health?wait_for_status=yellow&timeout=30s", timeout=40
                )
                if health.status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.1)

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """The answer of a request, as JSON."""
        import httpx

        answer = httpx.request(method, f"{self.url}/{path}", json=body, timeout=60)
        return answer.json()

    def documents(self, index: str) -> dict[str, Any]:
        """All documents of an index, by id."""
        while True:
            self.request("POST", f"{index}/_refresh")
            found = self.request("POST", f"{index}/_search", {"size": 10_000})
            if "hits" in found:
                return {hit["_id"]: hit["_source"] for hit in found["hits"]["hits"]}
            if found.get("status") == 404:
                return {}
            time.sleep(0.05)  # the shards of an index that was made this moment do not answer yet

    def kill(self) -> None:
        """As a power cut would."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()
        for reserved in self._reserved:
            reserved.close()
