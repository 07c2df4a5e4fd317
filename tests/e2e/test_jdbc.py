"""A table of PostgreSQL read in parts, joined with another by look-ups, and written by key and appended, on a real cluster: slots,
task managers and the server are killed, and every row is right."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from penstock.api.client import ClusterClient
from penstock.embedded import EmbeddedCluster
from tests.e2e.faults import ALL, Faults
from tests.servers.postgres_server import PASSWORD, USER, PostgresServer

pytestmark = pytest.mark.cluster

PAGE = Path(__file__).parents[2] / "docs" / "connectors" / "jdbc.md"
TABLES = """
CREATE TABLE orders (id bigint PRIMARY KEY, customer int NOT NULL, cents bigint NOT NULL);
CREATE TABLE customers (id int PRIMARY KEY, country text NOT NULL);
CREATE TABLE sales (id bigint, country text, cents bigint);
CREATE TABLE spent (country text PRIMARY KEY, orders bigint, cents bigint);
INSERT INTO customers SELECT i, 'country ' || i % 7 FROM generate_series(0, 96) AS i;
"""
SALES = "SELECT o.id, c.country, o.cents FROM orders o JOIN customers c ON c.id = o.customer"


def sql(server: PostgresServer, database: str, rows: int) -> str:
    """The example of the page, with the server of the test, and with small batches so that it takes a while."""
    [text] = [
        block for block in re.findall(r"^```sql\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        if "scan.partition.column" in block
    ]  # fmt: skip
    shown = {
        "db.example:5432/shop": f"127.0.0.1:{server.port}/{database}", "'username' = 'penstock'": f"'username' = '{USER}'",
        "secret:shop-password": PASSWORD, "'1000000'": f"'{rows}'", "'scan.fetch-size' = '4096'": "'scan.fetch-size' = '20'",
        "'10000'": "'40'",
    }  # fmt: skip
    for old, new in shown.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


class Run:
    """One job over a database of its own, whose processes are killed until it has finished."""

    def __init__(
        self, cluster: EmbeddedCluster, until: Any, server: PostgresServer, seed: int, rows: int,
        kinds: tuple[str, ...],
    ) -> None:  # fmt: skip
        self.kinds = kinds
        self.cluster, self.until, self.server, self.rows = cluster, until, server, rows
        self.chance, self.database = random.Random(seed), server.database()
        server.execute(
            TABLES
            + f"INSERT INTO orders SELECT i, i * 7919 % 97, i % 1000 FROM generate_series(1, {rows}) AS i",
            database=self.database,
        )

    def killed(self, most: int) -> int:
        """Runs the job with up to ``most`` faults; gives how many there were. Every row is compared."""
        with ClusterClient(self.cluster.rest_url) as client:
            self.client = client
            self.job_id = client.submit({
                "name": "sales", "sql": sql(self.server, self.database, self.rows), "parallelism": 2,
                "config": {
                    "execution.runtime-mode": "STREAMING", "execution.checkpointing.interval": "200 ms",
                    "restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "1000",
                    "restart-strategy.fixed-delay.delay": "100 ms",
                },
            })  # fmt: skip
            struck = Faults(
                self.cluster,
                client,
                lambda: (self.server.kill(), self.server.start()),
                self.kinds,
                self.chance,
            )
            faults = 0
            while faults < most and self._reached(self._completed() + self.chance.randint(1, 2)):
                struck.strike()
                faults += 1
            self.until(self._over, "the end", lambda: client.exceptions(self.job_id))
            client.raise_if_failed(self.job_id, client.job(self.job_id))
        self._compare()
        return faults

    def _completed(self) -> int:
        return int(self.client.checkpoints(self.job_id)["counts"]["completed"])

    def _over(self) -> bool:
        return self.client.job(self.job_id)["state"] in ("FINISHED", "FAILED")

    def _reached(self, checkpoints: int) -> bool:
        """False: the job ended first."""
        self.until(lambda: self._completed() >= checkpoints or self._over(), "checkpoints",
                   lambda: self.client.exceptions(self.job_id))  # fmt: skip
        return not self._over()

    def _compare(self) -> None:
        ask = lambda statement: self.server.execute(statement, database=self.database)  # noqa: E731
        want = sorted(ask(SALES))
        assert len(want) == self.rows
        assert sorted(ask("SELECT id, country, cents FROM sales")) == want
        sums = f"SELECT country, COUNT(*), SUM(cents)::bigint FROM ({SALES}) AS s GROUP BY country"
        assert sorted(ask("SELECT country, orders, cents FROM spent")) == sorted(ask(sums))


def killed(
    cluster: EmbeddedCluster, until: Any, server: PostgresServer, *, seed: int, rows: int, faults: int,
    kinds: tuple[str, ...] = ("slot", "task manager", "server"),
) -> Run:  # fmt: skip
    """Jobs under ``faults`` SIGKILLs in all, each compared; gives the last. On a quick machine a job may end before its faults
    have come: the next has more rows."""
    run, done = None, 0
    while run is None or done < faults:
        run = Run(cluster, until, server, seed + done, rows, kinds)
        done, rows = done + run.killed(faults - done), rows * 2
    return run


def test_killed_processes_and_a_killed_server_leave_every_row_right(
    make_cluster: Any, until: Any, own_postgres: PostgresServer
) -> None:
    cluster = make_cluster(taskmanagers=2, slots=2)
    run = killed(cluster, until, own_postgres, seed=1, rows=8_000, faults=3)
    assert PASSWORD not in cluster.log_dir.joinpath("jobmanager-0.log").read_text()

    # The same tables by a catalog, in the same cluster.
    with ClusterClient(cluster.rest_url) as client:
        job_id = client.submit({"name": "all", "sql": f"""
            CREATE CATALOG shop WITH ('type' = 'jdbc', 'base-url' = 'jdbc:postgresql://127.0.0.1:{own_postgres.port}/',
              'default-database' = '{run.database}', 'username' = '{USER}', 'password' = '{PASSWORD}');
            USE CATALOG shop;
            INSERT INTO `public.spent` SELECT 'country ' || CAST(MAX(id) AS STRING), COUNT(*), SUM(cents) FROM orders
        """})  # fmt: skip
        client.raise_if_failed(job_id, client.wait(job_id))
    [found] = own_postgres.execute(
        f"SELECT orders, cents FROM spent WHERE country = 'country {run.rows}'", database=run.database
    )
    assert [found] == own_postgres.execute(
        "SELECT COUNT(*), SUM(cents)::bigint FROM orders", database=run.database
    )


@pytest.mark.soak
def test_thirty_faults(make_cluster: Any, until: Any, own_postgres: PostgresServer) -> None:
    cluster = make_cluster(taskmanagers=2, slots=2, jobmanagers=2)
    killed(cluster, until, own_postgres, seed=2, rows=40_000, faults=32, kinds=ALL)
