"""Tables followed from PostgreSQL to Kafka on a real cluster: processes and servers are killed, and every change arrives once."""

from __future__ import annotations

import json
import random
import re
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock.api.client import ClusterClient
from penstock.cli import savepoint as command
from penstock.types.batch import RowKind
from tests.connectors.postgres.replayed import Replayed
from tests.e2e.faults import ALL, FEW, Faults, cluster_for
from tests.servers.kafka_server import KafkaServer
from tests.servers.postgres_server import PASSWORD, USER, PostgresServer

pytestmark = pytest.mark.cluster

PAGE = Path(__file__).parents[2] / "docs" / "connectors" / "postgres-cdc.md"


def sql(**words: Any) -> str:
    """The example of the documentation, with the servers of the test."""
    [text] = re.findall(r"^```sql\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    shown = {
        "db.example": "127.0.0.1", "'5432'": f"'{words['port']}'", "'username' = 'penstock'": f"'username' = '{USER}'",
        "secret:shop-password": PASSWORD, "'shop'": f"'{words['database']}'", "orders_to_kafka": f"{words['database']}_orders",
        "order-changes": words["topic"], "kafka.example:9092": words["servers"],
    }  # fmt: skip
    for old, new in shown.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


class Shop:
    """A table of orders, and a thread that changes it until it is stopped."""

    def __init__(self, server: PostgresServer, rows: int, seed: int) -> None:
        self.server, self.database, self.seed = server, server.database(), seed
        server.execute(
            "CREATE TABLE orders (id bigint PRIMARY KEY, customer int, cents numeric(12, 2)); "
            "ALTER TABLE orders REPLICA IDENTITY FULL; "
            f"INSERT INTO orders SELECT i, i %% 97, i * 0.25 FROM generate_series(1, {rows}) AS i".replace(
                "%%", "%"
            ),
            database=self.database,
        )
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._work, args=(rows,))
        self.thread.start()

    def _work(self, rows: int) -> None:
        chance, fresh = random.Random(self.seed), rows
        connection: Any = None
        while not self.stopped.wait(0.005):
            try:
                connection = connection or self.server.connect(self.database)
                with connection.transaction():
                    for _ in range(chance.randint(1, 5)):
                        key, fresh = chance.randint(1, rows), fresh + 1
                        connection.execute("UPDATE orders SET cents = cents + 1 WHERE id = %s", (key,))
                        connection.execute("DELETE FROM orders WHERE id = %s", (key + 7,))
                        connection.execute("INSERT INTO orders VALUES (%s, 1, 0.01)", (fresh,))
            except psycopg.Error:
                connection, fresh = None, fresh + 10  # the server is killed and started again

    def stop(self) -> None:
        self.stopped.set()
        self.thread.join()

    def rows(self) -> dict[int, tuple[Any, ...]]:
        found = self.server.execute("SELECT id, customer, cents FROM orders", database=self.database)
        return {row[0]: (row[0], row[1], float(row[2])) for row in found}


def replayed(kafka: KafkaServer, topic: str) -> dict[int, tuple[Any, ...]]:
    """The table that the messages say there is; AssertionError at a change that came twice, or did not come."""
    table = Replayed()
    for message in kafka.read(topic):
        change = json.loads(message.value())
        kind, row = (
            (RowKind.INSERT, change["after"]) if change["op"] == "c" else (RowKind.DELETE, change["before"])
        )
        table.apply(kind, (row["id"], row["customer"], float(row["cents"])))
    return table.rows


def submit(
    client: ClusterClient, shop: Shop, kafka: KafkaServer, topic: str, parallelism: int, **config: str
) -> str:
    text = sql(port=shop.server.port, database=shop.database, topic=topic, servers=kafka.bootstrap)
    return client.submit({
        "name": "orders", "sql": text, "parallelism": parallelism,
        "config": {"execution.checkpointing.interval": "300 ms", **config},
    })  # fmt: skip


def killed(
    make_cluster: Any, until: Any, postgres: PostgresServer, kafka: KafkaServer, seed: int, faults: int,
    kinds: tuple[str, ...] = FEW,
) -> None:  # fmt: skip
    chance, topic = random.Random(seed), kafka.topic(1)
    shop = Shop(postgres, 20_000, seed)
    try:
        cluster = cluster_for(make_cluster, kinds)
        with ClusterClient(cluster.rest_url) as client:
            job_id = submit(client, shop, kafka, topic, 1)
            struck = Faults(cluster, client, lambda: (postgres.kill(), postgres.start()), kinds, chance)
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


def test_killed_slots_and_a_killed_database_lose_and_double_no_change(
    make_cluster: Any, until: Any, own_postgres: PostgresServer, shared_kafka: KafkaServer
) -> None:
    killed(make_cluster, until, own_postgres, shared_kafka, 1, 4)


@pytest.mark.soak
@pytest.mark.slow
def test_many_faults(
    make_cluster: Any, until: Any, own_postgres: PostgresServer, shared_kafka: KafkaServer
) -> None:
    killed(make_cluster, until, own_postgres, shared_kafka, 2, 32, ALL)


def test_a_savepoint_goes_on_at_another_parallelism_and_shows_no_password(
    make_cluster: Any, until: Any, own_postgres: PostgresServer, shared_kafka: KafkaServer, capsys: Any
) -> None:
    topic, shop = shared_kafka.topic(1), Shop(own_postgres, 5_000, 3)
    try:
        cluster = make_cluster(taskmanagers=1, slots=4)
        with ClusterClient(cluster.rest_url) as client:
            job_id = submit(client, shop, shared_kafka, topic, 1)
            until(lambda: shared_kafka.read(topic), "the first rows", lambda: client.exceptions(job_id))
            assert PASSWORD not in json.dumps(client.job(job_id))
            command.stop_job(cluster.rest_url, job_id, None, drain=False)
            path = capsys.readouterr().out.strip()
            again = submit(client, shop, shared_kafka, topic, 3, **{"execution.state-recovery.path": path})
            shop.stop()
            want = shop.rows()
            until(
                lambda: replayed(shared_kafka, topic) == want, "all changes", lambda: client.exceptions(again)
            )
            client.cancel(again)
    finally:
        shop.stop()
