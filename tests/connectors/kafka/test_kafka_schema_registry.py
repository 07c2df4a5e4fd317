"""Avro behind a real schema registry, through a real broker."""

import asyncio
import datetime
import io
import json
from decimal import Decimal

import httpx
import pytest

from penstock.errors import ConnectorError
from penstock.types import Batch, Schema
from penstock.types import logical as t

pytestmark = pytest.mark.cluster

fastavro = pytest.importorskip("fastavro", reason="needs penstock[avro]")

SCHEMA = Schema.of(
    ("id", t.BigIntType(nullable=False)),
    ("name", t.VarCharType()),
    ("price", t.DecimalType(10, 2)),
    ("at", t.TimestampType(3)),
    ("seen", t.TimestampLtzType(6)),
    ("place", t.RowType((t.Field("city", t.VarCharType()), t.Field("zip", t.IntType())))),
    ("tags", t.ArrayType(t.VarCharType())),
)
ROWS = [
    (i, None if i % 7 == 0 else f"zoë {i}", Decimal(i) / 100, datetime.datetime(2026, 1, 1, 0, 0, i % 60, 125_000),
     datetime.datetime(2026, 1, 1, 0, 0, i % 60, 7, tzinfo=datetime.UTC),
     None if i % 5 == 0 else ("Ulm", i), ["a", None][: i % 3])
    for i in range(500)
]  # fmt: skip


def table(kafka, registry, topic, **more):
    return {
        "connector": "kafka", "topic": topic, "properties.bootstrap.servers": kafka.bootstrap,
        "key.format": "avro-confluent", "key.fields": "id", "key.avro-confluent.url": registry.url,
        "value.format": "avro-confluent", "value.avro-confluent.url": registry.url,
        "value.avro-confluent.timestamp_mapping.legacy": "false", "value.fields-include": "EXCEPT_KEY",
        "scan.startup.mode": "earliest-offset", "scan.bounded.mode": "latest-offset",
        **more,
    }  # fmt: skip


def latest_of(registry, subject):
    return httpx.get(f"{registry.url}/subjects/{subject}/versions/latest").json()


def forbid_changes(registry, subject):
    kind = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    sent = {"compatibility": "BACKWARD"}
    assert httpx.put(f"{registry.url}/config/{subject}", json=sent, headers=kind).status_code == 200


def register(registry, subject, schema):
    kind = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    sent = {"schema": json.dumps(schema)}
    return httpx.post(f"{registry.url}/subjects/{subject}/versions", json=sent, headers=kind).json()["id"]


async def write(harness, schema, options, rows):
    writer = await harness.writer(schema, options)
    try:
        writer.write(Batch.of(schema, rows))
        await writer.begin_checkpoint(1)
        await writer.commit(1)
    finally:
        await writer.close()


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
async def test_keys_and_values_come_back_and_their_schemas_are_in_the_registry(
    harness, shared_kafka, schema_registry, guarantee
):
    topic = shared_kafka.topic(2)
    options = table(shared_kafka, schema_registry, topic, **{"sink.delivery-guarantee": guarantee})
    await write(harness, SCHEMA, options, ROWS)
    read = await harness.read_all(SCHEMA, options)
    assert sorted(read, key=lambda row: row[0]) == Batch.of(SCHEMA, ROWS).to_pylist()
    # Any other client finds the schemas under Kafka's subjects, and reads the messages with them.
    for part, name in (("key", "id"), ("value", "name")):
        latest = latest_of(schema_registry, f"{topic}-{part}")
        schema = json.loads(latest["schema"])
        found = {}
        for message in shared_kafka.read(topic):
            data = message.key() if part == "key" else message.value()
            assert data[:5] == b"\0" + latest["id"].to_bytes(4, "big")
            key = int(fastavro.schemaless_reader(io.BytesIO(message.key()[5:]), KEY, None)["id"])
            found[key] = fastavro.schemaless_reader(io.BytesIO(data[5:]), schema, None)[name]
        assert found == {row[0]: row[SCHEMA.names.index(name)] for row in ROWS}


