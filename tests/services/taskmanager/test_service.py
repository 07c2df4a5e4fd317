"""The task manager's shell with real slot processes (of ``fake_template``) on an in-memory
bus; resource manager and job master are the test.
"""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import pytest
import structlog

from penstock.bus import MemoryBus, NobodyServesError, Subjects, request, serve_typed
from penstock.errors import BrokerError, SpecError
from penstock.jobgraph import JobGraph
from penstock.messages.cluster import Ack, Refused
from penstock.messages.job_master import OfferReply, OfferSlots, SlotLost, SlotReport, ToJobMaster
from penstock.messages.preface import encode_preface
from penstock.messages.resource_manager import (
    DeregisterTaskManager,
    RegisterReply,
    RegisterTaskManager,
    ToResourceManager,
)
from penstock.messages.slot import (
    CancelTasks,
    CheckpointAcknowledged,
    CheckpointComplete,
    Deploy,
    StorageSettings,
    TaskStateChanged,
    TriggerCheckpoint,
)
from penstock.messages.taps import Tap
from penstock.messages.task_manager import (
    AllocateSlot,
    DeploySlot,
    FreeSlot,
    RequestStackSamples,
    RequestTap,
    RequestTaskManagerDetails,
    SlotCommand,
    StackSamples,
    TapRows,
)
from penstock.unix_sockets import unix_address
from penstock_services.common.actor import Supervisor
from penstock_services.common.clock import SystemClock
from penstock_services.common.main import ServiceContext
from penstock_services.taskmanager import stalls
from penstock_services.taskmanager.relay import Relay
from penstock_services.taskmanager.service import TaskManagerService
from penstock_services.taskmanager.template import Template

TM = "taskmanager-test"
SECRET = "ab" * 32


class Rig:
    """The task manager and those who speak with it."""

    def __init__(self, bus: MemoryBus, folder: Path, **config: str) -> None:
        self.bus = bus
        self.transport = bus.transport()
        self.subjects = Subjects()
        self.context = ServiceContext(
            role="taskmanager",
            service_id=TM,
            config={
                "taskmanager.numberOfTaskSlots": "2",
                "io.tmp.dirs": str(folder),
                # What changes is told at once; so long a beat may take before it counts as unanswered.
                "heartbeat.interval": "1 s",
                **config,
            },
            clock=SystemClock(),
            transport=bus.transport(),
            subjects=self.subjects,
            supervisor=Supervisor("taskmanager", SystemClock()),
            log=structlog.get_logger(),
        )
        self.service = TaskManagerService(self.context)
        self.service._template = self.service._running.template = Template(
            self.service._template._spawner,
            [sys.executable, str(Path(__file__).with_name("fake_template.py"))],
        )
        self.beats: asyncio.Queue[RegisterTaskManager] = asyncio.Queue()
        self.left: list[DeregisterTaskManager] = []
        self.master: asyncio.Queue = asyncio.Queue()
        self.said: list = []
        self.master_there = True

    async def start(self) -> None:
        async def resourcemanager(message):
            if isinstance(message, DeregisterTaskManager):
                self.left.append(message)
                return Ack()
            self.beats.put_nowait(message)
            return RegisterReply(resourcemanager_id="rm", epoch=1)

        async def master(message):
            if not self.master_there:
                return None
            if isinstance(message, OfferSlots):
                return OfferReply(accepted=tuple(s.allocation_id for s in message.slots))
            self.master.put_nowait(message)
            return Ack()

        await serve_typed(
            self.transport, self.subjects.resourcemanager_all, ToResourceManager, resourcemanager
        )
        await serve_typed(self.transport, self.subjects.job_all("j"), ToJobMaster, master)
        self.ready = await self.service.start()

    async def stop(self) -> None:
        await self.service.stop()
        await self.context.close()

    async def send(self, message, reply=Ack | Refused, deadline_s=60.0):
        return await request(
            self.transport,
            self.subjects.to_taskmanager(TM, message),
            message,
            reply,
            timeout_s=60.0,
            deadline_s=deadline_s,
        )

    async def allocate(self, allocation="a1", index=0):
        return await self.send(
            AllocateSlot(command_id="c", epoch=1, slot_index=index, job_id="j", allocation_id=allocation)
        )

    async def deploy(self, allocation="a1", attempt=1, do="run"):
        deploy = Deploy(
            job_id="j",
            job_attempt=attempt,
            epoch=1,
            allocation_id=allocation,
            job_graph=JobGraph(name="g", vertices=(), edges=()),
            tasks=(),
            locations={},
            slots={},
            secret=SECRET,
            storage=StorageSettings(url="memory:///"),
            config={"do": do},
        )
        return await self.send(DeploySlot(command_id="c", allocation_id=allocation, deploy=deploy))

    async def command(self, command, allocation="a1"):
        return await self.send(SlotCommand(command_id="c", allocation_id=allocation, command=command))

    async def next(self, kind):
        """The next message of this kind to the master; a report of a slot by its type."""
        async with asyncio.timeout(60):
            while True:
                while self.said:
                    if isinstance(found := self.said.pop(0), kind):
                        return found
                message = await self.master.get()
                self.said += message.reports if isinstance(message, SlotReport) else (message,)

    async def active(self, but=None):
        """Waits until slot 0 is active with a process other than ``but``; returns it."""
        while (slot := (await self.slots(["active", "free"]))[0]).pid == but:
            pass
        return slot

    async def slots(self, wanted):
        """Waits for a heartbeat with these states, and a process in each active slot (one that is
        being forked is called active too); returns its slots."""
        async with asyncio.timeout(60):
            while True:
                beat = await self.beats.get()
                forking = any(slot.state == "active" and slot.pid is None for slot in beat.slots)
                if [slot.state for slot in beat.slots] == wanted and not forking:
                    return beat.slots


