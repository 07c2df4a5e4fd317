"""Tables followed from MariaDB to Kafka on a real cluster: processes and servers are killed, and every change arrives once."""

from __future__ import annotations

import random
import re
import threading
from pathlib import Path
from typing import Any

import pymysql
import pytest

from penstock.api.client import ClusterClient
from tests.e2e.faults import ALL, FEW, Faults, cluster_for
from tests.e2e.test_postgres_cdc import replayed
from tests.servers.fixtures import own_mariadb, shared_kafka
from tests.servers.kafka_server import KafkaServer
from tests.servers.mariadb_server import PASSWORD, USER, MariaDbServer

__all__ = ["own_mariadb", "shared_kafka"]

pytestmark = pytest.mark.cluster

PAGE = Path(__file__).parents[2] / "docs" / "connectors" / "mysql-cdc.md"


def sql(**words: Any) -> str:
    """The example of the documentation, with the servers of the test."""
    [text] = re.findall(r"^```sql\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    shown = {
        "db.example": "127.0.0.1", "'3306'": f"'{words['port']}'", "'username' = 'penstock'": f"'username' = '{USER}'",
        "secret:shop-password": PASSWORD, "'shop'": f"'{words['database']}'",
        "order-changes": words["topic"], "kafka.example:9092": words["servers"],
    }  # fmt: skip
    for old, new in shown.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


class Shop:
    """A table of orders, and a thread that changes it until it is stopped."""

    def __init__(self, server: MariaDbServer, rows: int, seed: int) -> None:
        self.server, self.database, self.seed = server, server.database(), seed
        server.execute(
            "CREATE TABLE orders (id bigint PRIMARY KEY, customer int, cents decimal(12, 2))",
            database=self.database,
        )
        server.execute(
            f"INSERT INTO orders SELECT seq, seq % 97, seq * 0.25 FROM seq_1_to_{rows}",
            database=self.database,
        )
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._work, args=(rows,), daemon=True)
        self.thread.start()

    def _work(self, rows: int) -> None:
        chance, fresh = random.Random(self.seed), rows
        connection: Any = None
        while not self.stopped.wait(0.005):
            try:
                connection = connection or self.server.connect(self.database)
                with connection.cursor() as cursor:
                    cursor.execute("BEGIN")
                    for _ in range(chance.randint(1, 5)):
                        key, fresh = chance.randint(1, rows), fresh + 1
                        cursor.execute("UPDATE orders SET cents = cents + 1 WHERE id = %s", (key,))
                        cursor.execute("DELETE FROM orders WHERE id = %s", (key + 7,))
                        cursor.execute("INSERT INTO orders VALUES (%s, 1, 0.01)", (fresh,))
                    cursor.execute("COMMIT")
            except (pymysql.Error, OSError):
                connection, fresh = None, fresh + 10  # the server is killed and started again

    def stop(self) -> None:
        self.stopped.set()
        self.thread.join()

    def rows(self) -> dict[int, tuple[Any, ...]]:
        found = self.server.execute("SELECT id, customer, cents FROM orders", database=self.database)
        return {row[0]: (row[0], row[1], float(row[2])) for row in found}


def killed(
    make_cluster: Any, until: Any, server: MariaDbServer, kafka: KafkaServer, seed: int, faults: int,
    kinds: tuple[str, ...] = FEW,
) -> None:  # fmt: skip
    chance, topic = random.Random(seed), kafka.topic(1)
    shop = Shop(server, 20_000, seed)
    try:
        cluster = cluster_for(make_cluster, kinds)
        with ClusterClient(cluster.rest_url) as client:
            text = sql(port=server.port, database=shop.database, topic=topic, servers=kafka.bootstrap)
            job_id = client.submit({
                "name": "orders", "sql": text, "parallelism": 1, "config": {"execution.checkpointing.interval": "300 ms"},
            })  # fmt: skip
            struck = Faults(cluster, client, lambda: (server.kill(), server.start()), kinds, chance)
            for _ in range(faults):
                before = client.checkpoints(job_id)["counts"]["completed"]
                goal = before + chance.randint(1, 3)
                until(
                    lambda goal=goal: client.checkpoints(job_id)["counts"]["completed"] >= goal,
                    "checkpoints",
                    lambda: client.exceptions(job_id),
                )
                struck.strike()
            shop.stop()
            want = shop.rows()
            until(lambda: replayed(kafka, topic) == want, "all changes", lambda: client.exceptions(job_id))
            client.cancel(job_id)
            assert client.job(job_id)["attempt"] >= 2
    finally:
        shop.stop()


def test_killed_slots_and_a_killed_server_lose_and_double_no_change(
    make_cluster: Any, until: Any, own_mariadb: MariaDbServer, shared_kafka: KafkaServer
) -> None:
    killed(make_cluster, until, own_mariadb, shared_kafka, 1, 4)


@pytest.mark.soak
@pytest.mark.slow
def test_many_faults(
    make_cluster: Any, until: Any, own_mariadb: MariaDbServer, shared_kafka: KafkaServer
) -> None:
    killed(make_cluster, until, own_mariadb, shared_kafka, 2, 32, ALL)