KEY = {"type": "record", "name": "record", "fields": [{"name": "id", "type": "long"}]}


async def test_a_topic_whose_schema_evolved_is_read_by_the_old_and_the_new_table(
    harness, shared_kafka, schema_registry
):
    topic = shared_kafka.topic(1)
    options = table(shared_kafka, schema_registry, topic)
    old = Schema.of(("id", t.BigIntType(nullable=False)), ("name", t.VarCharType()))
    new = Schema.of(
        ("id", t.BigIntType(nullable=False)), ("price", t.DoubleType()), ("name", t.VarCharType())
    )
    await write(harness, old, options, [(1, "a")])
    await write(harness, new, options, [(2, 0.5, "b")])
    await write(harness, old, options, [(3, None)])
    assert await harness.read_all(old, options) == [(1, "a"), (2, "b"), (3, None)]
    assert await harness.read_all(new, options) == [(1, None, "a"), (2, 0.5, "b"), (3, None, None)]


async def test_a_change_that_the_subject_forbids_is_refused(harness, shared_kafka, schema_registry):
    topic = shared_kafka.topic(1)
    options = table(shared_kafka, schema_registry, topic)
    forbid_changes(schema_registry, f"{topic}-value")
    await write(
        harness, Schema.of(("id", t.BigIntType(nullable=False)), ("v", t.IntType())), options, [(1, 2)]
    )
    changed = Schema.of(("id", t.BigIntType(nullable=False)), ("v", t.VarCharType()))
    with pytest.raises(ConnectorError, match="not compatible") as raised:
        await write(harness, changed, options, [(1, "x")])
    assert f"subject '{topic}-value'" in raised.value.where


async def test_an_id_that_the_registry_lacks_is_a_bad_record(harness, shared_kafka, schema_registry):
    topic = shared_kafka.topic(1)
    shared_kafka.produce(topic, [b"\0\x7f\xff\xff\xff1234"])
    options = table(shared_kafka, schema_registry, topic)
    schema = Schema.of(("id", t.BigIntType()), ("v", t.IntType()))
    harness.on_error = "skip"
    assert await harness.read_all(schema, options) == []
    ((error, _, where),) = [bad for bad in harness.bad if "key" not in bad[2]]
    assert "offset 0" in where
    assert f"schema id {0x7FFFFFFF}" in error.got
    assert "404" in error.got


async def test_a_source_waits_for_a_registry_that_does_not_answer(
    harness, shared_kafka, schema_registry, monkeypatch
):
    from penstock.formats.schema_registry import client

    topic = shared_kafka.topic(1)
    options = table(shared_kafka, schema_registry, topic)
    schema = Schema.of(("id", t.BigIntType(nullable=False)), ("v", t.IntType()))
    await write(harness, schema, options, [(1, 2)])
    client._REGISTRIES.clear()
    monkeypatch.setattr(client, "_ANSWER_S", 0.3)
    schema_registry.pause()
    try:
        reader = await harness.reader(schema, options)
        while reader._preparing is None:
            assert reader.poll() is None
            await asyncio.wait({asyncio.ensure_future(reader.wait())}, timeout=0.1)
        await asyncio.sleep(0.5)
        assert reader.poll() is None
        assert reader.snapshot()[0].position == {"offset": 0}
    finally:
        schema_registry.go_on()
    fetched = await harness.read(reader)
    await reader.close()
    assert [row for f in fetched for row in f.batch.to_pylist()] == [(1, 2)]


# -- changes of a database --------------------------------------------------------------------

