"""A job whose tables, checkpoints and savepoint lie in an object store: slots are killed, and MinIO too, which keeps its objects; each row
is there once."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.api.client import ClusterClient
from penstock.connectors.delta.table import open_delta
from penstock.connectors.filesystem.opening import open_files
from penstock.connectors.iceberg.catalog import load
from tests.e2e.support import slot_pid

pytestmark = pytest.mark.cluster

ROWS = 30_000
CONFIG = {
    "execution.checkpointing.interval": "500 ms", "execution.checkpointing.timeout": "600 s",
    "restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "100 ms",
}  # fmt: skip


def given(options: dict[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in options.items())


class Tables:
    """The tables that the job writes into. Iceberg's client wants its own options, and is tried with MinIO."""

    def __init__(self, store: Any, folder: Path) -> None:
        self.options = {f"fs.{key}": value for key, value in store.options.items()}
        self.delta = {"connector": "delta", "table-path": f"{store.url}/delta", **self.options}
        self.iceberg = {
            "connector": "iceberg", "catalog-type": "sql", "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"{store.url}/iceberg", "catalog-table": "t", **getattr(store, "iceberg_options", {}),
        }  # fmt: skip
        self.url = store.url
        self.lakes = hasattr(store, "iceberg_options")

    def sql(self) -> str:
        tables = f"""
          CREATE TABLE numbers (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000',
            'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '{ROWS - 1}');
          CREATE TABLE files (id BIGINT, part BIGINT) PARTITIONED BY (part) WITH ('connector' = 'filesystem',
            'path' = '{self.url}/table', 'format' = 'json', 'sink.rolling-policy.rollover-interval' = '2 s',
            'sink.partition-commit.policy.kind' = 'success-file', {given(self.options)});"""
        inserts = "INSERT INTO files SELECT id, MOD(id, 3) FROM numbers;"
        if self.lakes:
            tables += f"CREATE TABLE lake (id BIGINT) WITH ({given(self.delta)});"
            tables += f"CREATE TABLE berg (id BIGINT) WITH ({given(self.iceberg)});"
            inserts += "INSERT INTO lake SELECT id FROM numbers; INSERT INTO berg SELECT id FROM numbers;"
        return f"{tables} BEGIN STATEMENT SET; {inserts} END;"

    def compare(self) -> None:
        files, path = open_files(f"{self.url}/table", self.options)
        for part in range(3):
            assert files.exists(f"{path}/part={part}/_SUCCESS")
            found: Counter[bytes] = Counter()
            for info in files.list(f"{path}/part={part}"):
                found.update(files.open_input(info.path).read().splitlines())
            assert found == Counter(b'{"id":%d}' % i for i in range(part, ROWS, 3))
        if self.lakes:
            for stored in (open_delta(self.delta).to_pyarrow_table(), load(self.iceberg).scan().to_arrow()):
                assert sorted(stored.column("id").to_pylist()) == list(range(ROWS))


@pytest.mark.parametrize("kind", ["shared_azurite", "own_minio"])
def test_tables_and_checkpoints_in_a_store(
    request: Any, make_cluster: Any, until: Any, tmp_path: Path, kind: str
) -> None:
    store = request.getfixturevalue(kind)
    tables = Tables(store, tmp_path)
    settings = {f"storage.options.{key}": value for key, value in store.options.items()}
    cluster = make_cluster(
        taskmanagers=1, slots=1, config={**settings, "high-availability.storageDir": f"{store.url}/cluster"}
    )
    with ClusterClient(cluster.rest_url) as client:

        def submitted(config: dict[str, str]) -> str:
            return client.submit({"name": "store", "sql": tables.sql(), "parallelism": 1, "config": config})

        def reached(job_id: str, checkpoints: int) -> None:
            until(lambda: client.checkpoints(job_id)["counts"]["completed"] >= checkpoints
                  or client.job(job_id)["state"] == "FINISHED", "checkpoints", lambda: client.exceptions(job_id))  # fmt: skip
            assert client.job(job_id)["state"] == "RUNNING"

        def kill_slot(job_id: str) -> None:
            attempt = client.job(job_id)["attempt"]
            os.kill(slot_pid(client), signal.SIGKILL)
            until(
                lambda: client.job(job_id)["attempt"] > attempt,
                "the restart",
                lambda: client.exceptions(job_id),
            )
            reached(job_id, client.checkpoints(job_id)["counts"]["completed"] + 1)

        job_id = submitted(CONFIG)
        reached(job_id, 2)
        kill_slot(job_id)
        if kind == "own_minio":
            # The tables wait for it, or the job restarts, which needs its checkpoints there: it goes on by itself.
            store.kill()
            store.start()
            until(
                lambda: client.checkpoints(job_id)["counts"]["completed"] >= 4,
                "a checkpoint after the restart of the store",
                lambda: client.exceptions(job_id),
            )
        saved = client.location(job_id, client.stop(job_id, f"{store.url}/savepoints"), "savepoint")
        assert saved.startswith(store.url)
        until(
            lambda: client.job(job_id)["state"] == "FINISHED", "the stop", lambda: client.exceptions(job_id)
        )
        job_id = submitted({**CONFIG, "execution.state-recovery.path": saved})
        reached(job_id, 1)
        kill_slot(job_id)
        client.raise_if_failed(job_id, client.wait(job_id))
    tables.compare()
