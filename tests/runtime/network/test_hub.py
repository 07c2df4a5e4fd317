"""Two hubs over real sockets: order, credit, refusal, retry, loss, and a last flush."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import ExternalError, InternalError
from penstock.messages.preface import recv_preface, verify
from penstock.messages.slot import SlotAddress
from penstock.runtime.channels import GateBatch, GateEnded, GateWatermark
from penstock.runtime.credit import EXCLUSIVE_BYTES, CreditPool, ReceiveWindow
from penstock.runtime.deployment import ChannelId
from penstock.runtime.elements import END_OF_INPUT, Watermark
from penstock.runtime.gates import InputGates
from penstock.runtime.network.hub import NetworkHub
from penstock.runtime.outputs import OutputChannel, Outputs
from penstock.types import Batch, Column, Schema
from penstock.types.logical import BigIntType

LONG = BigIntType(nullable=False)
SCHEMA = Schema.of(("x", LONG))
SECRET = "ab" * 16
CHANNEL = ChannelId(0, 0, 0)


def rows(n: int, start: int = 0) -> Batch:
    return Batch(SCHEMA, [Column(LONG, np.arange(start, start + n))])


class Pair:
    """Hub a sends to hub b through a data port that passes sockets on at once."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "s")
        self.lost: list[ExternalError] = []
        self.refusals = 0
        self.sender, self.receiver = self._hub("a"), self._hub("b")
        self.ready = asyncio.Event()
        self.gates = InputGates([["c"]], on_ready=self.ready.set)
        self.pool = CreditPool(4 * EXCLUSIVE_BYTES)
        self.outputs = Outputs()
        push, bind = self.sender.sender("b", CHANNEL, SCHEMA)
        self.out = OutputChannel(self.outputs, push, EXCLUSIVE_BYTES)
        bind(self.out.add_credit)
        target = self.gates.channels[0][0]
        grant = self.receiver.receiver("a", CHANNEL, SCHEMA, target)
        target.window = ReceiveWindow(self.pool, grant)

    def _hub(self, name: str) -> NetworkHub:
        address = SlotAddress(
            allocation_id="b", taskmanager_id="t", host="127.0.0.1", port=9, unix_path=self.path
        )
        return NetworkHub(
            allocation_id=name,
            job_id="j",
            job_attempt=1,
            epoch=1,
            secret=SECRET,
            addresses={"b": address},
            on_lost=self.lost.append,
        )

    async def port(self) -> None:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.path)
            listener.listen()
            listener.setblocking(False)
            while True:
                sock, _ = await loop.sock_accept(listener)
                sock.setblocking(False)
                preface = await recv_preface(loop, sock)
                assert verify(preface, SECRET)
                if self.refusals:
                    self.refusals -= 1
                    sock.close()
                else:
                    await self.receiver.accept(sock, preface)

    async def next(self) -> object:
        while (event := self.gates.poll(1 << 20)) is None:
            self.ready.clear()
            await asyncio.wait_for(self.ready.wait(), 10)
        return event


@asynccontextmanager
async def pair(folder: Path, *, refusals: int = 0) -> AsyncIterator[Pair]:
    p = Pair(folder)
    p.refusals = refusals
    port = asyncio.create_task(p.port())
    try:
        yield p
    finally:
        port.cancel()
        p.sender.close()
        p.receiver.close()
        await asyncio.sleep(0)


async def test_everything_in_order_and_within_the_window(tmp_path: Path) -> None:
    async with pair(tmp_path) as p:
        p.sender.connect()
        sent, got, most = 0, 0, 0
        while got < 500_000:
            while sent < 500_000 and not p.outputs.blocked:
                p.out.append(rows(20_000, sent))
                sent += 20_000
            p.out.flush()
            event = await p.next()
            assert isinstance(event, GateBatch)
            values = event.batch.columns[0].values
            assert (values == np.arange(got, got + len(values))).all()
            got += len(values)
            most = max(most, p.gates.queued_bytes())
        p.out.emit(Watermark(5))
        p.out.emit(END_OF_INPUT)
        assert await p.next() == GateWatermark(0, 5)
        assert await p.next() == GateEnded(0)
        assert most <= 6 * EXCLUSIVE_BYTES
        assert p.pool.free == p.pool.total
        assert not p.lost


async def test_a_slot_that_is_not_there_yet_is_tried_again(tmp_path: Path) -> None:
    async with pair(tmp_path, refusals=2) as p:
        p.out.append(rows(3))
        p.out.flush()  # before there is a connection: it waits
        p.sender.connect()
        event = await p.next()
        assert isinstance(event, GateBatch)
        assert p.refusals == 0
        assert not p.lost


async def test_a_broken_connection_is_told_on_both_sides(tmp_path: Path) -> None:
    async with pair(tmp_path) as p:
        p.sender.connect()
        p.out.append(rows(3))
        p.out.flush()
        await p.next()
        p.receiver._incoming["a"]._protocol.transport.abort()  # type: ignore[union-attr]
        for _ in range(1000):
            if len(p.lost) == 2:
                break
            await asyncio.sleep(0.001)
        assert sorted(str(e.message).split()[3] for e in p.lost) == ["from", "to"]


async def test_what_was_sent_leaves_before_the_slot_ends(tmp_path: Path) -> None:
    async with pair(tmp_path) as p:
        p.sender.connect()
        p.out.append(rows(1))
        p.out.flush()
        await p.next()
        p.out.append(rows(20_000))
        p.out.emit(END_OF_INPUT)
        await p.sender.drain(5)
        got = 0
        while not isinstance(event := await p.next(), GateEnded):
            got += event.batch.num_rows  # type: ignore[attr-defined]
        assert got == 20_000
        assert not p.lost


async def test_a_socket_of_another_attempt_is_refused(tmp_path: Path) -> None:
    async with pair(tmp_path) as p:
        left, right = socket.socketpair()
        preface = {"job_id": "j", "job_attempt": 2, "target_allocation": "b", "source_allocation": "a"}
        with pytest.raises(InternalError, match="does not belong to this slot"):
            await p.receiver.accept(right, preface)
        assert left.recv(1) == b""
        left.close()
