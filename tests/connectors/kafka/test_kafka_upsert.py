"""Topics that are read by key: the newest row of each key, and tombstones that delete it. On a real broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock.sql.session import SqlSession
from penstock.store.memory import MemoryStore
from penstock.testing import JobHarness
from penstock.testing.harness import PATIENCE_S
from penstock.types import RowKind, Schema
from penstock.types import logical as t

pytestmark = pytest.mark.cluster

TABLE = """
CREATE TABLE people (id BIGINT, name STRING NOT NULL, n BIGINT {columns}, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'upsert-kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}',
  'key.format' = 'json', 'value.format' = 'json' {options});
"""
BOUNDED = ", 'scan.bounded.mode' = 'latest-offset'"
EXCEPT = ", 'value.fields-include' = 'EXCEPT_KEY'"


def message(key: int, row: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    value = None if row is None else json.dumps(row).encode()
    return {"key": json.dumps({"id": key}).encode(), "value": value, **more}


def row(key: int, n: int) -> dict[str, Any]:
    return {"id": key, "name": f"n{key}", "n": n}


def job(
    kafka: Any, topic: str, query: str, *, options: str = BOUNDED, columns: str = "", **config: str
) -> Any:
    session = SqlSession({"parallelism.default": "1", **config})
    script = TABLE.format(topic=topic, servers=kafka.bootstrap, options=options, columns=columns)
    for _ in session.run_script(script):
        pass
    return session.execute(query).job.job_graph


async def rows(graph: Any) -> list[tuple[Any, ...]]:
    async with JobHarness(graph) as harness:
        return sorted((await harness.wait()).rows)


async def test_messages_with_and_without_values(harness, shared_kafka):
    """The reader's own rows: −D has the key and the metadata, and NULL elsewhere."""
    topic = shared_kafka.topic()
    shared_kafka.produce(
        topic, [message(1, row(1, 10)), message(2, None), message(1, row(1, 11)), message(1, None)]
    )
    schema = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType(False)), ("n", t.BigIntType()))
    options = {
        "connector": "upsert-kafka", "topic": topic, "properties.bootstrap.servers": shared_kafka.bootstrap,
        "key.format": "json", "value.format": "json", "scan.bounded.mode": "latest-offset",
    }  # fmt: skip
    connector = harness.connector(schema, options, role="source")
    assert connector.source_mode(None) == "upsert"
    reader = await harness.reader(schema, options, pushed={"keys": [0]}, metadata=("offset",))
    fetched = await harness.read(reader)
    await reader.close()
    found = [item for one in fetched for item in one.batch.rows()]
    assert found == [
        (RowKind.INSERT, (1, "n1", 10, 0)),
        (RowKind.DELETE, (2, None, None, 1)),
        (RowKind.INSERT, (1, "n1", 11, 2)),
        (RowKind.DELETE, (1, None, None, 3)),
    ]


@pytest.mark.parametrize("without_key", [False, True])
async def test_the_newest_row_of_each_key_counts(shared_kafka, without_key):
    topic = shared_kafka.topic(2)
    values = [row(key, n) for n in range(3) for key in range(10)]
    if without_key:
        values = [{**value, "id": None} for value in values]
        for value in values:
            del value["id"]
    keys = [key for _ in range(3) for key in range(10)]
    shared_kafka.produce(topic, [message(k, v, partition=k % 2) for k, v in zip(keys, values, strict=True)])
    shared_kafka.produce(topic, [message(key, None, partition=key % 2) for key in (3, 4)])
    shared_kafka.produce(topic, [message(4, {"id": 4, "name": "back", "n": 7}, partition=0)])
    options = BOUNDED + (EXCEPT if without_key else "")
    graph = job(shared_kafka, topic, "SELECT * FROM people", options=options)
    want = sorted([(k, f"n{k}", 2) for k in range(10) if k not in (3, 4)] + [(4, "back", 7)])
    assert await rows(graph) == want
    counted = job(shared_kafka, topic, "SELECT COUNT(*), SUM(n) FROM people", options=options)
    assert await rows(counted) == [(9, 2 * 8 + 7)]