@pytest.fixture
async def rig(tmp_path):
    rig = Rig(MemoryBus(), tmp_path)
    await rig.start()
    yield rig
    await rig.stop()


def alive(pid):
    return Path(f"/proc/{pid}").exists()


async def ended(pid):
    """Waits until no process has this id."""
    async with asyncio.timeout(60):
        while alive(pid):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_slot_from_allocation_to_its_end(rig, tmp_path):
    await rig.slots(["free", "free"])
    assert await rig.allocate() == Ack()
    await rig.slots(["allocated", "free"])
    assert await rig.deploy() == Ack()
    slot = await rig.active()
    assert alive(slot.pid)
    assert slot.details["rss_bytes"] > 0
    assert (await rig.next(TaskStateChanged)).state == "RUNNING"
    assert [p.name for p in (tmp_path / TM / "slots").iterdir()] == ["a1-1"]
    assert await rig.command(CancelTasks(epoch=1)) == Ack()
    assert (await rig.next(TaskStateChanged)).state == "CANCELED"
    assert await rig.send(FreeSlot(command_id="c", job_id="j", allocation_id="a1", epoch=1)) == Ack()
    await rig.slots(["free", "free"])
    await ended(slot.pid)
    assert "slot of a1 does run" in (tmp_path / TM / "log" / "j.a1-1.log").read_text()


@pytest.mark.parametrize(
    ("samples", "interval_ms"), [(7, 2**31), (10**30, 1), (0, 1), (-1, 10), (5, 0), (5, -1)]
)
async def test_samples_that_would_never_end_are_refused(rig, samples, interval_ms):
    message = RequestStackSamples(job_id="j", samples=samples, interval_ms=interval_ms)
    with pytest.raises(SpecError, match="not a number of samples"):
        await rig.send(message, StackSamples)
    taken = RequestStackSamples(job_id="j", samples=2, interval_ms=1)
    assert await rig.send(taken, StackSamples) == StackSamples()


@pytest.mark.parametrize(("rows", "lease_ms"), [(0, 1), (10**30, 1), (1, -1), (1, 2**70)])
async def test_taps_that_no_dispatcher_asks_for_are_refused(rig, rows, lease_ms):
    tap = Tap(tap_id="t", edge_id="e", rows=rows, lease_ms=lease_ms)
    with pytest.raises(SpecError, match="not a tap that can be made"):
        await rig.send(RequestTap(job_id="j", allocation_ids=("a1",), tap=tap), TapRows)
    fine = Tap(tap_id="t", edge_id="e", rows=20, lease_ms=5_000)
    assert await rig.send(RequestTap(job_id="j", allocation_ids=("a1",), tap=fine), TapRows) == TapRows()


