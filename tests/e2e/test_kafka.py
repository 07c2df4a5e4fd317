"""From Kafka to Kafka on a real cluster: processes and the broker are killed, and nothing is lost or doubled."""

from __future__ import annotations

import json
import os
import random
import signal
from typing import Any

import pytest

from penstock.api.client import ClusterClient
from penstock.cli import savepoint as command
from tests.e2e.support import slot_pid
from tests.servers.kafka_server import KafkaServer

pytestmark = pytest.mark.cluster

ROWS = 20_000

TABLES = """
CREATE TABLE orders (id BIGINT, customer INT, cents BIGINT) WITH ('connector' = 'kafka', 'topic' = '{source}',
  'properties.bootstrap.servers' = '{servers}', 'properties.group.id' = '{source}', 'format' = 'json',
  'scan.startup.mode' = 'earliest-offset');
CREATE TABLE big (id BIGINT, customer INT, cents BIGINT) WITH ('connector' = 'kafka', 'topic' = '{sink}',
  'properties.bootstrap.servers' = '{servers}', 'key.format' = 'json', 'key.fields' = 'customer', 'format' = 'json',
  'sink.delivery-guarantee' = 'exactly-once');
"""
QUERY = "INSERT INTO big SELECT id, customer, cents FROM orders WHERE cents >= 20"


def order(i: int) -> dict[str, int]:
    return {"id": i, "customer": i * 7919 % 97, "cents": i % 100}


def produce(kafka: KafkaServer, topic: str, first: int, last: int) -> None:
    kafka.produce(topic, [{"value": json.dumps(order(i)), "partition": i % 3} for i in range(first, last)])


def expected(last: int) -> list[dict[str, int]]:
    return [o for o in map(order, range(last)) if o["cents"] >= 20]


def written(kafka: KafkaServer, topic: str) -> list[dict[str, Any]]:
    return sorted((json.loads(m.value()) for m in kafka.read(topic)), key=lambda row: row["id"])


