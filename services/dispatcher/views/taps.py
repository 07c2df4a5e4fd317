"""Edges of a job, and previews of their rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.messages.states import ExecutionState
from penstock_services.dispatcher.views.common import Kebab, Shape, vertex_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from penstock.messages.cluster import JobDetails
    from penstock.messages.taps import EdgeTapped, TappedRow


class EdgeRow(Kebab, frozen=True, kw_only=True):
    """An edge: the vertices that it connects, and how it spreads rows. ``name``: a short one (``e1``), by which it can be asked
    for, too. ``tag``: the side output that goes over it."""

    id: str
    name: str
    source: str
    source_name: str
    target: str
    target_name: str
    ship_strategy: str
    tag: str | None = None


class JobEdges(Shape, frozen=True, kw_only=True):
    """``GET /jobs/{id}/edges``"""

    edges: list[EdgeRow]


class TapColumn(Shape, frozen=True, kw_only=True):
    """A column and its SQL type."""

    name: str
    type: str


class TapRow(Kebab, frozen=True, kw_only=True):
    """A row. ``subtask``: which one sent it. ``kind``: +I, -U, +U or -D. ``time``: the record's event time in ms since 1970;
    null where the record itself has none. ``values``: by the columns."""

    subtask: int
    kind: str
    time: float | None
    values: list[Any]


class TapEvent(Kebab, frozen=True, kw_only=True):
    """The data of an event ``rows``: what passed since the last one.

    ``passed``: the rows of which ``rows`` are a sample. ``unseen``: more rows, which nobody looked at because that would have
    taken too much processor time. ``subtasks``: those that send over the edge now. ``silent``: those of them whose slot did
    not answer. ``problem``: why rows may be missing; empty if none are.
    """

    edge: str
    columns: list[TapColumn]
    rows: list[TapRow]
    passed: int
    unseen: int
    subtasks: int
    silent: int
    problem: str = ""


class TapEnd(Shape, frozen=True, kw_only=True):
    """The data of the event ``end``: the stream ends because of this."""

    reason: str


class TapStream(Shape, frozen=True, kw_only=True):
    """The data of the server-sent events, by their names."""

    rows: TapEvent
    end: TapEnd


@dataclass(frozen=True)
class Edge:
    """An edge with the ids that a job graph has."""

    id: str
    source: str
    row: EdgeRow


def edges(details: JobDetails) -> list[Edge]:
    """The edges of a job in the order of their targets."""
    names = {vertex.id: vertex.name for vertex in details.vertices}
    found: list[Edge] = []
    for vertex in details.vertices:
        for given in vertex.inputs:
            # An archive of an earlier version names no edges.
            if edge_id := given.get("edge"):
                row = EdgeRow(
                    id=edge_id,
                    name=f"e{len(found) + 1}",
                    source=vertex_id(given["id"]),
                    source_name=names.get(given["id"], given["id"]),
                    target=vertex_id(vertex.id),
                    target_name=vertex.name,
                    ship_strategy=given["ship_strategy"],
                    tag=given.get("tag"),
                )
                found.append(Edge(edge_id, given["id"], row))
    return found


def offered(details: JobDetails) -> list[EdgeRow]:
    """The edges as they are offered: those with rows of data, the nearest to the sinks first, then those over which
    enumerators send the splits that are to be read."""
    enumerators = {
        vertex.id for vertex in details.vertices if any(o["kind"] == "enumerator" for o in vertex.operators)
    }
    known = edges(details)
    data = [edge.row for edge in known if edge.source not in enumerators]
    return data[::-1] + [edge.row for edge in known if edge.source in enumerators]


def places(details: JobDetails, edge: Edge) -> dict[str, dict[str, int]]:
    """Task manager → allocation id → how many subtasks in it send over the edge now."""
    found: dict[str, dict[str, int]] = {}
    for vertex in details.vertices:
        for subtask in vertex.subtasks if vertex.id == edge.source else ():
            if (
                subtask.state is ExecutionState.RUNNING
                and subtask.taskmanager_id
                and subtask.allocation_id is not None
            ):
                slots = found.setdefault(subtask.taskmanager_id, {})
                slots[subtask.allocation_id] = slots.get(subtask.allocation_id, 0) + 1
    return found


def merged(samples: Sequence[EdgeTapped], limit: int, random: Random) -> list[TappedRow]:
    """At most ``limit`` rows out of the samples of several slots, so that each row that passed has the same chance. The rows
    of one slot keep their order."""
    pools = [list(enumerate(sample.rows)) for sample in samples]
    if sum(len(pool) for pool in pools) <= limit:
        return [row for sample in samples for row in sample.rows]
    left = [max(sample.passed, len(sample.rows)) for sample in samples]
    chosen: list[tuple[int, int, TappedRow]] = []
    while len(chosen) < limit and any(pools):
        weights = [n if pool else 0 for n, pool in zip(left, pools, strict=True)]
        i = random.choices(range(len(pools)), weights)[0]
        at, row = pools[i].pop(random.randrange(len(pools[i])))
        left[i] = max(1, left[i] - 1)
        chosen.append((i, at, row))
    return [row for _, _, row in sorted(chosen, key=lambda c: c[:2])]


def tap_event(
    edge: Edge, asked: Mapping[str, int], found: Mapping[str, EdgeTapped], limit: int, random: Random
) -> TapEvent:
    """What slots answered. ``asked``: allocation id → number of subtasks; ``found``: allocation id → its answer."""
    samples = list(found.values())
    columns = next((sample.columns for sample in samples if sample.columns), ())
    return TapEvent(
        edge=edge.id,
        columns=[TapColumn(name=name, type=type_) for name, type_ in columns],
        rows=[_row(row) for row in merged(samples, limit, random)],
        passed=sum(sample.passed for sample in samples),
        unseen=sum(sample.unseen for sample in samples),
        subtasks=sum(asked.values()),
        silent=sum(n for allocation_id, n in asked.items() if allocation_id not in found),
        problem=_problem(asked, samples),
    )


def _row(row: TappedRow) -> TapRow:
    time_ms = None if row.time_us is None else row.time_us / 1000
    return TapRow(subtask=row.subtask, kind=row.kind, time=time_ms, values=row.values)


def _problem(asked: Mapping[str, int], samples: Sequence[EdgeTapped]) -> str:
    if not asked:
        return "no subtask sends over the edge at the moment"
    failures = sorted({sample.failure for sample in samples if sample.failure})
    return "; ".join(failures)


def encoded(name: str, data: msgspec.Struct) -> bytes:
    """A server-sent event."""
    return f"event: {name}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"
