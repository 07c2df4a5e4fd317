import asyncio
import json
import time

import pytest

from penstock.connectors.base import TableInfo
from penstock.errors import BrokerError, ConnectorError, RecordError
from penstock.formats import get_format
from penstock.types import Batch, Schema
from penstock.types import logical as t

pytestmark = pytest.mark.cluster

SCHEMA = Schema.of(("n", t.BigIntType()))
END = {"Penstock-End-Of-Stream": "true"}


@pytest.fixture
async def stream(shared_nats):
    """A fresh stream over ``<name>.>``: (name, publish(subject suffix, data, headers))."""
    client = await shared_nats.client()
    js = client.jetstream(timeout=60)
    name = f"S{time.time_ns()}"
    await js.add_stream(name=name, subjects=[f"{name}.>"])

    async def publish(suffix, data, headers=None):
        data = data if isinstance(data, bytes) else json.dumps(data).encode()
        return (await js.publish(f"{name}.{suffix}", data, headers=headers)).seq

    publish.js = js
    yield name, publish
    await js.delete_stream(name)
    await client.close()


def options(server, stream, **more):
    return {"connector": "nats", "url": server.url, "stream": stream, "format": "json", **more}


def rows(fetched):
    return [r for f in fetched for r in f.batch.to_pylist()]


async def test_reads_to_the_end_with_metadata(harness, shared_nats, stream):
    name, publish = stream
    before_ms = time.time_ns() // 1_000_000
    for i in range(10):
        await publish(f"a.{i % 2}", {"n": i}, {"k": "v"} if i == 3 else None)
    opts = options(shared_nats, name, **{"scan.bounded.mode": "latest"})
    harness.connector(SCHEMA, opts)
    splits = await harness.splits(SCHEMA, opts)
    assert [s.id for s in splits] == [f"{name}:{name}.a.0", f"{name}:{name}.a.1"]
    reader = await harness.reader(
        SCHEMA, opts, splits, metadata=("sequence", "subject", "timestamp", "headers")
    )
    fetched = await harness.read(reader)
    got = sorted(rows(fetched))
    assert [r[:3] for r in got] == [(i, i + 1, f"{name}.a.{i % 2}") for i in range(10)]
    assert dict(got[3][4]) == {"k": "v"}
    assert all(r[3].timestamp() * 1000 >= before_ms - 1 for r in got)
    assert fetched[0].batch.times is not None
    assert reader.finished_splits() == {s.id for s in splits}
    await reader.close()


@pytest.mark.parametrize(
    ("more", "want"),
    [
        ({}, [1, 2, 3, 4, 5]),
        ({"scan.startup.mode": "sequence", "scan.startup.sequence": "3"}, [3, 4, 5]),
        ({"scan.bounded.mode": "sequence", "scan.bounded.sequence": "2"}, [1, 2]),
        ({"scan.startup.mode": "latest"}, []),
        ({"scan.split": "filter"}, [1, 2, 3, 4, 5]),
        ({"scan.split": "subject"}, [1, 2, 3, 4, 5]),
    ],
)
async def test_start_and_end(harness, shared_nats, stream, more, want):
    name, publish = stream
    for i in range(1, 6):
        await publish("a", {"n": i})
    opts = options(shared_nats, name, **{"scan.bounded.mode": "latest", **more})
    assert [r[0] for r in await harness.read_all(SCHEMA, opts)] == want


async def test_starts_at_a_time(harness, shared_nats, stream):
    name, publish = stream
    await publish("a", {"n": 1})
    await asyncio.sleep(0.05)
    now_ms = time.time_ns() // 1_000_000
    await publish("a", {"n": 2})
    more = {
        "scan.startup.mode": "timestamp",
        "scan.startup.timestamp-millis": str(now_ms),
        "scan.bounded.mode": "latest",
    }
    assert await harness.read_all(SCHEMA, options(shared_nats, name, **more)) == [(2,)]


