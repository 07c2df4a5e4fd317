"""``rabbitmq`` on a real RabbitMQ: the kits, and what they do not ask."""

from __future__ import annotations

import asyncio
import json
import uuid

import pytest

from penstock.connectors.registry import get_connector, validate_table
from penstock.errors import ConnectorError
from penstock.testing.conformance import BadTable, SinkConformance, SourceConformance
from penstock.types import Batch, Schema
from penstock.types import logical as t

pytestmark = pytest.mark.cluster

SCHEMA = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()))


def made(first, count):
    return [(i, f"name {i}") for i in range(first, first + count)]


def fresh():
    return f"q{uuid.uuid4().hex[:12]}"


def table(server, queue, **more):
    return {"connector": "rabbitmq", "url": server.url, "queue": queue, "format": "json", **more}


def sink(server, key, **more):
    return {"connector": "rabbitmq", "url": server.url, "routing-key": key, "format": "json", **more}


def line(row):
    return json.dumps({"id": row[0], "name": row[1]}).encode()


def publish(server, messages):
    """``messages``: (queue, body, id). The queues are made."""

    async def work(channel):
        from aiormq import spec

        for queue in sorted({queue for queue, *_ in messages}):
            await channel.queue_declare(queue, durable=True)
        for queue, body, id in messages:
            properties = spec.Basic.Properties(delivery_mode=2, correlation_id=id, message_id=id)
            await channel.basic_publish(body, routing_key=queue, properties=properties)

    server.do(work)


def put(server, queue, rows):
    publish(server, [(queue, line(row), f"id-{row[0]}") for row in rows])


def length(server, queue):
    async def work(channel):
        return (await channel.queue_declare(queue, passive=True)).message_count

    return server.do(work)


class _RabbitMq:
    schema = SCHEMA

    @pytest.fixture(autouse=True)
    def _server(self, shared_rabbitmq):
        self.server = shared_rabbitmq

    def connector(self):
        return get_connector("rabbitmq")


class TestSource(_RabbitMq, SourceConformance):
    def options(self):
        queues = [fresh(), fresh()]
        publish(self.server, [(queues[i % 2], line((i, name)), None) for i, name in made(0, 60)])
        return table(self.server, ";".join(queues), **{"scan.bounded.mode": "latest"})

    def expected(self):
        return made(0, 60)

    def bad(self):
        queue = fresh()
        publish(
            self.server, [(queue, body, None) for body in (line((1, "name 1")), b"{ no", line((2, "name 2")))]
        )
        return BadTable(table(self.server, queue, **{"scan.bounded.mode": "latest"}), made(1, 2), 1)

    def live_options(self):
        return table(self.server, f"{fresh()};{fresh()}", **{"queue.declare": "true"})

    async def publish(self, options, rows):
        queues = options["queue"].split(";")
        messages = [(queues[i % 2], line((i, name)), None) for i, name in rows]
        await asyncio.to_thread(publish, self.server, messages)


class TestSink(_RabbitMq, SinkConformance):
    def options(self):
        queue = fresh()
        publish(self.server, [(queue, b"", None)])

        async def empty(channel):
            await channel.queue_purge(queue)

        self.server.do(empty)
        return sink(self.server, queue)

    def epochs(self):
        return [made(n * 5, 5) for n in range(3)]

    async def visible(self, options):
        def look():
            async def work(channel):
                found = []
                while (message := await channel.basic_get(options["routing-key"])).delivery_tag is not None:
                    found.append(json.loads(message.body))
                return found

            return self.server.do(work)

        return [(row["id"], row["name"]) for row in await asyncio.to_thread(look)]


async def poll_until(reader, count):
    rows = []
    while len(rows) < count:
        fetched = reader.poll()
        if fetched is None:
            await reader.wait()
        else:
            rows += fetched.batch.to_pylist()
    return rows


async def acknowledged(reader, server, queue, left):
    """Completes a checkpoint until the queue holds ``left`` messages when the reader is gone."""
    reader.on_checkpoint_complete(1, reader.snapshot())
    await reader.close()
    assert await asyncio.to_thread(length, server, queue) == left


def test_messages_stay_in_the_queue_until_their_checkpoint_is_complete(harness, shared_rabbitmq):
    queue = fresh()
    put(shared_rabbitmq, queue, made(0, 10))
    options = table(shared_rabbitmq, queue)

    async def main():
        reader = await harness.reader(SCHEMA, options, batch_rows=1)
        assert await poll_until(reader, 4) == made(0, 4)
        await reader.close()  # no checkpoint: all come again
        reader = await harness.reader(SCHEMA, options, batch_rows=1)
        assert await poll_until(reader, 4) == made(0, 4)
        await acknowledged(reader, shared_rabbitmq, queue, left=6)

    asyncio.run(main())


@pytest.mark.parametrize("option", ["use-correlation-id", "use-message-id"])
def test_by_their_ids_messages_that_a_checkpoint_holds_are_not_read_again(harness, shared_rabbitmq, option):
    queue = fresh()
    put(shared_rabbitmq, queue, made(0, 10))
    options = table(shared_rabbitmq, queue, **{option: "true"})

    async def main():
        reader = await harness.reader(SCHEMA, options, batch_rows=1)
        assert await poll_until(reader, 4) == made(0, 4)
        left = reader.snapshot()
        await reader.close()  # the checkpoint is complete, but the acknowledgement never came
        reader = await harness.reader(SCHEMA, options, splits=left, batch_rows=100)
        assert await poll_until(reader, 6) == made(4, 6)
        await acknowledged(reader, shared_rabbitmq, queue, left=0)

    asyncio.run(main())


