"""Data connections between hosts with mutual TLS, and what is refused."""

from __future__ import annotations

import asyncio
import socket

import pytest
import trustme

from penstock import internal_tls
from penstock.errors import SpecError
from penstock.messages.preface import recv_preface
from penstock.messages.slot import SlotAddress
from penstock.runtime.channels import GateBatch
from penstock.runtime.network import hub as hubs
from tests.runtime.network.test_hub import Pair, rows

VARIABLES = (internal_tls.CERTIFICATE_VARIABLE, internal_tls.KEY_VARIABLE, internal_tls.CA_VARIABLE)


class TcpPair(Pair):
    """As its parent, by TCP. ``seen``: the first bytes after the preface, as a listener on the network sees them."""

    def __init__(self, folder) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.seen = b""
        super().__init__(folder)

    def _hub(self, name: str) -> hubs.NetworkHub:
        hub = super()._hub(name)
        port = self.listener.getsockname()[1]
        hub._addresses = {
            "b": SlotAddress(allocation_id="b", taskmanager_id="t", host="127.0.0.1", port=port, unix_path="")
        }
        return hub

    async def port(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            sock, _ = await loop.sock_accept(self.listener)
            sock.setblocking(False)
            preface = await recv_preface(loop, sock)
            if self.receiver.tls is not None:
                self.seen = await loop.run_in_executor(None, _peek, sock)
            await self.receiver.accept(sock, preface)


def _peek(sock: socket.socket) -> bytes:
    copy = sock.dup()
    copy.settimeout(20)
    try:
        return copy.recv(3, socket.MSG_PEEK)
    finally:
        copy.close()
        sock.setblocking(False)


@pytest.fixture
def files(tmp_path, monkeypatch):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("node").private_key_and_cert_chain_pem.write_to_path(tmp_path / "node.pem")
    values = (f"{tmp_path}/node.pem", "", f"{tmp_path}/ca.pem")
    for variable, value in zip(VARIABLES, values, strict=True):
        monkeypatch.setenv(variable, value)
    return tmp_path


async def test_data_goes_encrypted(files, tmp_path):
    pair = TcpPair(tmp_path)
    port = asyncio.create_task(pair.port())
    try:
        pair.sender.connect()
        pair.out.append(rows(1000))
        pair.out.flush()
        event = await pair.next()
        assert isinstance(event, GateBatch)
        assert len(event.batch.columns[0].values) == 1000
        assert pair.seen[:2] == b"\x16\x03", "a TLS handshake"
    finally:
        port.cancel()
        pair.sender.close()
        pair.receiver.close()
        pair.listener.close()


async def test_another_authority_is_refused(files, tmp_path, monkeypatch):
    monkeypatch.setattr(hubs, "CONNECT_TIMEOUT_S", 0.5)
    pair = TcpPair(tmp_path)
    trustme.CA().cert_pem.write_to_path(files / "ca.pem")
    pair.sender.tls = internal_tls.data_tls()
    port = asyncio.create_task(pair.port())
    try:
        pair.sender.connect()
        pair.out.append(rows(10))
        pair.out.flush()
        while not pair.lost:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert "could not be opened" in str(pair.lost[0])
        assert pair.gates.poll(1 << 20) is None
    finally:
        port.cancel()
        await asyncio.gather(port, return_exceptions=True)
        pair.sender.close()
        pair.receiver.close()
        pair.listener.close()


def test_a_certificate_needs_its_authority(files, monkeypatch):
    monkeypatch.delenv(internal_tls.CA_VARIABLE)
    with pytest.raises(SpecError, match="without the authority"):
        internal_tls.announce({"security.ssl.internal.certificate": f"{files}/node.pem"})
    (files / "node.pem").write_text("x")
    monkeypatch.setenv(internal_tls.CA_VARIABLE, f"{files}/ca.pem")
    with pytest.raises(SpecError, match="cannot be used"):
        internal_tls.data_tls()