async def test_a_versioned_table_with_the_time_of_its_messages(shared_kafka):
    """The classic use: rates by key, joined as of an order's time; a tombstone ends a rate."""
    topic = shared_kafka.topic()
    base = 1_700_000_000_000
    changes = [(1, 10, 1), (2, 20, 2), (1, 11, 3), (1, None, 5), (2, 21, 6), (1, 12, 7)]
    shared_kafka.produce(
        topic,
        [message(k, None if n is None else row(k, n), timestamp=base + 1000 * s) for k, n, s in changes],
    )
    orders = [(1, 1, 2), (2, 1, 4), (3, 1, 6), (4, 1, 8), (5, 2, 1), (6, 2, 5), (7, 2, 9)]
    source = shared_kafka.topic()
    shared_kafka.produce(
        source,
        [
            {"value": json.dumps({"o": o, "who": who}).encode(), "timestamp": base + 1000 * s}
            for o, who, s in orders
        ],
    )
    session = SqlSession({"parallelism.default": "2"})
    at = ", at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL, WATERMARK FOR at AS at"
    script = (
        TABLE.format(topic=topic, servers=shared_kafka.bootstrap, options=BOUNDED, columns=at)
        + f"""
    CREATE TABLE orders (o INT, who BIGINT, ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL, WATERMARK FOR ts AS ts)
    WITH ('connector' = 'kafka', 'topic' = '{source}', 'properties.bootstrap.servers' = '{shared_kafka.bootstrap}',
      'format' = 'json', 'scan.startup.mode' = 'earliest-offset' {BOUNDED});"""
    )
    for _ in session.run_script(script):
        pass
    graph = session.execute(
        "SELECT o, p.n FROM orders LEFT JOIN people FOR SYSTEM_TIME AS OF orders.ts AS p ON who = p.id"
    ).job.job_graph
    assert await rows(graph) == [(1, 10), (2, 11), (3, None), (4, 12), (5, None), (6, 20), (7, 21)]


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_killed_job_keeps_exact_rows(shared_kafka, seed):
    """Changes come before and after a checkpoint; the job dies between, and goes on with other subtasks."""
    topic = shared_kafka.topic(3)
    state: dict[int, int] = {}

    def produce(first: int, last: int) -> None:
        out = []
        for step in range(first, last):
            key = step * 7919 * seed % 41
            gone = step % 6 == 5
            out.append(message(key, None if gone else row(key, step), partition=key % 3))
            if gone:
                state.pop(key, None)
            else:
                state[key] = step
        shared_kafka.produce(topic, out)

    query = "SELECT COUNT(*), SUM(n), MIN(n) FROM people"
    produce(0, 700)
    store = MemoryStore()
    graph = job(shared_kafka, topic, query, options="", **{"parallelism.default": "2"})
    async with JobHarness(graph, store=store) as harness:
        await _until(harness, lambda rows: bool(rows) and rows[0][0] > 5)
        checkpoint = await harness.checkpoint()
        produce(700, 1_200)
        await _until(harness, lambda rows: rows[0][2] > 700)
    produce(1_200, 2_000)
    again = job(shared_kafka, topic, query, options="", **{"parallelism.default": "3"})
    async with JobHarness(again, store=store, restore=checkpoint) as harness:
        want = [(len(state), sum(state.values()), min(state.values()))]
        await _until(harness, lambda rows: rows == want)
        await harness.stop(drain=True)
        assert (await harness.result()).rows == want


async def _until(harness: JobHarness, good: Callable[[list[tuple[Any, ...]]], bool]) -> None:
    """Waits for the job's result. The limit is against hanging alone."""
    async with asyncio.timeout(PATIENCE_S):
        while not good((await harness.result()).rows):
            await harness.until(lambda: True)
            await asyncio.sleep(0.02)
