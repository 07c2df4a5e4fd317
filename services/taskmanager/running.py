"""The slot processes of this task manager: forks them, reads their reports, sends them commands, ends them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from penstock import config as conf
from penstock.errors import PenstockError
from penstock.jobgraph.graph import runs_on_spark
from penstock.messages.job_master import SlotLost
from penstock.messages.slot import Deploy, SlotLog, SlotReady
from penstock.messages.stack_samples import StacksSampled
from penstock.messages.taps import EdgeTapped
from penstock.messages.task_manager import RequestTaskManagerDetails
from penstock_services.taskmanager.events import (
    Deliver,
    Delivered,
    Ended,
    Fork,
    Forked,
    MasterHeard,
    ReportLost,
)
from penstock_services.taskmanager.log_files import emptied
from penstock_services.taskmanager.relay import Relay
from penstock_services.taskmanager.slot import DRAIN_TIMEOUT_S, SlotProcess
from penstock_services.taskmanager.slot_table import END_GRACE_MS, SlotTable
from penstock_services.taskmanager.stalls import look_for_stall

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.messages.task_manager import RequestTap
    from penstock_services.common.actor import Actor
    from penstock_services.common.main import ServiceContext
    from penstock_services.taskmanager.folders import Folders
    from penstock_services.taskmanager.spark import SparkServer
    from penstock_services.taskmanager.template import Template

#: How long the remaining reports of a slot are sent after its process has ended.
FAREWELL_S = 30.0
#: The same while the task manager itself stops.
STOP_FAREWELL_S = 2.0


class RunningSlots:
    """The slot processes. The slot table decides what runs; ``actor`` runs the table, and receives the
    results."""

    def __init__(
        self,
        context: ServiceContext,
        table: SlotTable,
        actor: Actor,
        folders: Folders,
        template: Template,
        spark: SparkServer,
    ) -> None:
        self._context = context
        self._table = table
        self._actor = actor
        self._folders = folders
        self.template = template
        self._spark = spark
        #: Process number → process, and process number → relay.
        self._processes: dict[int, SlotProcess] = {}
        self._relays: dict[int, Relay] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        #: The task manager is ending: the slot table is not told of processes that end now.
        self.stopping = False

    async def stop(self) -> None:
        """Ends all processes and tells the masters of their jobs. No task of ``spawn`` is left afterwards."""
        for number, relay in list(self._relays.items()):
            process = self._processes.get(number)
            if process is not None:
                relay.close(self._lost(process, "its task manager was shut down"))
        await asyncio.gather(*(process.end(END_GRACE_MS) for process in list(self._processes.values())))
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_FAREWELL_S)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def spawn(self, coroutine: Any) -> asyncio.Task[Any]:
        """Runs a coroutine in the background until it is done or the task manager stops."""
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def fork(self, effect: Fork) -> None:
        """Forks a slot process and deploys its tasks. Raises ExternalError if the process cannot be started."""
        deploy = effect.deploy
        spark = await self._spark.acquire() if wants_local_spark(deploy) else None
        if spark is not None:
            settings = spark.settings()
            deploy = msgspec.structs.replace(deploy, config={**deploy.config, **settings})
        local_dir, log_path = self._folders.slot(deploy.job_id, deploy.allocation_id, effect.process)
        started_ms = self._context.clock.monotonic_ms()
        process = None
        try:
            forked = await self.template.fork(deploy.allocation_id, str(local_dir), str(log_path))
            process = SlotProcess(effect.process, deploy, forked, self.template, local_dir, log_path)
            await process.start()
        except BaseException:
            if process is not None:
                process.kill()
                process.close()
            if spark is not None:
                self._spark.release(spark)
            self._folders.remove_slot(local_dir)
            raise
        self._context.log.info(
            "slot_started",
            slot_index=effect.slot_index,
            allocation_id=deploy.allocation_id,
            job_id=deploy.job_id,
            attempt=deploy.job_attempt,
            slot_pid=forked.pid,
            duration_ms=round(self._context.clock.monotonic_ms() - started_ms, 1),
        )
        relay = Relay(
            self._context.transport,
            self._context.subjects,
            job_id=deploy.job_id,
            taskmanager_id=self._context.service_id,
            allocation_id=deploy.allocation_id,
            on_answer=lambda: self._master_heard(deploy.job_id),
        )
        self._processes[effect.process] = process
        self._relays[effect.process] = relay
        # Before the watch begins, because the event of the end must not overtake the event of the start.
        await self._actor.tell(Forked(effect.process, forked.pid))
        watch = self.spawn(self._watch(process, relay))
        if spark is not None:
            watch.add_done_callback(lambda _: self._spark.release(spark))

    def _master_heard(self, job_id: str) -> None:
        # A full mailbox does no harm, because the next answer has the same effect.
        self._actor.try_tell(MasterHeard(job_id))

    async def _watch(self, process: SlotProcess, relay: Relay) -> None:
        """From start to end of a slot process."""
        sending = self.spawn(self._until_over(relay.run, process))
        reading = self.spawn(self._until_over(lambda: self._read(process, relay), process))
        await process.gone()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                await reading
        reason = await process.last_words()
        self._context.log.info(
            "slot_ended",
            allocation_id=process.deploy.allocation_id,
            slot_pid=process.pid,
            reason=reason,
        )
        if not self.stopping:
            # The slot table decides whether the master must be told (ReportLost comes first).
            await self._actor.tell(Ended(process.number, reason))
            await self._actor.ask(RequestTaskManagerDetails())
        relay.close()
        process.close()
        del self._processes[process.number]
        await asyncio.to_thread(self._folders.remove_slot, process.local_dir)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await sending
        del self._relays[process.number]

    async def _until_over(self, work: Callable[[], Awaitable[None]], process: SlotProcess) -> None:
        """Repeats ``work`` after an error. A report that cannot be handled must not be dropped silently: the
        slot is ended, and its master is told; the following reports are handled."""
        while True:
            try:
                return await work()
            except Exception:
                self._context.log.exception(
                    "slot_report_failed",
                    allocation_id=process.deploy.allocation_id,
                    slot_pid=process.pid,
                )
                process.kill()

    async def _read(self, process: SlotProcess, relay: Relay) -> None:
        async for report, size in process.reports():
            match report:
                case SlotLog(level=level, event=event, fields=fields):
                    log = self._context.log.error if level == "error" else self._context.log.warning
                    log(event, allocation_id=process.deploy.allocation_id, **fields)
                case SlotReady():
                    pass
                case StacksSampled() | EdgeTapped():
                    process.answered(report)
                case _:
                    # This comes first, so that a new master that asks about the task learns at least this.
                    self._table.reported(process.number, report)
                    await relay.put(report, size)

    async def look_after(self) -> None:
        """Called with each heartbeat: looks for slots whose step does not end, and for output beyond its
        limit."""
        max_bytes = conf.TM_OUTPUT_SIZE.read(self._context.config)
        for process in list(self._processes.values()):
            if gone := emptied(process.log_path, max_bytes):
                self._context.log.warning(
                    "slot_output_discarded",
                    allocation_id=process.deploy.allocation_id,
                    slot_pid=process.pid,
                    lost_bytes=gone,
                )
            # Without a relay the process has ended, and its end is being reported.
            if (relay := self._relays.get(process.number)) is not None:
                await look_for_stall(process, relay, self._context.log)

    async def deliver(self, effect: Deliver) -> Delivered:
        """Sends a command to a slot's process."""
        process = self._processes.get(effect.process)
        if process is None:
            return Delivered(effect.token, "the slot's process is gone")
        try:
            await process.send(effect.command)
        except PenstockError as err:
            return Delivered(effect.token, err.message)
        return Delivered(effect.token)

    async def end(self, number: int, grace_ms: int) -> None:
        """Ends a process, if it runs. It is killed after ``grace_ms``."""
        process = self._processes.get(number)
        if process is not None:
            await process.end(grace_ms)

    def report_lost(self, effect: ReportLost) -> None:
        """Tells the job's master that a process has ended, after the process's own reports."""
        relay, process = self._relays.get(effect.process), self._processes.get(effect.process)
        if relay is not None and process is not None:
            relay.close(self._lost(process, effect.reason))

    def _lost(self, process: SlotProcess, reason: str) -> SlotLost:
        return SlotLost(
            command_id=f"{self._context.service_id}-lost-{process.number}",
            job_id=process.deploy.job_id,
            taskmanager_id=self._context.service_id,
            allocation_id=process.deploy.allocation_id,
            reason=reason,
            exit_code=process.exit_code,
        )

    async def samples(self, job_id: str, samples: int, interval_ms: int) -> dict[str, StacksSampled]:
        """Allocation id → what the slot did in the next moments. Slots that do not answer are left out."""
        wanted = [p for p in self._processes.values() if p.deploy.job_id == job_id]
        found = await asyncio.gather(*(p.sample(samples, interval_ms) for p in wanted))
        return {p.deploy.allocation_id: s for p, s in zip(wanted, found, strict=True) if s is not None}

    async def tapped(self, message: RequestTap) -> dict[str, EdgeTapped]:
        """Allocation id → the rows of an edge that passed in its slot. Slots that do not answer are left out."""
        found = [self.of_allocation(allocation_id) for allocation_id in message.allocation_ids]
        wanted = [p for p in found if p is not None and p.deploy.job_id == message.job_id]
        answers = await asyncio.gather(*(p.tap(message.tap) for p in wanted))
        return {p.deploy.allocation_id: a for p, a in zip(wanted, answers, strict=True) if a is not None}

    def of_allocation(self, allocation_id: str) -> SlotProcess | None:
        """The process that runs in an allocation, or None."""
        slot = self._table.of_allocation(allocation_id)
        return None if slot is None else self._processes.get(slot.process)


def wants_local_spark(deploy: Deploy) -> bool:
    """Whether the slot uses this task manager's own Spark."""
    config = {**deploy.job_graph.config, **deploy.config}
    elsewhere = conf.SPARK_MASTER.read(config) or conf.SPARK_REMOTE.read(config)
    return not elsewhere and runs_on_spark(deploy.job_graph)
