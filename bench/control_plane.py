"""What the control plane costs a subtask: 2,000 task managers × 4 slots, simulated.

The real cores of resource manager and job master decide, their messages are encoded and
decoded as on the bus; the task managers' slot tables answer, tasks are reports. Counted is
the CPU time of the two roles (steps, encoding, decoding), from the declared need to a
completed checkpoint that every slot was told of. No process is started, nothing is sent.

    python -m bench.control_plane [--subtasks 500 1000 2500 5000] [--taskmanagers 2000]
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from penstock.bus.envelope import decode, encode
from penstock.jobgraph import Broadcast, ChainInput, Hash, JobEdge, JobGraph, JobVertex, OperatorNode
from penstock.jobgraph.specs import UnionSpec
from penstock.messages import cluster as msg
from penstock.messages import slot as slot_msg
from penstock.messages.slot import StateHandle, StorageSettings
from penstock.messages.states import ExecutionState
from penstock.snapshots.manifest import encode_manifest
from penstock.types.logical import BigIntType, Field, Schema
from penstock_services.common.core import After, Answer, Asked
from penstock_services.jobmanager import effects as fx
from penstock_services.jobmanager.master import JobMasterCore
from penstock_services.jobmanager.performer import SHARED_BYTES
from penstock_services.jobmanager.stages import Inherited, Settings
from penstock_services.resourcemanager import core as rm
from penstock_services.resourcemanager import effects as rm_fx
from penstock_services.taskmanager import events as tm
from penstock_services.taskmanager.slot_table import SlotTable
from penstock_services.taskmanager.slots import Settings as SlotSettings

SLOTS = 4
SCHEMA = Schema((Field("v", BigIntType()),))
_E = ExecutionState
_order = itertools.count(1)


def job_graph(subtasks: int) -> JobGraph:
    """enumerate(1) → read(p) ⇄ hash ⇄ sum(p) ⇄ hash ⇄ top(p) → sink(p): 4 p subtasks and one."""
    p = subtasks // 4
    sizes = {"enumerate": 1, "read": p, "sum": p, "top": p, "sink": p}

    def vertex(name: str) -> JobVertex:
        inputs = () if name == "enumerate" else ((ChainInput(gate=0),),)
        node = OperatorNode(uid=f"uid-{name}", name=name, spec=UnionSpec(), inputs=inputs, output=SCHEMA)
        return JobVertex(id=name, name=name, operators=(node,), parallelism=sizes[name], max_parallelism=8192)

    def edge(source: str, target: str, partitioning: Any) -> JobEdge:
        return JobEdge(
            id=f"{source}-{target}", source=source, source_operator=0, target=target, target_gate=0,
            partitioning=partitioning, schema=SCHEMA,
        )  # fmt: skip

    names = list(sizes)
    edges = [edge("enumerate", "read", Broadcast())]
    edges += [edge(a, b, Hash((0,))) for a, b in itertools.pairwise(names[1:])]
    return JobGraph(
        name="large", vertices=tuple(map(vertex, names)), edges=tuple(edges),
        config={"execution.checkpointing.interval": "1 s"},
    )  # fmt: skip


class Bill:
    """CPU seconds by what they went to."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    @contextmanager
    def to(self, what: str) -> Iterator[None]:
        began = time.process_time()
        yield
        self.seconds[what] += time.process_time() - began


