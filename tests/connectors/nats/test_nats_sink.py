import json
import time

import pytest

from penstock.errors import ConnectorError, RecordError
from penstock.types import Batch, Schema
from penstock.types import logical as t

pytestmark = pytest.mark.cluster

SCHEMA = Schema.of(("origin", t.VarCharType()), ("n", t.BigIntType()))


@pytest.fixture
async def names(shared_nats):
    """(a fresh stream name, a client); the stream is deleted afterwards if it was made."""
    client = await shared_nats.client()
    name = f"B{time.time_ns()}"
    yield name, client
    js = client.jetstream(timeout=60)
    if name in [s.config.name for s in await js.streams_info()]:
        await js.delete_stream(name)
    await client.close()


def options(server, name, **more):
    return {
        "connector": "nats", "url": server.url, "stream": name, "subject": name + ".{origin}", "format": "json",
        "stream.create": "true", **more,
    }  # fmt: skip


async def contents(client, name):
    """(subject, data) of every message, in order."""
    js = client.jetstream(timeout=60)
    info = await js.stream_info(name)
    out = []
    for seq in range(info.state.first_seq, info.state.last_seq + 1):
        message = await js.get_msg(name, seq)
        out.append((message.subject, message.data))
    return out


async def test_rows_are_stored_when_the_checkpoint_is_acknowledged(harness, shared_nats, names):
    name, client = names
    opts = options(shared_nats, name, **{"sink.max-in-flight": "7"})
    harness.connector(SCHEMA, opts, role="sink")
    writer = await harness.writer(SCHEMA, opts)
    rows = [("JFK" if i % 2 else "LGA", i) for i in range(200)]
    writer.write(Batch.of(SCHEMA, rows[:150]))
    cut = writer.begin_checkpoint(1)
    writer.write(Batch.of(SCHEMA, rows[150:]))
    assert await cut == []
    assert len(await contents(client, name)) >= 150
    await writer.finish()
    got = await contents(client, name)
    assert [(s, json.loads(d)["n"]) for s, d in got] == [(f"{name}.{o}", n) for o, n in rows]
    await writer.close()


async def test_batches_by_subject(harness, shared_nats, names):
    name, client = names
    opts = options(shared_nats, name, **{"message.batch": "true", "sink.batch-rows": "40"})
    writer = await harness.writer(SCHEMA, opts)
    writer.write(Batch.of(SCHEMA, [("JFK" if i % 2 else "LGA", i) for i in range(200)]))
    await writer.finish()
    got = await contents(client, name)
    assert [s.rsplit(".", 1)[1] for s, _ in got] == ["LGA"] * 3 + ["JFK"] * 3
    assert [json.loads(line)["n"] for line in got[0][1].splitlines()] == list(range(0, 80, 2))
    await writer.close()
    source = {k: v for k, v in opts.items() if not k.startswith(("sink", "stream.", "subject"))}
    back = await harness.read_all(SCHEMA, {**source, "scan.bounded.mode": "latest"})
    assert sorted(back, key=lambda r: r[1]) == [("JFK" if i % 2 else "LGA", i) for i in range(200)]


async def test_rows_that_make_no_message_are_bad_records(harness, shared_nats, names):
    name, client = names
    opts = options(shared_nats, name)
    writer = await harness.writer(SCHEMA, opts)
    with pytest.raises(RecordError, match="gives no subject token"):
        writer.write(Batch.of(SCHEMA, [("a b", 1)]))
    await writer.close()
    harness.on_error = "skip"
    writer = await harness.writer(SCHEMA, opts)
    writer.write(Batch.of(SCHEMA, [("ok", 1), (None, 2), ("x" * 2_000_000, 3), ("ok", 4)]))
    await writer.finish()
    assert [json.loads(d)["n"] for _, d in await contents(client, name)] == [1, 4]
    assert len(harness.bad) == 2
    await writer.close()


async def test_the_stream_must_be_there_and_fit(harness, shared_nats, names):
    name, client = names
    absent = options(shared_nats, name, **{"stream.create": "false"})
    with pytest.raises(ConnectorError, match=f"no stream '{name}'"):
        await harness.writer(SCHEMA, absent)
    await client.jetstream(timeout=60).add_stream(name=name, subjects=[f"{name}.only"])
    with pytest.raises(ConnectorError, match="does not capture"):
        await harness.writer(SCHEMA, absent)


async def test_unacknowledged_messages_are_sent_again_when_the_server_comes_back(
    harness, own_nats, monkeypatch
):
    monkeypatch.setattr("penstock.connectors.nats.sink.RETRY_S", 0.5)
    client = await own_nats.client()
    await client.close()
    writer = await harness.writer(SCHEMA, options(own_nats, "B"))
    own_nats.kill()
    writer.write(Batch.of(SCHEMA, [("JFK", i) for i in range(50)]))
    own_nats.start()
    await writer.finish()
    await writer.close()
    client = await own_nats.client()
    got = [json.loads(d)["n"] for _, d in await contents(client, "B")]
    assert sorted(set(got)) == list(range(50))
    last = {n: place for place, n in enumerate(got)}
    assert sorted(last, key=last.__getitem__) == list(range(50))  # a later row stands behind an earlier
    await client.close()
