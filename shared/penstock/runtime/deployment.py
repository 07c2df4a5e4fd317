"""Builds the tasks of one slot and their channels. Elements pass by reference within the slot, and over the
network to other slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.config import CHECKPOINT_MODE
from penstock.errors import InternalError
from penstock.runtime.chain import Chain
from penstock.runtime.channels import InputChannel
from penstock.runtime.credit import EXCLUSIVE_BYTES, ReceiveWindow
from penstock.runtime.gates import InputGates
from penstock.runtime.in_flight import gate_edges
from penstock.runtime.outputs import EdgeWriter, OutputChannel, Outputs, element_bytes
from penstock.runtime.partitioners import make_partitioner
from penstock.runtime.task import Task
from penstock.runtime.topology import consumers_of, producers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.jobgraph import JobEdge, JobGraph, JobVertex
    from penstock.messages.slot import TaskDescriptor
    from penstock.runtime.elements import Element
    from penstock.runtime.environment import Environment
    from penstock.runtime.listener import TaskListener
    from penstock.types.logical import Schema


@dataclass(frozen=True, slots=True)
class ChannelId:
    """A channel of the job: edge (index in ``JobGraph.edges``), producer and consumer
    subtask."""

    edge: int
    producer: int
    consumer: int


class RemoteChannels(Protocol):
    """The network's interface: channels to and from other slots."""

    def sender(
        self, allocation_id: str, channel: ChannelId, schema: Schema
    ) -> tuple[Callable[[Element], int], Callable[[Callable[[int], None]], None]]:
        """The sending end as (push, bind). ``bind(add_credit)`` sets the function that receives arriving
        credit."""

    def receiver(
        self, allocation_id: str, channel: ChannelId, schema: Schema, target: InputChannel
    ) -> Callable[[int], None]:
        """Lets elements of the channel go to ``target``. Returns the function that grants credit to the
        sender."""