async def test_a_marker_for_every_subject_ends_the_split(harness, shared_nats, stream):
    name, publish = stream
    opts = options(shared_nats, name, subject=f"{name}.f.*", **{"scan.bounded.mode": "marker"})
    reader = await harness.reader(SCHEMA, opts)
    await publish("f.a", {"n": 1})
    await publish("f.b", {"n": 2})
    await publish("f.a", b"", END)
    assert rows(await harness.read(reader, rows=2)) == [(1,), (2,)]
    assert not reader.finished_splits()
    splits = reader.snapshot()
    await reader.close()
    reader = await harness.reader(SCHEMA, opts, splits)
    await publish("f.b", {"n": 3})
    await publish("f.b", b"", END)
    assert rows(await harness.read(reader)) == [(3,)]
    await reader.close()
    single = options(shared_nats, name, subject=f"{name}.f.b", **{"scan.bounded.mode": "marker"})
    assert await harness.read_all(SCHEMA, single) == [(2,), (3,)]


async def test_positions_resume_exactly_even_inside_a_batch_message(harness, shared_nats, stream):
    name, publish = stream
    want = []
    for m in range(20):
        part = [(m * 100 + i,) for i in range(37)]
        want += part
        if m % 2:
            data = get_format("json").encoder(SCHEMA, {}).encode_batch(Batch.of(SCHEMA, part))
            await publish("a", data, {"Penstock-Batch": "true"})
        else:
            for (n,) in part:
                await publish("a", {"n": n})
    opts = options(shared_nats, name, **{"scan.bounded.mode": "latest"})
    splits, got = None, []
    while len(got) < len(want):
        reader = await harness.reader(SCHEMA, opts, splits, batch_rows=23)
        got += rows(await harness.read(reader, rows=60))
        splits = reader.snapshot()
        await reader.close()
    assert got == want