async def test_reports_come_in_order_and_large_ones_too(rig):
    await rig.allocate()
    await rig.deploy()
    for n in range(1, 21):
        await rig.command(TriggerCheckpoint(epoch=1, checkpoint_id=n, timestamp_ms=0, execution_ids=("e",)))
    got = [await rig.next(CheckpointAcknowledged) for _ in range(20)]
    assert [r.checkpoint_id for r in got] == list(range(1, 21))
    assert {r.handle.inline for r in got} == {b"x" * 60_000}


async def test_reports_wait_for_a_master(rig):
    rig.master_there = False
    await rig.allocate()
    await rig.deploy()
    for n in range(30):
        await rig.command(CheckpointComplete(epoch=1, checkpoint_id=n))  # metrics: only the latest counts
    await rig.command(TriggerCheckpoint(epoch=1, checkpoint_id=1, timestamp_ms=0, execution_ids=("e",)))
    assert rig.master.empty()
    rig.master_there = True
    assert (await rig.next(TaskStateChanged)).state == "RUNNING"
    assert (await rig.next(CheckpointAcknowledged)).checkpoint_id == 1


@pytest.mark.parametrize(
    ("do", "words"),
    [
        ("exit:3", ["exit code 3", "these are my last words"]),
        ("exit:0", ["exit code 0"]),
        ("nonsense", ["signal SIGKILL"]),
    ],
)
async def test_a_dying_slot_is_reported_after_all_it_said(rig, do, words):
    await rig.allocate()
    await rig.deploy(do=do)
    assert (await rig.next(TaskStateChanged)).state == "RUNNING"
    lost = await rig.next(SlotLost)
    assert lost.allocation_id == "a1"
    for word in words:
        assert word in lost.reason
    await rig.slots(["free", "free"])


@pytest.mark.parametrize("broken", ["reading", "sending"])
async def test_a_report_that_cannot_be_handled_ends_its_slot(rig, monkeypatch, broken):
    """It must not look like silence: nobody would ever restart it."""
    raised = []

    def raises(*_):
        if not raised:
            raised.append(1)
            raise RuntimeError("a bug")
        return original(*_)

    table, relay = rig.service._table, Relay
    if broken == "reading":
        original = table.reported
        monkeypatch.setattr(table, "reported", raises)
    else:
        original = relay._take
        monkeypatch.setattr(relay, "_take", raises)
    await rig.allocate()
    await rig.deploy()
    assert "signal SIGKILL" in (await rig.next(SlotLost)).reason
    assert raised
    await rig.slots(["free", "free"])
    assert await rig.allocate("a2") == Ack()
    assert await rig.deploy("a2") == Ack()
    assert (await rig.next(TaskStateChanged)).state == "RUNNING"


async def test_sigkill(rig):
    await rig.allocate()
    await rig.deploy()
    slot = await rig.active()
    os.kill(slot.pid, signal.SIGKILL)
    assert "signal SIGKILL" in (await rig.next(SlotLost)).reason
    await rig.slots(["free", "free"])


async def test_a_slot_that_hangs_is_ended_all_the_same(rig):
    await rig.allocate()
    await rig.deploy(do="hang")
    slot = await rig.active()
    await rig.send(FreeSlot(command_id="c", job_id="j", allocation_id="a1", epoch=1))
    await rig.slots(["free", "free"])
    await ended(slot.pid)


async def test_the_next_attempt_is_another_process(rig):
    await rig.allocate()
    await rig.deploy()
    first = await rig.active()
    assert await rig.deploy(attempt=2) == Ack()
    second = await rig.active(but=first.pid)
    await ended(first.pid)
    assert alive(second.pid)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await rig.next(SlotLost)


async def test_the_template_dies_and_comes_back(rig):
    await rig.allocate()
    await rig.deploy()
    await rig.slots(["active", "free"])
    template = rig.service._template.pid
    os.kill(template, signal.SIGKILL)
    await ended(template)
    # (The fake's slots outlive it; the real one's die with it.)
    await rig.allocate("a2", 1)
    assert await rig.deploy("a2") == Ack()
    assert rig.service._template.pid != template


