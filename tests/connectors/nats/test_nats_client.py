"""Connecting: a server that is slow is waited for, one that refuses is not."""

from __future__ import annotations

import asyncio

import pytest

from penstock.connectors.nats import client as module
from penstock.errors import BrokerError
from penstock.reserving import port_of, reserve_port

INFO = b'INFO {"server_id":"x","version":"2.12.0","proto":1,"max_payload":1048576,"headers":true}\r\n'


async def test_a_server_that_says_nothing_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECT_TIMEOUT_S", 0.05)
    waited = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await waited.wait()
        writer.write(INFO)
        async for line in reader:
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connecting = asyncio.create_task(module.connect(f"nats://127.0.0.1:{port}", "test"))
    done, _ = await asyncio.wait({connecting}, timeout=0.3)
    assert not done, "longer than a server that refuses is asked"
    waited.set()
    client = await connecting
    assert client.is_connected
    await client.close()
    server.close()


async def test_one_that_refuses_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECT_TIMEOUT_S", 0.05)
    monkeypatch.setattr(module, "SLOW_CONNECT_S", 3_600)
    with reserve_port() as held, pytest.raises(BrokerError, match="cannot connect") as failed:
        await module.connect(f"nats://127.0.0.1:{port_of(held)}", "test")
    assert "Connect call failed" in (failed.value.got or "")