class Deployment:
    """Builds the tasks of a slot; ``start`` runs them.

    ``locations``: "vertex:subtask" → allocation id, for all subtasks of the job.
    """

    def __init__(
        self,
        graph: JobGraph,
        descriptors: Sequence[TaskDescriptor],
        *,
        environment: Environment,
        listener: TaskListener,
        allocation_id: str = "local",
        locations: Mapping[str, str] | None = None,
        network: RemoteChannels | None = None,
    ) -> None:
        self._graph = graph
        self._environment = environment
        self._listener = listener
        self._allocation_id = allocation_id
        self._locations = locations or {}
        self._network = network
        self._vertices = {v.id: v for v in graph.vertices}
        self._edge_index = {edge.id: i for i, edge in enumerate(graph.edges)}
        self._inputs: dict[ChannelId, InputChannel] = {}
        self.tasks: dict[str, Task] = {}
        #: (edge id, schema, subtask, writer) of each edge of each task here.
        self.writers: list[tuple[str, Schema, int, EdgeWriter]] = []

        gates = {d.execution_id: self._make_gates(d) for d in descriptors}
        for descriptor in descriptors:
            self._make_task(descriptor, gates[descriptor.execution_id])

    def start(self) -> None:
        """Start all tasks."""
        for task in self.tasks.values():
            task.start()

    # -- inputs ------------------------------------------------------------------------

    def _make_gates(self, descriptor: TaskDescriptor) -> InputGates:
        vertex = self._vertices[descriptor.vertex_id]
        index = descriptor.subtask_index
        edges = self._graph.inputs_of(vertex.id)
        if [e.target_gate for e in edges] != list(range(len(edges))):
            raise InternalError(
                f"the gates of vertex {vertex.id} are not numbered 0 … n-1",
                got=str([e.target_gate for e in edges]),
            )
        producers = [self._producers(edge, index) for edge in edges]
        names = [
            [f"{self._vertices[e.source].name} ({i + 1})" for i in subtasks]
            for e, subtasks in zip(edges, producers, strict=True)
        ]
        overtakable = [edge.overtakable for edge in gate_edges(self._graph, vertex)]
        exactly_once = CHECKPOINT_MODE.read(self._environment.config) == "EXACTLY_ONCE"
        gates = InputGates(names, exactly_once=exactly_once, time_s=self._environment.time_s)
        for gate, (edge, subtasks) in enumerate(zip(edges, producers, strict=True)):
            for at, producer in enumerate(subtasks):
                channel = ChannelId(self._edge_index[edge.id], producer, index)
                self._inputs[channel] = gates.channels[gate][at]
                gates.channels[gate][at].overtakable = overtakable[gate]
                self._receive_remote(edge, channel)
        return gates

    def _receive_remote(self, edge: JobEdge, channel: ChannelId) -> None:
        where = self._location(edge.source, channel.producer)
        if where == self._allocation_id:
            return  # The channel is connected when the producing task is made.
        target = self._inputs[channel]
        grant = self._remote().receiver(where, channel, edge.schema, target)
        target.window = ReceiveWindow(self._environment.credits, grant)

    # -- outputs -----------------------------------------------------------------------

    def _make_task(self, descriptor: TaskDescriptor, gates: InputGates) -> None:
        vertex = self._vertices[descriptor.vertex_id]
        outputs = Outputs(time_s=self._environment.time_s)
        edges = []
        for edge in self._graph.outputs_of(vertex.id):
            writer = self._make_writer(edge, vertex, descriptor.subtask_index, outputs)
            outputs.edges.append(writer)
            self.writers.append((edge.id, edge.schema, descriptor.subtask_index, writer))
            edges.append((edge.source_operator, edge.tag, writer))
        task = Task(
            descriptor,
            vertex,
            environment=self._environment,
            gates=gates,
            gate_edges=gate_edges(self._graph, vertex),
            outputs=outputs,
            chain=Chain(vertex, edges),
            listener=self._listener,
        )
        self.tasks[descriptor.execution_id] = task

    def _make_writer(self, edge: JobEdge, vertex: JobVertex, index: int, outputs: Outputs) -> EdgeWriter:
        target = self._vertices[edge.target]
        consumers = consumers_of(edge, index, vertex.parallelism, target.parallelism)
        partitioner = make_partitioner(
            edge.partitioning,
            subtask_index=index,
            channels=len(consumers),
            max_parallelism=target.max_parallelism,
            function=self._environment.function,
        )
        channels = [
            self._output(edge, ChannelId(self._edge_index[edge.id], index, c), outputs) for c in consumers
        ]
        return EdgeWriter(partitioner, channels)

    def _output(self, edge: JobEdge, channel: ChannelId, outputs: Outputs) -> OutputChannel:
        where = self._location(edge.target, channel.consumer)
        if where != self._allocation_id:
            push, bind = self._remote().sender(where, channel, edge.schema)
            output = OutputChannel(outputs, push, EXCLUSIVE_BYTES)
            bind(output.add_credit)
            return output
        target = self._inputs[channel]

        def push_local(element: Element) -> int:
            cost = element_bytes(element)
            target.push(element, cost)
            return cost

        output = OutputChannel(outputs, push_local, EXCLUSIVE_BYTES)
        target.window = ReceiveWindow(self._environment.credits, output.add_credit)
        return output

    # -- places of subtasks ------------------------------------------------------------

    def _producers(self, edge: JobEdge, index: int) -> list[int]:
        source, target = self._vertices[edge.source], self._vertices[edge.target]
        return producers_of(edge, index, source.parallelism, target.parallelism)

    def _location(self, vertex_id: str, subtask: int) -> str:
        name = f"{vertex_id}:{subtask}"
        found = self._locations.get(name, self._allocation_id if not self._locations else None)
        if found is None:
            raise InternalError(f"the deployment does not say where subtask {name} runs")
        return found

    def _remote(self) -> RemoteChannels:
        if self._network is None:
            raise InternalError("a channel leads to another slot, but there is no network")
        return self._network
