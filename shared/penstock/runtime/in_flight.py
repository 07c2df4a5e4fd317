"""Rows that a barrier has overtaken: kept in the snapshot, replayed before any input.

One item for each channel, MessagePack: ``edge`` (operator uids at both ends), ``subtask`` (the consumer of
the channel), ``watermark`` and ``idle`` (before the elements), and ``elements``: bytes = an Arrow IPC stream
of rows (its first columns are ``__kind`` and ``__time``, if there are such), an int = a watermark in µs, a
bool = idleness.

At another parallelism the rows go where the edge would send them now: by key group behind a hash edge,
otherwise to the subtask that they were on their way to, modulo the parallelism.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from penstock.columnar.hashing import (
    hash_columns,
    key_group_range,
    key_groups,
    subtask_of_key_group,
)
from penstock.errors import InternalError, SnapshotError
from penstock.jobgraph import Broadcast, Forward, Hash
from penstock.operators.idleness import Idleness
from penstock.operators.operator import MIN_WATERMARK
from penstock.runtime.channels import GateBatch, GateWatermark
from penstock.runtime.elements import IDLE, STATUSES, Element, Watermark, WatermarkStatus
from penstock.runtime.gates import InputGates
from penstock.runtime.network.frames import without_placeholder
from penstock.runtime.outputs import element_bytes
from penstock.runtime.recording import ChannelContent
from penstock.snapshots.restoring import SnapshotSet, Source
from penstock.types.batch import KIND_FIELD, TIME_FIELD, Batch, physical_arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.jobgraph import JobEdge, JobGraph, JobVertex, Partitioning
    from penstock.messages.slot import StateHandle, TaskDescriptor
    from penstock.ports import Store
    from penstock.types.logical import Schema

#: Uid and list name of the items in a snapshot, beside the operators' state.
IN_FLIGHT_UID, IN_FLIGHT_ITEMS = "__in_flight__", "items"
#: The most rows of a batch into which small batches are merged.
MERGE_ROWS = 16_384


class _Item(msgspec.Struct, kw_only=True):
    edge: str
    target: str
    subtask: int
    watermark: int = MIN_WATERMARK
    idle: bool = False
    elements: list[bytes | bool | int] = []


@dataclass(frozen=True, slots=True)
class GateEdge:
    """The edge of an input gate. ``key``: names the edge independently of how operators are chained."""

    key: str
    #: The uid of the operator that the edge leads to.
    target: str
    partitioning: Partitioning
    schema: Schema

    @property
    def overtakable(self) -> bool:
        """Whether the rows may be handed to another subtask. Behind a forward edge only the producer knows
        which subtask they belong to; broadcast rows belong to every subtask, each at its own position."""
        return not isinstance(self.partitioning, (Broadcast, Forward))


def gate_edges(graph: JobGraph, vertex: JobVertex) -> list[GateEdge]:
    """The edge of each gate, by gate number."""
    out: list[GateEdge] = []
    for edge in graph.inputs_of(vertex.id):
        source = graph.vertex(edge.source).operators[edge.source_operator].uid
        target, index = _target(vertex, edge)
        key = f"{source}|{edge.tag or ''}|{target}|{index}"
        twins = sum(other.key.startswith(f"{key}|") for other in out)
        out.append(GateEdge(f"{key}|{twins}", target, edge.partitioning, edge.schema))
    return out


def _target(vertex: JobVertex, edge: JobEdge) -> tuple[str, int]:
    """(uid, input) of the first operator that reads the edge."""
    for node in vertex.operators:
        for index, producers in enumerate(node.inputs):
            if any(p.gate == edge.target_gate for p in producers):
                return node.uid, index
    raise InternalError(f"no operator of vertex {vertex.id} reads edge {edge.id}")


# -- saving --------------------------------------------------------------------------------


def encode_in_flight(
    contents: Iterable[ChannelContent], edges: Sequence[GateEdge], subtask: int
) -> list[bytes]:
    """The items of a snapshot; empty if no channel holds an element."""
    contents = list(contents)
    if not any(content.elements for content in contents):
        return []
    return [
        msgspec.msgpack.encode(
            _Item(
                edge=edges[content.gate].key,
                target=edges[content.gate].target,
                subtask=subtask,
                watermark=content.watermark,
                idle=content.idle,
                elements=[_encode(element) for element in _merged(content.elements)],
            )
        )
        for content in contents
    ]


def _merged(elements: Sequence[Element]) -> Iterable[Element]:
    """The elements with neighbouring batches merged, up to ``MERGE_ROWS`` rows."""
    parts: list[Batch] = []
    for element in elements:
        rows = sum(part.num_rows for part in parts)
        if parts and not (isinstance(element, Batch) and rows + element.num_rows <= MERGE_ROWS):
            yield Batch.concat(parts)
            parts = []
        if isinstance(element, Batch):
            parts.append(element)
        else:
            yield element
    if parts:
        yield Batch.concat(parts)


def _encode(element: Element) -> bytes | bool | int:
    if isinstance(element, WatermarkStatus):
        return bool(element.idle)
    if isinstance(element, Watermark):
        return element.value
    assert isinstance(element, Batch)
    rb = element.to_arrow()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rb.schema) as writer:
        writer.write_batch(rb)
    return bytes(sink.getvalue().to_pybytes())


# -- restoring -----------------------------------------------------------------------------


async def restore_in_flight(
    descriptor: TaskDescriptor, vertex: JobVertex, edges: Sequence[GateEdge], store: Store | None
) -> Replay | None:
    """The elements in flight that belong to this subtask, as it is numbered now; None if there are none."""
    handles = wanted_handles(descriptor.restore, vertex, descriptor.subtask_index)
    if not handles:
        return None
    found = await SnapshotSet.open(handles, Source(store))
    # Asks as if there were one subtask, which gets all items: the items say which rows belong to which
    # subtask.
    state = await found.restore(IN_FLIGHT_UID, key_groups=(0, -1), subtask_index=0, parallelism=1)
    items = state.lists.get(IN_FLIGHT_ITEMS, []) if state is not None else []
    contents = decode_in_flight(items, edges, vertex, descriptor.subtask_index)
    return Replay(contents, len(edges)) if any(c.elements for c in contents) else None


def wanted_handles(
    handles: Iterable[StateHandle], vertex: JobVertex, subtask_index: int
) -> list[StateHandle]:
    """The handles whose in-flight rows may belong to this subtask now."""
    first, last = key_group_range(subtask_index, vertex.parallelism, vertex.max_parallelism)
    return [
        h
        for h in handles
        if h.in_flight_bytes
        and (
            h.subtask_index % vertex.parallelism == subtask_index
            or (h.key_groups[0] <= last and first <= h.key_groups[1])
        )
    ]


def decode_in_flight(
    items: Iterable[bytes], edges: Sequence[GateEdge], vertex: JobVertex, subtask_index: int
) -> list[ChannelContent]:
    """The subtask's share of the elements in flight. Raises SnapshotError if rows belong to no edge of this
    job."""
    by_key = {edge.key: gate for gate, edge in enumerate(edges)}
    mine = {node.uid for node in vertex.operators}
    out = []
    for data in items:
        item = msgspec.msgpack.decode(data, type=_Item)
        gate = by_key.get(item.edge)
        if gate is None:
            if item.target in mine and any(isinstance(e, bytes) for e in item.elements):
                raise _unfit(item.edge, "the job has no such edge")
            continue
        edge = edges[gate]
        keyed = isinstance(edge.partitioning, Hash)
        if not keyed and item.subtask % vertex.parallelism != subtask_index:
            continue
        content = ChannelContent(gate, item.watermark, item.idle)
        for saved in item.elements:
            element = _decode(saved, edge)
            if isinstance(element, Batch) and keyed:
                element = _own_rows(element, edge, vertex, subtask_index)
                if not element.num_rows:
                    continue
            content.add(element, element_bytes(element))
        out.append(content)
    return out


def _decode(saved: bytes | bool | int, edge: GateEdge) -> Element:
    if isinstance(saved, bool):
        return STATUSES[Idleness(saved)]
    if isinstance(saved, int):
        return Watermark(saved)
    with pa.ipc.open_stream(saved) as reader:
        rb = reader.read_next_batch()
    lead = rb.schema.names[:2]
    arrow = physical_arrow_schema(edge.schema, kinds=KIND_FIELD in lead, times=TIME_FIELD in lead)
    if not rb.schema.equals(arrow):
        raise _unfit(edge.key, f"columns {_shown(rb.schema)}", f"columns {_shown(arrow)}")
    return without_placeholder(Batch.from_arrow(edge.schema, rb), edge.schema)


def _own_rows(batch: Batch, edge: GateEdge, vertex: JobVertex, subtask_index: int) -> Batch:
    assert isinstance(edge.partitioning, Hash)
    groups = key_groups(
        hash_columns([batch.columns[k] for k in edge.partitioning.keys]), vertex.max_parallelism
    )
    owners = subtask_of_key_group(groups, vertex.parallelism, vertex.max_parallelism)
    return batch.filter(np.asarray(owners) == subtask_index)


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _unfit(edge: str, got: str, expected: str = "the edge that the rows were on") -> SnapshotError:
    return SnapshotError(
        "rows in flight at an unaligned checkpoint do not fit the job",
        expected=expected,
        got=got,
        where=f"edge {edge}",
        remedy="restore the program that the checkpoint was taken from, take a savepoint (always aligned), "
        "and start the changed program from that",
    )


class Replay:
    """Replays restored rows in flight, in the order of each channel. As before the checkpoint, the watermark
    is the lowest over the channels."""

    def __init__(self, contents: Sequence[ChannelContent], gates: int) -> None:
        self._contents = [[c for c in contents if c.gate == gate] for gate in range(gates)]
        self._gates = InputGates([[f"in flight {i}" for i in range(len(c))] for c in self._contents])
        for channels, saved in zip(self._gates.channels, self._contents, strict=True):
            for channel, content in zip(channels, saved, strict=True):
                channel.push(Watermark(content.watermark), 0)
                if content.idle:
                    channel.push(IDLE, 0)
                for element in content.elements:
                    channel.push(element, element_bytes(element))

    def poll(self, max_rows: int) -> GateBatch | GateWatermark | None:
        """The next rows or watermark; None if everything is replayed. The new channels report idleness and
        ends themselves."""
        while True:
            event: Any = self._gates.poll(max_rows)
            if event is None or isinstance(event, (GateBatch, GateWatermark)):
                return event

    def remaining(self) -> list[ChannelContent]:
        """The elements that are not replayed yet, for a barrier that overtakes now."""
        return self._gates.queued_content()
