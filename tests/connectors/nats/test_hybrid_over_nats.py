"""A hybrid table whose live part is a stream: its position is fixed before history is read."""

import json
import time

import pytest

from penstock.errors import ConnectorError
from penstock.types import Schema
from penstock.types import logical as t

pytestmark = pytest.mark.cluster

SCHEMA = Schema.of(("n", t.BigIntType()))


@pytest.fixture
async def stream(shared_nats):
    client = await shared_nats.client()
    js = client.jetstream(timeout=60)
    name = f"H{time.time_ns()}"
    await js.add_stream(name=name, subjects=[name])
    for n in range(1, 6):
        await js.publish(name, json.dumps({"n": n}).encode())
    js.stream_name = name
    yield js
    await js.delete_stream(name)
    await client.close()


def options(server, js, tmp_path, **live):
    (tmp_path / "history.csv").write_text("0\n1\n2\n3\n")
    given = {
        "connector": "nats", "url": server.url, "stream": js.stream_name, "format": "json",
        "scan.bounded.mode": "marker", **live,
    }  # fmt: skip
    return {
        "connector": "hybrid", "history.connector": "filesystem", "history.path": str(tmp_path / "history.csv"),
        "history.format": "csv", "switch.column": "n", "switch.at": "3",
        **{f"live.{key}": value for key, value in given.items()},
    }  # fmt: skip


async def finish(js):
    await js.publish(js.stream_name, b"", headers={"Penstock-End-Of-Stream": "true"})


async def test_each_row_once_and_in_order(harness, shared_nats, stream, tmp_path):
    opts = options(shared_nats, stream, tmp_path)
    splits = await harness.splits(SCHEMA, opts)
    assert [s.id.partition(":")[0] for s in splits] == ["history", "live"]
    await finish(stream)
    reader = await harness.reader(SCHEMA, opts, splits)
    fetched = await harness.read(reader)
    assert [r[0] for f in fetched for r in f.batch.to_pylist()] == [0, 1, 2, 3, 4, 5]
    await reader.close()


async def test_what_expires_while_history_is_read_is_no_silent_gap(harness, shared_nats, stream, tmp_path):
    opts = options(shared_nats, stream, tmp_path)
    splits = await harness.splits(SCHEMA, opts)
    await stream.purge_stream(stream.stream_name, keep=1)
    await finish(stream)
    reader = await harness.reader(SCHEMA, opts, splits)
    with pytest.raises(ConnectorError, match="no longer has the position"):
        await harness.read(reader)
    await reader.close()


async def test_latest_is_what_was_last_when_the_job_began(harness, shared_nats, stream, tmp_path):
    """Rows that are published while history is read are live's."""
    opts = options(shared_nats, stream, tmp_path, **{"scan.startup.mode": "latest"})
    del opts["switch.column"], opts["switch.at"]
    splits = await harness.splits(SCHEMA, opts)
    await stream.publish(stream.stream_name, b'{"n": 6}')
    await finish(stream)
    reader = await harness.reader(SCHEMA, opts, splits)
    fetched = await harness.read(reader)
    assert [r[0] for f in fetched for r in f.batch.to_pylist()] == [0, 1, 2, 3, 6]
    await reader.close()
