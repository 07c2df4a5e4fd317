"""Flink's own command line client, and its reader of every answer, on a real cluster."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.api.client import ClusterClient
from penstock.embedded import EmbeddedCluster
from tests import flink_clients

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not flink_clients.HAVE_CLIENTS, reason="no jars of Flink, or no Java"),
]

ENDLESS = """
CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '50');
CREATE TABLE counts (k BIGINT, c BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO counts SELECT n % 3, COUNT(*) FROM numbers GROUP BY n % 3;
"""
CONFIG = {"execution.engine": "streaming", "execution.checkpointing.interval": "3 s"}
UNKNOWN = "0" * 32


def test_flinks_command_line_works_on_a_cluster(
    make_cluster: Callable[..., EmbeddedCluster], until: Callable[..., object], tmp_path: Path
) -> None:
    url = make_cluster(slots=1).rest_url
    (tmp_path / "config.yaml").write_text("")
    environment = {**os.environ, "FLINK_CONF_DIR": str(tmp_path)}

    def flink(command: str, *arguments: str) -> tuple[int, str]:
        line = flink_clients.command_line(url, command, *arguments)
        done = subprocess.run(
            line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        return done.returncode, done.stdout

    with ClusterClient(url) as client:
        spec = {"name": "counts", "sql": ENDLESS, "config": CONFIG}
        job_id = client.submit(spec)
        until(lambda: client.checkpoints(job_id)["counts"]["completed"] >= 1, "a checkpoint")

        status, said = flink("list")
        assert (status, f"{job_id} : counts (RUNNING)" in said) == (0, True), said
        status, said = flink("savepoint", job_id, str(tmp_path / "savepoints"))
        assert (status, "Savepoint completed. Path: file:" in said) == (0, True), said
        status, said = flink("savepoint", "-d", str(tmp_path / "absent"))
        assert (status, "the savepoint is not there" in said) == (1, True), said
        status, said = flink("cancel", UNKNOWN)
        assert (status, f"there is no job '{UNKNOWN}'" in said) == (1, True), said

        names = {
            "jobid": job_id,
            "applicationid": job_id,
            "vertexid": client.job(job_id)["vertices"][0]["id"],
            "taskmanagerid": client.taskmanagers()[0]["id"],
            "subtaskindex": "0",
            "attempt": "0",
            "checkpointid": str(client.checkpoints(job_id)["latest"]["completed"]["id"]),
            "filename": "taskmanager.log",
            "triggerid": "none",
        }
        read = subprocess.run(
            flink_clients.validation(url, **names), stdout=subprocess.PIPE, text=True, check=True
        )
        assert flink_clients.problems(read.stdout) == []

        status, said = flink("stop", "-p", str(tmp_path / "savepoints"), job_id)
        assert (status, "Savepoint completed. Path: file:" in said) == (0, True), said
        assert client.wait(job_id)["state"] == "FINISHED"
        second = client.submit(spec)
        until(lambda: client.job(second)["state"] == "RUNNING", "the job to run")
        status, said = flink("cancel", second)
        assert (status, f"Cancelled job {second}." in said) == (0, True), said
        until(lambda: client.job(second)["state"] == "CANCELED", "the end")
        _, said = flink("list", "-a")
        assert f"{job_id} : counts (FINISHED)" in said
