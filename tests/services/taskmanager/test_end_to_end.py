"""Two task managers with real templates and slots on a real NATS; the test is resource
manager and job master. Data crosses from slot to slot through both data ports.
"""

import asyncio
import os
import signal
import sys
import uuid
from pathlib import Path

import pytest
import structlog

from penstock.bus import Subjects, request, serve_typed
from penstock.bus.nats import NatsTransport
from penstock.connectors.collect import MaterializedResult, decode_chunk, results_prefix
from penstock.jobgraph import Hash
from penstock.jobgraph.specs import UnionSpec
from penstock.messages.cluster import Ack, Refused
from penstock.messages.job_master import OfferReply, OfferSlots, SlotLost, SlotReport, ToJobMaster
from penstock.messages.slot import (
    Deploy,
    SlotAddress,
    StorageSettings,
    TaskDescriptor,
    TaskStateChanged,
)
from penstock.messages.states import ExecutionState
from penstock.messages.task_manager import AllocateSlot, DeploySlot
from penstock.store import open_store
from penstock.testing import GraphBuilder
from penstock.types import Batch, Schema
from penstock.types.logical import BigIntType, VarCharType
from penstock_services.common.actor import Supervisor
from penstock_services.common.clock import SystemClock
from penstock_services.common.main import ServiceContext
from penstock_services.taskmanager.service import TaskManagerService

pytestmark = pytest.mark.cluster

SCHEMA = Schema.of(("k", BigIntType(nullable=False)), ("s", VarCharType()))
ROWS = 5_000
JOB = "end-to-end"
#: vertex:subtask → allocation; a1 and a2 are on different task managers
LOCATIONS = {"v0:0": "a1", "v1:0": "a1", "v1:1": "a2", "v2:0": "a2"}


def graph():
    """values (1) → hash → union (2) → collect (1)."""
    b = GraphBuilder()
    source = b.values(Batch.of(SCHEMA, [(i, f"row {i}") for i in range(ROWS)]))
    keyed = b.vertex(UnionSpec(), SCHEMA, inputs=[(source, Hash(keys=(0,)))], parallelism=2)
    b.collect(keyed)
    return b.build()


class Cluster:
    def __init__(self, folder, nats_url):
        self.folder = folder
        self.nats_url = nats_url
        self.subjects = Subjects(f"c{uuid.uuid4().hex[:8]}")
        self.services = []
        self.addresses = {}
        self.states = {}
        self.lost = []
        self.changed = asyncio.Event()

    async def start(self):
        self.transport = await NatsTransport.connect(self.nats_url)
        await serve_typed(self.transport, self.subjects.job_all(JOB), ToJobMaster, self.master)
        for name in ("tm-a", "tm-b"):
            context = ServiceContext(
                role="taskmanager",
                service_id=name,
                config={"io.tmp.dirs": str(self.folder / "tmp"), "nats.url": self.nats_url},
                clock=SystemClock(),
                transport=await NatsTransport.connect(self.nats_url),
                subjects=self.subjects,
                supervisor=Supervisor(name, SystemClock()),
                log=structlog.get_logger(),
            )
            service = TaskManagerService(context)
            await service.start()
            self.services.append((service, context))

    async def stop(self):
        for service, context in self.services:
            await service.stop()
            await context.close()
        await self.transport.close()

    async def master(self, message):
        match message:
            case OfferSlots():
                for slot in message.slots:
                    self.addresses[slot.allocation_id] = SlotAddress(
                        allocation_id=slot.allocation_id,
                        taskmanager_id=message.taskmanager_id,
                        host=message.host,
                        port=message.data_port,
                        unix_path=message.unix_path,
                    )
                self.changed.set()
                return OfferReply(accepted=tuple(s.allocation_id for s in message.slots))
            case SlotReport():
                for report in message.reports:
                    if isinstance(report, TaskStateChanged):
                        told = self.states.setdefault(report.execution_id, [])
                        if report.state not in told:  # a report that is late is told again
                            told.append(report.state)
            case SlotLost():
                self.lost.append(message)
        self.changed.set()
        return Ack()

    async def until(self, condition):
        async with asyncio.timeout(60):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def send(self, taskmanager, message):
        subject = self.subjects.to_taskmanager(taskmanager, message)
        reply = await request(self.transport, subject, message, Ack | Refused, timeout_s=60, deadline_s=60)
        assert reply == Ack(), reply

    async def allocate(self):
        for taskmanager, allocation in (("tm-a", "a1"), ("tm-b", "a2")):
            message = AllocateSlot(
                command_id="c", epoch=1, slot_index=0, job_id=JOB, allocation_id=allocation
            )
            await self.send(taskmanager, message)
        await self.until(lambda: len(self.addresses) == 2)

    async def deploy(self, attempt):
        deploys = [
            Deploy(
                job_id=JOB,
                job_attempt=attempt,
                epoch=1,
                allocation_id=allocation,
                job_graph=graph(),
                tasks=tuple(
                    TaskDescriptor(
                        execution_id=f"{where}:{attempt}",
                        vertex_id=where.split(":")[0],
                        subtask_index=int(where.split(":")[1]),
                        attempt=attempt,
                    )
                    for where, at in LOCATIONS.items()
                    if at == allocation
                ),
                locations=LOCATIONS,
                slots=self.addresses,
                secret="cd" * 32,
                storage=StorageSettings(url=(self.folder / "store").as_uri()),
            )
            for allocation in self.addresses
        ]
        await asyncio.gather(
            *(
                self.send(
                    self.addresses[deploy.allocation_id].taskmanager_id,
                    DeploySlot(command_id="c", allocation_id=deploy.allocation_id, deploy=deploy),
                )
                for deploy in deploys
            )
        )

    async def rows(self):
        store, result = open_store((self.folder / "store").as_uri()), MaterializedResult()
        for key, _ in await store.list(results_prefix(JOB)):
            result.add(decode_chunk(key, await store.get(key)))
        return result.rows()

    def slot_pid(self, index):
        return self.services[index][0]._table.report()[0].pid


