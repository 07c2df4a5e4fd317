"""``mqtt`` on a real Mosquitto: the sink's kit, and the source, which cannot be read twice."""

from __future__ import annotations

import asyncio
import json
import queue as queues
import threading
import uuid

import pytest
import trustme

from penstock.connectors.registry import get_connector, validate_table
from penstock.errors import ConnectorError
from penstock.testing.conformance import SinkConformance
from penstock.types import Batch, Schema
from penstock.types import logical as t
from tests.servers.mosquitto_server import MosquittoServer, missing

pytestmark = pytest.mark.cluster

SCHEMA = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()))


def made(first, count):
    return [(i, f"name {i}") for i in range(first, first + count)]


def fresh():
    return f"t{uuid.uuid4().hex[:12]}"


def table(server, topic, **more):
    return {"connector": "mqtt", "url": server.url, "topic": topic, "format": "json", **more}


def line(row):
    return json.dumps({"id": row[0], "name": row[1]}).encode()


def end(client):
    client.disconnect()
    client.loop_stop()
    client._reset_sockets()  # else they stay open until it is collected


class Listener:
    """Subscribes with the plain client in a thread of its own, and keeps what comes."""

    def __init__(self, server, topic):
        import paho.mqtt.client as mqtt

        self.got = []
        ready = threading.Event()
        self._marks = queues.Queue()
        self._topic = topic
        self._client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
        self._client.on_subscribe = lambda *_: ready.set()
        self._client.on_message = lambda _c, _u, m: self._came(m)
        self._client.connect("127.0.0.1", server.port)
        self._client.loop_start()
        self._client.subscribe([(topic, 1), (f"mark/{topic}", 1)])
        assert ready.wait(60)

    def _came(self, message):
        if message.topic.startswith("mark/"):
            self._marks.put(1)
        else:
            self.got.append(message)

    def drained(self):
        """All that the broker has taken before this call."""
        self._client.publish(f"mark/{self._topic}", b"", qos=1)
        self._marks.get(timeout=60)
        return list(self.got)

    def close(self):
        end(self._client)


def publish(server, topic, rows, ids=False, retain=False):
    import paho.mqtt.client as mqtt
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.connect("127.0.0.1", server.port)
    client.loop_start()
    for row in rows:
        properties = Properties(PacketTypes.PUBLISH)
        if ids:
            properties.CorrelationData = f"id-{row[0]}".encode()
        client.publish(topic, line(row), qos=1, retain=retain, properties=properties).wait_for_publish(60)
    end(client)


class TestSink(SinkConformance):
    schema = SCHEMA

    @pytest.fixture(autouse=True)
    def _server(self, shared_mosquitto):
        self.server, self._listeners = shared_mosquitto, []
        yield
        for listener in self._listeners:
            listener.close()

    def connector(self):
        return get_connector("mqtt")

    def options(self):
        topic = fresh()
        self._listeners.append(Listener(self.server, topic))
        return table(self.server, topic)

    def epochs(self):
        return [made(n * 5, 5) for n in range(3)]

    async def visible(self, options):
        found = await asyncio.to_thread(self._listeners[-1].drained)
        return [(row["id"], row["name"]) for row in map(json.loads, (m.payload for m in found))]


async def poll_until(reader, count):
    rows = []
    async with asyncio.timeout(120):
        while len(rows) < count:
            fetched = reader.poll()
            if fetched is None:
                await reader.wait()
            else:
                rows += fetched.batch.to_pylist()
    return rows


async def subscribed(reader):
    """Waits until the broker knows the subscriptions of ``reader``."""
    async with asyncio.timeout(60):
        while not all(s.position["subscribed"] for s in reader.snapshot()):
            reader.poll()  # raises what went wrong
            await asyncio.sleep(0.01)


async def read_on(harness, options, splits, **more):
    return await harness.reader(SCHEMA, options, splits=splits, batch_rows=1, **more)


def test_what_no_checkpoint_holds_comes_again_and_what_one_holds_does_not(harness, shared_mosquitto):
    topic = fresh()
    options = table(shared_mosquitto, f"{topic}/+")

    async def main():
        reader = await read_on(harness, options, None, metadata=("topic",))
        await subscribed(reader)
        await asyncio.to_thread(publish, shared_mosquitto, f"{topic}/a", made(0, 6))
        assert await poll_until(reader, 2) == [(*row, f"{topic}/a") for row in made(0, 2)]
        cut = reader.snapshot()
        await poll_until(reader, 2)
        reader.on_checkpoint_complete(1, cut)
        await asyncio.sleep(0.1)  # the acknowledgements go out
        await reader.close()
        # Published while nobody reads: the broker keeps them.
        await asyncio.to_thread(publish, shared_mosquitto, f"{topic}/b", made(6, 2))
        reader = await read_on(harness, options, cut)
        assert await poll_until(reader, 6) == made(2, 6)
        await reader.close()

    asyncio.run(main())


def test_by_correlation_data_a_message_that_a_checkpoint_holds_is_not_read_again(harness, shared_mosquitto):
    topic = fresh()
    options = table(shared_mosquitto, topic, **{"use-correlation-data": "true"})

    async def main():
        reader = await read_on(harness, options, None)
        await subscribed(reader)
        await asyncio.to_thread(publish, shared_mosquitto, topic, made(0, 6), ids=True)
        assert await poll_until(reader, 3) == made(0, 3)
        cut = reader.snapshot()  # complete, but its acknowledgements never went out
        await reader.close()
        reader = await read_on(harness, options, cut)
        assert await poll_until(reader, 3) == made(3, 3)
        await asyncio.to_thread(publish, shared_mosquitto, topic, [(9, "nine")])
        with pytest.raises(Exception, match="no correlation data"):
            await poll_until(reader, 1)
        await reader.close()

    asyncio.run(main())


