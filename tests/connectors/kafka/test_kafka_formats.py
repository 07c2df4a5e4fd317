"""Keys and values in formats other than JSON, through a real broker."""

import datetime
import io
import json
from decimal import Decimal

import msgspec
import pytest

from penstock.jobgraph.specs import SourceSpec
from penstock.sql.session import SqlSession
from penstock.testing import JobHarness
from penstock.types import Batch, Schema
from penstock.types import logical as t

pytestmark = pytest.mark.cluster

fastavro = pytest.importorskip("fastavro", reason="needs penstock[avro]")

SCHEMA = Schema.of(
    ("id", t.BigIntType(nullable=False)),
    ("name", t.VarCharType()),
    ("price", t.DecimalType(10, 2)),
    ("at", t.TimestampType(3)),
    ("place", t.RowType((t.Field("city", t.VarCharType()), t.Field("zip", t.IntType())))),
    ("tags", t.ArrayType(t.VarCharType())),
)
ROWS = [
    (i, None if i % 7 == 0 else f"zoë {i}", Decimal(i) / 100, datetime.datetime(2026, 1, 1, 0, 0, i % 60, 125_000),
     None if i % 5 == 0 else ("Ulm", i), ["a", None][: i % 3])
    for i in range(1_000)
]  # fmt: skip


async def test_avro_values_with_json_keys_come_back_as_they_were(harness, shared_kafka):
    topic = shared_kafka.topic(2)
    options = {
        "connector": "kafka", "topic": topic, "properties.bootstrap.servers": shared_kafka.bootstrap,
        "key.format": "json", "key.fields": "id", "value.format": "avro", "value.fields-include": "EXCEPT_KEY",
        "scan.startup.mode": "earliest-offset", "scan.bounded.mode": "latest-offset",
        "sink.delivery-guarantee": "exactly-once",
    }  # fmt: skip
    rows = Batch.of(SCHEMA, ROWS)
    writer = await harness.writer(SCHEMA, options)
    writer.write(rows)
    await writer.begin_checkpoint(1)
    await writer.commit(1)
    await writer.close()
    # A transaction is committed before all partitions know of it, and a bounded source reads what is committed when it starts.
    assert len(shared_kafka.read(topic)) == len(ROWS)
    read = await harness.read_all(SCHEMA, options)
    assert sorted(read, key=lambda row: row[0]) == rows.to_pylist()
    # The bytes are those of any other Avro library: in the table's order, each nullable column a union with null first.
    schema = {
        "type": "record", "name": "record", "fields": [
            {"name": "name", "type": ["null", "string"]},
            {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}]},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "local-timestamp-millis"}]},
            {"name": "place", "type": ["null", {"type": "record", "name": "record_place", "fields": [
                {"name": "city", "type": ["null", "string"]}, {"name": "zip", "type": ["null", "int"]}]}]},
            {"name": "tags", "type": ["null", {"type": "array", "items": ["null", "string"]}]},
        ],
    }  # fmt: skip
    found = {
        json.loads(m.key())["id"]: fastavro.schemaless_reader(io.BytesIO(m.value()), schema, None)
        for m in shared_kafka.read(topic)
    }
    assert len(found) == len(ROWS)
    for i, name, price, at, place, tags in ROWS:
        city = None if place is None else {"city": place[0], "zip": place[1]}
        assert found[i] == {"name": name, "price": price, "at": at, "place": city, "tags": tags}


async def test_a_field_of_a_row_is_read_from_avro_messages_as_it_was_written(shared_kafka):
    """A record's fields are known by their order alone, so the decoder must not be told of fewer."""
    topic = shared_kafka.topic()
    session = SqlSession({"parallelism.default": "1"})
    session.execute(
        f"""CREATE TABLE places (id INT, place ROW<city STRING, a INT, b INT>) WITH ('connector' = 'kafka', 'topic' = '{topic}',
        'properties.bootstrap.servers' = '{shared_kafka.bootstrap}', 'format' = 'avro',
        'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset')"""
    )

    async def result(statement: str) -> list[tuple[object, ...]]:
        async with JobHarness(session.execute(statement).job.job_graph) as running:
            return (await running.wait()).rows

    # Enough rows for the compiled decoder, which is told what nobody reads.
    rows = [(i, None if i % 4 == 0 else (f"Ulm {i}", i + 1, i + 2)) for i in range(40)]
    written = [f"({i}, {'NULL' if p is None else 'ROW' + str(p)})" for i, p in rows]
    await result(f"INSERT INTO places VALUES {', '.join(written)}")
    select = "SELECT id, places.place.b, places.place.city FROM places"
    graph = session.execute(select).job.job_graph
    (unread,) = [
        o.spec.pushed["unread"] for v in graph.vertices for o in v.operators if isinstance(o.spec, SourceSpec)
    ]
    assert unread == {"place": ["a"]}
    found = sorted(await result(select), key=lambda row: row[0])
    assert found == [(i, None, None) if p is None else (i, p[2], p[0]) for i, p in rows]


async def test_messagepack_goes_through_a_query_and_its_bad_records_have_their_places(harness, shared_kafka):
    topic = shared_kafka.topic(1)
    options = {
        "connector": "kafka", "topic": topic, "properties.bootstrap.servers": shared_kafka.bootstrap,
        "key.format": "msgpack", "key.fields": "id", "value.format": "msgpack", "value.fields-include": "EXCEPT_KEY",
        "scan.startup.mode": "earliest-offset", "scan.bounded.mode": "latest-offset",
        "sink.delivery-guarantee": "exactly-once",
    }  # fmt: skip
    rows = Batch.of(SCHEMA, ROWS)
    writer = await harness.writer(SCHEMA, options)
    writer.write(rows)
    await writer.begin_checkpoint(1)
    await writer.commit(1)
    await writer.close()
    assert await harness.read_all(SCHEMA, options) == rows.to_pylist()
    # Any other library reads the bytes.
    for message, (i, name, price, at, place, tags) in zip(shared_kafka.read(topic), ROWS, strict=True):
        assert msgspec.msgpack.decode(message.key()) == {"id": i}
        assert msgspec.msgpack.decode(message.value()) == {
            "name": name, "price": str(price.quantize(Decimal("0.01"))), "at": at.isoformat(sep=" ", timespec="milliseconds"),
            "place": None if place is None else {"city": place[0], "zip": place[1]}, "tags": tags,
        }  # fmt: skip
    shared_kafka.produce(topic, [{"key": msgspec.msgpack.encode({"id": 1}), "value": b'{"name": "x"}'}])
    harness.on_error = "skip"
    assert await harness.read_all(SCHEMA, options) == rows.to_pylist()
    ((error, raw, where),) = harness.bad
    assert raw == b'{"name": "x"}'
    assert where.startswith(f"topic '{topic}', partition 0, offset ")
    assert "MessagePack" in str(error)
