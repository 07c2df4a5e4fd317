"""From Kafka to Kafka through random faults: every process and the broker are killed, the network is cut, and topics are
compared record by record."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.api.client import ClusterClient
from penstock.embedded import EmbeddedCluster
from tests.e2e.support import slot_pid
from tests.e2e.test_kafka import expected, order, produce, written
from tests.servers import cache
from tests.servers.cut_proxy import CutProxy
from tests.servers.kafka_server import KafkaServer

pytestmark = [pytest.mark.cluster, pytest.mark.soak]

FAULTS, ROWS = 36, 500

ORDERS = """
CREATE TABLE orders (id BIGINT, customer INT, cents BIGINT) WITH ('connector' = 'kafka', 'topic' = '{source}',
  'properties.bootstrap.servers' = '{servers}', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset');
"""
ONCE = """
CREATE TABLE big (id BIGINT, customer INT, cents BIGINT) WITH ('connector' = 'kafka', 'topic' = '{once}',
  'properties.bootstrap.servers' = '{servers}', 'format' = 'json', 'sink.delivery-guarantee' = 'exactly-once');
INSERT INTO big SELECT id, customer, cents FROM orders WHERE cents >= 20;
"""
LEAST = """
CREATE TABLE again (id BIGINT, customer INT, cents BIGINT) WITH ('connector' = 'kafka', 'topic' = '{least}',
  'properties.bootstrap.servers' = '{servers}', 'format' = 'json');
CREATE TABLE spent (customer INT, orders BIGINT, cents BIGINT, PRIMARY KEY (customer) NOT ENFORCED)
  WITH ('connector' = 'upsert-kafka', 'topic' = '{spent}', 'properties.bootstrap.servers' = '{servers}',
  'key.format' = 'json', 'value.format' = 'json');
INSERT INTO again SELECT id, customer, cents FROM orders WHERE cents >= 20;
INSERT INTO spent SELECT customer, COUNT(*), SUM(cents) FROM orders GROUP BY customer;
"""
CONFIG = {
    "execution.checkpointing.interval": "500 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "10000",
    "restart-strategy.fixed-delay.delay": "100 ms",
}


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[tuple[KafkaServer, CutProxy]]:
    """A broker, and a proxy by which its clients reach it and which a test may cut."""
    if why := cache.missing("kafka"):
        pytest.skip(why)
    from penstock.reserving import port_of, reserve_port

    with reserve_port() as reserved:
        behind = port_of(reserved)
        proxy = CutProxy(behind)
        server = KafkaServer(
            tmp_path / "kafka",
            listeners=f"PLAINTEXT://127.0.0.1:{{port}},CONTROLLER://127.0.0.1:{{controller}},PROXIED://127.0.0.1:{behind}",
            advertised_listeners=f"PLAINTEXT://127.0.0.1:{{port}},PROXIED://127.0.0.1:{proxy.port}",
            listener_security_protocol_map="CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT",
        )
        proxy.start()
        try:
            server.start()
            yield server, proxy
        finally:
            server.stop()
            proxy.stop()


class Faults:
    """Random faults, each of which is over when its method returns."""

    def __init__(
        self, cluster: EmbeddedCluster, client: ClusterClient, kafka: KafkaServer, proxy: CutProxy, seed: int
    ) -> None:
        self.cluster, self.client, self.kafka, self.proxy = cluster, client, kafka, proxy
        self.chance = random.Random(seed)
        self.done: Counter[str] = Counter()
        kinds = [self.slot, self.taskmanager, self.jobmanager, self.broker, self.reset, self.silence]
        self._order = [kinds[i % len(kinds)] for i in range(FAULTS)]
        self.chance.shuffle(self._order)

    def strike(self, number: int) -> None:
        fault = self._order[number]
        self.done[fault.__name__] += 1
        fault()

    def slot(self) -> None:
        os.kill(slot_pid(self.client), signal.SIGKILL)

    def taskmanager(self) -> None:
        self._kill(f"taskmanager-{self.chance.randint(0, 1)}")

    def jobmanager(self) -> None:
        self._kill(f"jobmanager-{self.chance.randint(0, 1)}")

    def _kill(self, name: str) -> None:
        pid = self.cluster.child(name).pid
        if pid is not None:  # between two starts there is none to kill
            os.kill(pid, signal.SIGKILL)

    def broker(self) -> None:
        self.kafka.kill()
        self.kafka.start()

    def reset(self) -> None:
        self._cut("reset")

    def silence(self) -> None:
        self._cut("silence")

    def _cut(self, how: Any) -> None:
        self.proxy.cut(how)
        time.sleep(self.chance.uniform(0.2, 3.0))  # how long the network is away
        self.proxy.mend()


def sums(last: int) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for o in map(order, range(last)):
        orders, cents = found.get(o["customer"], (0, 0))
        found[o["customer"]] = (orders + 1, cents + o["cents"])
    return found


def table(kafka: KafkaServer, topic: str) -> dict[int, tuple[int, int]]:
    found = {}
    for message in kafka.read(topic):
        row = json.loads(message.value())
        found[json.loads(message.key())["customer"]] = (row["orders"], row["cents"])
    return found


@pytest.mark.parametrize("seed", [1])
def test_random_faults_lose_and_double_nothing(
    make_cluster: Any, until: Any, proxied: tuple[KafkaServer, CutProxy], seed: int
) -> None:
    kafka, proxy = proxied
    cluster = make_cluster(taskmanagers=2, slots=2, jobmanagers=2)
    words = {
        "source": kafka.topic(3), "once": kafka.topic(2), "least": kafka.topic(2), "spent": kafka.topic(2),
        "servers": f"127.0.0.1:{proxy.port}",
    }  # fmt: skip
    with ClusterClient(cluster.rest_url) as client:
        faults = Faults(cluster, client, kafka, proxy, seed)
        jobs = [
            client.submit(
                {"name": name, "sql": (ORDERS + sql).format(**words), "parallelism": 2, "config": CONFIG}
            )
            for name, sql in (("once", ONCE), ("least", LEAST))
        ]

        def completed() -> int:
            return min(int(client.checkpoints(job)["counts"].get("completed", 0)) for job in jobs)

        def story() -> Any:
            return [(client.job(job)["state"], client.exceptions(job)) for job in jobs], faults.done

        for fault in range(FAULTS):
            produce(kafka, words["source"], fault * ROWS, (fault + 1) * ROWS)
            goal = completed() + faults.chance.randint(0, 2)
            until(lambda goal=goal: completed() >= goal, "checkpoints", story)
            faults.strike(fault)
            print(f"fault {fault}: {dict(faults.done)}", flush=True)
        last = FAULTS * ROWS
        want = expected(last)
        until(lambda: len(written(kafka, words["once"])) >= len(want), "all rows", story, every_s=1)
        until(lambda: table(kafka, words["spent"]) == sums(last), "all sums", story, every_s=1)
        until(
            lambda: {o["id"] for o in written(kafka, words["least"])} == {o["id"] for o in want},
            "rows",
            story,
            every_s=1,
        )
        for job in jobs:
            client.cancel(job)
            assert client.job(job)["attempt"] >= 2
    assert written(kafka, words["once"]) == want
    for row in written(kafka, words["least"]):
        assert row == order(row["id"])
    assert sum(faults.done.values()) == FAULTS
    assert len(faults.done) == 6
