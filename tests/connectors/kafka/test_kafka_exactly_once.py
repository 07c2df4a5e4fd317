"""The exactly-once sink against what a real broker keeps: killed processes, old attempts, other parallelism."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import msgspec
import pytest

from penstock.connectors.kafka import producer
from penstock.connectors.kafka.client import Caller
from penstock.connectors.kafka.exactly_once import Marker
from penstock.connectors.staging import decode_committables
from penstock.errors import ConnectorError, FencedError
from penstock.types import Batch, Schema
from penstock.types import logical as t
from penstock.types.batch import RowKind

pytestmark = pytest.mark.cluster

SCHEMA = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()))


def table(server, topic, **more):
    return {
        "connector": "kafka", "topic": topic, "properties.bootstrap.servers": server.bootstrap,
        "format": "json", "sink.delivery-guarantee": "exactly-once",
        "sink.transactional-id-prefix": f"p-{topic}", **more,
    }  # fmt: skip


def batch(first, last):
    return Batch.of(SCHEMA, [(i, f"n{i}") for i in range(first, last)])


def ids(server, topic):
    return sorted(json.loads(m.value())["id"] for m in server.read(topic))


async def test_rows_show_when_their_checkpoint_is_complete(harness, shared_kafka):
    topic = shared_kafka.topic(3)
    writer = await harness.writer(SCHEMA, table(shared_kafka, topic))
    writer.write(batch(0, 5000))
    cut = writer.begin_checkpoint(1)
    writer.write(batch(5000, 5010))
    await cut
    assert ids(shared_kafka, topic) == []
    await writer.commit(1)
    await writer.commit(1)
    assert ids(shared_kafka, topic) == list(range(5000))
    await writer.begin_checkpoint(2)
    await writer.commit(2)
    assert ids(shared_kafka, topic) == list(range(5010))
    await writer.close()


async def test_the_marker_lies_with_the_rows_at_the_broker(harness, shared_kafka):
    topic = shared_kafka.topic()
    writer = await harness.writer(SCHEMA, table(shared_kafka, topic))
    writer.write(batch(0, 3))
    await writer.begin_checkpoint(7)
    await writer.commit(7)
    await writer.close()
    assert shared_kafka.committed(f"p-{topic}-op-1-0", topic, 1) == [7]


async def test_what_is_staged_is_committed_by_a_sink_that_is_at_least_once_from_now_on(harness, shared_kafka):
    """It was lost."""
    topic = shared_kafka.topic()
    options = table(shared_kafka, topic)
    writer = await harness.writer(SCHEMA, options)
    writer.write(batch(0, 5))
    state = await writer.begin_checkpoint(1)
    await writer.close()
    options["sink.delivery-guarantee"] = "at-least-once"
    other = await harness.writer(SCHEMA, options, state, attempt=2)
    other.write(batch(5, 7))
    assert await other.begin_checkpoint(2) == []
    assert ids(shared_kafka, topic) == list(range(7))
    await other.close()


async def test_two_sinks_of_one_table_do_not_take_each_others_epochs_for_their_own(harness, shared_kafka):
    topic = shared_kafka.topic()
    options = table(shared_kafka, topic)
    one = await harness.writer(SCHEMA, options, uid="one")
    two = await harness.writer(SCHEMA, options, uid="two")
    one.write(batch(0, 5))
    two.write(batch(5, 9))
    for writer in (one, two):
        await writer.begin_checkpoint(1)
        await writer.commit(1)
    assert ids(shared_kafka, topic) == list(range(9))
    await one.close()
    await two.close()


async def test_an_id_that_a_sibling_took_over_is_taken_back(harness, shared_kafka):
    """After a rescaling a subtask may commit what another one staged, whose id a third one writes under."""
    topic = shared_kafka.topic()
    options = table(shared_kafka, topic)
    former = await harness.writer(SCHEMA, options, subtask_index=1, parallelism=3)
    former.write(batch(0, 5))
    state = await former.begin_checkpoint(1)
    await former.close()
    own = await harness.writer(SCHEMA, options, subtask_index=1, parallelism=2, attempt=2)
    sibling = await harness.writer(SCHEMA, options, state, subtask_index=0, parallelism=2, attempt=2)
    own.write(batch(5, 9))
    await own.begin_checkpoint(2)
    await own.commit(2)
    assert ids(shared_kafka, topic) == list(range(9))
    own.write(batch(9, 11))
    await own.begin_checkpoint(3)
    await own.commit(3)
    assert ids(shared_kafka, topic) == list(range(11))
    await own.close()
    await sibling.close()


async def test_an_older_attempt_may_no_longer_write(harness, shared_kafka):
    topic = shared_kafka.topic()
    options = table(shared_kafka, topic)
    old = await harness.writer(SCHEMA, options)
    old.write(batch(0, 5))
    state = await old.begin_checkpoint(1)
    new = await harness.writer(SCHEMA, options, state, attempt=2)
    with pytest.raises(FencedError):
        await old.commit(1)
    assert ids(shared_kafka, topic) == list(range(5))
    with pytest.raises(FencedError):
        await harness.writer(SCHEMA, options, attempt=1)
    await old.close()
    await new.close()


async def test_another_subtask_commits_what_was_staged(harness, shared_kafka):
    topic = shared_kafka.topic()
    options = table(shared_kafka, topic)
    state = []
    for subtask in range(3):
        writer = await harness.writer(SCHEMA, options, subtask_index=subtask, parallelism=3)
        writer.write(batch(subtask * 10, subtask * 10 + 10))
        state += await writer.begin_checkpoint(1)
        if subtask == 1:
            await writer.commit(1)
        await writer.close()
    writer = await harness.writer(SCHEMA, options, state, attempt=2)
    assert ids(shared_kafka, topic) == list(range(30))
    writer.write(batch(30, 40))
    await writer.begin_checkpoint(2)
    await writer.commit(2)
    assert ids(shared_kafka, topic) == list(range(40))
    await writer.close()


async def test_rows_that_are_too_old_to_know_of_are_refused(harness, shared_kafka):
    topic = shared_kafka.topic()
    options = table(shared_kafka, topic)
    writer = await harness.writer(SCHEMA, options)
    writer.write(batch(0, 5))
    [state] = await writer.begin_checkpoint(1)
    await writer.close()
    [item] = decode_committables(state)
    # As if the group's offsets had expired: no transaction of this name is known.
    lost = msgspec.structs.replace(item, marker=f"other-{topic}", made_ms=1)
    eight_days_ms = 8 * 24 * 3_600_000
    with pytest.raises(ConnectorError, match=r"offsets\.retention\.minutes"):
        await harness.writer(
            SCHEMA, options, [msgspec.json.encode([lost])], attempt=2, now_ms=lambda: eight_days_ms
        )


async def test_a_transaction_timeout_beyond_the_brokers_is_refused(harness, shared_kafka):
    options = table(shared_kafka, shared_kafka.topic(), **{"properties.transaction.timeout.ms": "999999999"})
    with pytest.raises(ConnectorError, match=r"transaction.max.timeout.ms"):
        await harness.writer(SCHEMA, options)


async def test_a_table_by_key_writes_tombstones(harness, shared_kafka):
    topic = shared_kafka.topic()
    options = {
        **table(shared_kafka, topic), "connector": "upsert-kafka", "key.format": "json", "value.format": "json",
        "value.fields-include": "EXCEPT_KEY",
    }  # fmt: skip
    del options["format"]
    writer = await harness.writer(SCHEMA, options, pushed={"mode": "upsert", "keys": [0]})
    kinds = [RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE]
    writer.write(Batch.of(SCHEMA, [(1, "a"), (1, "b"), (1, "b")], kinds))
    await writer.begin_checkpoint(1)
    await writer.commit(1)
    await writer.close()
    found = [(m.key(), m.value()) for m in shared_kafka.read(topic)]
    assert found == [(b'{"id":1}', b'{"name":"a"}'), (b'{"id":1}', b'{"name":"b"}'), (b'{"id":1}', None)]


#: Steps of a commit after which the process is killed.
STEPS = ["begin_epoch", "begin", "half", "flush", "offsets", "commit"]


@pytest.mark.parametrize("step", STEPS)
async def test_a_process_killed_at_any_step_of_a_commit_loses_and_doubles_nothing(
    harness, shared_kafka, step, tmp_path
):
    topic = shared_kafka.topic(2)
    run = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, str(Path(__file__).with_name("killed_writer.py")), shared_kafka.bootstrap, topic, step, str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == -signal.SIGKILL, run.stderr
    state = (tmp_path / "state").read_bytes()
    [item] = decode_committables(state)
    for key, _ in item.objects:
        await harness.store.put(key, (tmp_path / key.replace("/", "_")).read_bytes())
    writer = await harness.writer(SCHEMA, table(shared_kafka, topic), [state], attempt=2)
    writer.write(batch(2000, 2010))
    await writer.begin_checkpoint(3)
    await writer.commit(3)
    await writer.close()
    assert ids(shared_kafka, topic) == list(range(2010))


def test_markers_fit_into_an_offsets_metadata() -> None:
    """Brokers take 4,096 bytes (offset.metadata.max.bytes)."""
    done = {uuid.uuid4().hex: 10**12 for _ in range(16)}
    assert len(msgspec.json.encode(Marker(uuid.uuid4().hex, 10**6, done))) < 2048


@pytest.mark.parametrize("stuck", ["send_offsets_to_transaction", "commit_transaction"])
async def test_a_call_of_the_client_that_never_returns_does_not_hold_up_the_commit(
    harness, shared_kafka, monkeypatch, stuck
):
    """A client was seen to wait for ever after its broker was killed: checkpoints stopped."""
    topic = shared_kafka.topic(2)
    monkeypatch.setattr(producer, "_STUCK_S", 8.0)
    writer = await harness.writer(SCHEMA, table(shared_kafka, topic))
    call, held, over = Caller.call, [], threading.Event()

    def first_never_returns(self, loop, f, *args):
        if f.__name__ == stuck and not held:
            held.append(f)
            return call(self, loop, over.wait)
        return call(self, loop, f, *args)

    monkeypatch.setattr(Caller, "call", first_never_returns)
    try:
        writer.write(batch(0, 100))
        await writer.begin_checkpoint(1)
        await writer.commit(1)
        assert held
        assert ids(shared_kafka, topic) == list(range(100))
        writer.write(batch(100, 120))
        await writer.begin_checkpoint(2)
        await writer.commit(2)
        assert ids(shared_kafka, topic) == list(range(120))
        await writer.close()
    finally:
        over.set()
