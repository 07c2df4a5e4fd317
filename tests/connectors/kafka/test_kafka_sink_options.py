"""What INSERT writes beside values: headers and timestamps, only the newest row of a key, at another parallelism."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from penstock.connectors.kafka.encoding import OutMessage, Pairs
from penstock.connectors.kafka.latest import LatestByKey
from penstock.connectors.kafka.producer import KafkaProducer
from penstock.errors import ConnectorError, SqlError, UnsupportedError
from penstock.sql.session import SqlSession
from penstock.testing import JobHarness
from penstock.types import Batch, Schema
from penstock.types import logical as t

NOTES = """
CREATE TABLE notes (at TIMESTAMP(3) METADATA FROM 'timestamp', text STRING, {more}
  headers MAP<STRING NOT NULL, BYTES> METADATA)
WITH ('connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}', 'format' = 'json',
  'sink.delivery-guarantee' = '{guarantee}' {options});
"""


def message(key: bytes, value: bytes | None) -> OutMessage:
    return key, value, -1, 0, None


def planned(script: str, query: str, **config: str) -> Any:
    session = SqlSession({"parallelism.default": "1", **config})
    for _ in session.run_script(script):
        pass
    return session.execute(query).job.job_graph


@pytest.mark.cluster
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
async def test_headers_and_timestamps_are_written(shared_kafka, guarantee):
    topic = shared_kafka.topic()
    script = NOTES.format(
        topic=topic, servers=shared_kafka.bootstrap, guarantee=guarantee, more="place BIGINT METADATA FROM 'offset' VIRTUAL,",
        options="",
    )  # fmt: skip
    values = """INSERT INTO notes SELECT at, text, MAP['n', CAST(text AS BYTES)] FROM (VALUES
      (TIMESTAMP '2026-01-02 03:04:05.678', 'a'), (CAST(NULL AS TIMESTAMP(3)), 'b')) AS v (at, text)"""
    async with JobHarness(planned(script, values, **{"table.local-time-zone": "UTC"})) as harness:
        await harness.wait()
    first, second = shared_kafka.read(topic)
    assert (json.loads(first.value()), first.headers()) == ({"text": "a"}, [("n", b"a")])
    assert first.timestamp() == (1, 1767323045678)
    assert (json.loads(second.value()), second.headers()) == ({"text": "b"}, [("n", b"b")])
    assert second.timestamp()[1] > 1767323045678  # NULL: the time of sending


@pytest.mark.cluster
async def test_metadata_without_a_value_is_not_written(shared_kafka):
    topic = shared_kafka.topic()
    script = NOTES.format(
        topic=topic, servers=shared_kafka.bootstrap, guarantee="at-least-once", more="", options=""
    )
    async with JobHarness(planned(script, "INSERT INTO notes (text) VALUES ('c')")) as harness:
        await harness.wait()
    [message] = shared_kafka.read(topic)
    assert (json.loads(message.value()), message.headers()) == ({"text": "c"}, None)


def test_other_metadata_is_refused():
    script = NOTES.format(
        topic="t", servers="localhost:9", guarantee="none", more="place BIGINT METADATA FROM 'offset',", options=""
    )  # fmt: skip
    with pytest.raises(SqlError, match=r"'place' cannot be written(.|\n)*headers, timestamp"):
        planned(script, "INSERT INTO notes SELECT * FROM notes")


def test_parallelism_of_source_and_sink():
    script = NOTES.format(
        topic="t", servers="localhost:9", guarantee="none", more="", options=", 'scan.parallelism' = '3', 'sink.parallelism' = '2'"
    )  # fmt: skip
    graph = planned(script, "INSERT INTO notes SELECT * FROM notes")
    assert sorted(v.parallelism for v in graph.vertices) == [1, 2, 3]
    changes = """CREATE TABLE changes (id INT, n BIGINT) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'debezium-json',
      'properties.bootstrap.servers' = 'localhost:9', 'sink.parallelism' = '2');"""
    with pytest.raises(UnsupportedError, match="PRIMARY KEY"):
        planned(
            changes,
            "INSERT INTO changes SELECT * FROM changes",
            **{"parallelism.default": "3"},
        )
    with pytest.raises(ConnectorError, match=r"1 or more"):
        planned(script.replace("'sink.parallelism' = '2'", "'sink.parallelism' = '0'"),
                "INSERT INTO notes SELECT * FROM notes")  # fmt: skip


async def test_the_newest_message_of_each_key_is_held_back_until_it_is_due():
    out: list[list[Any]] = []

    def emit(messages: list[OutMessage]) -> None:
        out.append([message[:2] for message in messages])

    buffer = LatestByKey(3, 3_600_000, emit)
    buffer.add([message(b"a", b"1"), message(b"b", b"1"), message(b"a", None)])
    assert out == []
    buffer.add([message(b"c", b"1"), message(b"c", b"2")])
    assert out == [[(b"a", None), (b"b", b"1"), (b"c", b"1")]]
    buffer.flush()
    assert out[1:] == [[(b"c", b"2")]]
    buffer.close()

    done = asyncio.Event()
    timed = LatestByKey(100, 1, lambda messages: done.set())
    timed.add([message(b"a", b"1")])
    await done.wait()
    timed.close()


@pytest.mark.cluster
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
async def test_upserts_are_reduced_before_they_are_written(harness, shared_kafka, guarantee):
    topic = shared_kafka.topic()
    schema = Schema.of(("id", t.BigIntType(nullable=False)), ("n", t.BigIntType()))
    options = {
        "connector": "upsert-kafka", "topic": topic, "properties.bootstrap.servers": shared_kafka.bootstrap,
        "key.format": "json", "value.format": "json", "sink.delivery-guarantee": guarantee,
        "sink.buffer-flush.max-rows": "1000", "sink.buffer-flush.interval": "1 h",
    }  # fmt: skip
    writer = await harness.writer(schema, options, pushed={"mode": "upsert", "keys": [0]})
    writer.write(Batch.of(schema, [(i % 3, i) for i in range(300)]))
    writer.write(Batch.of(schema, [(1, 1000)]))
    await writer.begin_checkpoint(1)
    await writer.commit(1)
    await writer.close()
    assert sorted(json.loads(m.value())["n"] for m in shared_kafka.read(topic)) == [297, 299, 1000]


@pytest.mark.cluster
@pytest.mark.parametrize("pairs", [True, False])
async def test_messages_that_the_client_had_no_room_for_follow_in_order(shared_kafka, pairs):
    topic, count = shared_kafka.topic(), 5_000
    properties = {"bootstrap.servers": shared_kafka.bootstrap, "queue.buffering.max.messages": "700"}
    producer = KafkaProducer(properties, topic, "test")
    try:
        for first in (0, count // 2):
            numbers = [b"%d" % i for i in range(first, first + count // 2)]
            keys = [None if i % 3 else number for i, number in enumerate(numbers)]
            producer.send(Pairs(keys, numbers) if pairs else list(zip(keys, numbers, strict=True)))
            assert producer.full
        await producer.flush()
    finally:
        await producer.close()
    found = shared_kafka.read(topic)
    assert [int(m.value()) for m in found] == list(range(count))
    assert [m.key() for m in found if m.key() is not None] == [m.value() for m in found][: count // 2 : 3] + [
        m.value() for m in found
    ][count // 2 :: 3]
