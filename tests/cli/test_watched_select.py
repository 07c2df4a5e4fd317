"""A SELECT on a standing cluster ends with the client that watches it, however that ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.api.client import TERMINAL, ClusterClient
from penstock.cli.embedded import EmbeddedCluster

pytestmark = pytest.mark.cluster

#: Against hanging only.
PATIENCE_S = 240
SELECT = """
CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '50');
SELECT n FROM numbers;
"""
LEASE = ("-D", "client.heartbeat.interval=100 ms", "-D", "client.heartbeat.timeout=4 s")


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError(f"still waiting for {what}")


def test_a_client_that_is_terminated_or_killed_leaves_no_select_behind() -> None:
    with EmbeddedCluster(taskmanagers=1, slots=2) as cluster, ClusterClient(cluster.rest_url) as client:
        penstock = str(Path(sys.executable).with_name("penstock"))
        command = [penstock, "sql", "--cluster", cluster.rest_url, *LEASE, "-e", SELECT]
        watching = [
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(2)
        ]
        try:

            def running() -> list[dict[str, Any]]:
                return [job for job in client.jobs() if job["state"] == "RUNNING"]

            # Longer than the lease: it is renewed.
            until(
                lambda: len(running()) == 2 and all(job["duration"] > 6_000 for job in running()),
                "two queries that have run for 6 s",
            )
            terminated, killed = watching
            terminated.send_signal(signal.SIGTERM)
            assert terminated.wait(PATIENCE_S) == 143
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