@pytest.mark.parametrize("format_", ["json", "arrow", "csv"])
async def test_messages_that_carry_batches(harness, shared_nats, stream, format_):
    name, publish = stream
    encoder = get_format(format_).encoder(SCHEMA, {})
    for m in range(3):
        await publish("a", encoder.encode_batch(Batch.of(SCHEMA, [(m * 10 + i,) for i in range(10)])))
    opts = options(
        shared_nats, name, **{"scan.bounded.mode": "latest", "message.batch": "true", "format": format_}
    )
    reader = await harness.reader(SCHEMA, opts, metadata=("sequence",))
    assert rows(await harness.read(reader)) == [(i, i // 10 + 1) for i in range(30)]
    await reader.close()


async def test_more_than_the_prefetch(harness, shared_nats, stream):
    name, publish = stream
    futures = [await publish.js.publish_async(f"{name}.a", b'{"n":%d}' % i) for i in range(3_000)]
    await asyncio.gather(*futures)
    opts = options(shared_nats, name, **{"scan.bounded.mode": "latest", "scan.prefetch": "100"})
    assert [r[0] for r in await harness.read_all(SCHEMA, opts)] == list(range(3_000))


async def test_waits_for_new_messages_and_knows_when_it_caught_up(harness, shared_nats, stream):
    name, publish = stream
    await publish("a", {"n": 1})
    reader = await harness.reader(SCHEMA, options(shared_nats, name))
    assert rows(await harness.read(reader, rows=1)) == [(1,)]
    (split,) = reader.snapshot()
    assert reader.poll() is None
    assert reader.pending_records() == 0
    assert not reader.caught_up(split.id)  # the server is looked at first
    async with asyncio.timeout(120):
        while not reader.caught_up(split.id):  # noqa: ASYNC110
            await asyncio.sleep(0)
    waiting = asyncio.create_task(harness.read(reader, rows=1))
    await publish("b", {"n": 2})
    assert rows(await waiting) == [(2,)]
    await reader.close()


async def test_what_has_not_arrived_yet_is_neither_caught_up_nor_passed(harness, shared_nats, stream):
    """A process that was held up believes its last message, which said that none was left.
    Idle it would let event time run past rows that wait for it; with its position moved on
    they would be lost after a restore."""
    name, publish = stream
    await publish("a", {"n": 1})
    reader = await harness.reader(SCHEMA, options(shared_nats, name))
    assert rows(await harness.read(reader, rows=1)) == [(1,)]
    assert reader.poll() is None
    (split,) = reader.snapshot()
    (state,) = reader._states.values()
    receive, held_up, looked = state.consumer._receive, [], asyncio.Event()
    state.consumer._receive = held_up.append
    await publish("b", {"n": 2})
    look = state.consumer.last_sequence_passed

    async def looks():
        try:
            return await look()
        finally:
            looked.set()

    state.consumer.last_sequence_passed = looks
    async with asyncio.timeout(120):
        for _ in range(3):
            assert not reader.caught_up(split.id)
            looked.clear()
            await looked.wait()
            await asyncio.sleep(0)
    assert not reader.caught_up(split.id)
    assert reader.snapshot() == [split]
    for message in held_up:
        receive(message)
    state.consumer._receive = receive
    assert rows(await harness.read(reader, rows=1)) == [(2,)]
    await reader.close()


async def test_it_closes_though_a_request_loses_the_cancellation(harness, shared_nats, stream):
    """As a request does whose answer comes at that moment; the task would never finish."""
    name, publish = stream
    await publish("a", {"n": 1})
    reader = await harness.reader(SCHEMA, options(shared_nats, name))
    asked = asyncio.Event()

    async def answered_when_cancelled():
        asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return None

    (state,) = reader._states.values()
    state.consumer.last_sequence_passed = answered_when_cancelled
    reader._asked.set()
    await asked.wait()
    async with asyncio.timeout(120):
        await reader.close()


async def test_new_subjects_become_new_splits(harness, shared_nats, stream):
    name, publish = stream
    await publish("a", {"n": 1})
    opts = options(
        shared_nats, name, subject=f"{name}.*", **{"scan.split": "subject", "scan.startup.mode": "latest"}
    )
    first = await harness.splits(SCHEMA, opts)
    await publish("b", {"n": 2})
    second = await harness.splits(SCHEMA, opts, known=[s.id for s in first])
    assert [s.id for s in second] == [f"{name}:{name}.b"]
    assert "start" in first[0].payload
    assert "start" not in second[0].payload


async def test_a_purged_position_fails_at_once(harness, shared_nats, stream):
    name, publish = stream
    for i in range(1, 6):
        await publish("a", {"n": i})
    opts = options(shared_nats, name)
    reader = await harness.reader(SCHEMA, opts, batch_rows=2)
    assert rows(await harness.read(reader, rows=2)) == [(1,), (2,)]
    splits = reader.snapshot()
    await reader.close()
    await publish.js.purge_stream(name, seq=5)
    reader = await harness.reader(SCHEMA, opts, splits)
    with pytest.raises(ConnectorError, match="no longer has the position") as caught:
        await harness.read(reader, rows=1)
    assert "from sequence 3 on" in str(caught.value)
    assert "first one left is 5" in str(caught.value)
    await reader.close()


@pytest.mark.parametrize(
    ("again", "remembered"),
    [(1, True), (7, True), (1, False)],
    ids=["shorter", "longer", "shorter, and the snapshot does not say when the old one was made"],
)
async def test_a_stream_made_anew_is_not_read_on(harness, shared_nats, stream, again, remembered):
    """Its sequences begin at 1 again: a reader that went on behind the old position would miss rows."""
    name, publish = stream
    for i in range(1, 6):
        await publish("a", {"n": i})
    opts = options(shared_nats, name)
    reader = await harness.reader(SCHEMA, opts)
    assert rows(await harness.read(reader, rows=5)) == [(i,) for i in range(1, 6)]
    splits = reader.snapshot()
    await reader.close()
    if not remembered:
        for split in splits:
            del split.payload["created"]
    await publish.js.delete_stream(name)
    await publish.js.add_stream(name=name, subjects=[f"{name}.>"])
    for i in range(again):
        await publish("a", {"n": i})
    reader = await harness.reader(SCHEMA, opts, splits)
    with pytest.raises(ConnectorError, match="is another one than was read before"):
        await harness.read(reader, rows=1)
    await reader.close()


async def test_a_stream_made_anew_under_a_running_reader_ends_it(harness, shared_nats, stream):
    name, publish = stream
    await publish("a", {"n": 1})
    reader = await harness.reader(SCHEMA, options(shared_nats, name))
    assert rows(await harness.read(reader, rows=1)) == [(1,)]
    await publish.js.delete_stream(name)
    await publish.js.add_stream(name=name, subjects=[f"{name}.>"])
    for i in range(3):
        await publish("a", {"n": i})
    with pytest.raises(ConnectorError, match=r"is another one than was read before|there is no stream"):
        await harness.read(reader, rows=1)
    await reader.close()


async def test_a_bad_record_names_its_sequence(harness, shared_nats, stream):
    name, publish = stream
    await publish("a", {"n": 1})
    await publish("a", b'{"n":"x"}')
    await publish("a", {"n": 3})
    opts = options(shared_nats, name, **{"scan.bounded.mode": "latest"})
    with pytest.raises(RecordError, match=r"stream sequence 2, subject .*, column 'n'"):
        await harness.read_all(SCHEMA, opts)
    harness.on_error = "skip"
    reader = await harness.reader(SCHEMA, opts, metadata=("sequence",))
    assert rows(await harness.read(reader)) == [(1, 1), (3, 3)]
    assert len(harness.bad) == 1
    await reader.close()


async def test_what_is_not_there_is_named(harness, shared_nats, stream):
    name, _ = stream
    with pytest.raises(ConnectorError, match=f"no stream '{name}x'") as caught:
        await harness.splits(SCHEMA, options(shared_nats, name + "x"))
    assert f"'{name}'" in caught.value.remedy
    with pytest.raises(ConnectorError, match=r"has no subject that matches 'other\.a'"):
        await harness.splits(SCHEMA, options(shared_nats, name, subject="other.a"))
    without = options(shared_nats, name, subject="nobody.here")
    del without["stream"]
    with pytest.raises(ConnectorError, match="no stream listens"):
        await harness.splits(SCHEMA, without)
    absent = options(shared_nats, name, url="nats://127.0.0.1:1")
    with pytest.raises(BrokerError, match=r"cannot connect to NATS at nats://127\.0\.0\.1:1") as broker:
        await harness.splits(SCHEMA, absent)
    assert "nats-server -js" in broker.value.remedy


async def test_survives_a_server_that_is_killed(harness, own_nats):
    client = await own_nats.client()
    js = client.jetstream(timeout=60)
    await js.add_stream(name="S", subjects=["s"])
    for i in range(100):
        await js.publish("s", b'{"n":%d}' % i)
    await client.close()
    reader = await harness.reader(SCHEMA, options(own_nats, "S"), batch_rows=7)
    got = rows(await harness.read(reader, rows=50))
    own_nats.kill()
    own_nats.start()
    client = await own_nats.client()
    js = client.jetstream(timeout=60)
    async with asyncio.timeout(120):
        while True:
            try:  # once by its id, though the answer is lost
                await js.publish("s", b'{"n":100}', headers={"Nats-Msg-Id": "100"})
                break
            except Exception:
                await asyncio.sleep(0.1)
    got += rows(await harness.read(reader, rows=101 - len(got)))
    assert [r[0] for r in got] == list(range(101))
    await reader.close()
    await client.close()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"scan.startup.mode": "sequence"}, "scan.startup.sequence"),
        ({"scan.bounded.sequence": "4"}, "scan.bounded.sequence"),
        ({"scan.startup.mode": "erliest"}, "did you mean 'earliest'"),
        ({"format": "parquet"}, "for files"),
        ({"subject": "a..b"}, "no NATS subject"),
    ],
)
def test_options_are_checked(harness, more, says):
    opts = {"connector": "nats", "stream": "S", "format": "json", **more}
    with pytest.raises(ConnectorError) as caught:
        harness.connector(SCHEMA, opts)
    assert says in str(caught.value)