async def test_a_broken_bus_leaves_the_slots_alone(rig):
    await rig.allocate()
    await rig.deploy()
    slot = await rig.active()
    rig.context.transport.connected = False
    await asyncio.sleep(0.5)
    assert alive(slot.pid)
    rig.context.transport.connected = True
    for listener in rig.context.connection_listeners:
        listener(True)
    while not rig.beats.empty():
        rig.beats.get_nowait()
    assert (await rig.slots(["active", "free"]))[0].pid == slot.pid


async def test_shutdown_leaves_nothing(tmp_path):
    rig = Rig(MemoryBus(), tmp_path)
    await rig.start()
    await rig.allocate()
    await rig.deploy()
    await rig.allocate("a2", 1)
    await rig.deploy("a2", do="hang")
    pids = [slot.pid for slot in await rig.slots(["active", "active"])]
    template = rig.service._template.pid
    await rig.stop()
    for pid in (*pids, template):
        await ended(pid)
    assert [m.taskmanager_id for m in rig.left] == [TM]
    lost = [await rig.next(SlotLost), await rig.next(SlotLost)]
    assert {m.allocation_id for m in lost} == {"a1", "a2"}
    assert all("task manager was shut down" in m.reason for m in lost)
    with pytest.raises((NobodyServesError, BrokerError)):
        await rig.send(RequestTaskManagerDetails(), RegisterTaskManager, deadline_s=0.2)
    assert sorted(p.name for p in (tmp_path / TM).iterdir()) == ["lock", "log"]


# -- the data port -------------------------------------------------------------------------


def preface(allocation="a1", attempt=1, secret=SECRET, epoch=1):
    return encode_preface(
        job_id="j",
        job_attempt=attempt,
        epoch=epoch,
        source_allocation="a9",
        target_allocation=allocation,
        secret=secret,
    )


async def talk(rig, opening, *, unix=False):
    """What the slot answers over a data connection; empty when it was refused."""
    host, port = rig.ready["data_port"].rsplit(":", 1)
    if unix:
        with unix_address(rig.ready["data_socket"]) as path:
            reader, writer = await asyncio.open_unix_connection(path)
    else:
        reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(opening + b"hello")  # in one packet: nothing behind the preface may be lost
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("unix", [False, True])
async def test_a_data_connection_is_passed_to_its_slot(rig, unix):
    await rig.allocate()
    await rig.deploy()
    assert await talk(rig, preface(), unix=unix) == b"a1 1 hello"


@pytest.mark.parametrize(
    "opening",
    [
        preface(secret="cd" * 32),
        preface(allocation="a7"),
        preface(attempt=0),
        preface(epoch=0),
        b"GET / HTTP/1.1\r\n\r\n",
        b"PNS1\xff\xff\xff\xff",
    ],
)
async def test_what_is_not_for_us_is_closed(rig, opening):
    await rig.allocate()
    await rig.deploy()
    assert await talk(rig, opening) == b""
    assert await talk(rig, preface()) == b"a1 1 hello"


async def test_a_peer_that_is_earlier_waits(rig):
    await rig.allocate()
    waiting = asyncio.create_task(talk(rig, preface()))
    await rig.deploy()
    assert await waiting == b"a1 1 hello"
    early = asyncio.create_task(talk(rig, preface(attempt=2)))
    await rig.deploy(attempt=2)
    assert await early == b"a1 2 hello"
    assert await talk(rig, preface(attempt=1)) == b""


async def test_a_taken_port_is_named(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        rig = Rig(MemoryBus(), tmp_path, **{"taskmanager.data.port": str(port)})
        with pytest.raises(Exception, match=f"cannot open the data port 127.0.0.1:{port}"):
            await rig.start()
        await rig.stop()


async def test_a_slot_that_hangs_is_named(rig, monkeypatch):
    await rig.allocate()
    with structlog.testing.capture_logs() as logs:
        rig.context.log = rig.service._context.log = structlog.get_logger()
        await rig.deploy(do="hang")
        await rig.next(TaskStateChanged)  # its last word: it has written its log, and hangs
        monkeypatch.setattr(stalls, "STALLED_MS", 300)
        async with asyncio.timeout(60):
            while not (found := [line for line in logs if line["event"] == "slot_stalled"]):
                await rig.beats.get()
    assert found[0]["allocation_id"] == "a1"
    assert found[0]["log_level"] == "error"
    assert "slot of a1 does hang" in found[0]["log_ends"]
