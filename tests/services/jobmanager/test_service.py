"""Job managers on a memory bus and store: leases, takeover, pauses, and what they tidy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
import structlog

from penstock.bus import MemoryBus, MemoryTransport, Subjects, request, serve_typed
from penstock.errors import BrokerError, LeaseStoreError
from penstock.leases import MemoryLeases
from penstock.messages import cluster as msg
from penstock.messages import layout
from penstock.messages import slot as slot_msg
from penstock.messages.states import ExecutionState, JobStatus
from penstock.store import MemoryStore, job_log
from penstock_services.common.actor import Supervisor
from penstock_services.common.clock import SystemClock
from penstock_services.common.main import ServiceContext
from penstock_services.jobmanager.service import JobManagerService
from tests.services.jobmanager.graphs import pipeline

TTL_MS = 200


class Leases(MemoryLeases):
    """``down``: owners that cannot reach the store."""

    def __init__(self) -> None:
        super().__init__()
        self.down: set[str] = set()

    def _check(self, owner: str) -> None:
        if owner in self.down:
            raise LeaseStoreError("cannot be reached")

    async def acquire(self, name: str, owner: str, ttl_ms: int) -> bool:
        self._check(owner)
        return await super().acquire(name, owner, ttl_ms)

    async def renew(self, name: str, owner: str, ttl_ms: int) -> bool:
        self._check(owner)
        return await super().renew(name, owner, ttl_ms)

    async def release(self, name: str, owner: str) -> None:
        self._check(owner)
        await super().release(name, owner)


class Context(ServiceContext):
    """On what the test made, instead of what the configuration names."""

    made: Any

    async def store(self) -> Any:
        return self.made[0]

    def leases(self) -> Any:
        return self.made[1]


class World:
    """One store, one bus, a resource manager and a task manager that agree to everything."""

    def __init__(self) -> None:
        self.bus, self.store, self.leases = MemoryBus(), MemoryStore(), Leases()
        self.subjects = Subjects("test")
        self.services: dict[str, tuple[JobManagerService, Context]] = {}
        self.commands: list[Any] = []
        self.offered: dict[tuple[str, int], int] = {}

    async def start(self) -> None:
        transport = self.bus.transport()
        await serve_typed(transport, self.subjects.resourcemanager_all, msg.ToResourceManager, self._manage)
        await serve_typed(transport, self.subjects.taskmanager_all("tm1"), msg.ToTaskManager, self._work)

    async def jobmanager(self, name: str) -> None:
        clock = SystemClock()
        context = Context(
            role="jobmanager",
            service_id=name,
            config={
                "high-availability.lease-duration": f"{TTL_MS} ms",
                "high-availability.storageDir": "memory:///t",
            },
            clock=clock,
            transport=self.bus.transport(),
            subjects=self.subjects,
            supervisor=Supervisor(name, clock),
            log=structlog.get_logger(),
        )
        context.made = (self.store, self.leases)
        service = JobManagerService(context)
        await service.start()
        self.services[name] = (service, context)

    async def stop(self) -> None:
        for service, context in self.services.values():
            await service.stop()
            await context.supervisor.close()
            await context.transport.close()

    # -- the others ----------------------------------------------------------------------

    async def _manage(self, message: Any) -> Any:
        if isinstance(message, msg.RequestClusterOverview):
            return msg.ClusterOverview(
                taskmanagers=[], slots_total=2, slots_free=0, resourcemanager_id="rm", epoch=1
            )
        claim = (message.job_id, message.epoch)
        held = self.offered.get(claim, 0)
        if held < message.needed:
            self.offered[claim] = message.needed
            offer = msg.OfferSlots(
                command_id="o",
                job_id=message.job_id,
                taskmanager_id="tm1",
                host="h",
                data_port=1,
                slots=tuple(
                    msg.SlotOffer(allocation_id=f"{message.epoch}-{i}", slot_index=i)
                    for i in range(held, message.needed)
                ),
            )
            asyncio.get_running_loop().create_task(self.to_master(offer, msg.OfferReply))
        return msg.DeclareReply(allocated=self.offered.get(claim, 0), missing=0, total=2, free=0)

    async def _work(self, message: Any) -> Any:
        self.commands.append(message)
        if isinstance(message, msg.DeploySlot):
            for task in message.deploy.tasks:
                asyncio.get_running_loop().create_task(self._report(message.deploy, task))
        return msg.Ack()

    async def _report(self, deploy: slot_msg.Deploy, task: slot_msg.TaskDescriptor) -> None:
        report = slot_msg.TaskStateChanged(
            job_id=deploy.job_id,
            job_attempt=deploy.job_attempt,
            execution_id=task.execution_id,
            vertex_id=task.vertex_id,
            subtask_index=task.subtask_index,
            state=ExecutionState.RUNNING,
            timestamp_ms=1,
        )
        await self.to_master(
            msg.SlotReport(
                job_id=deploy.job_id,
                taskmanager_id="tm1",
                allocation_id=deploy.allocation_id,
                reports=(report,),
            )
        )

    # -- from the test -------------------------------------------------------------------

    async def to_master(self, message: Any, reply: Any = msg.Ack) -> Any:
        subject = self.subjects.to_job(message.job_id, message)
        return await request(self.bus.transport(), subject, message, reply, timeout_s=0.1, deadline_s=5.0)

    async def details(self, job_id: str) -> msg.JobDetails | None:
        """None when nobody answers."""
        message = msg.RequestJobDetails(job_id=job_id)
        subject = self.subjects.to_job(job_id, message)
        try:
            return await request(
                self.bus.transport(), subject, message, msg.JobDetails, timeout_s=0.1, retry=False
            )
        except BrokerError:
            return None

    async def accept(self, job_id: str) -> None:
        await self.store.put(f"jobs/{job_id}/graph", msgspec.json.encode(pipeline()))
        await self.store.put(layout.active_key(job_id), b"")
        accepted = msg.JobAccepted(
            job_id=job_id,
            name="pipeline",
            timestamp_ms=5,
            job_graph_key=f"jobs/{job_id}/graph",
            spec_key="",
        )
        assert await job_log(self.store, job_id).begin(accepted)


def in_virtual_time(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Leases of 200 ms, kept whatever the machine does meanwhile: no time passes while anything
    is to be done."""

    def run(virtual_time: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch) -> None:
        async def main() -> None:
            world = World()
            await world.start()
            try:
                await test(world, monkeypatch)
            finally:
                await world.stop()

        virtual_time(main())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def until(condition: Callable[[], Any]) -> Any:
    for _ in range(1000):
        if value := await condition():
            return value
        await asyncio.sleep(0.01)
    raise AssertionError("it never came")


