"""Partitions of compressed files on a real cluster: slots are killed, each row is there once, and a partition's success file comes
behind its rows."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.api.client import ClusterClient
from tests.e2e.support import slot_pid

pytestmark = pytest.mark.cluster

HOUR = 3_600

#: A row is a second of event time, so that a partition is an hour of rows.
SQL = """
CREATE TABLE numbers (id BIGINT, at AS TO_TIMESTAMP_LTZ(id, 0), WATERMARK FOR at AS at) WITH (
  'connector' = 'datagen', 'rows-per-second' = '3000', 'fields.id.kind' = 'sequence', 'fields.id.start' = '0',
  'fields.id.end' = '{last}');
CREATE TABLE hours (id BIGINT, dt STRING, hr BIGINT) PARTITIONED BY (dt, hr) WITH (
  'connector' = 'filesystem', 'path' = '{folder}', 'format' = 'json', 'sink.compression' = 'gzip',
  'sink.rolling-policy.rollover-interval' = '700 ms', 'sink.rolling-policy.check-interval' = '100 ms',
  'sink.partition-commit.trigger' = 'partition-time', 'sink.partition-commit.delay' = '1 h',
  'sink.partition-commit.policy.kind' = 'success-file', 'sink.parallelism' = '2',
  'partition.time-extractor.timestamp-pattern' = '$dt $hr:00:00');
INSERT INTO hours SELECT id, DATE_FORMAT(CAST(at AS TIMESTAMP(3)), 'yyyy-MM-dd'), MOD(id / 3600, 24) FROM numbers
"""


def ids(folder: Path) -> Counter[int]:
    """The visible rows of a folder."""
    return Counter(
        json.loads(line)["id"]
        for path in folder.rglob("part-*.json.gz")
        for line in gzip.decompress(path.read_bytes()).splitlines()
    )


def committed(folder: Path) -> set[Path]:
    return {path.parent for path in folder.rglob("_SUCCESS")}


def partition(folder: Path, number: int) -> Path:
    return folder / f"dt=1970-01-{1 + number // 24:02d}" / f"hr={number % 24}"


def run(make_cluster: Any, until: Any, folder: Path, *, seed: int, hours: int, faults: int) -> None:
    chance, rows, early = random.Random(seed), hours * HOUR, 0
    cluster = make_cluster(taskmanagers=2, slots=1)
    seen: set[Path] = set()
    with ClusterClient(cluster.rest_url) as client:
        job_id = client.submit({
            "name": "hours", "sql": SQL.format(last=rows - 1, folder=folder), "parallelism": 2,
            "config": {
                "execution.checkpointing.interval": "300 ms", "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.attempts": "1000", "restart-strategy.fixed-delay.delay": "100 ms",
                "table.local-time-zone": "UTC",
            },
        })  # fmt: skip

        def moved(goal: int) -> bool:
            nonlocal early
            done = client.job(job_id)["state"] == "FINISHED"
            for path in committed(folder) - seen:
                seen.add(path)
                early += not done
                number = next(n for n in range(hours) if partition(folder, n) == path)
                assert ids(path) == Counter(range(number * HOUR, (number + 1) * HOUR)), (
                    f"{path} is not complete"
                )
            return done or client.checkpoints(job_id)["counts"]["completed"] >= goal

        for _ in range(faults):
            goal = client.checkpoints(job_id)["counts"]["completed"] + chance.randint(2, 5)
            until(lambda goal=goal: moved(goal), "checkpoints", lambda: client.exceptions(job_id))
            if client.job(job_id)["state"] == "FINISHED":
                break
            os.kill(slot_pid(client), signal.SIGKILL)
        until(lambda: moved(1 << 60), "the end", lambda: client.exceptions(job_id))
        assert client.job(job_id)["attempt"] >= 2
    assert ids(folder) == Counter(range(rows))
    assert committed(folder) == {partition(folder, n) for n in range(hours)}
    assert early >= hours // 2, "partitions are committed while the job runs"
    assert [*(folder / "_growing").glob("*")] == [*(folder / "_pending").glob("*")] == []


def test_killed_slots_lose_no_row_and_commit_no_partition_too_early(
    make_cluster: Any, until: Any, tmp_path: Path
) -> None:
    run(make_cluster, until, tmp_path, seed=3, hours=10, faults=3)


@pytest.mark.soak
def test_thirty_killed_slots_lose_no_row_and_commit_no_partition_too_early(
    make_cluster: Any, until: Any, tmp_path: Path
) -> None:
    run(make_cluster, until, tmp_path, seed=8, hours=170, faults=30)