def submit(client: ClusterClient, kafka: KafkaServer, parallelism: int) -> tuple[str, str, str]:
    source, sink = kafka.topic(3), kafka.topic(2)
    words = {"source": source, "sink": sink, "servers": kafka.bootstrap}
    job_id = client.submit({
        "name": "orders", "sql": TABLES.format(**words) + QUERY, "parallelism": parallelism,
        "config": {"execution.checkpointing.interval": "500 ms"},
    })  # fmt: skip
    return job_id, source, sink


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_killed_slots_and_a_killed_broker_lose_and_double_nothing(
    make_cluster: Any, until: Any, own_kafka: KafkaServer, seed: int
) -> None:
    chance = random.Random(seed)
    cluster = make_cluster(taskmanagers=2, slots=1)
    with ClusterClient(cluster.rest_url) as client:
        job_id, source, sink = submit(client, own_kafka, 2)
        steps = 5
        for step in range(steps):
            produce(own_kafka, source, step * ROWS // steps, (step + 1) * ROWS // steps)
            before = client.checkpoints(job_id)["counts"]["completed"]
            goal = before + chance.randint(0, 2)
            until(lambda goal=goal: client.checkpoints(job_id)["counts"]["completed"] >= goal, "checkpoints")
            if step == 2:
                own_kafka.kill()
                own_kafka.start()
            elif step < steps - 1:
                os.kill(slot_pid(client), signal.SIGKILL)
        want = expected(ROWS)
        until(
            lambda: len(written(own_kafka, sink)) >= len(want), "all rows", lambda: client.exceptions(job_id)
        )
        client.cancel(job_id)
        assert client.job(job_id)["attempt"] >= 2
    assert written(own_kafka, sink) == want
    assert {m.key() for m in own_kafka.read(sink)} <= {b'{"customer":%d}' % n for n in range(97)}


def test_a_savepoint_goes_on_at_another_parallelism(
    make_cluster: Any, until: Any, shared_kafka: KafkaServer, capsys: Any
) -> None:
    cluster = make_cluster(taskmanagers=1, slots=4)
    with ClusterClient(cluster.rest_url) as client:
        job_id, source, sink = submit(client, shared_kafka, 1)
        produce(shared_kafka, source, 0, 3_000)
        until(lambda: len(written(shared_kafka, sink)) > 0, "the first rows")
        command.stop_job(cluster.rest_url, job_id, None, drain=False)
        path = capsys.readouterr().out.strip()
        produce(shared_kafka, source, 3_000, 6_000)
        words = {"source": source, "sink": sink, "servers": shared_kafka.bootstrap}
        again = client.submit({
            "name": "orders", "sql": TABLES.format(**words) + QUERY, "parallelism": 3,
            "config": {"execution.checkpointing.interval": "500 ms", "execution.state-recovery.path": path},
        })  # fmt: skip
        want = expected(6_000)
        until(
            lambda: len(written(shared_kafka, sink)) >= len(want),
            "all rows",
            lambda: client.exceptions(again),
        )
        until(lambda: sum(shared_kafka.committed(source, source, 3)) == 6_000, "offsets of the group")
        client.cancel(again)
    assert written(shared_kafka, sink) == want


SPENT = """
CREATE TABLE spent (customer INT, orders BIGINT, cents BIGINT, PRIMARY KEY (customer) NOT ENFORCED)
  WITH ('connector' = 'upsert-kafka', 'topic' = '{sink}', 'properties.bootstrap.servers' = '{servers}',
  'key.format' = 'json', 'value.format' = 'json', 'value.fields-include' = 'EXCEPT_KEY',
  'sink.delivery-guarantee' = 'exactly-once');
INSERT INTO spent SELECT customer, COUNT(*), SUM(cents) FROM orders GROUP BY customer;
INSERT INTO spent SELECT customer + 1000, COUNT(*), SUM(cents) FROM orders GROUP BY customer
"""


def test_sums_are_kept_by_key_by_two_statements_into_one_topic(
    make_cluster: Any, until: Any, shared_kafka: KafkaServer
) -> None:
    source, sink = shared_kafka.topic(3), shared_kafka.topic(2)
    words = {"source": source, "sink": sink, "servers": shared_kafka.bootstrap}
    [orders, _] = TABLES.split("CREATE TABLE big")
    cluster = make_cluster(taskmanagers=1, slots=4)
    want: dict[int, list[int]] = {}
    for o in map(order, range(4_000)):
        for customer in (o["customer"], o["customer"] + 1000):
            found = want.setdefault(customer, [0, 0])
            found[0] += 1
            found[1] += o["cents"]

    def table() -> dict[int, list[int]]:
        found = {}
        for message in shared_kafka.read(sink):
            row = json.loads(message.value())
            found[json.loads(message.key())["customer"]] = [row["orders"], row["cents"]]
        return found

    with ClusterClient(cluster.rest_url) as client:
        job_id = client.submit({
            "name": "spent", "sql": (orders + SPENT).format(**words), "parallelism": 2,
            "config": {"execution.checkpointing.interval": "500 ms"},
        })  # fmt: skip
        produce(shared_kafka, source, 0, 2_000)
        until(lambda: len(table()) == len(want), "the first sums", lambda: client.exceptions(job_id))
        os.kill(slot_pid(client), signal.SIGKILL)
        produce(shared_kafka, source, 2_000, 4_000)
        until(lambda: table() == want, "the last sums", lambda: client.exceptions(job_id))
        client.cancel(job_id)


def test_spark_reads_and_writes_bounded_topics(
    make_cluster: Any, until: Any, shared_kafka: KafkaServer
) -> None:
    pytest.importorskip("pyspark")
    source, sink = shared_kafka.topic(3), shared_kafka.topic(2)
    words = {"source": source, "sink": sink, "servers": shared_kafka.bootstrap}
    produce(shared_kafka, source, 0, ROWS)
    bounded = TABLES.format(**words).replace(
        "'earliest-offset'", "'earliest-offset', 'scan.bounded.mode' = 'latest-offset'"
    )
    with ClusterClient(make_cluster(taskmanagers=1, slots=4).rest_url) as client:
        job_id = client.submit(
            {
                "name": "orders",
                "sql": bounded + QUERY,
                "parallelism": 2,
                "config": {"execution.engine": "spark"},
            }
        )
        until(
            lambda: client.job(job_id)["state"] == "FINISHED",
            "the end of the job",
            lambda: client.exceptions(job_id),
        )
    assert written(shared_kafka, sink) == expected(ROWS)
