"""A slot process: one allocation of one job attempt, on one data thread.

Commands come from the task manager over the control channel, data sockets over the fd channel. The loop is
uvloop; tasks run in steps on it. The cyclic collector runs when the loop is idle (``collector``). When the
control channel is lost, the task manager is gone, and the slot ends.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import socket
import sys
import threading
import time
import traceback
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.config import NETWORK_MEMORY, STATE_MEMORY
from penstock.errors import FencedError, InternalError, PenstockError
from penstock.jobgraph.dependencies import DEPENDENCIES
from penstock.messages.slot import (
    LOCAL_STATE,
    CancelTasks,
    CheckpointAborted,
    CheckpointComplete,
    DataConnection,
    Deploy,
    MasterChanged,
    ReportMetrics,
    ShutdownSlot,
    SlotReady,
    TaskMetricsReport,
    TriggerCheckpoint,
)
from penstock.messages.stack_samples import SampleStacks, StacksSampled
from penstock.messages.states import ExecutionState
from penstock.messages.taps import TapEdge
from penstock.redaction import without_credentials
from penstock.runtime.artifacts import load_functions
from penstock.runtime.collector import Collector
from penstock.runtime.control_channel import ControlChannel
from penstock.runtime.credit import CreditPool
from penstock.runtime.deployment import Deployment
from penstock.runtime.elements import Barrier
from penstock.runtime.environment import Environment
from penstock.runtime.failures import error_info
from penstock.runtime.network.hub import NetworkHub
from penstock.runtime.sampling import sample
from penstock.runtime.slot_reports import MAX_UNREAD_BYTES, SlotReports
from penstock.runtime.taps import Taps, writers_of
from penstock.state.memory import StateMemory
from penstock.state.process_memory import ProcessMemory, rss_bytes
from penstock.store.open import open_store

if TYPE_CHECKING:
    from penstock.runtime.task import Task

#: Seconds between two metric reports.
REPORT_S = 1.0
#: If a step holds the loop for this long, its stack is written to the slot's log.
STALL_S = 5.0
#: When the slot ends, data of finished tasks gets this many seconds to leave the process.
DRAIN_S = 0.5
_SWITCH_INTERVAL_S = 2e-4


class Slot:
    """Takes commands, runs tasks, reports. ``run`` returns the process's exit code."""

    def __init__(
        self, control: ControlChannel, fd_channel: socket.socket, allocation_id: str, local_dir: Path
    ) -> None:
        self._control = control
        self._reports = SlotReports(control, self._report)
        self._fd_channel = fd_channel
        self._allocation_id = allocation_id
        self._local_dir = local_dir
        self._epoch = 0
        self._deploy: Deploy | None = None
        self._environment: Environment | None = None
        self._deployment: Deployment | None = None
        self._network: NetworkHub | None = None
        #: Data sockets that came before their deployment.
        self._early: list[tuple[socket.socket, dict[str, Any]]] = []
        self._background: set[asyncio.Task[Any]] = set()
        self._collector = Collector()
        self._taps = Taps(time.perf_counter, Random())
        #: The error because of which this slot can run no tasks; None while it can.
        self._broken: Exception | None = None

    async def run(self) -> int:
        """Run the slot until the task manager ends it or its control channel closes; returns the exit code."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._loop_error)
        self._collector.start()
        self._fd_channel.setblocking(False)
        loop.add_reader(self._fd_channel.fileno(), self._receive_sockets)
        self._control.send(SlotReady(allocation_id=self._allocation_id, pid=os.getpid()))
        reports = self._spawn(self._report_periodically())
        try:
            while (message := await self._control.receive()) is not None:
                if isinstance(message, ShutdownSlot):
                    break
                try:
                    await self._handle(message)
                except FencedError as err:
                    self._reports.log("warning", "command_refused", error=err)
        finally:
            reports.cancel()
            await self._shutdown()
        return 0

    # -- orders ------------------------------------------------------------------------------

    async def _handle(self, message: Any) -> None:
        match message:
            case Deploy():
                await self._on_deploy(message)
            case CancelTasks(epoch=epoch, execution_ids=wanted):
                self._fence(epoch, "cancel")
                for name, task in self._tasks().items():
                    if not wanted or name in wanted:
                        self._spawn(task.cancel())
            case TriggerCheckpoint():
                self._fence(message.epoch, f"checkpoint {message.checkpoint_id}")
                self._trigger(message)
            case CheckpointComplete(epoch=epoch, checkpoint_id=checkpoint_id):
                self._fence(epoch, f"completion of checkpoint {checkpoint_id}")
                for task in self._tasks().values():
                    task.checkpoint_complete(checkpoint_id)
            case CheckpointAborted(epoch=epoch, checkpoint_id=checkpoint_id):
                self._fence(epoch, f"abort of checkpoint {checkpoint_id}")
                for task in self._tasks().values():
                    task.checkpoint_aborted(checkpoint_id)
            case MasterChanged(epoch=epoch):
                self._fence(epoch, "a new master")
            case ReportMetrics():
                self._report()
            case SampleStacks():
                self._spawn(self._sample(message))
            case TapEdge():
                writers = self._deployment.writers if self._deployment is not None else []
                self._control.send(self._taps.pull(message, writers_of(writers)))
            case DataConnection():
                raise InternalError("data sockets come over the fd channel")
            case _:
                raise InternalError(f"unknown order {message!r}")

    def _fence(self, epoch: int, what: str) -> None:
        if epoch < self._epoch:
            raise FencedError(
                f"an order of an old master was refused ({what})",
                expected=f"epoch {self._epoch} or later",
                got=f"epoch {epoch}",
            )
        self._epoch = epoch

    async def _on_deploy(self, deploy: Deploy) -> None:
        if self._deploy is not None:
            # A repetition of the command that made this slot; any other deployment is not for it.
            if deploy.job_attempt != self._deploy.job_attempt or deploy.job_id != self._deploy.job_id:
                raise FencedError(
                    "a slot process serves one attempt of one job",
                    expected=f"{self._deploy.job_id} attempt {self._deploy.job_attempt}",
                    got=f"{deploy.job_id} attempt {deploy.job_attempt}",
                )
            return
        self._fence(deploy.epoch, "deployment")
        self._deploy = self._reports.deploy = deploy
        try:
            if self._broken is not None:
                raise self._broken
            await self._deploy_tasks(deploy)
        except Exception as err:
            info = error_info(err, task=f"slot {self._allocation_id}")
            for task in deploy.tasks:
                self._reports.send_state(task.execution_id, task.vertex_id, task.subtask_index, info)

    async def _deploy_tasks(self, deploy: Deploy) -> None:
        config = {**deploy.job_graph.config, **deploy.config}
        store = open_store(deploy.storage.url, deploy.storage.options)
        self._local_dir.mkdir(parents=True, exist_ok=True)
        self._environment = Environment(
            job_id=deploy.job_id,
            job_name=deploy.job_graph.name,
            job_attempt=deploy.job_attempt,
            config=config,
            local_dir=self._local_dir,
            # <task manager>/slots/<slot> → <task manager>/local-state
            local_state_dir=self._local_dir.parent.parent / LOCAL_STATE,
            store=store,
            storage=deploy.storage,
            function=await load_functions(
                deploy.job_graph, store, self._local_dir, self._local_dir.parent / DEPENDENCIES
            ),
            credits=CreditPool(NETWORK_MEMORY.read(config)),
            memory=_state_memory(STATE_MEMORY.read(config)),
            log=self._reports.log,
        )
        self._network = NetworkHub(
            allocation_id=self._allocation_id,
            job_id=deploy.job_id,
            job_attempt=deploy.job_attempt,
            epoch=deploy.epoch,
            secret=deploy.secret,
            addresses=deploy.slots,
            on_lost=self._connection_lost,
        )
        self._deployment = Deployment(
            deploy.job_graph,
            deploy.tasks,
            environment=self._environment,
            listener=self._reports,
            allocation_id=self._allocation_id,
            locations=deploy.locations,
            network=self._network,
        )
        self._network.connect()
        for sock, preface in self._early:
            self._accept(sock, preface)
        self._early.clear()
        self._collector.freeze()
        self._deployment.start()

    def _trigger(self, message: TriggerCheckpoint) -> None:
        patience_ms = message.aligned_timeout_ms if message.unaligned else None
        barrier = Barrier(message.checkpoint_id, message.timestamp_ms, message.kind, patience_ms)
        tasks = self._tasks()
        for execution_id in message.execution_ids:
            task = tasks.get(execution_id)
            if task is None:
                self._reports.decline(execution_id, message.checkpoint_id, "no such execution in this slot")
            else:
                task.trigger_checkpoint(barrier)

    # -- data sockets ---------------------------------------------------------------------------

    def _receive_sockets(self) -> None:
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self._fd_channel, 65536, 4)
            except BlockingIOError:
                return
            except OSError as err:
                self._reports.log("warning", "data_channel_failed", error=err)
                data, fds = b"", []
            if not data:
                asyncio.get_running_loop().remove_reader(self._fd_channel.fileno())
                return
            preface = msgspec.msgpack.decode(data)
            for fd in fds:
                self._accept(socket.socket(fileno=fd), preface)

    def _accept(self, sock: socket.socket, preface: dict[str, Any]) -> None:
        if self._network is None:
            self._early.append((sock, preface))
        else:
            self._spawn(self._accept_now(sock, preface))

    async def _accept_now(self, sock: socket.socket, preface: dict[str, Any]) -> None:
        assert self._network is not None
        try:
            await self._network.accept(sock, preface)
        except PenstockError as err:
            self._reports.log("warning", "data_connection_refused", reason=err)

    def _connection_lost(self, err: PenstockError) -> None:
        for task in self._tasks().values():
            if not task.state.terminal:
                self._spawn(task.fail(err))

    # -- metrics --------------------------------------------------------------------------------

    async def _report_periodically(self) -> None:
        try:
            while True:
                # A watchdog thread writes it unless the loop runs in time to reset the timer.
                faulthandler.dump_traceback_later(STALL_S)
                await asyncio.sleep(REPORT_S)
                self._report()
                self._taps.expire()
                self._collector.tick(idle=self._is_idle())
        finally:
            faulthandler.cancel_dump_traceback_later()

    async def _sample(self, asked: SampleStacks) -> None:
        thread = threading.get_ident()
        taken, found = await asyncio.to_thread(sample, thread, asked.samples, asked.interval_ms)
        self._control.send(StacksSampled(request_id=asked.request_id, samples=taken, vertices=found))

    def _is_idle(self) -> bool:
        return all(task.clock.state != "busy" and not task.scheduled for task in self._tasks().values())

    def _report(self) -> None:
        """Reports metrics. If they cannot be collected, all tasks fail; otherwise the slot would look idle
        for ever."""
        if self._deploy is None or self._broken or self._control.unread_bytes > MAX_UNREAD_BYTES:
            return
        try:
            self._send_figures(self._deploy)
        except Exception as err:
            error = InternalError(
                f"the slot cannot report its figures: {type(err).__name__}: {err}",
                where=f"slot {self._allocation_id}",
                remedy="the task manager's log has the traceback; please report it",
            )
            error.__cause__ = err
            self._break(error)

    def _send_figures(self, deploy: Deploy) -> None:
        self._control.send(
            TaskMetricsReport(
                job_id=deploy.job_id,
                job_attempt=deploy.job_attempt,
                allocation_id=self._allocation_id,
                tasks=tuple(task.metrics() for task in self._tasks().values()),
                rss_bytes=rss_bytes(),
                cpu_seconds=time.process_time(),
            )
        )

    # -- the end ---------------------------------------------------------------------------------

    async def _shutdown(self) -> None:
        if self._network is not None:
            if all(t.state is ExecutionState.FINISHED for t in self._tasks().values()):
                await self._network.drain(DRAIN_S)
            self._network.close()
        await asyncio.gather(*(t.cancel() for t in self._tasks().values()), return_exceptions=True)
        for task in list(self._background):
            task.cancel()
        if self._environment is not None:
            self._environment.helper.close()
        for sock, _ in self._early:
            sock.close()
        await self._control.close()

    def _tasks(self) -> dict[str, Task]:
        return self._deployment.tasks if self._deployment is not None else {}

    def _spawn(self, coroutine: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        if not task.cancelled() and isinstance(err := task.exception(), Exception):
            self._break(err)

    def _break(self, err: Exception) -> None:
        """An error that belongs to no task: all tasks fail, and none is started here any more."""
        self._reports.log("error", "slot_failed", error=repr(err))
        sys.stderr.write(without_credentials("".join(traceback.format_exception(err))))
        if self._broken is not None:
            return  # All tasks fail already.
        self._broken = err
        for task in self._tasks().values():
            self._spawn(task.fail(err))

    def _loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error that nothing awaited ends the slot. The exception is the future of a connection that an
        abandoned attempt left behind (a name that is not found before the time limit): the connecting
        code tries again or has raised already."""
        err = context.get("exception")
        if "future" in context and isinstance(err, OSError):
            self._reports.log("warning", "abandoned_connection_failed", error=repr(err))
            return
        self._reports.log("error", "loop_error", message=context.get("message"), error=repr(err))
        if isinstance(err, Exception):
            self._break(err)


def _state_memory(limit_bytes: int) -> StateMemory:
    """A slot is a process of its own: what it really takes is held near the limit."""
    return StateMemory(limit_bytes, ProcessMemory(limit_bytes) if limit_bytes else None)


def main(control: socket.socket, fd_channel: socket.socket, allocation_id: str, local_dir: str) -> int:
    """Runs a slot in this process, which does nothing else; its exit code."""
    import uvloop

    sys.setswitchinterval(_SWITCH_INTERVAL_S)

    async def run() -> int:
        channel = await ControlChannel.open(control)
        return await Slot(channel, fd_channel, allocation_id, Path(local_dir)).run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())
