"""Credentials of NATS in files, with a real nats-server: nkeys, and an operator's JWTs."""

from __future__ import annotations

import asyncio
import subprocess
import time

import pytest

from penstock.bus.credentials import credentials
from penstock.bus.nats import NatsTransport
from penstock.embedded.servers import nats_server_binary
from penstock.errors import BrokerError, SpecError
from penstock.reserving import port_of, reserve_port

pytest.importorskip("nkeys")

from tests.servers.nats_keys import Key, Operator

CREDS, NKEY = "security.nats.credentials-file", "security.nats.nkey-file"
WAIT_S = 60


@pytest.fixture
def served(tmp_path):
    """A function that starts a nats-server with a configuration; its URL."""
    running, held = [], []

    def serve(configuration: str) -> str:
        held.append(reserve_port())
        port = port_of(held[-1])
        (tmp_path / "nats.conf").write_text(f"host: 127.0.0.1\nport: {port}\n{configuration}")
        with (tmp_path / "nats.log").open("wb") as log:
            argv = [nats_server_binary(), "-c", str(tmp_path / "nats.conf")]
            running.append(subprocess.Popen(argv, stdout=log, stderr=log))
        until = time.monotonic() + WAIT_S
        while "Server is ready" not in (said := (tmp_path / "nats.log").read_text()):
            assert running[-1].poll() is None, said
            assert time.monotonic() < until, said
            time.sleep(0.02)
        return f"nats://127.0.0.1:{port}"

    yield serve
    for server in running:
        server.terminate()
        server.wait(WAIT_S)
    for port in held:
        port.close()


async def asked(url: str, config: dict[str, str], subject: str = "a.question") -> bytes:
    """The answer of one connection to another one's question."""
    one = await NatsTransport.connect(url, config=config, deadline_s=WAIT_S)
    two = await NatsTransport.connect(url, config=config, deadline_s=WAIT_S)

    async def answer(_: str, data: bytes) -> bytes:
        return data.upper()

    try:
        await one.serve("a.>", answer)
        await one.client.flush()
        return await two.request(subject, b"works", timeout_s=WAIT_S)
    finally:
        await one.close()
        await two.close()


@pytest.mark.cluster
async def test_an_nkey_connects_and_another_does_not(served, tmp_path):
    known, stranger = Key(), Key()
    url = served(f"authorization {{ users: [ {{ nkey: {known.public} }} ] }}")
    (tmp_path / "seed").write_text(f"# the dispatcher\n{known.seed}\n")
    assert await asked(url, {NKEY: str(tmp_path / "seed")}) == b"WORKS"
    (tmp_path / "seed").write_text(stranger.seed)
    for config in ({NKEY: str(tmp_path / "seed")}, {}):
        with pytest.raises(BrokerError, match=r"[Aa]uthorization"):
            await NatsTransport.connect(url, config=config, deadline_s=1)


@pytest.mark.cluster
async def test_credentials_of_an_operator_connect_and_are_renewed(served, tmp_path):
    operator = Operator()
    url = served(operator.configuration())
    path = operator.credentials(tmp_path / "a.creds", "dispatcher")
    assert await asked(url, {CREDS: str(path)}) == b"WORKS"
    other = Operator().credentials(tmp_path / "other.creds", "dispatcher")
    with pytest.raises(BrokerError):
        await NatsTransport.connect(url, config={CREDS: str(other)}, deadline_s=1)
    # A connection that is lost comes back with what the file then holds; damaged meanwhile, it is told and tried again.
    told: list[bool] = []
    transport = await NatsTransport.connect(
        url, config={CREDS: str(path)}, deadline_s=WAIT_S, on_connection=told.append
    )
    try:
        whole = path.read_text()
        path.write_text("half a file")
        await transport.client._process_op_err(ConnectionResetError("cut by the test"))
        until = time.monotonic() + WAIT_S
        while not told:
            assert time.monotonic() < until
            await _pause()
        await _pause()
        assert told == [False]
        operator.credentials(path, "dispatcher")
        assert path.read_text() != whole
        while not told[-1]:  # the connection may be lost once more meanwhile
            assert time.monotonic() < until, told
            await _pause()
    finally:
        await transport.close()


async def _pause() -> None:
    await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("option", "text", "words"),
    [
        (CREDS, None, "cannot be read"),
        (CREDS, "", "does not hold a user's JWT"),
        (
            CREDS,
            "-----BEGIN NATS USER JWT-----\na.b.c\n------END NATS USER JWT------\n",
            "does not hold the seed",
        ),
        (NKEY, "", "does not hold one seed"),
        (NKEY, "SUAB", "damaged"),
        pytest.param(NKEY, Key(0).seed, "no seed of a user", id="seed of an account"),
        pytest.param(NKEY, Key().public, "no seed of a user", id="public key"),
        (NKEY, "\x00\xff", "no seed of a user"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_and_not_shown(tmp_path, option, text, words):
    path = tmp_path / "file"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SpecError, match=words) as refused:
        credentials({option: str(path)})
    assert str(path) in str(refused.value.where)
    assert not text or text not in str(refused.value)


def test_one_kind_of_credentials(tmp_path):
    assert credentials({}) == {}
    with pytest.raises(SpecError, match="one kind"):
        credentials({CREDS: "a", NKEY: "b"})