class Cluster:
    """Events go from core to core in the order in which they came up; time does not pass."""

    def __init__(self, graph: JobGraph, taskmanagers: int) -> None:
        self.now_ms = 1_000_000
        self.bill = Bill()
        self.queue: deque[Any] = deque()
        settings = Settings(
            jobmanager_id="jm",
            epoch=2,
            storage=StorageSettings(url="file:///x"),
            config=graph.config,
            secret="00",
        )
        self.master = JobMasterCore("job", graph, settings, Inherited(), self.now_ms)
        self.manager = rm.ResourceManagerCore("rm", 1, rm.Settings(), self.now_ms)
        self.tables = {f"tm{n}": SlotTable(SLOTS, SlotSettings()) for n in range(taskmanagers)}
        self.due: dict[str, int] = {}
        self.shared: bytes | None = None
        self.completed = 0
        self.sent_bytes = 0
        for name in self.tables:
            report = self.report(name)
            with self.bill.to("(registration)"):
                list(self.manager.step(Asked(next(_order), report), self.now_ms))

    def report(self, name: str) -> msg.RegisterTaskManager:
        return msg.RegisterTaskManager(
            taskmanager_id=name, host="h", pid=1, data_host="h", data_port=1,
            slots=tuple(self.tables[name].report()),
        )  # fmt: skip

    # -- the two roles, on the bill ------------------------------------------------------

    def over_the_bus(self, message: Any, type_: Any, *, paid: str, encodes: bool, decodes: bool) -> Any:
        """The message as it arrives; encoding and decoding are paid by whose side is ours."""
        if encodes:
            with self.bill.to(paid):
                data = encode(message)
        else:
            data = encode(message)
        self.sent_bytes += len(data)
        if decodes:
            with self.bill.to(paid):
                return decode(data, type_)
        return message

    def to_master(self, event: Any, paid: str) -> None:
        if isinstance(event, Asked):
            message = self.over_the_bus(
                event.message, msg.ToJobMaster, paid=paid, encodes=False, decodes=True
            )
            event = Asked(event.token, message)
        with self.bill.to(paid):
            effects = self.master.step(event, self.now_ms)
        self.queue.extend(effects)

    def to_manager(self, event: Any) -> None:
        with self.bill.to("resource manager"):
            effects = list(self.manager.step(event, self.now_ms))
        self.queue.extend(effects)

    def run(self, until: Any, phase: str) -> None:
        self.phase = phase
        while not until():
            if not self.queue:
                assert self.due, "nothing will happen any more"
                key, self.now_ms = min(self.due.items(), key=lambda item: item[1])
                del self.due[key]
                self.to_master(fx.Wakeup(), self.phase)
                continue
            self.perform(self.queue.popleft())

    # -- effects -------------------------------------------------------------------------

    def perform(self, effect: Any) -> None:
        match effect:
            case After(delay_ms, _, key):
                self.due[key] = self.now_ms + delay_ms
            case Answer(_, reply):
                with self.bill.to(self.phase):
                    encode(reply)
            case fx.Declare(needed):
                message = msg.DeclareSlots(job_id="job", epoch=2, needed=needed)
                self.over_the_bus(message, msg.DeclareSlots, paid=self.phase, encodes=True, decodes=True)
                with self.bill.to("resource manager"):
                    effects = list(self.manager.step(Asked(next(_order), message), self.now_ms))
                for e in effects:
                    if isinstance(e, Answer):
                        r = e.reply
                        self.to_master(
                            fx.Declared(needed, r.allocated, r.missing, r.total, r.free), self.phase
                        )
                    else:
                        self.queue.append(e)
            case rm_fx.SendAllocate(name, message):
                self.over_the_bus(message, None, paid="resource manager", encodes=True, decodes=False)
                self.table(name, Asked(next(_order), message))
                self.to_manager(rm_fx.AllocateAnswered(message.allocation_id))
            case fx.AppendLog(entry):
                with self.bill.to(self.phase):
                    msgspec.json.encode(entry)
                self.completed += isinstance(entry, msg.CheckpointCompleted)
                self.to_master(fx.LogAppended(entry, 1), self.phase)
            case fx.StoreManifest(_, manifest):
                with self.bill.to(self.phase):
                    encode_manifest(manifest)
                self.to_master(fx.ManifestStored(manifest.checkpoint_id), self.phase)
            case fx.Command():
                self.command(effect)
            case (
                fx.Notify()
                | fx.PublishEvents()
                | fx.Say()
                | fx.DeleteObjects()
                | rm_fx.Watch()
                | rm_fx.NotifyJob()
            ):
                pass
            case _:
                raise AssertionError(effect)

    def command(self, command: fx.Command) -> None:
        message: Any = command.message
        if isinstance(message, msg.DeploySlot):
            self.deploy(command, message)
            return
        self.over_the_bus(message, None, paid=self.phase, encodes=True, decodes=False)
        self.to_master(fx.CommandDone(command, msg.Ack()), self.phase)
        match message:
            case msg.SlotCommand(command=slot_msg.TriggerCheckpoint(checkpoint_id=checkpoint_id)):
                for execution in list(self.master.graph):
                    self.acknowledge(execution, checkpoint_id)

    def deploy(self, command: fx.Command, message: msg.DeploySlot) -> None:
        """As the performer does it: what all have in common is encoded once."""
        assert message.deploy is not None
        assert command.shared is not None
        with self.bill.to(self.phase):
            if self.shared is None:
                self.shared = msgspec.msgpack.encode(command.shared)
            if len(self.shared) > SHARED_BYTES:
                sent = msgspec.structs.replace(
                    message, deploy=None, deploy_key="key", tasks=message.deploy.tasks
                )
            else:
                sent = message
        self.over_the_bus(sent, None, paid=self.phase, encodes=True, decodes=False)
        self.table(command.taskmanager_id, Asked(next(_order), message))
        self.to_master(fx.CommandDone(command, msg.Ack()), self.phase)
        for state in (_E.INITIALIZING, _E.RUNNING):
            self.tell(
                command.taskmanager_id,
                message.allocation_id,
                tuple(
                    slot_msg.TaskStateChanged(
                        job_id="job", job_attempt=1, execution_id=t.execution_id, vertex_id=t.vertex_id,
                        subtask_index=t.subtask_index, state=state, timestamp_ms=self.now_ms,
                    )
                    for t in message.deploy.tasks
                ),
            )  # fmt: skip

    def tell(self, name: str, allocation_id: str, reports: tuple[Any, ...]) -> None:
        report = msg.SlotReport(
            job_id="job", taskmanager_id=name, allocation_id=allocation_id, reports=reports
        )
        self.to_master(Asked(next(_order), report), self.phase)

    def acknowledge(self, execution: Any, checkpoint_id: int) -> None:
        handle = StateHandle(
            vertex_id=execution.vertex_id, subtask_index=execution.subtask_index, checkpoint_id=checkpoint_id,
            key=f"jobs/job/checkpoints/{checkpoint_id}/{execution.vertex_id}-{execution.subtask_index}-1",
            size_bytes=100_000, key_groups=(0, 7),
        )  # fmt: skip
        ack = slot_msg.CheckpointAcknowledged(
            job_id="job", job_attempt=1, execution_id=execution.execution_id, vertex_id=execution.vertex_id,
            subtask_index=execution.subtask_index, checkpoint_id=checkpoint_id, handle=handle,
        )  # fmt: skip
        self.tell(execution.taskmanager_id, execution.allocation_id, (ack,))

    def table(self, name: str, event: Any) -> None:
        """A task manager at work: not on the bill."""
        for effect in list(self.tables[name].step(event, self.now_ms)):
            match effect:
                case tm.Offer(job_id, slots):
                    offer = msg.OfferSlots(
                        command_id="o", job_id=job_id, taskmanager_id=name, host="h", data_port=1, slots=slots
                    )
                    self.to_master(Asked(next(_order), offer), self.phase)
                case tm.Fork(process=process):
                    self.table(name, tm.Forked(process, 1))
                case _:
                    pass