@pytest.fixture
async def cluster(tmp_path, nats_url):
    made = Cluster(tmp_path, nats_url)
    await made.start()
    yield made
    await made.stop()


async def test_a_job_over_two_task_managers_and_its_next_attempt(cluster):
    await cluster.allocate()
    await cluster.deploy(1)
    # The sink asks for a final checkpoint, which nobody triggers here: only the others finish.
    await cluster.until(lambda: ExecutionState.FINISHED in cluster.states.get("v1:1:1", ()))
    first = [cluster.slot_pid(0), cluster.slot_pid(1)]
    await cluster.deploy(2)
    await cluster.until(lambda: ExecutionState.FINISHED in cluster.states.get("v1:1:2", ()))
    second = [cluster.slot_pid(0), cluster.slot_pid(1)]
    assert not set(first) & set(second)
    assert cluster.lost == []
    expected = [(i, f"row {i}") for i in range(ROWS)]
    async with asyncio.timeout(60):
        while sorted(await cluster.rows()) != expected:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    E = ExecutionState
    # Of another task manager than v1:1's: what it says may come after that.
    await cluster.until(lambda: E.FINISHED in cluster.states["v0:0:2"])
    assert cluster.states["v0:0:2"] == [E.INITIALIZING, E.RUNNING, E.FINISHED]


async def test_a_killed_slot_is_reported_and_its_slot_free_again(cluster):
    await cluster.allocate()
    await cluster.deploy(1)
    await cluster.until(lambda: "v2:0:1" in cluster.states)
    os.kill(cluster.slot_pid(1), signal.SIGKILL)
    await cluster.until(lambda: cluster.lost)
    assert cluster.lost[0].allocation_id == "a2"
    assert "SIGKILL" in cluster.lost[0].reason


async def test_slots_die_with_the_template(cluster):
    await cluster.allocate()
    await cluster.deploy(1)
    await cluster.until(lambda: "v2:0:1" in cluster.states)
    os.kill(cluster.services[0][0]._template.pid, signal.SIGKILL)
    await cluster.until(lambda: cluster.lost)
    assert cluster.lost[0].allocation_id == "a1"


def _children(pid):
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(stat[1]) == pid:
                found.append(int(entry.name))
    return found


async def test_a_killed_task_manager_takes_its_slots_along(tmp_path, nats_url):
    """SIGKILL gives nobody a chance to clean up: the kernel ends template and slots."""
    cluster = Cluster(tmp_path, nats_url)
    cluster.transport = await NatsTransport.connect(nats_url)
    await serve_typed(cluster.transport, cluster.subjects.job_all(JOB), ToJobMaster, cluster.master)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "penstock_services.taskmanager",
        f"-Dnats.url={nats_url}",
        f"-Dcluster.id={cluster.subjects.cluster}",
        "-Dtaskmanager.resource-id=tm-a",
        f"-Dio.tmp.dirs={tmp_path}",
    )
    try:
        message = AllocateSlot(command_id="c", epoch=1, slot_index=0, job_id=JOB, allocation_id="a1")
        await cluster.send("tm-a", message)
        await cluster.until(lambda: cluster.addresses)
        cluster.addresses["a2"] = cluster.addresses["a1"]
        message = DeploySlot(
            command_id="c",
            allocation_id="a1",
            deploy=Deploy(
                job_id=JOB,
                job_attempt=1,
                epoch=1,
                allocation_id="a1",
                job_graph=graph(),
                tasks=(),
                locations=LOCATIONS,
                slots=cluster.addresses,
                secret="cd" * 32,
                storage=StorageSettings(url=tmp_path.as_uri()),
            ),
        )
        await cluster.send("tm-a", message)
        [template] = _children(process.pid)
        [slot] = _children(template)
    finally:
        process.kill()
        await process.wait()
        await cluster.transport.close()
    async with asyncio.timeout(60):
        while any(os.path.exists(f"/proc/{pid}") for pid in (template, slot)):  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.01)
