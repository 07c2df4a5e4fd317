"""``nats-core``: publish and subscribe on a real server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
import uuid

import pytest

from penstock.connectors.registry import get_connector, validate_table
from penstock.errors import ConnectorError
from penstock.reserving import port_of, reserve_port
from penstock.testing.conformance import SinkConformance
from penstock.types import Batch, Schema
from penstock.types import logical as t
from tests.connectors.conftest import NatsServer

pytestmark = pytest.mark.cluster

SCHEMA = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()))


def made(first, count):
    return [(i, f"name {i}") for i in range(first, first + count)]


def line(row):
    return json.dumps({"id": row[0], "name": row[1]}).encode()


def table(nats, subject, **more):
    return {"connector": "nats-core", "url": nats.url, "subject": subject, "format": "json", **more}


class Listener:
    """Subscribes in a thread of its own, and keeps what comes."""

    def __init__(self, nats, subject):
        self._nats, self._subject = nats, subject
        self.got = []
        self._ready, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._listen()))
        self._thread.start()
        assert self._ready.wait(60)

    async def _listen(self):
        client = await self._nats.client()

        async def keep(message):
            self.got.append(message.data)

        await client.subscribe(self._subject, cb=keep)
        await client.flush()
        self._client, self._loop = client, asyncio.get_running_loop()
        self._ready.set()
        while not self._end.is_set():  # noqa: ASYNC110 (another thread sets it)
            await asyncio.sleep(0.002)
        await client.close()

    def drained(self):
        """All that the server has taken before this call."""
        asyncio.run_coroutine_threadsafe(self._client.flush(), self._loop).result(60)
        return list(self.got)

    def close(self):
        self._end.set()
        self._thread.join()


class TestNatsCoreSink(SinkConformance):
    schema = SCHEMA

    @pytest.fixture(autouse=True)
    def _server(self, shared_nats):
        self.nats = shared_nats
        self._listeners = []
        yield
        for listener in self._listeners:
            listener.close()

    def connector(self):
        return get_connector("nats-core")

    def options(self):
        subject = f"s.{uuid.uuid4().hex}"
        self._listeners.append(Listener(self.nats, subject))
        return table(self.nats, subject)

    def epochs(self):
        return [made(n * 5, 5) for n in range(3)]

    async def visible(self, options):
        rows = [json.loads(data) for data in self._listeners[-1].drained()]
        return [(row["id"], row["name"]) for row in rows]


async def _publish(nats, subject, rows, end=True):
    client = await nats.client()
    for row in rows:
        await client.publish(subject, line(row))
    if end:
        await client.publish(subject, b"", headers={"Penstock-End-Of-Stream": "true"})
    await client.close()


def test_messages_come_in_order_with_their_subject_and_a_marker_ends_the_table(harness, shared_nats):
    subject = f"s.{uuid.uuid4().hex}"
    options = table(shared_nats, f"{subject}.*", **{"scan.bounded.mode": "marker"})

    async def main():
        reader = await harness.reader(SCHEMA, options, metadata=("subject",))
        while not await _interest(shared_nats, f"{subject}.a"):  # noqa: ASYNC110 (asks the server)
            await asyncio.sleep(0.01)
        await _publish(shared_nats, f"{subject}.a", made(0, 50))
        rows = [row for f in await harness.read(reader) for row in f.batch.to_pylist()]
        await reader.close()
        return [row for row in rows if row[0] != -1]

    assert asyncio.run(main()) == [(*row, f"{subject}.a") for row in made(0, 50)]


async def _interest(nats, subject):
    """Whether somebody listens: the server says so to a request."""
    import nats as library

    client = await nats.client()
    try:
        await client.request(subject, b'{"id": -1}', timeout=0.01)
    except library.errors.NoRespondersError:
        return False
    except library.errors.TimeoutError:
        return True
    finally:
        await client.close()


def test_a_queue_group_shares_the_messages(harness, shared_nats):
    subject = f"s.{uuid.uuid4().hex}"
    options = table(shared_nats, subject, **{"scan.queue-group": "g"})

    async def main():
        splits = await harness.splits(SCHEMA, options, parallelism=2)
        assert [s.id for s in splits] == [f"{subject}#0", f"{subject}#1"]
        readers = [await harness.reader(SCHEMA, options, splits=[s]) for s in splits]
        for _ in range(2):
            await asyncio.sleep(0.05)
        while True:  # until both listen, the other one gets all: publish until each has rows
            await _publish(shared_nats, subject, made(0, 20), end=False)
            got = [[] for _ in readers]
            for reader, rows in zip(readers, got, strict=True):
                while (fetched := reader.poll()) is not None:
                    rows += fetched.batch.to_pylist()
            if all(got):
                break
            await asyncio.sleep(0.01)
        for reader in readers:
            await reader.close()

    asyncio.run(main())


def test_a_server_that_restarts_is_waited_for(harness, tmp_path):
    server = NatsServer(tmp_path)
    server.start()
    listener = Listener(server, "s")

    async def main():
        writer = await harness.writer(SCHEMA, table(server, "s"))
        writer.write(Batch.of(SCHEMA, made(0, 5)))
        await writer.begin_checkpoint(1)
        assert listener.drained() == [line(r).replace(b": ", b":").replace(b", ", b",") for r in made(0, 5)]
        server.kill()
        writer.write(Batch.of(SCHEMA, made(5, 5)))
        cut = asyncio.ensure_future(writer.begin_checkpoint(2))
        await asyncio.sleep(0.05)
        assert not cut.done()
        server.start()
        await cut
        await writer.close()

    asyncio.run(main())
    listener.close()
    server.stop()


def test_wrong_credentials_are_an_error_not_a_reason_to_wait(harness, tmp_path):
    from penstock.embedded.servers import nats_server_binary

    reserved = reserve_port()
    port = port_of(reserved)
    command = [nats_server_binary(), "-a", "127.0.0.1", "-p", str(port), "--user", "u", "--pass", "right"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    options = {
        "connector": "nats-core",
        "url": f"nats://u:wrongpassword@127.0.0.1:{port}",
        "subject": "s",
        "format": "json",
    }
    try:
        with pytest.raises(ConnectorError, match="refuses the user") as caught:
            asyncio.run(harness.writer(SCHEMA, options))
        assert "wrongpassword" not in str(caught.value)
    finally:
        process.kill()
        process.wait()
        reserved.close()


def test_a_subject_template_names_columns():
    options = {"connector": "nats-core", "subject": "s.{nam}", "format": "json"}
    with pytest.raises(ConnectorError, match="nam"):
        validate_table(SCHEMA, options, role="sink")