def measure(subtasks: int, taskmanagers: int) -> tuple[int, Counter[str], int]:
    """(subtasks, CPU seconds by phase, bytes of messages)."""
    cluster = Cluster(job_graph(subtasks), taskmanagers)
    graph = cluster.master.graph
    with cluster.bill.to("deployment"):
        cluster.queue.extend(cluster.master.step(fx.Begin(), cluster.now_ms))
    cluster.run(lambda: len(graph) > 0 and graph.all_running_or_finished, "deployment")
    cluster.run(
        lambda: cluster.completed >= 1 and cluster.master.coordinator.retention.all_heard, "checkpoint"
    )
    return len(graph), cluster.bill.seconds, cluster.sent_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subtasks", type=int, nargs="+", default=[500, 1000, 2500, 5000])
    parser.add_argument("--taskmanagers", type=int, default=2000)
    args = parser.parse_args()
    measure(args.subtasks[0], 100)  # warm: encoders, imports
    print(f"{args.taskmanagers} task managers × {SLOTS} slots; CPU of the control plane")
    print(
        f"{'subtasks':>9} {'slots, deploy':>14} {'checkpoint':>11} {'resource m.':>12} {'all':>8} {'per subtask':>12}"
    )
    for wanted in args.subtasks:
        n, seconds, _ = measure(wanted, args.taskmanagers)
        deploy = seconds["deployment"]
        total = deploy + seconds["checkpoint"] + seconds["resource manager"]
        print(
            f"{n:>9,} {deploy * 1000:>11.0f} ms {seconds['checkpoint'] * 1000:>8.0f} ms "
            f"{seconds['resource manager'] * 1000:>9.0f} ms {total:>6.2f} s {total / n * 1e6:>9.0f} µs"
        )


if __name__ == "__main__":
    main()
