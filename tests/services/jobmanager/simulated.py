"""A whole cluster around one job master's core, in virtual time, from one seed.

Tasks are models: they start, read, pass barriers on, acknowledge, finish; slots and task
managers die; messages are repeated; the store fails. What must always hold is checked
after every step.
"""

from __future__ import annotations

import heapq
import itertools
import random
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from penstock.messages import cluster as msg
from penstock.messages import slot as slot_msg
from penstock.messages.slot import StateHandle, StorageSettings
from penstock.messages.states import ExecutionState
from penstock_services.common.core import After, Answer, Asked
from penstock_services.jobmanager import effects as fx
from penstock_services.jobmanager.checkpoint_decider import CheckpointConfig
from penstock_services.jobmanager.checkpoint_history import Statistics, newest_statistics
from penstock_services.jobmanager.inheritance import read_logged_job, with_statistics
from penstock_services.jobmanager.master import JobMasterCore
from penstock_services.jobmanager.stages import Inherited, Settings
from penstock_services.jobmanager.topology import upstream_of
from penstock_services.taskmanager.tracking import Tracking

E = ExecutionState


@dataclass
class Faults:
    """Probabilities, per occasion."""

    task_failure: float = 0.0
    slot_lost: float = 0.0
    taskmanager_lost: float = 0.0
    decline: float = 0.0
    duplicate: float = 0.0
    store: float = 0.0
    lost_command: float = 0.0
    #: another master takes over, sooner or later after this one fell silent
    master_lost: float = 0.0


@dataclass
class Task:
    descriptor: slot_msg.TaskDescriptor
    deploy: slot_msg.Deploy
    taskmanager_id: str
    state: E = E.DEPLOYING
    ended_input: bool = False
    #: everything is read and written; FINISHED is on its way
    closing: bool = False
    #: checkpoint ids that this task took part in
    passed: set[int] = field(default_factory=set)
    passed_after_end: set[int] = field(default_factory=set)

    @property
    def place(self) -> tuple[str, int]:
        return self.descriptor.vertex_id, self.descriptor.subtask_index


