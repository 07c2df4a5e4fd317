"""From topics of an MQTT broker to files, exactly once, and to other topics, at least once: slots are killed and the broker is
restarted."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.api.client import ClusterClient
from tests.e2e.faults import ALL, FEW, Faults, cluster_for
from tests.e2e.test_rabbitmq import shown
from tests.servers.mosquitto_server import MosquittoServer

pytestmark = pytest.mark.cluster

JOB = """
CREATE TABLE readings (id BIGINT, celsius INT, topic STRING METADATA VIRTUAL) WITH ('connector' = 'mqtt', 'url' = '{url}',
  'topic' = 'rooms/+/heat;cellar', 'use-correlation-data' = 'true', 'format' = 'json');
CREATE TABLE files (id BIGINT, celsius INT) WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'json');
CREATE TABLE copies (id BIGINT, celsius INT) WITH ('connector' = 'mqtt', 'url' = '{url}', 'topic' = 'copies/{{id}}',
  'retain' = 'true', 'format' = 'json');
EXECUTE STATEMENT SET BEGIN
INSERT INTO files SELECT id, celsius FROM readings;
INSERT INTO copies SELECT id, celsius FROM readings;
END
"""


class Sender:
    """Publishes readings; the broker has acknowledged them when ``send`` returns."""

    def __init__(self, server: MosquittoServer) -> None:
        self._server = server

    def _client(self) -> Any:
        import paho.mqtt.client as mqtt

        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
        client.connect("127.0.0.1", self._server.port)
        client.loop_start()
        return client

    def send(self, first: int, last: int) -> None:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        client = self._client()
        under_way = []
        for i in range(first, last):
            properties = Properties(PacketTypes.PUBLISH)
            properties.CorrelationData = f"reading-{i}".encode()
            topic = "cellar" if i % 3 == 0 else f"rooms/{i % 5}/heat"
            body = json.dumps({"id": i, "celsius": i % 100}).encode()
            under_way.append(client.publish(topic, body, qos=1, properties=properties))
        for one in under_way:
            one.wait_for_publish(60)
        self._end(client)

    def copies(self, count: int) -> set[tuple[int, int]]:
        """The newest ``count`` rows that the job wrote."""
        found: set[tuple[int, int]] = set()
        client = self._client()
        done = threading.Event()

        def came(_client: Any, _user: Any, message: Any) -> None:
            row = json.loads(message.payload)
            found.add((row["id"], row["celsius"]))
            if len(found) >= count:
                done.set()

        client.on_message = came
        client.subscribe("copies/+", qos=1)
        done.wait(120)
        self._end(client)
        return found

    def _end(self, client: Any) -> None:
        client.disconnect()
        client.loop_stop()
        client._reset_sockets()  # else they stay open until it is collected


def run(
    make_cluster: Any, until: Any, broker: MosquittoServer, folder: Path, seed: int, faults: int, rows: int,
    kinds: tuple[str, ...] = FEW,
) -> None:  # fmt: skip
    chance = random.Random(seed)
    folder.mkdir()
    sender = Sender(broker)
    cluster = cluster_for(make_cluster, kinds)
    with ClusterClient(cluster.rest_url) as client:
        job_id = client.submit({
            "name": "readings", "sql": JOB.format(url=broker.url, folder=folder), "parallelism": 2,
            "config": {
                "execution.checkpointing.interval": "300 ms",
                "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.attempts": "1000",
                "restart-strategy.fixed-delay.delay": "100 ms",
            },
        })  # fmt: skip

        def completed() -> int:
            return int(client.checkpoints(job_id)["counts"]["completed"])

        # A session begins with its first subscription: what was published before, nobody keeps.
        until(lambda: completed() >= 2, "checkpoints", lambda: client.exceptions(job_id))
        struck = Faults(cluster, client, lambda: (broker.stop_politely(), broker.start()), kinds, chance)
        for step in range(faults + 1):
            sender.send(step * rows, (step + 1) * rows)
            goal = completed() + chance.randint(0, 2)
            until(lambda goal=goal: completed() >= goal, "checkpoints", lambda: client.exceptions(job_id))
            if step == faults:
                break
            struck.strike()
        want = list(range((faults + 1) * rows))
        until(
            lambda: len(shown(folder)) >= len(want), "all rows",
            lambda: (Counter(want) - Counter(shown(folder)), client.exceptions(job_id)),
        )  # fmt: skip
        # Whatever came twice shows with the checkpoint behind the last row.
        goal = completed() + 2
        until(lambda: completed() >= goal, "two more checkpoints")
        client.cancel(job_id)
    assert shown(folder) == want
    assert sender.copies(len(want)) == {(i, i % 100) for i in want}


def test_killed_slots_and_a_restarted_broker_leave_each_message_once(
    make_cluster: Any, until: Any, own_mosquitto: MosquittoServer, tmp_path: Path
) -> None:
    run(make_cluster, until, own_mosquitto, tmp_path / "out", seed=1, faults=3, rows=400)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [2, 3])
def test_thirty_faults(
    make_cluster: Any, until: Any, own_mosquitto: MosquittoServer, tmp_path: Path, seed: int
) -> None:
    run(make_cluster, until, own_mosquitto, tmp_path / "out", seed, faults=32, rows=200, kinds=ALL)
