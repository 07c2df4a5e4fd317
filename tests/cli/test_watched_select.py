"""A SELECT on a standing cluster ends with the client that watches it, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.api.client import TERMINAL, ClusterClient
from penstock.embedded import EmbeddedCluster

pytestmark = pytest.mark.cluster

#: Against hanging only.
PATIENCE_S = 240
SELECT = """
CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '50');
SELECT n FROM numbers;
"""
LEASE = ("-D", "client.heartbeat.interval=100 ms", "-D", "client.heartbeat.timeout=6 s")


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"still waiting for {what}")


def exit_code(client: subprocess.Popen[bytes], said: Path) -> int:
    try:
        return client.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        client.send_signal(signal.SIGABRT)
        client.wait()
        raise AssertionError(f"the client does not end; it stands here:\n{said.read_text()}") from None


def test_a_client_that_is_terminated_or_killed_leaves_no_select_behind(tmp_path: Path) -> None:
    with EmbeddedCluster(taskmanagers=1, slots=2) as cluster, ClusterClient(cluster.rest_url) as client:
        penstock = str(Path(sys.executable).with_name("penstock"))
        command = [penstock, "sql", "--cluster", cluster.rest_url, *LEASE, "-e", SELECT]
        # With its threads' frames at SIGABRT, should it hang.
        environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
        said = [tmp_path / "terminated", tmp_path / "killed"]
        watching = []
        for path in said:
            with path.open("wb") as err:
                watching.append(
                    subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=err, env=environment)
                )
        try:

            def running() -> list[dict[str, Any]]:
                return [job for job in client.jobs() if job["state"] == "RUNNING"]

            # Longer than the lease: it is renewed.
            until(
                lambda: len(running()) == 2 and all(job["duration"] > 8_000 for job in running()),
                "two queries that have run for 8 s",
            )
            terminated, killed = watching
            terminated.send_signal(signal.SIGTERM)
            assert exit_code(terminated, said[0]) == 143
            assert len(running()) == 1, "it cancelled its query before it ended"
            killed.kill()
            until(lambda: all(job["state"] in TERMINAL for job in client.jobs()), "the lease to run out")
            jobs = client.jobs()
            assert [job["state"] for job in jobs] == ["CANCELED", "CANCELED"]
            reasons = [client.exceptions(job["jid"])["root-exception"] for job in jobs]
            (reason,) = [text for text in reasons if text]
            assert "the client that watched it is gone" in reason
        finally:
            for process in watching:
                process.kill()
                process.wait()