async def test_a_record_of_changes_gives_its_rows_with_the_metadata_of_its_message(
    harness, shared_nats, stream
):
    name, publish = stream
    records = [
        {"type": "insert", "data": {"n": 1}},
        {"type": "update", "data": {"n": 2}, "old": {"n": 1}},
        {"type": "x"},
    ]
    for record in [*records, {"type": "delete", "data": {"n": 2}}]:
        await publish("a", record)
    lines = b"\n".join(json.dumps(record).encode() for record in records[:2])
    await publish("a", lines, {"Penstock-Batch": "true"})
    opts = options(shared_nats, name, format="maxwell-json", **{"scan.bounded.mode": "latest"})
    assert harness.connector(SCHEMA, opts).source_mode(TableInfo(SCHEMA, opts, "maxwell-json")) == "retract"
    harness.on_error = "skip"
    reader = await harness.reader(SCHEMA, opts, metadata=("sequence",))
    found = [item for f in await harness.read(reader) for item in f.batch.rows()]
    await reader.close()
    assert [(int(kind), row) for kind, row in found] == [
        (0, (1, 1)), (1, (1, 2)), (2, (2, 2)), (3, (2, 4)), (0, (1, 5)), (1, (1, 5)), (2, (2, 5)),
    ]  # fmt: skip
    [(_, _, where)] = harness.bad
    assert where.startswith("stream sequence 3")
