"""Whatever ends a connection to NATS, it comes back: of services (the bus) and of connectors."""

import asyncio
import socket

import pytest

from penstock.bus.nats import NatsTransport
from penstock.connectors.nats.client import connect
from penstock.errors import BrokerError
from penstock.reconnecting import ReconnectingClient

pytestmark = pytest.mark.cluster
#: Against hanging only.
PATIENCE_S = 120
NAME = "broker.test"


@pytest.fixture
def names(monkeypatch):
    """A resolver of our own: ``broker.test`` is this machine, or nobody when it has vanished."""

    class Names:
        vanished = False
        asked = 0

    look_up = socket.getaddrinfo

    def getaddrinfo(host, *args, **options):
        if host != NAME:
            return look_up(host, *args, **options)
        if Names.vanished:
            Names.asked += 1
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return look_up("127.0.0.1", *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return Names


async def open_client(kind, url):
    """(the client, what closes it) of a service or a connector."""
    if kind == "bus":
        transport = await NatsTransport.connect(url)
        return transport.client, transport.close
    client = await connect(url, "test")
    return client, client.close


async def until(condition):
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def echo_on(client):
    async def answer(msg):
        await msg.respond(msg.data)

    await client.subscribe("echo", cb=answer)
    await client.flush()


async def heard(client):
    """Its own subscription answers it (subscriptions were made again)."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return (await client.request("echo", b"x", timeout=1)).data
            except Exception:
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("kind", ["bus", "connector"])
async def test_a_server_that_vanishes_with_its_name_is_found_again(own_nats, names, kind):
    server = own_nats()
    unawaited = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unawaited.append(context))
    client, close = await open_client(kind, server.url.replace("127.0.0.1", NAME))
    await echo_on(client)
    names.vanished = True
    server.stop()
    await until(lambda: names.asked >= 3)
    assert not client.is_closed
    own_nats()
    names.vanished = False
    assert await heard(client) == b"x"
    await close()
    assert not unawaited


async def test_a_call_while_the_name_is_gone_is_a_broker_error(own_nats, names):
    server = own_nats()
    url = server.url.replace("127.0.0.1", NAME)
    names.vanished = True
    with pytest.raises(BrokerError, match="cannot connect"):
        await NatsTransport.connect(url, deadline_s=0.2)
    with pytest.raises(BrokerError, match="cannot connect"):
        await connect(url, "test")


@pytest.mark.parametrize("kind", ["bus", "connector"])
async def test_a_connection_that_the_server_closes_with_an_error_comes_back(own_nats, kind):
    client, close = await open_client(kind, own_nats().url)
    await echo_on(client)
    before = client.stats["reconnects"]
    await client.publish("x" * 5_000, b"")  # -ERR 'maximum control line exceeded'
    await until(lambda: client.stats["reconnects"] > before)
    assert await heard(client) == b"x"
    await close()


async def test_an_error_in_the_midst_of_a_new_attempt_is_followed_by_another_one(own_nats, monkeypatch):
    server = own_nats()
    client, close = await open_client("bus", server.url)
    await echo_on(client)
    greet = ReconnectingClient._process_connect_init
    broken = iter([ZeroDivisionError("half a greeting"), None])

    async def greeting(self):
        if (err := next(broken, None)) is not None:
            raise err
        await greet(self)

    monkeypatch.setattr(ReconnectingClient, "_process_connect_init", greeting)
    server.stop()
    await until(lambda: not client.is_connected)
    own_nats()
    assert await heard(client) == b"x"
    await close()