def test_readers_of_a_shared_group_share_the_messages(harness, shared_mosquitto):
    topic = fresh()
    options = table(shared_mosquitto, topic, **{"shared-group": "g"})

    async def main():
        splits = await harness.splits(SCHEMA, options, parallelism=2)
        readers = [await read_on(harness, options, [split]) for split in splits]
        for reader in readers:
            await subscribed(reader)
        await asyncio.to_thread(publish, shared_mosquitto, topic, made(0, 20))
        parts = [await poll_until(reader, 10) for reader in readers]
        assert sorted(parts[0] + parts[1]) == made(0, 20)
        for reader in readers:
            await reader.close()

    asyncio.run(main())


def test_a_broker_that_restarts_is_waited_for_and_one_that_forgot_the_session_is_an_error(
    harness, own_mosquitto
):
    options = table(own_mosquitto, "in", **{"use-correlation-data": "true"})

    async def main():
        reader = await read_on(harness, options, None)
        writer = await harness.writer(SCHEMA, table(own_mosquitto, "in"), metadata=("correlation-data",))
        schema = Schema.of(*[(f.name, f.type) for f in SCHEMA.fields], ("correlation-data", t.VarCharType()))

        async def write(rows, checkpoint):
            writer.write(Batch.of(schema, [(*row, f"id-{row[0]}") for row in rows]))
            await writer.begin_checkpoint(checkpoint)

        await subscribed(reader)
        await write(made(0, 5), 1)
        assert await poll_until(reader, 3) == made(0, 3)
        own_mosquitto.stop_politely()
        cut = asyncio.ensure_future(write(made(5, 5), 2))
        await asyncio.sleep(0.05)
        assert not cut.done()
        own_mosquitto.start()
        await cut
        assert sorted(await poll_until(reader, 7)) == made(3, 7)
        own_mosquitto.kill()
        (own_mosquitto.folder / "mosquitto.db").unlink()
        own_mosquitto.start()
        with pytest.raises(ConnectorError, match="no longer has the session"):
            await poll_until(reader, 1)
        await reader.close()
        await writer.close()

    asyncio.run(main())


def test_retained_messages_and_topics_of_rows(harness, shared_mosquitto):
    topic = fresh()

    async def main():
        names = ("topic",)
        options = table(shared_mosquitto, topic + "/{id}", retain="true")
        writer = await harness.writer(SCHEMA, options, metadata=names)
        schema = Schema.of(*[(f.name, f.type) for f in SCHEMA.fields], ("topic", t.VarCharType()))
        writer.write(Batch.of(schema, [(1, "a", None), (2, "b", f"{topic}/own"), (1, "c", None)]))
        await writer.begin_checkpoint(1)
        await writer.close()
        reader = await read_on(
            harness, table(shared_mosquitto, f"{topic}/#"), None, metadata=("topic", "retained")
        )
        got = await poll_until(reader, 2)
        assert sorted(got) == [(1, "c", f"{topic}/1", True), (2, "b", f"{topic}/own", True)]
        await reader.close()

    asyncio.run(main())


def test_users_and_tls(harness, tmp_path):
    if why := missing():
        pytest.skip(why)
    authority = trustme.CA()
    files = {name: tmp_path / name for name in ("ca.pem", "cert.pem", "key.pem", "users")}
    authority.cert_pem.write_to_path(files["ca.pem"])
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(files["cert.pem"])
    issued.private_key_pem.write_to_path(files["key.pem"])
    server = MosquittoServer("allow_anonymous false")
    try:
        # As the server's user, which cannot read the test's folder.
        for path in (files["cert.pem"], files["key.pem"]):
            (server.folder / path.name).write_bytes(path.read_bytes())
        import subprocess

        subprocess.run(["mosquitto_passwd", "-b", "-c", server.folder / "users", "me", "right"], check=True)
        (server.folder / "users").chmod(0o644)
        with (server.folder / "mosquitto.conf").open("a") as conf:
            conf.write(
                f"password_file {server.folder}/users\ncertfile {server.folder}/cert.pem\nkeyfile {server.folder}/key.pem\n"
            )
        server.start()
        url = server.url.replace("mqtt://", "mqtts://")
        good = {
            **table(server, "t"),
            "url": url,
            "username": "me",
            "password": "right",
            "ssl.ca": str(files["ca.pem"]),
        }
        validate_table(SCHEMA, good, role="source")
        with pytest.raises(ConnectorError, match="the broker refuses") as caught:
            validate_table(SCHEMA, {**good, "password": "wrongpassword"}, role="sink")
        assert "wrongpassword" not in str(caught.value)
        without = {key: value for key, value in good.items() if key != "ssl.ca"}
        with pytest.raises(ConnectorError, match="certificate cannot be checked"):
            validate_table(SCHEMA, without, role="source")
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("role", "more", "said"),
    [
        ("source", {"url": "http://x"}, "no address of an MQTT broker"),
        ("source", {"qos": "2"}, r"(?s)quality 2.*'qos' = '1'"),
        ("source", {"qos": "0", "use-correlation-data": "true"}, "not sent again"),
        ("source", {"shared-group": "g", "use-correlation-data": "true"}, "shared group"),
        ("source", {"shared-group": "a/b"}, "no name"),
        ("source", {"receive-maximum": "0"}, "range"),
        ("sink", {"topic": "a/+"}, r"without \+"),
        ("sink", {"topic": "a/{nam}"}, "names no column"),
    ],
)
def test_wrong_options_are_refused_by_name(role, more, said):
    options = {"connector": "mqtt", "url": "mqtt://127.0.0.1:1", "topic": "t", "format": "json", **more}
    with pytest.raises(ConnectorError, match=said):
        validate_table(SCHEMA, options, role=role)