PRODUCT = {"type": "record", "name": "Value", "fields": [
    {"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None},
    {"name": "made", "type": ["null", {"type": "long", "connect.name": "io.debezium.time.Timestamp"}], "default": None},
    {"name": "n", "type": "long"},
]}  # fmt: skip
CHANGE = {"type": "record", "name": "Envelope", "namespace": "shop.products", "fields": [
    {"name": "before", "type": ["null", PRODUCT], "default": None},
    {"name": "after", "type": ["null", "Value"], "default": None},
    {"name": "source", "type": {"type": "record", "name": "Source", "fields": [{"name": "table", "type": "string"}]}},
    {"name": "op", "type": "string"},
]}  # fmt: skip


def change(schema_id, op, before, after):
    out = io.BytesIO()
    record = {"before": before, "after": after, "source": {"table": "products"}, "op": op}
    fastavro.schemaless_writer(out, fastavro.parse_schema(CHANGE), record)
    return b"\0" + schema_id.to_bytes(4, "big") + out.getvalue()


async def test_debeziums_changes_go_through_a_query_into_a_topic_of_changes_and_back(
    shared_kafka, schema_registry
):
    from penstock.sql.session import SqlSession
    from penstock.testing import JobHarness

    source, sink = shared_kafka.topic(1), shared_kafka.topic(2)
    schema_id = register(schema_registry, f"{source}-value", CHANGE)

    def row(key, n):
        return {"id": key, "name": f"n{key}", "made": 1_700_000_000_000 + key, "n": n}

    values = [change(schema_id, "c", None, row(k, 1)) for k in range(20)]
    values += [change(schema_id, "u", row(k, 1), row(k, 5)) for k in range(0, 20, 2)]
    for k in range(1, 20, 4):  # Debezium writes a tombstone behind each deletion.
        values += [change(schema_id, "d", row(k, 1), None), None]
    shared_kafka.produce(source, [{"key": b"k", "value": value} for value in values])

    def create(name, topic, columns):
        given = {
            "connector": "kafka", "topic": topic, "properties.bootstrap.servers": shared_kafka.bootstrap,
            "format": "debezium-avro-confluent", "debezium-avro-confluent.url": schema_registry.url,
            "scan.startup.mode": "earliest-offset", "scan.bounded.mode": "latest-offset",
        }  # fmt: skip
        words = ", ".join(f"'{k}' = '{v}'" for k, v in given.items())
        return f"CREATE TABLE {name} ({columns}) WITH ({words});"

    def job(query):
        session = SqlSession({"parallelism.default": "2"})
        for _ in session.run_script(script):
            pass
        return session.execute(query).job.job_graph

    columns = "id BIGINT NOT NULL, name STRING, n BIGINT, made TIMESTAMP(3)"
    script = create("people", source, f"{columns}, origin STRING METADATA FROM 'value.source.table' VIRTUAL")
    script += create("copies", sink, "n BIGINT, newest TIMESTAMP(3), pieces BIGINT, origin STRING")
    query = "INSERT INTO copies SELECT n, MAX(made), COUNT(*), MAX(origin) FROM people GROUP BY n"
    async with JobHarness(job(query)) as harness:
        await harness.wait()
    latest = latest_of(schema_registry, f"{sink}-value")
    schema = json.loads(latest["schema"])
    assert schema[0] == "null"
    standing = {}
    for written in shared_kafka.read(sink):
        assert written.value()[:5] == b"\0" + latest["id"].to_bytes(4, "big")
        record = fastavro.schemaless_reader(io.BytesIO(written.value()[5:]), schema, None)
        added = record["op"] == "c"
        values = tuple((record["after"] if added else record["before"]).values())
        standing[values] = standing.get(values, 0) + (1 if added else -1)
    start = datetime.datetime(2023, 11, 14, 22, 13, 20)

    def plus(ms):
        return start + datetime.timedelta(milliseconds=ms)

    want = [(1, plus(19), 5, "products"), (5, plus(18), 10, "products")]
    assert (
        sorted(
            (n, at.replace(tzinfo=None), pieces, of)
            for (n, at, pieces, of), count in standing.items()
            if count
        )
        == want
    )
    assert set(standing.values()) <= {0, 1}
    async with JobHarness(job("SELECT n, newest, pieces, origin FROM copies")) as harness:
        assert sorted((await harness.wait()).rows) == want
