"""Reading topics: where it starts and ends, keys and metadata, transactions, lost positions."""

import asyncio
import json

import pytest

from penstock.errors import ConnectorError
from penstock.types import Schema
from penstock.types import logical as t

pytestmark = pytest.mark.cluster

SCHEMA = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()))


def lines(first, last):
    return [json.dumps({"id": i, "name": f"n{i}"}).encode() for i in range(first, last)]


def table(server, topic, **more):
    return {
        "connector": "kafka", "topic": topic, "properties.bootstrap.servers": server.bootstrap,
        "format": "json", "scan.startup.mode": "earliest-offset", "scan.bounded.mode": "latest-offset", **more,
    }  # fmt: skip


async def ids(harness, options):
    return sorted(row[0] for row in await harness.read_all(SCHEMA, options))


async def test_keys_values_and_metadata(harness, shared_kafka):
    topic = shared_kafka.topic()
    shared_kafka.produce(
        topic,
        [
            {"key": b'{"id": 7}', "value": b'{"name": "a"}', "timestamp": 1_700_000_000_123, "headers": {"h": b"1"}},
            {"key": b'{"id": 8}', "value": None, "timestamp": 1_700_000_000_124},  # no row of this table
            {"key": b'{"id": 9}', "value": b'{"name": null}', "timestamp": 1_700_000_000_125},
        ],
    )  # fmt: skip
    options = table(
        shared_kafka,
        topic,
        **{"key.format": "json", "key.fields": "id", "value.fields-include": "EXCEPT_KEY"},
    )
    metadata = ("topic", "partition", "offset", "timestamp", "timestamp-type", "headers")
    rows = await harness.read_all(SCHEMA, options, metadata=metadata)
    assert [row[:5] for row in rows] == [(7, "a", topic, 0, 0), (9, None, topic, 0, 2)]
    assert [row[6] for row in rows] == ["CreateTime", "CreateTime"]
    assert [int(row[5].timestamp() * 1000) for row in rows] == [1_700_000_000_123, 1_700_000_000_125]
    assert [dict(row[7]) for row in rows] == [{"h": b"1"}, {}]
    # Only what is asked for is decoded, whichever side has it.
    assert await harness.read_all(SCHEMA, options, projection=(0,)) == [(7,), (9,)]


async def test_a_bad_key_rejects_its_row_alone(harness, shared_kafka):
    topic = shared_kafka.topic()
    shared_kafka.produce(
        topic, [{"key": k, "value": b'{"name": "x"}'} for k in (b'{"id": 1}', b"{", b'{"id": 3}')]
    )
    options = table(
        shared_kafka,
        topic,
        **{"key.format": "json", "key.fields": "id", "value.fields-include": "EXCEPT_KEY"},
    )
    harness.on_error = "skip"
    assert await ids(harness, options) == [1, 3]
    [(_, raw, where)] = harness.bad
    assert raw == b"{"
    assert where == f"topic '{topic}', partition 0, offset 1, key"


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ({"scan.startup.mode": "earliest-offset"}, range(10)),
        ({"scan.startup.mode": "latest-offset"}, range(0)),
        ({"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": "1004"}, range(4, 10)),
        ({"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": "9000"}, range(0)),
        (
            {
                "scan.startup.mode": "specific-offsets",
                "scan.startup.specific-offsets": "partition:0,offset:8",
            },
            range(8, 10),
        ),
        ({"scan.bounded.mode": "timestamp", "scan.bounded.timestamp-millis": "1004"}, range(4)),
        (
            {
                "scan.bounded.mode": "specific-offsets",
                "scan.bounded.specific-offsets": "partition:0,offset:3",
            },
            range(3),
        ),
    ],
)
async def test_starts_and_ends(harness, shared_kafka, start, expected):
    topic = shared_kafka.topic()
    shared_kafka.produce(topic, [{"value": v, "timestamp": 1000 + i} for i, v in enumerate(lines(0, 10))])
    assert await ids(harness, table(shared_kafka, topic, **start)) == list(expected)


async def test_the_group_says_where_to_start_and_is_told_where_it_got_to(harness, shared_kafka):
    topic = shared_kafka.topic(2)
    shared_kafka.produce(topic, [{"value": v, "partition": i % 2} for i, v in enumerate(lines(0, 10))])
    group = f"g-{topic}"
    options = table(
        shared_kafka, topic, **{"scan.startup.mode": "group-offsets", "properties.group.id": group}
    )
    with pytest.raises(ConnectorError, match=r"auto\.offset\.reset"):
        await harness.splits(SCHEMA, options)
    earliest = {**options, "properties.auto.offset.reset": "earliest"}
    reader = await harness.reader(SCHEMA, earliest)
    assert len(await harness.read(reader)) >= 2
    assert shared_kafka.committed(group, topic, 2) == [-1001, -1001]
    reader.on_checkpoint_complete(1, reader.snapshot())
    while shared_kafka.committed(group, topic, 2) != [5, 5]:
        reader.poll()
        await asyncio.sleep(0.01)
    await reader.close()
    shared_kafka.produce(topic, lines(10, 12))
    assert await ids(harness, options) == [10, 11]