async def running(world: World, job_id: str, **wanted: Any) -> msg.JobDetails:
    async def check() -> msg.JobDetails | None:
        details = await world.details(job_id)
        ready = details is not None and all(
            s.state is ExecutionState.RUNNING for v in details.vertices for s in v.subtasks
        )
        return details if ready and all(getattr(details, k) == v for k, v in wanted.items()) else None

    return await until(check)


@in_virtual_time
async def test_an_accepted_job_that_nobody_announced_is_found(world, monkeypatch):
    await world.accept("j")
    await world.jobmanager("jm1")
    details = await running(world, "j")
    assert (details.attempt, details.epoch, details.jobmanager_id) == (1, 2, "jm1")
    entries = [type(e).__name__ for _, e in await job_log(world.store, "j").read()]
    assert entries == ["JobAccepted", "LeaderEpoch", "Restored"]


@in_virtual_time
async def test_a_job_announced_before_it_is_accepted_is_not_forgotten(world, monkeypatch):
    await world.jobmanager("jm1")
    await world.store.put(layout.active_key("j"), b"")
    run = msg.RunJob(command_id="r", job_id="j")
    await request(world.bus.transport(), world.subjects.jobmanager_run, run, msg.Ack)
    await world.accept("j")
    await running(world, "j")


@in_virtual_time
async def test_a_lease_store_that_was_away_costs_nothing(world, monkeypatch):
    await world.accept("j")
    await world.jobmanager("jm1")
    before = await running(world, "j")
    world.leases.down.add("jm1")

    async def silent() -> bool:
        return await world.details("j") is None

    await until(silent)
    world.leases.down.clear()
    world.leases.wipe()
    after = await running(world, "j")
    assert (after.epoch, after.attempt) == (before.epoch, before.attempt)


