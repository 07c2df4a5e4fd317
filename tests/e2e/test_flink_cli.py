"""Flink's own command line client, and its reader of every answer, on a real cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from penstock.api.client import ClusterClient
from penstock.embedded import EmbeddedCluster
from penstock.processes import die_with_parent_after_exec
from penstock.reserving import port_of, reserve_port
from penstock_services.common.security.tokens import digest
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
TOKEN = "pst_flink_0123456789abcdefghij"
OPERATOR = Path(__file__).parent / "flink" / "OperatorCalls.java"
PROGRAM = f"""
from penstock.table import EnvironmentSettings, TableEnvironment
table_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
for statement in {ENDLESS.strip().rstrip(";").split(";")!r}:
    table_env.execute_sql(statement)
"""


@contextmanager
def guarded_dispatcher(cluster: EmbeddedCluster, folder: Path) -> Iterator[str]:
    """A dispatcher of the cluster that wants a token; gives its URL."""
    tokens = folder / "tokens.yaml"
    tokens.write_text(yaml.safe_dump([{"name": "flink", "role": "submit", "sha256": digest(TOKEN)}]))
    reserved = reserve_port()
    argv = [sys.executable, "-P", "-m", "penstock_services.dispatcher", "--config", str(cluster.config_file),
            f"-Drest.port={port_of(reserved)}", f"-Dsecurity.rest.tokens-file={tokens}"]  # fmt: skip
    with (folder / "guarded.log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, preexec_fn=die_with_parent_after_exec)
    try:
        yield f"http://127.0.0.1:{port_of(reserved)}"
    finally:
        process.terminate()
        process.wait()
        reserved.close()


def operator_calls(
    url: str, job_id: str, folder: Path, environment: dict[str, str], for_uploads: str
) -> list[tuple[str, str]]:
    """What the operator's requests are answered: (name, answer)."""
    package = folder / "counts.zip"
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("__main__.py", textwrap.dedent(PROGRAM))
    given = [url, job_id, str(folder / "sp"), str(package), for_uploads]
    line = ["java", "-cp", flink_clients.CLASSPATH, str(OPERATOR), *given]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-6_000:]
    return [(name, said) for name, _, said in (text.partition("\t") for text in done.stdout.splitlines())]


def test_flinks_command_line_works_on_a_cluster(
    make_cluster: Callable[..., EmbeddedCluster], until: Callable[..., object], tmp_path: Path
) -> None:
    cluster = make_cluster(slots=1)
    url = cluster.rest_url
    (tmp_path / "config.yaml").write_text("")
    environment = {**os.environ, "FLINK_CONF_DIR": str(tmp_path)}

    def flink(
        command: str, *arguments: str, url: str = url, environment: dict[str, str] = environment
    ) -> tuple[int, str]:
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

        third = client.submit(spec)
        until(lambda: client.checkpoints(third)["counts"]["completed"] >= 1, "a checkpoint")
        with guarded_dispatcher(cluster, tmp_path) as guarded:
            until(lambda: "service_ready" in (tmp_path / "guarded.log").read_text(), "the dispatcher")
            status, said = flink("list", url=guarded)
            assert (status, "PS-UNAUTHORIZED" in said) == (1, True), said
            known = {**environment, "FLINK_REST_CLIENT_HEADERS": f"Authorization:Bearer {TOKEN}"}
            status, said = flink("list", url=guarded, environment=known)
            assert (status, f"{third} : counts (RUNNING)" in said) == (0, True), said
            status, said = flink(
                "savepoint", third, str(tmp_path / "of-third"), url=guarded, environment=known
            )
            assert (status, "Savepoint completed. Path: file:" in said) == (0, True), said

            told = operator_calls(guarded, third, tmp_path, known, for_uploads=url)
        assert [pair for pair in told if pair[0] not in ("config", "savepoint", "stopped")] == [
            ("overview", "Optional[RUNNING]"),
            ("taskmanagers", "1"),
            ("exceptions", "0"),
            ("metric", "numRestarts"),
            ("metric", "lastCheckpointFullSize"),
            ("checkpoint", "COMPLETED"),
            ("vertices", "3"),
            ("plan", "true"),
            *[("aggregated", "busyTimeMsPerSecond true"), ("aggregated", "numRecordsInPerSecond true")] * 3,
            ("requirements", "3"),
            ("disposed", "Acknowledge"),
            ("triggered", "true"),
            ("result", "FINISHED"),
            ("ran", "true"),
            ("result", "CANCELED"),
            ("application", "true"),
            ("result", "CANCELED"),
            ("deleted", "0"),
        ]
        of_a_path = dict(told)
        assert of_a_path["stopped"].startswith("file:")
        assert of_a_path["savepoint"].startswith("file:")
