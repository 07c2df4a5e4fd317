"""The Kafka connector through the public kits, on a real broker."""

from __future__ import annotations

import json
import uuid

import pytest

from penstock.connectors.registry import get_connector
from penstock.testing.conformance import BadTable, SinkConformance, SourceConformance
from penstock.types import Schema
from penstock.types import logical as t

pytestmark = pytest.mark.cluster

SCHEMA = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()))


def made(first, count):
    return [(i, f"name {i}") for i in range(first, first + count)]


def lines(rows):
    return [json.dumps({"id": i, "name": name}).encode() for i, name in rows]


def table(server, topic, **more):
    return {
        "connector": "kafka",
        "topic": topic,
        "properties.bootstrap.servers": server.bootstrap,
        "format": "json",
        **more,
    }


class _Kafka:
    @pytest.fixture(autouse=True)
    def _broker(self, shared_kafka):
        self.kafka = shared_kafka

    def connector(self):
        return get_connector("kafka")


BOUNDED = {"scan.startup.mode": "earliest-offset", "scan.bounded.mode": "latest-offset"}


class TestKafkaSource(_Kafka, SourceConformance):
    schema = SCHEMA

    def _topic(self, rows, extra=()):
        topic = self.kafka.topic(3)
        messages = [{"value": v, "partition": i % 3} for i, v in enumerate(lines(rows))]
        self.kafka.produce(topic, [*messages, *({"value": v, "partition": 1} for v in extra)])
        return topic

    def options(self):
        return table(self.kafka, self._topic(made(0, 24)), **BOUNDED)

    def expected(self):
        return made(0, 24)

    def bad(self):
        topic = self._topic(made(0, 6), extra=[b'{"id": 1, oh', b'{"id": "seven"}'])
        return BadTable(table(self.kafka, topic, **BOUNDED), made(0, 6), 2)

    def live_options(self):
        return table(self.kafka, self.kafka.topic(2), **{"scan.startup.mode": "earliest-offset"})

    async def publish(self, options, rows):
        self.kafka.produce(options["topic"], lines(rows))


class _Sink(_Kafka, SinkConformance):
    schema = SCHEMA
    more = {}

    def options(self):
        prefix = {"sink.transactional-id-prefix": uuid.uuid4().hex} if self.more else {}
        return table(self.kafka, self.kafka.topic(3), **self.more, **prefix)

    def epochs(self):
        return [made(n * 5, 5) for n in range(3)]

    async def visible(self, options):
        found = [json.loads(m.value()) for m in self.kafka.read(options["topic"])]
        return [(row["id"], row["name"]) for row in found]


class TestKafkaSinkAtLeastOnce(_Sink):
    pass


class TestKafkaSinkExactlyOnce(_Sink):
    more = {"sink.delivery-guarantee": "exactly-once"}