async def test_rows_of_open_and_aborted_transactions_are_not_seen(harness, shared_kafka):
    from confluent_kafka import Producer

    topic = shared_kafka.topic()
    producer = Producer({"bootstrap.servers": shared_kafka.bootstrap, "transactional.id": f"x-{topic}"})
    producer.init_transactions(60)
    for first, end in (
        (0, producer.commit_transaction),
        (5, producer.abort_transaction),
        (10, producer.commit_transaction),
    ):
        producer.begin_transaction()
        for value in lines(first, first + 5):
            producer.produce(topic, value)
        producer.flush(60)
        end(60)
    # The end of the partition lies behind control records, which no reader sees.
    assert await ids(harness, table(shared_kafka, topic)) == [*range(5), *range(10, 15)]
    uncommitted = {"properties.isolation.level": "read_uncommitted"}
    assert await ids(harness, table(shared_kafka, topic, **uncommitted)) == list(range(15))


async def test_a_position_that_is_gone_is_an_error(harness, shared_kafka):
    from confluent_kafka import TopicPartition

    topic = shared_kafka.topic()
    shared_kafka.produce(topic, lines(0, 10))
    options = table(shared_kafka, topic)
    [split] = await harness.splits(SCHEMA, options)
    admin = shared_kafka.admin()
    [deleted] = admin.delete_records([TopicPartition(topic, 0, 6)]).values()
    deleted.result()
    reader = await harness.reader(SCHEMA, options, [split])
    with pytest.raises(ConnectorError, match="no longer has the offset"):
        await harness.read(reader)
    await reader.close()


async def test_a_topic_made_anew_is_not_read_on(harness, shared_kafka):
    """Its offsets begin at 0 again: a reader that went on at the old one would miss what lies before it."""
    topic = shared_kafka.topic()
    shared_kafka.produce(topic, lines(0, 5))
    options = table(shared_kafka, topic, **{"scan.bounded.mode": "unbounded"})
    reader = await harness.reader(SCHEMA, options)
    await harness.read(reader, rows=5)
    snapshot = reader.snapshot()
    await reader.close()
    reader = await harness.reader(SCHEMA, options, snapshot)
    shared_kafka.produce(topic, lines(5, 7))
    assert [r[0] for f in await harness.read(reader, rows=2) for r in f.batch.to_pylist()] == [5, 6]
    await reader.close()

    shared_kafka.make_anew(topic)
    shared_kafka.produce(topic, lines(0, 20))
    reader = await harness.reader(SCHEMA, options, snapshot)
    with pytest.raises(ConnectorError, match="is another one than was read before"):
        await harness.read(reader, rows=1)
    await reader.close()


async def test_new_partitions_and_topics_are_found_and_read_from_their_beginning(harness, shared_kafka):
    from confluent_kafka.admin import NewPartitions

    topic = shared_kafka.topic()
    options = table(
        shared_kafka, topic, **{"scan.startup.mode": "latest-offset", "scan.bounded.mode": "unbounded"}
    )
    assert [s.id for s in await harness.splits(SCHEMA, options)] == [f"{topic}-0"]
    admin = shared_kafka.admin()
    [made] = admin.create_partitions([NewPartitions(topic, 2)]).values()
    made.result()
    shared_kafka.produce(topic, [{"value": v, "partition": 1} for v in lines(0, 3)])
    found = []
    while not found:  # the broker tells of the new partition a moment later
        found = await harness.splits(SCHEMA, options, known={f"{topic}-0"})
    [split] = found
    assert (split.id, split.payload["start"]) == (f"{topic}-1", 0)
    by_pattern = {k: v for k, v in options.items() if k != "topic"} | {"topic-pattern": f"{topic[:-1]}."}
    assert {s.id for s in await harness.splits(SCHEMA, by_pattern)} == {f"{topic}-0", f"{topic}-1"}


async def test_a_quiet_partition_is_caught_up_only_when_the_broker_says_so(harness, shared_kafka):
    topic = shared_kafka.topic(2)
    shared_kafka.produce(topic, [{"value": v, "partition": 0} for v in lines(0, 5)])
    reader = await harness.reader(SCHEMA, table(shared_kafka, topic, **{"scan.bounded.mode": "unbounded"}))
    await harness.read(reader, rows=5)
    for split in (f"{topic}-0", f"{topic}-1"):
        while not reader.caught_up(split):
            assert reader.poll() is None
            await asyncio.sleep(0.01)
    assert reader.pending_records() == 0
    shared_kafka.produce(topic, [{"value": v, "partition": 1} for v in lines(5, 6)])
    [fetched] = await harness.read(reader, rows=1)
    assert fetched.split_id == f"{topic}-1"
    assert not reader.caught_up(f"{topic}-1")
    await reader.close()


async def test_a_topic_that_is_not_there_is_named(harness, shared_kafka):
    with pytest.raises(ConnectorError, match=r"(?s)topic 'no-such-topic'.*make the topic"):
        await harness.splits(SCHEMA, table(shared_kafka, "no-such-topic"))


async def test_a_broker_that_is_killed_is_waited_for(harness, own_kafka):
    topic = own_kafka.topic()
    own_kafka.produce(topic, lines(0, 5))
    reader = await harness.reader(SCHEMA, table(own_kafka, topic, **{"scan.bounded.mode": "unbounded"}))
    await harness.read(reader, rows=5)
    own_kafka.kill()
    assert reader.poll() is None
    await asyncio.to_thread(own_kafka.start)
    own_kafka.produce(topic, lines(5, 9))
    rows = [row[0] for f in await harness.read(reader, rows=4) for row in f.batch.to_pylist()]
    assert rows == [5, 6, 7, 8]
    await reader.close()
