"""Into Delta and Iceberg tables on a real cluster: processes are killed, and each row is there once."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from penstock.api.client import ClusterClient
from penstock.connectors.iceberg.catalog import load, open_catalog, table_name
from tests.e2e.support import slot_pid
from tests.servers.iceberg_rest_server import IcebergRestServer

pytestmark = pytest.mark.cluster

ROWS = 30_000

SQL = """
CREATE TABLE numbers (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '3000',
  'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '{last}');
CREATE TABLE lake (id BIGINT, part BIGINT, name STRING) PARTITIONED BY (part) WITH ({options});
INSERT INTO lake SELECT id, MOD(id, 3), 'name ' || CAST(id AS STRING) FROM numbers
"""


class Delta:
    """A Delta table in a folder."""

    def __init__(self, folder: Path, server: None) -> None:
        self.path = str(folder / "table")

    def options(self) -> dict[str, str]:
        return {"connector": "delta", "table-path": self.path}

    def rows(self) -> list[tuple[Any, ...]]:
        if not DeltaTable.is_deltatable(self.path):
            return []
        found = DeltaTable(self.path).to_pyarrow_table(columns=["id", "part", "name"])
        return sorted(tuple(row.values()) for row in found.to_pylist())

    def checkpoints(self) -> list[int]:
        return [
            int(c["penstock.checkpoint-id"])
            for c in DeltaTable(self.path).history()
            if "penstock.checkpoint-id" in c
        ]


class Iceberg:
    """An Iceberg table of a SQL catalog in a folder."""

    def __init__(self, folder: Path, server: None) -> None:
        self._folder = folder

    def options(self) -> dict[str, str]:
        return {
            "connector": "iceberg", "catalog-type": "sql", "uri": f"sqlite:///{self._folder}/catalog.db",
            "warehouse": f"file://{self._folder}", "catalog-database": "db", "catalog-table": "t",
        }  # fmt: skip

    def rows(self) -> list[tuple[Any, ...]]:
        if not open_catalog("default", self.options()).table_exists(table_name(self.options())):
            return []
        found = load(self.options()).scan(selected_fields=("id", "part", "name")).to_arrow()
        return sorted(tuple(row[k] for k in ("id", "part", "name")) for row in found.to_pylist())

    def checkpoints(self) -> list[int]:
        summaries = [s.summary.additional_properties for s in load(self.options()).snapshots() if s.summary]
        return [int(s["penstock.checkpoint-id"]) for s in summaries]


class Rest(Iceberg):
    """An Iceberg table of Iceberg's own REST catalog, which is killed and started again, too."""

    def __init__(self, folder: Path, server: IcebergRestServer) -> None:
        self.server = server

    def options(self) -> dict[str, str]:
        return {"connector": "iceberg", **self.server.options, "catalog-table": "lake"}


@pytest.fixture
def table(request: Any, tmp_path: Path) -> Any:
    kind = request.param
    return kind(tmp_path, request.getfixturevalue("iceberg_rest") if kind is Rest else None)


KEYED = """
CREATE TABLE numbers (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '3000',
  'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '{last}');
CREATE TABLE lake (id BIGINT, part BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ({options});
INSERT INTO lake SELECT MOD(id, 40), COUNT(*), 'sum ' || CAST(SUM(id) AS STRING) FROM numbers
  WHERE id < {last} - 10 OR id > {last} - 5 GROUP BY MOD(id, 40)
"""


def kept(rows: int) -> list[tuple[Any, ...]]:
    """What the table of ``KEYED`` holds in the end."""
    last, found = rows - 1, {}
    for id in range(rows):
        if id < last - 10 or id > last - 5:
            found.setdefault(id % 40, []).append(id)
    return [(key, len(ids), f"sum {sum(ids)}") for key, ids in sorted(found.items())]


def run(
    make_cluster: Any, until: Any, table: Any, *, seed: int, rows: int, faults: int, keyed: bool = False
) -> None:
    chance = random.Random(seed)
    cluster = make_cluster(taskmanagers=2, slots=1)
    written = ", ".join(f"'{k}' = '{v}'" for k, v in table.options().items())
    with ClusterClient(cluster.rest_url) as client:
        job_id = client.submit({
            "name": "lake", "sql": (KEYED if keyed else SQL).format(last=rows - 1, options=written), "parallelism": 2,
            "config": {
                "execution.checkpointing.interval": "300 ms", "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.attempts": "1000", "restart-strategy.fixed-delay.delay": "100 ms",
            },
        })  # fmt: skip
        for fault in range(faults):
            goal = client.checkpoints(job_id)["counts"]["completed"] + chance.randint(1, 3)
            until(lambda goal=goal: client.checkpoints(job_id)["counts"]["completed"] >= goal
                  or client.job(job_id)["state"] == "FINISHED", "checkpoints", lambda: client.exceptions(job_id))  # fmt: skip
            if client.job(job_id)["state"] == "FINISHED":
                break
            os.kill(slot_pid(client), signal.SIGKILL)
            if isinstance(table, Rest) and fault % 2:
                table.server.kill()
                table.server.start()
        until(lambda: client.job(job_id)["state"] == "FINISHED", "the end", lambda: client.exceptions(job_id))
        assert client.job(job_id)["attempt"] >= 2
    assert table.rows() == (kept(rows) if keyed else [(i, i % 3, f"name {i}") for i in range(rows)])
    committed = table.checkpoints()
    assert len(set(committed)) == len(committed)


@pytest.mark.parametrize("table", [Delta, Iceberg, Rest], indirect=True)
def test_killed_slots_lose_and_double_nothing(make_cluster: Any, until: Any, table: Any) -> None:
    run(make_cluster, until, table, seed=1, rows=ROWS, faults=3)


@pytest.mark.parametrize("table", [Delta, Iceberg], indirect=True)
def test_killed_slots_leave_the_last_row_of_each_key(make_cluster: Any, until: Any, table: Any) -> None:
    run(make_cluster, until, table, seed=2, rows=ROWS, faults=2, keyed=True)


@pytest.mark.soak
@pytest.mark.parametrize("table", [Delta, Iceberg], indirect=True)
def test_thirty_killed_slots_lose_and_double_nothing(make_cluster: Any, until: Any, table: Any) -> None:
    run(make_cluster, until, table, seed=7, rows=600_000, faults=30)


@pytest.mark.soak
@pytest.mark.parametrize("table", [Delta, Iceberg], indirect=True)
def test_thirty_killed_slots_leave_the_last_row_of_each_key(
    make_cluster: Any, until: Any, table: Any
) -> None:
    run(make_cluster, until, table, seed=9, rows=600_000, faults=30, keyed=True)
