"""Topics of database changes: rows with kinds, keys and metadata beside them, and sinks. On a real broker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.connectors.registry import validate_table
from penstock.errors import ConnectorError
from penstock.sql.session import SqlSession
from penstock.testing import JobHarness
from penstock.types import RowKind, Schema
from penstock.types import logical as t

pytestmark = pytest.mark.cluster

SCHEMA = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()), ("n", t.BigIntType()))
INSERT, BEFORE, AFTER, DELETE = RowKind


def change(op: str, before: Any, after: Any, **more: Any) -> bytes:
    source = {"db": "shop", "table": "people", "ts_ms": 1_700_000_000_000}
    return json.dumps(
        {"before": before, "after": after, "op": op, "source": source, "ts_ms": 1_700_000_000_500, **more}
    ).encode()


def row(key: int, n: int) -> dict[str, Any]:
    return {"id": key, "name": f"n{key}", "n": n}


def options(kafka: Any, topic: str, **more: str) -> dict[str, str]:
    return {
        "connector": "kafka", "topic": topic, "properties.bootstrap.servers": kafka.bootstrap,
        "format": "debezium-json", "scan.startup.mode": "earliest-offset", "scan.bounded.mode": "latest-offset", **more,
    }  # fmt: skip


async def read(harness: Any, given: dict[str, str], schema: Schema = SCHEMA, **more: Any) -> list[Any]:
    reader = await harness.reader(schema, given, **more)
    fetched = await harness.read(reader)
    await reader.close()
    return [item for one in fetched for item in one.batch.rows()]


async def test_one_message_gives_both_rows_of_an_update_with_their_metadata(harness, shared_kafka):
    topic = shared_kafka.topic()
    values = [
        change("c", None, row(1, 10)),
        change("u", row(1, 10), row(1, 11)),
        None,
        b"{ no",
        change("d", row(1, 11), None),
    ]
    shared_kafka.produce(topic, [{"key": b'{"k": %d}' % i, "value": v} for i, v in enumerate(values)])
    schema = Schema.of(("k", t.IntType()), *((f.name, f.type) for f in SCHEMA.fields))
    given = options(
        shared_kafka, topic, **{"key.format": "json", "key.fields": "k", "value.fields-include": "EXCEPT_KEY"}
    )
    harness.on_error = "skip"
    metadata = ("offset", "value.source.table", "value.ingestion-timestamp", "topic")
    found = await read(harness, given, schema, metadata=metadata)
    assert [(kind, values[:6]) for kind, values in found] == [
        (INSERT, (0, 1, "n1", 10, 0, "people")),
        (BEFORE, (1, 1, "n1", 10, 1, "people")),
        (AFTER, (1, 1, "n1", 11, 1, "people")),
        (DELETE, (4, 1, "n1", 11, 4, "people")),
    ]
    assert {(values[6].timestamp(), values[7]) for _, values in found} == {(1_700_000_000.5, topic)}
    [(_, raw, where)] = harness.bad
    assert raw == b"{ no"
    assert where == f"topic '{topic}', partition 0, offset 3"


@pytest.mark.parametrize("name", ["debezium-json", "canal-json", "maxwell-json", "ogg-json"])
async def test_an_updating_query_is_written_and_read_again(shared_kafka, name):
    source, sink = shared_kafka.topic(2), shared_kafka.topic(2)
    records = [change("c", None, row(k, 1)) for k in range(20)]
    records += [change("u", row(k, 1), row(k, 5)) for k in range(0, 20, 2)]
    records += [change("d", row(k, 1), None) for k in range(1, 20, 4)]
    shared_kafka.produce(source, [{"value": v, "partition": json.loads(v)["op"] == "x"} for v in records])

    def table(topic: str, format: str, as_: str) -> str:
        # Changes of one row keep their order only in one partition: each subtask of the sink writes to its own.
        given = options(shared_kafka, topic, format=format, **{"sink.partitioner": "fixed"})
        words = ", ".join(f"'{k}' = '{v}'" for k, v in given.items())
        return f"CREATE TABLE {as_} (id BIGINT, name STRING, n BIGINT) WITH ({words});"

    script = table(source, "debezium-json", "people") + table(sink, name, "copies")
    config = {"parallelism.default": "2"}

    def job(query: str) -> Any:
        session = SqlSession(config)
        for _ in session.run_script(script):
            pass
        return session.execute(query).job.job_graph

    async with JobHarness(
        job("INSERT INTO copies SELECT n, MAX(name), COUNT(*) FROM people GROUP BY n")
    ) as harness:
        await harness.wait()
    standing: dict[tuple[Any, ...], int] = {}
    for message in shared_kafka.read(sink):
        record = json.loads(message.value())
        word = record.get("op") or record.get("op_type") or record["type"]
        added = word in ("c", "I", "insert", "INSERT")
        held = record.get("after" if added else "before") or record.get("data")
        held = held[0] if isinstance(held, list) else held
        values = tuple(held.values())
        standing[values] = standing.get(values, 0) + (1 if added else -1)
    want = {(1, "n7", 5), (5, "n8", 10)}
    assert {values[::2] for values, count in standing.items() if count} == {v[::2] for v in want}
    assert set(standing.values()) <= {0, 1}
    if name != "debezium-json":
        return
    async with JobHarness(job("SELECT id, n FROM copies")) as harness:
        assert sorted((await harness.wait()).rows) == [(1, 5), (5, 10)]


def test_a_schema_is_refused_for_a_sink(shared_kafka):
    given = options(shared_kafka, shared_kafka.topic(), **{"debezium-json.schema-include": "true"})
    validate_table(SCHEMA, given, role="source")
    del given["scan.startup.mode"], given["scan.bounded.mode"]
    with pytest.raises(ConnectorError, match="schema-include"):
        validate_table(SCHEMA, given, role="sink")
    given["value.format"] = given.pop("format")
    with pytest.raises(ConnectorError, match="schema-include"):
        validate_table(SCHEMA, given, role="sink")


def test_formats_of_changes_are_refused_for_keys_and_in_tables_by_key(shared_kafka):
    given = {k: v for k, v in options(shared_kafka, "t").items() if not k.startswith("scan.startup")}
    with pytest.raises(ConnectorError, match="format of changes in a table by key"):
        validate_table(
            SCHEMA,
            {**given, "connector": "upsert-kafka", "key.format": "json"},
            role="source",
            primary_key=("id",),
        )
    with pytest.raises(ConnectorError, match=r"'key\.format' = 'canal-json'"):
        validate_table(SCHEMA, {**given, "key.format": "canal-json", "key.fields": "id"}, role="source")