def test_a_message_without_an_id_is_a_bad_record(harness, shared_rabbitmq):
    queue = fresh()
    publish(shared_rabbitmq, [(queue, line((1, "a")), "1"), (queue, line((2, "b")), None)])
    options = table(shared_rabbitmq, queue, **{"use-correlation-id": "true"})

    async def main():
        reader = await harness.reader(SCHEMA, options, batch_rows=1)
        with pytest.raises(Exception, match="a message has no correlation id"):
            await poll_until(reader, 3)
        await reader.close()

    asyncio.run(main())


def test_metadata_goes_out_and_comes_back(harness, shared_rabbitmq):
    queue = fresh()
    publish(shared_rabbitmq, [(queue, line((0, "x")), None)])

    async def main():
        names = ("routing-key", "message-id", "correlation-id", "reply-to")
        writer = await harness.writer(SCHEMA, sink(shared_rabbitmq, queue), metadata=names)
        schema = Schema.of(*[(f.name, f.type) for f in SCHEMA.fields], *[(n, t.VarCharType()) for n in names])
        rows = [(1, "a", None, "m", "c", "r"), (2, "b", queue, "m", None, None)]
        writer.write(Batch.of(schema, rows))
        await writer.begin_checkpoint(1)
        await writer.close()
        options = table(shared_rabbitmq, queue, **{"scan.bounded.mode": "latest"})
        got = await harness.read_all(
            SCHEMA, options, metadata=("routing-key", "message-id", "correlation-id", "reply-to")
        )
        assert sorted(got)[1:] == [(1, "a", queue, "m", "c", "r"), (2, "b", queue, "m", None, None)]

    asyncio.run(main())


def test_a_row_that_reaches_no_queue_is_a_bad_record(harness, shared_rabbitmq):
    queue = fresh()
    put(shared_rabbitmq, queue, made(1, 1))
    harness.on_error = "skip"

    async def main():
        writer = await harness.writer(SCHEMA, sink(shared_rabbitmq, queue[:-1] + "{name}"))
        writer.write(Batch.of(SCHEMA, [(1, queue[-1]), (2, "nowhere"), (3, None)]))
        await writer.begin_checkpoint(1)
        await writer.close()

    asyncio.run(main())
    assert length(shared_rabbitmq, queue) == 2
    assert ["reaches no queue" in str(e) or "no routing key" in str(e) for e, *_ in harness.bad] == [
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("role", "more", "said"),
    [
        ("source", {"url": "http://x"}, "no address of RabbitMQ"),
        (
            "source",
            {"queue": "is-not-there"},
            r"(?s)RabbitMQ refuses.*no queue 'is-not-there'.*queue.declare",
        ),
        ("source", {"password": "wrongpassword"}, r"(?s)RabbitMQ refuses.*correct user and password"),
        ("source", {"url": "{}nowhere"}, r"RabbitMQ refuses the vhost"),
        ("source", {"prefetch-count": "70000"}, "range"),
        ("source", {"use-message-id": "true", "use-correlation-id": "true"}, "one id"),
        ("sink", {"exchange": "is-not-there"}, r"(?s)RabbitMQ refuses.*no exchange 'is-not-there'"),
        ("sink", {"routing-key": "is-not-there"}, r"(?s)RabbitMQ refuses.*no queue 'is-not-there'"),
        ("sink", {"routing-key": "a{nam}"}, "names no column"),
    ],
)
def test_wrong_tables_are_refused_at_planning(shared_rabbitmq, role, more, said):
    options = table(shared_rabbitmq, "q") if role == "source" else sink(shared_rabbitmq, "q")
    if more.get("url") == "{}nowhere":
        more = {"url": shared_rabbitmq.url + "nowhere"}
    options = {**options, **more}
    with pytest.raises(ConnectorError, match=said) as caught:
        validate_table(SCHEMA, options, role=role)
    assert "wrongpassword" not in str(caught.value)


def test_a_table_without_checkpoints_is_refused(harness, shared_rabbitmq):
    queue = fresh()
    put(shared_rabbitmq, queue, made(0, 1))
    with pytest.raises(ConnectorError, match="without checkpoints"):
        asyncio.run(
            harness.reader(
                SCHEMA, table(shared_rabbitmq, queue), config={"execution.checkpointing.interval": "0"}
            )
        )


def test_a_server_that_is_killed_is_waited_for_and_each_message_is_read_once(harness, shared_rabbitmq):
    queue, out = fresh(), fresh()
    put(shared_rabbitmq, queue, made(0, 10))
    put(shared_rabbitmq, out, [])
    publish(shared_rabbitmq, [(out, line((0, "x")), None)])
    options = table(shared_rabbitmq, queue, **{"use-correlation-id": "true"})

    async def main():
        reader = await harness.reader(SCHEMA, options, batch_rows=1)
        writer = await harness.writer(SCHEMA, sink(shared_rabbitmq, out))
        rows = await poll_until(reader, 4)
        writer.write(Batch.of(SCHEMA, made(0, 1)))
        await writer.begin_checkpoint(1)
        shared_rabbitmq.kill()
        writer.write(Batch.of(SCHEMA, made(1, 5)))
        cut = asyncio.ensure_future(writer.begin_checkpoint(2))
        await asyncio.sleep(0.05)
        assert not cut.done()
        shared_rabbitmq.start()
        await cut
        await writer.close()
        rows += await poll_until(reader, 6)
        await acknowledged(reader, shared_rabbitmq, queue, left=0)
        return rows

    assert asyncio.run(main()) == made(0, 10)
    assert length(shared_rabbitmq, out) == 7