class Cluster:
    def __init__(
        self,
        graph: Any,
        seed: int,
        *,
        faults: Faults | None = None,
        taskmanagers: int = 2,
        slots: int = 2,
        config: dict[str, str] | None = None,
        unbounded: bool = False,
        inherited: Inherited | None = None,
        after: Cluster | None = None,
        epoch: int = 2,
    ) -> None:
        self.random = random.Random(seed)
        self.faults = faults or Faults()
        self.now_ms = 1_000_000
        self.unbounded = unbounded
        self._queue: list[tuple[int, int, Any]] = []
        self._order = itertools.count()
        self._timers: dict[str, int] = {}
        self.free = [(f"tm{t}", s) for t in range(taskmanagers) for s in range(slots)]
        self.total = len(self.free)
        self.allocations: dict[str, tuple[str, int]] = {}
        self.tasks: dict[tuple[str, int], Task] = {}
        self.objects: set[str] = after.objects if after else set()
        self.manifests: dict[str, Any] = after.manifests if after else {}
        self.savepoints: dict[str, Any] = {}
        self.statistics: dict[str, Statistics] = {}
        self.exceptions: list[dict[str, Any]] = []
        self.log: list[Any] = []
        self.sent: list[fx.Command] = []
        self.said: list[fx.Say] = []
        self.published: list[Any] = []
        self.answers: dict[int, Any] = {}
        self.stopped: fx.Stop | None = None
        self.archived: fx.Archive | None = None
        self.faulty_until_ms = self.now_ms + 60_000
        self.committed: list[int] = []
        self.graph = graph
        self.config = (config or {}) | graph.config
        self.tracking: dict[str, Tracking] = {}
        #: lost task managers do not come back
        self.free_forever = False
        self.masters = 0
        self.rm_epoch = 1
        #: highest epoch that the task managers have heard of
        self.heard_epoch = 0
        self.lead(epoch, inherited or Inherited())

    # -- masters -------------------------------------------------------------------------

    def lead(self, epoch: int, inherited: Inherited) -> None:
        self.masters += 1
        self.epoch = epoch
        self._timers.clear()
        settings = Settings(
            jobmanager_id=f"jm{self.masters}",
            epoch=epoch,
            storage=StorageSettings(url="memory:///"),
            config=self.config,
            secret="00" * 16,
        )
        self.core = JobMasterCore("job", self.graph, settings, inherited, self.now_ms)
        self.apply(fx.Begin())

    def take_over(self) -> None:
        """The master is gone; what it was about to do is undone, what it asked is not answered."""
        accepted = msg.JobAccepted(job_id="job", name="job", timestamp_ms=1, job_graph_key="g", spec_key="s")
        retained = CheckpointConfig.of(self.config).num_retained
        logged = read_logged_job(enumerate([accepted, *self.log], start=1), retained)
        if logged.terminal is None:
            kept = [self.statistics[key] for key in newest_statistics("job", self.statistics)]
            inherited = with_statistics(logged.inherited, kept)
            inherited = replace(
                inherited, statistics=tuple(self.statistics), exceptions=tuple(self.exceptions)
            )
            self.lead(self.epoch + 7, inherited)

    # -- driving -------------------------------------------------------------------------

    def later(self, event: Any, at_most_ms: int = 20, *, to: JobMasterCore | None = None) -> None:
        """``event`` reaches the core (or, a callable, happens) a little later. What is not a
        message of somebody's is an answer to this master, and to no other."""
        due = self.now_ms + self.random.randint(1, at_most_ms)
        if not callable(event) and not isinstance(event, Asked):
            answer, core = event, to or self.core

            def event() -> None:
                if self.core is core:
                    self.apply(answer)

        heapq.heappush(self._queue, (due, next(self._order), event))

    def run(self, until: Any = None, limit_ms: int = 3_600_000) -> None:
        """Until the master stops (or ``until()``); AssertionError at the limit."""
        end = self.now_ms + limit_ms
        while self.stopped is None and not (until and until()):
            assert self._queue, f"nothing will happen any more: {self.core.stage} {self.core.graph.summary()}"
            self.run_one()
            assert self.now_ms < end, f"hangs: {self.core.stage} {self.core.graph.summary()}"

    def run_one(self) -> None:
        self.now_ms, order, event = heapq.heappop(self._queue)
        if isinstance(event, fx.Wakeup) and self._timers.get("wakeup") != order:
            return
        if callable(event):
            event()
        else:
            self.apply(event)

    def apply(self, event: Any) -> None:
        effects = self.core.step(event, self.now_ms)
        self.core.validate_state()
        for effect in effects:
            self.perform(effect)

    def ask(self, message: Any) -> Any:
        token = next(self._order)
        self.apply(Asked(token, message))
        while token not in self.answers:
            self.run_one()
        return self.answers[token]

    def tell(self, message: Any) -> None:
        self.later(Asked(next(self._order), message))
        if self.random.random() < self.faults.duplicate:
            self.later(Asked(next(self._order), message), 200)

    def faulty(self, probability: float) -> bool:
        return self.now_ms < self.faulty_until_ms and self.random.random() < probability

    # -- effects -------------------------------------------------------------------------

    def perform(self, effect: fx.Effect) -> None:
        match effect:
            case Answer(token, reply):
                self.answers[token] = reply
            case After(delay_ms, event, key):
                order = next(self._order)
                self._timers[key] = order
                heapq.heappush(self._queue, (self.now_ms + delay_ms, order, event))
            case fx.Command():
                self.sent.append(effect)
                self.later(lambda core=self.core: self.command(effect, core), 5)
            case fx.Declare(needed):
                self.later(lambda core=self.core: self.core is core and self.declare(needed))
            case fx.Announce(msg.AdoptJob(epoch=epoch)):
                self.heard_epoch = max(self.heard_epoch, epoch)
                for allocation_id in list(self.allocations):
                    self.later(lambda a=allocation_id: self.offer(a))
            case fx.Announce(msg.JobOver()):
                self.later(self.free_all)
            case fx.FindAllocations():
                found = tuple((tm, a) for a, (tm, _) in self.allocations.items())
                self.later(fx.Allocations(found))
            case fx.FindTaskManagers():
                known = {tm for tm, _ in [*self.allocations.values(), *self.free]}
                self.later(fx.TaskManagers(frozenset(known)))
            case fx.LookFor(taskmanager_id):
                known = {tm for tm, _ in [*self.allocations.values(), *self.free]}
                self.later(fx.LookedFor(taskmanager_id, gone=taskmanager_id not in known))
            case fx.AppendLog(entry):
                if isinstance(entry, msg.Restored) and entry.checkpoint_id:
                    assert any(m.checkpoint_id == entry.checkpoint_id for m in self.manifests.values())
                self.log.append(entry)
                if isinstance(entry, msg.CheckpointCompleted):
                    manifest = self.manifests[entry.manifest_key]
                    assert manifest.object_keys() <= self.objects, "a manifest names a missing object"
                self.later(fx.LogAppended(entry, len(self.log)))
            case fx.StoreManifest(key, manifest, savepoint):
                if savepoint is not None:
                    self.savepoints[savepoint] = manifest
                if self.faulty(self.faults.store):
                    self.later(fx.ManifestNotStored(manifest.checkpoint_id, "the store failed"))
                else:
                    self.manifests[key] = manifest
                    self.later(fx.ManifestStored(manifest.checkpoint_id))
            case fx.ProbeSavepoint(trigger_id, directory):
                problem = "nobody may write there" if directory.startswith("denied") else None
                self.later(fx.SavepointProbed(trigger_id, problem))
            case fx.KeepStatistics(key, statistics):
                self.statistics[key] = msgspec.json.decode(msgspec.json.encode(statistics), type=Statistics)
            case fx.KeepExceptions(entries):
                self.exceptions = msgspec.json.decode(msgspec.json.encode(entries))
            case fx.LoadManifest(key):
                if key in self.manifests:
                    self.later(fx.ManifestLoaded(key, self.manifests[key]))
                else:
                    self.later(fx.ManifestUnreadable(key, {"type": "ObjectStoreError", "message": "gone"}))
            case fx.DeleteObjects(keys):
                self.delete(keys)
            case fx.Archive():
                self.archived = effect
                self.later(fx.Archived())
            case fx.Notify():
                pass
            case fx.PublishEvents(events):
                self.published += events
            case fx.Say():
                self.said.append(effect)
            case fx.Stop():
                self.stopped = effect
            case _:
                raise AssertionError(effect)

    def delete(self, keys: frozenset[str]) -> None:
        for completed in self.core.coordinator.retention.retained:
            assert completed.manifest_key not in keys
            assert not completed.manifest.object_keys() & keys, "deleted what a retained manifest names"
        self.objects -= keys
        for key in keys:
            self.manifests.pop(key, None)
            self.statistics.pop(key, None)

    # -- resource manager ----------------------------------------------------------------

    def offer(self, allocation_id: str) -> None:
        if allocation_id not in self.allocations:
            return
        taskmanager_id, index = self.allocations[allocation_id]
        tracking = self.tracking.get(allocation_id)
        self.tell(
            msg.OfferSlots(
                command_id=allocation_id,
                job_id="job",
                taskmanager_id=taskmanager_id,
                host="127.0.0.1",
                data_port=1,
                slots=(
                    msg.SlotOffer(
                        allocation_id=allocation_id,
                        slot_index=index,
                        deployed=tracking.report() if tracking else None,
                    ),
                ),
            )
        )

    def free_all(self) -> None:
        for allocation_id in list(self.allocations):
            self.end_slot(allocation_id)
            self.free.append(self.allocations.pop(allocation_id))

    def declare(self, needed: int) -> None:
        while self.free and len(self.allocations) < needed:
            taskmanager_id, index = self.free.pop(0)
            allocation_id = f"a{next(self._order)}"
            self.allocations[allocation_id] = (taskmanager_id, index)
            self.offer(allocation_id)
        held = len(self.allocations)
        missing = max(0, needed - held)
        self.later(fx.Declared(needed, held, missing, self.total, len(self.free), self.rm_epoch))

    # -- task managers -------------------------------------------------------------------

    def command(self, command: fx.Command, core: JobMasterCore) -> None:
        message = command.message
        if self.faulty(self.faults.lost_command):
            self.later(fx.CommandLost(command, "no answer"), to=core)
            return
        if self.epoch_of(message) < self.heard_epoch:
            self.later(fx.CommandDone(command, msg.Refused(reason="an old epoch", fenced=True)), to=core)
            return
        allocation = self.allocations.get(message.allocation_id)
        reply: Any = msg.Ack()
        match message:
            case msg.FreeSlot():
                if allocation:
                    self.end_slot(message.allocation_id)
                    del self.allocations[message.allocation_id]
                    self.free.append(allocation)
            case msg.DeploySlot(deploy=deploy):
                if allocation is None:
                    reply = msg.Refused(reason="no such allocation")
                else:
                    self.deploy(deploy, allocation[0])
            case msg.SlotCommand(command=inner):
                tasks = [t for t in self.tasks.values() if t.deploy.allocation_id == message.allocation_id]
                if not tasks:
                    reply = msg.Refused(reason="nothing runs there", no_slot=allocation is None)
                else:
                    self.tracking[message.allocation_id].commanded(inner)
                for task in tasks:
                    self.slot_command(task, inner)
        self.later(fx.CommandDone(command, reply), to=core)

    @staticmethod
    def epoch_of(message: Any) -> int:
        match message:
            case msg.FreeSlot(epoch=epoch):
                return epoch
            case msg.DeploySlot(deploy=deploy):
                return deploy.epoch
            case msg.SlotCommand(command=command):
                return command.epoch

    def end_slot(self, allocation_id: str) -> None:
        self.tracking.pop(allocation_id, None)
        self.tasks = {p: t for p, t in self.tasks.items() if t.deploy.allocation_id != allocation_id}

    def deploy(self, deploy: slot_msg.Deploy, taskmanager_id: str) -> None:
        self.end_slot(deploy.allocation_id)
        self.tracking[deploy.allocation_id] = Tracking(deploy)
        for descriptor in deploy.tasks:
            assert all(h.key in self.objects for h in descriptor.restore), "restores what is gone"
            task = Task(descriptor, deploy, taskmanager_id)
            self.tasks[task.place] = task
            self.later(lambda t=task: self.set_state(t, E.INITIALIZING))
            self.later(lambda t=task: self.started(t), 100)

    def alive(self, task: Task) -> bool:
        return self.tasks.get(task.place) is task and not task.state.terminal

    def report(self, task: Task, *reports: Any) -> None:
        for report in reports:
            self.tracking[task.deploy.allocation_id].reported(report)
        self.tell(
            msg.SlotReport(
                job_id="job",
                taskmanager_id=task.taskmanager_id,
                allocation_id=task.deploy.allocation_id,
                reports=reports,
            )
        )

    def set_state(self, task: Task, state: E, **more: Any) -> None:
        if not self.alive(task) or (state is E.INITIALIZING and task.state is not E.DEPLOYING):
            return
        task.state = state
        self.report(
            task,
            slot_msg.TaskStateChanged(
                job_id="job",
                job_attempt=task.deploy.job_attempt,
                execution_id=task.descriptor.execution_id,
                vertex_id=task.place[0],
                subtask_index=task.place[1],
                state=state,
                timestamp_ms=self.now_ms,
                **more,
            ),
        )

    def upstream(self, task: Task) -> list[Task | None]:
        found = [self.tasks.get(place) for place in upstream_of(self.graph, *task.place)]
        return [t if t and t.deploy.job_attempt == task.deploy.job_attempt else None for t in found]

    def started(self, task: Task) -> None:
        if not self.alive(task):
            return
        self.set_state(task, E.RUNNING)
        self.later(lambda: self.work(task), 500)

    def work(self, task: Task) -> None:
        """Look again and again: fail, or end when the input has ended."""
        if not self.alive(task) or task.state is not E.RUNNING:
            return
        if self.faulty(self.faults.task_failure):
            error = slot_msg.ErrorInfo(error={"type": "FunctionError", "message": f"at {self.now_ms}"})
            self.set_state(task, E.FAILED, error=error)
            return
        if self.faulty(self.faults.slot_lost):
            self.lose(task.deploy.allocation_id)
            return
        if self.faulty(self.faults.taskmanager_lost):
            self.lose_taskmanager(task.taskmanager_id)
            return
        if self.faulty(self.faults.master_lost):
            self.take_over()
        upstream = self.upstream(task)
        source = not upstream
        if source:
            ended = not self.unbounded and self.random.random() < 0.1
        else:
            ended = all(u is not None and u.state is E.FINISHED for u in upstream)
        if ended and not task.ended_input:
            task.ended_input = True
            if self.is_sink(task):
                self.want_final(task)
            else:
                task.closing = True
                self.later(lambda: self.alive(task) and self.finish(task), 300)
                return
        self.later(lambda: self.work(task), 500)

    def is_sink(self, task: Task) -> bool:
        return not self.graph.outputs_of(task.place[0])

    def want_final(self, task: Task) -> None:
        self.report(
            task,
            slot_msg.FinalCheckpointWanted(
                job_id="job",
                job_attempt=task.deploy.job_attempt,
                execution_id=task.descriptor.execution_id,
            ),
        )

    def finish(self, task: Task) -> None:
        key = f"final/{task.descriptor.execution_id}"
        self.objects.add(key)
        self.set_state(task, E.FINISHED, final=self.handle(task, 0, key))

    def handle(self, task: Task, checkpoint_id: int, key: str) -> StateHandle:
        vertex_id, index = task.place
        return StateHandle(
            vertex_id=vertex_id, subtask_index=index, checkpoint_id=checkpoint_id, key=key, size_bytes=10
        )

    def slot_command(self, task: Task, command: Any) -> None:
        if not self.alive(task):
            return
        match command:
            case slot_msg.CancelTasks():
                self.later(lambda: self.set_state(task, E.CANCELED), 100)
            case slot_msg.TriggerCheckpoint():
                if task.descriptor.execution_id in command.execution_ids:
                    self.later(lambda: self.barrier(task, command.checkpoint_id), 50)
            case slot_msg.CheckpointComplete(checkpoint_id=checkpoint_id):
                if checkpoint_id in task.passed_after_end:
                    self.later(lambda: self.alive(task) and self.finish(task), 50)
            case slot_msg.CheckpointAborted() | slot_msg.MasterChanged():
                pass

    def barrier(self, task: Task, checkpoint_id: int) -> None:
        """The task snapshots, acknowledges and passes the barrier on."""
        if not self.alive(task) or task.state is not E.RUNNING or checkpoint_id in task.passed:
            return
        if task.closing:
            self.decline(task, checkpoint_id, finishing=True)
            return
        if self.faulty(self.faults.decline):
            self.decline(task, checkpoint_id, finishing=False)
            return
        task.passed.add(checkpoint_id)
        if task.ended_input:
            task.passed_after_end.add(checkpoint_id)
        key = f"{checkpoint_id}/{task.descriptor.execution_id}"
        self.objects.add(key)
        self.report(
            task,
            slot_msg.CheckpointAcknowledged(
                job_id="job",
                job_attempt=task.deploy.job_attempt,
                execution_id=task.descriptor.execution_id,
                vertex_id=task.place[0],
                subtask_index=task.place[1],
                checkpoint_id=checkpoint_id,
                handle=self.handle(task, checkpoint_id, key),
            ),
        )
        for other in list(self.tasks.values()):
            if any(u is task for u in self.upstream(other)):
                self.later(lambda o=other: self.align(o, checkpoint_id), 50)

    def decline(self, task: Task, checkpoint_id: int, *, finishing: bool) -> None:
        self.report(
            task,
            slot_msg.CheckpointDeclined(
                job_id="job",
                job_attempt=task.deploy.job_attempt,
                execution_id=task.descriptor.execution_id,
                checkpoint_id=checkpoint_id,
                reason="is finishing" if finishing else "could not write its state",
                finishing=finishing,
            ),
        )

    def align(self, task: Task, checkpoint_id: int) -> None:
        if not self.alive(task):
            return
        if task.state is not E.RUNNING:
            self.later(lambda: self.align(task, checkpoint_id), 50)
            return
        upstream = self.upstream(task)
        if all(u is not None and (u.state is E.FINISHED or checkpoint_id in u.passed) for u in upstream):
            self.barrier(task, checkpoint_id)
        else:
            self.later(lambda: self.align(task, checkpoint_id), 50)

    def lose(self, allocation_id: str) -> None:
        """The slot's process dies; the allocation is the task manager's to give again."""
        if allocation_id not in self.allocations:
            return
        taskmanager_id, _ = self.allocations[allocation_id]
        self.end_slot(allocation_id)
        self.tell(
            msg.SlotLost(
                command_id=f"lost-{allocation_id}",
                job_id="job",
                taskmanager_id=taskmanager_id,
                allocation_id=allocation_id,
                reason="SIGKILL",
            )
        )

    def lose_taskmanager(self, taskmanager_id: str, *, told: bool = True) -> None:
        """It dies with its slots; another of that name registers after a while. Not ``told``:
        the resource manager dies with it, and nobody says so."""
        slots = [s for s in self.free if s[0] == taskmanager_id]
        self.free = [s for s in self.free if s[0] != taskmanager_id]
        for allocation_id, slot in list(self.allocations.items()):
            if slot[0] == taskmanager_id:
                slots.append(slot)
                self.end_slot(allocation_id)
                del self.allocations[allocation_id]
        self.rm_epoch += not told
        if told:
            self.tell(
                msg.TaskManagerLost(
                    command_id=f"lost-{taskmanager_id}",
                    job_id="job",
                    taskmanager_id=taskmanager_id,
                    reason="gone",
                )
            )
        self.later(lambda: self.free_forever or self.free.extend(slots), 2_000)