@in_virtual_time
async def test_a_standby_takes_over_and_the_old_leader_decides_nothing(world, monkeypatch):
    await world.accept("j")
    await world.jobmanager("jm1")
    before = await running(world, "j")
    world.leases.down.add("jm1")
    await world.jobmanager("jm2")
    after = await running(world, "j", jobmanager_id="jm2")
    assert after.epoch > before.epoch
    assert after.attempt == 2
    world.leases.down.clear()
    # The old one is back, and even gets the lease: it must begin anew, not go on.
    await world.services["jm2"][0].stop()
    again = await running(world, "j", jobmanager_id="jm1")
    assert again.epoch > after.epoch
    epochs = [n for n, e in await job_log(world.store, "j").read() if isinstance(e, msg.LeaderEpoch)]
    assert epochs == [before.epoch, after.epoch, again.epoch]


@in_virtual_time
async def test_a_reign_that_began_while_the_bus_was_away_begins_anew(world, monkeypatch):
    serve, refused = MemoryTransport.serve, []

    async def away(self: MemoryTransport, subject: str, handler: Any, **options: Any) -> Any:
        if subject == world.subjects.job_all("j") and not refused:
            refused.append(subject)
            raise BrokerError("not connected")
        return await serve(self, subject, handler, **options)

    monkeypatch.setattr(MemoryTransport, "serve", away)
    await world.accept("j")
    await world.jobmanager("jm1")
    assert (await running(world, "j")).epoch == 3
    assert refused


@in_virtual_time
async def test_a_cancelled_job_is_archived_and_its_slots_given_back(world, monkeypatch):
    await world.accept("j")
    await world.jobmanager("jm1")
    await running(world, "j")
    await world.to_master(msg.CancelJob(command_id="c", job_id="j"))

    async def cancels() -> bool:
        return any(isinstance(c, msg.SlotCommand) for c in world.commands)

    await until(cancels)
    deploys = [c for c in world.commands if isinstance(c, msg.DeploySlot)]
    for deploy in deploys:
        lost = msg.SlotLost(
            command_id="l",
            job_id="j",
            taskmanager_id="tm1",
            allocation_id=deploy.allocation_id,
            reason="cancelled",
        )
        await world.to_master(lost)

    async def archived() -> bool:
        return layout.ended_key("j") in [key for key, _ in await world.store.list(layout.ENDED_PREFIX)]

    await until(archived)
    details = msgspec.json.decode(await world.store.get(layout.archive_key("j")), type=msg.JobDetails)
    assert details.status is JobStatus.CANCELED
    freed = {c.allocation_id for c in world.commands if isinstance(c, msg.FreeSlot)}
    assert freed == {d.allocation_id for d in deploys}
    assert await world.store.list(layout.ACTIVE_PREFIX) == []


@in_virtual_time
async def test_an_ended_job_whose_master_died_before_the_archive(world, monkeypatch):
    await world.accept("j")
    log = job_log(world.store, "j")
    epoch = await log.lead("dead", 1)
    await log.append(
        msg.Terminal(epoch=epoch, status=JobStatus.FAILED, timestamp_ms=9, error={"message": "x"})
    )
    await world.jobmanager("jm1")

    async def archived() -> bool:
        return await world.store.list(layout.ACTIVE_PREFIX) == []

    await until(archived)
    details = msgspec.json.decode(await world.store.get(layout.archive_key("j")), type=msg.JobDetails)
    assert (details.status, details.end_ms, details.name) == (JobStatus.FAILED, 9, "pipeline")
