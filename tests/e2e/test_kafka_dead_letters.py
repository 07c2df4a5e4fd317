"""Dead letters of a Kafka source on a real cluster: they are sent again with key, headers and offset, each once."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from penstock.api.client import ClusterClient
from penstock.cli.dead_letters import replay_dead_letters
from penstock.cli.savepoint import stop_job
from tests.e2e.support import slot_pid
from tests.servers.kafka_server import KafkaServer

pytestmark = pytest.mark.cluster

JOB = """
CREATE TABLE orders (k STRING, a INT, b STRING, at BIGINT METADATA FROM 'offset' VIRTUAL,
  part INT METADATA FROM 'partition' VIRTUAL, headers MAP<STRING, BYTES> METADATA VIRTUAL, c AS {cast}(b AS INT)) WITH (
  'connector' = 'kafka', 'topic' = '{orders}', 'properties.bootstrap.servers' = '{servers}',
  'scan.startup.mode' = 'earliest-offset', 'key.format' = 'raw', 'key.fields' = 'k', 'value.format' = 'json',
  'value.fields-include' = 'EXCEPT_KEY', 'on-error' = 'dead-letter', {more});
CREATE TABLE seen (k STRING, a INT, c INT, at BIGINT, part INT, h STRING) WITH (
  'connector' = 'kafka', 'topic' = '{seen}', 'properties.bootstrap.servers' = '{servers}', 'format' = 'json',
  'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{seen}-{name}');
CREATE TABLE letters (`position` STRING, reason STRING, `bytes` BYTES) WITH (
  'connector' = 'kafka', 'topic' = '{letters}', 'properties.bootstrap.servers' = '{servers}', 'format' = 'json',
  'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{letters}-{name}');
SET 'table.exec.dead-letter.table' = 'letters';
INSERT INTO seen SELECT k, a, c, at, part, CAST(headers['h'] AS STRING) FROM orders;
"""
#: Of these the second is no INT where one is declared, and the third has a computed column that fails.
ORDERS = ['{"a": 1, "b": "10"}', '{"a": "one", "b": "20"}', '{"a": 3, "b": "thirty"}', '{"a": 4, "b": "40"}']


def produce(kafka: KafkaServer, topic: str, first: int) -> None:
    """The orders in partition 1, one after another."""
    kafka.produce(topic, [
        {"value": text.encode(), "key": f"key {first + i}".encode(), "partition": 1, "headers": [("h", f"x{first + i}".encode())]}
        for i, text in enumerate(ORDERS)
    ])  # fmt: skip


def rows(kafka: KafkaServer, topic: str) -> list[dict[str, Any]]:
    return [json.loads(m.value()) for m in kafka.read(topic)]


def test_letters_are_sent_again_with_key_headers_and_offset_once(
    make_cluster: Any, until: Any, shared_kafka: KafkaServer, tmp_path: Path, capsys: Any
) -> None:
    kafka = shared_kafka
    topics = {"orders": kafka.topic(2), "seen": kafka.topic(1), "letters": kafka.topic(1)}
    cluster = make_cluster(taskmanagers=1, slots=2)
    with ClusterClient(cluster.rest_url) as client:

        def submit(name: str, cast: str, more: str, savepoint: str = "") -> str:
            return client.submit({
                "name": name, "parallelism": 2,
                "sql": JOB.format(name=name, cast=cast, more=more, servers=kafka.bootstrap, **topics),
                "config": {
                    "execution.checkpointing.interval": "300 ms",
                    "table.exec.dead-letter.replay-interval": "100 ms",
                    "restart-strategy.type": "fixed-delay",
                    "restart-strategy.fixed-delay.attempts": "1000",
                    "restart-strategy.fixed-delay.delay": "100 ms",
                    **({"execution.state-recovery.path": savepoint} if savepoint else {}),
                },
            })  # fmt: skip

        def states() -> list[str]:
            return sorted(x["state"] for x in client.dead_letters(first)["dead-letters"])

        def letters() -> list[str]:
            return sorted(x["position"] for x in rows(kafka, topics["letters"]))

        first = submit("first", "CAST", "'value.json.fail-on-missing-field' = 'true'")

        def story() -> Any:
            return client.exceptions(first), client.dead_letters(first), client.checkpoints(first)["counts"]

        produce(kafka, topics["orders"], 0)
        until(lambda: states() == ["kept"] * 2 and len(letters()) == 2, "two letters", story)
        os.kill(slot_pid(client), signal.SIGKILL)
        produce(kafka, topics["orders"], 4)
        until(lambda: states() == ["kept"] * 4 and len(letters()) == 4, "four letters", story)
        topic = topics["orders"]
        assert letters() == [
            *[f"split {topic}-1, computed columns"] * 2,
            *[f"topic '{topic}', partition 1, offset {n}" for n in (1, 5)],
        ]

        # The job still cannot read them: each is a letter again.
        replay_dead_letters(cluster.rest_url, first, None, "table")
        assert "4 dead letters are sent again" in capsys.readouterr().out
        until(lambda: states() == ["kept"] * 4 + ["replayed"] * 4, "letters again", story)

        # The corrected job goes on from a savepoint, and gets those that are kept.
        stop_job(cluster.rest_url, first, str(tmp_path), drain=False)
        savepoint = capsys.readouterr().out.strip()
        until(lambda: client.job(first)["state"] == "FINISHED", "the stop", story)
        second = submit("second", "TRY_CAST", "'value.json.ignore-parse-errors' = 'true'", savepoint)

        def told() -> Any:
            return client.exceptions(second), rows(kafka, topics["seen"])

        until(lambda: client.job(second)["state"] == "RUNNING", "the corrected job", told)
        replay_dead_letters(cluster.rest_url, first, second, "table")
        until(lambda: states() == ["replayed"] * 8, "all are sent", told)
        os.kill(slot_pid(client), signal.SIGKILL)
        produce(kafka, topics["orders"], 8)
        until(lambda: len(rows(kafka, topics["seen"])) >= 12, "all rows", told)
        assert client.dead_letters(second)["dead-letters"] == []
        stop_job(cluster.rest_url, second, str(tmp_path), drain=False)
    values = [(1, 10), (None, 20), (3, None), (4, 40)]
    found = [(x["at"], x["part"], x["k"], x["h"], x["a"], x["c"]) for x in rows(kafka, topics["seen"])]
    want = [(n, 1, f"key {n}", f"x{n}", *values[n % 4]) for n in range(12)]
    assert sorted(found, key=lambda x: x[0]) == want
