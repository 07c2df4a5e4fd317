"""A job whose table and whose checkpoints lie in a store of Azure's protocol (Azurite): slots are killed, each row is there once."""

from __future__ import annotations

import os
import signal
from collections import Counter
from typing import Any

import pytest

from penstock.api.client import ClusterClient
from penstock.connectors.filesystem.opening import open_files
from tests.e2e.support import slot_pid

pytestmark = pytest.mark.cluster

ROWS = 12_000


def test_a_table_and_checkpoints_in_azure(shared_azurite: Any, make_cluster: Any, until: Any) -> None:
    azurite = shared_azurite
    settings = {f"storage.options.{key}": value for key, value in azurite.options.items()}
    cluster = make_cluster(
        taskmanagers=1, slots=2, config={**settings, "high-availability.storageDir": f"{azurite.url}/cluster"}
    )
    given = ", ".join(f"'fs.{key}' = '{value}'" for key, value in azurite.options.items())
    sql = f"""
      CREATE TABLE numbers (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '2000',
        'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '{ROWS - 1}');
      CREATE TABLE out (id BIGINT) WITH ('connector' = 'filesystem', 'path' = '{azurite.url}/table', 'format' = 'json', {given});
      INSERT INTO out SELECT id FROM numbers"""
    with ClusterClient(cluster.rest_url) as client:
        job_id = client.submit({
            "name": "azure", "sql": sql, "parallelism": 1,
            "config": {
                "execution.checkpointing.interval": "500 ms", "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.attempts": "100", "restart-strategy.fixed-delay.delay": "100 ms",
            },
        })  # fmt: skip
        for goal in (2, 4):
            until(lambda goal=goal: client.checkpoints(job_id)["counts"]["completed"] >= goal
                  or client.job(job_id)["state"] == "FINISHED", "checkpoints", lambda: client.exceptions(job_id))  # fmt: skip
            if client.job(job_id)["state"] != "FINISHED":
                os.kill(slot_pid(client), signal.SIGKILL)
        until(lambda: client.job(job_id)["state"] == "FINISHED", "the end", lambda: client.exceptions(job_id))
        assert client.job(job_id)["attempt"] >= 2
    files, path = open_files(
        f"{azurite.url}/table", {f"fs.{key}": value for key, value in azurite.options.items()}
    )
    found: Counter[bytes] = Counter()
    for info in files.list(path):
        found.update(files.open_input(info.path).read().splitlines())
    assert found == Counter(b'{"id":%d}' % i for i in range(ROWS))
    stored, root = open_files(
        f"{azurite.url}/cluster", {f"fs.{key}": value for key, value in azurite.options.items()}
    )
    assert stored.list(root), "the cluster's objects are in the container"
