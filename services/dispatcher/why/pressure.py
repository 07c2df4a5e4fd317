"""Findings about speed: the vertex that slows the job down, vertices at their limit, and skew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock_services.dispatcher.views.common import HIGH, ratio
from penstock_services.dispatcher.why.findings import (
    Finding,
    Severity,
    about,
    count,
    percent,
    quoted,
    running,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.messages.cluster import JobDetails, SubtaskDetails, VertexDetails

#: A subtask that is busy for this share of the time is at its limit.
FULL = 0.9
#: A vertex behind one that waits is the bottleneck from this share of busy time on.
WORKING = 0.5
#: A subtask with this many times its fair share of the records makes a vertex skewed.
SKEWED = 2.0
#: Records a second of a vertex below which its skew does not matter.
SKEW_RATE = 100.0


def bottlenecks(job: JobDetails) -> Iterator[Finding]:
    """For each vertex that slows others down: the chain of those that wait for it. Then the vertices that are at
    their limit although nothing waits yet."""
    graph = _Graph(job)
    waits: dict[str, list[VertexDetails]] = {}
    for vertex in job.vertices:
        if _share(vertex, "back_pressured") > HIGH:
            waits.setdefault(graph.cause(vertex).id, []).append(vertex)
    for vertex in job.vertices:
        if vertex.id in waits:
            yield _bottleneck(vertex, waits[vertex.id])
        elif (busy := _share(vertex, "busy")) >= FULL:
            yield _full(vertex, busy)


class _Graph:
    """Who reads from whom."""

    def __init__(self, job: JobDetails) -> None:
        self._by_id = {vertex.id: vertex for vertex in job.vertices}
        self._readers: dict[str, list[VertexDetails]] = {}
        for vertex in job.vertices:
            for edge in vertex.inputs:
                self._readers.setdefault(edge["id"], []).append(vertex)

    def cause(self, vertex: VertexDetails) -> VertexDetails:
        """The vertex for which ``vertex`` waits in the end: downstream the last one that waits itself, or, behind
        it, the busiest that does not. The vertex itself if it waits for a system outside."""
        seen = {vertex.id}
        while readers := [r for r in self._readers.get(vertex.id, ()) if r.id not in seen]:
            held = [r for r in readers if _share(r, "back_pressured") > HIGH]
            behind = max(held or readers, key=lambda r: _share(r, "back_pressured" if held else "busy"))
            if not held and _share(behind, "busy") < WORKING:
                return vertex
            vertex = behind
            seen.add(vertex.id)
            if not held:
                return vertex
        return vertex


def _share(vertex: VertexDetails, what: str) -> float:
    """The highest share of time of a running subtask, 0 to 1."""
    return max((ratio(s, what) for s in running(vertex)), default=0.0)


def _bottleneck(vertex: VertexDetails, waiting: list[VertexDetails]) -> Finding:
    others = [v for v in waiting if v.id != vertex.id]
    causes = [
        f"{quoted(v.name)} waits {percent(_share(v, 'back_pressured'))} of the time for its readers."
        for v in others
    ]
    if _share(vertex, "busy") < WORKING and vertex in waiting:
        causes.append(
            f"{quoted(vertex.name)} itself waits {percent(_share(vertex, 'back_pressured'))} of the time: for "
            "what is behind it, such as the system that it writes into, or the network."
        )
        return Finding(
            code="slow-sink",
            severity=Severity.WARNING,
            title=f"{quoted(vertex.name)} cannot hand its records on, and the whole job waits for it.",
            subject=about(vertex),
            causes=causes,
            next_step="Look at the system that it writes into: is it slow, or does it refuse? Larger batches or a "
            "higher parallelism of the sink help if the system can take more.",
        )
    busiest = max(running(vertex), key=lambda s: ratio(s, "busy"))
    causes.append(
        f"{quoted(vertex.name)} is busy {percent(ratio(busiest, 'busy'))} of the time"
        + (f" in subtask {busiest.subtask_index}." if vertex.parallelism > 1 else ".")
    )
    skew = skewed(vertex)
    if skew is not None:
        causes.append(_skew_text(vertex, *skew))
    return Finding(
        code="bottleneck",
        severity=Severity.WARNING,
        title=f"{quoted(vertex.name)} slows the job down: {len(others)} "
        f"{'vertex waits' if len(others) == 1 else 'vertices wait'} for it.",
        subject=about(vertex, busiest if vertex.parallelism > 1 else None),
        causes=causes,
        next_step="Spread the hot keys first (a higher parallelism does not help with skew): see its subtasks."
        if skew is not None
        else f"Raise its parallelism (now {vertex.parallelism}), or make its functions cheaper: the flame graph "
        "shows where its time goes.",
        page="vertex",
    )


def _full(vertex: VertexDetails, busy: float) -> Finding:
    busiest = max(running(vertex), key=lambda s: ratio(s, "busy"))
    source = all("enumerator" in str(o.get("kind")) or o.get("kind") == "source" for o in vertex.operators)
    return Finding(
        code="at-its-limit",
        severity=Severity.INFO if source else Severity.WARNING,
        title=f"{quoted(vertex.name)} is at its limit: it is busy {percent(busy)} of the time.",
        subject=about(vertex, busiest if vertex.parallelism > 1 else None),
        causes=[f"It reads {count(_rate(vertex))} records/s with {vertex.parallelism} subtasks."]
        if _rate(vertex)
        else [],
        next_step=f"If more records come, the job falls behind: raise its parallelism (now {vertex.parallelism}), "
        "or look at its flame graph.",
        page="vertex",
    )


# -- skew --------------------------------------------------------------------------------------


def _rate(vertex: VertexDetails) -> float:
    return sum(_records(s) for s in running(vertex))


def _records(subtask: SubtaskDetails) -> float:
    return subtask.metrics.get("records_in_per_second") or 0.0


def skewed(vertex: VertexDetails) -> tuple[SubtaskDetails, float] | None:
    """The subtask that gets far more than its fair share of the records, and its share (0 to 1); None if the
    records are spread well, or are too few to tell."""
    subtasks = running(vertex)
    total = sum(map(_records, subtasks))
    if len(subtasks) < 2 or total < SKEW_RATE:
        return None
    most = max(subtasks, key=_records)
    share = _records(most) / total
    # With two subtasks nobody can have more than twice the mean.
    return (most, share) if share > min(SKEWED / len(subtasks), 0.8) else None


def _skew_text(vertex: VertexDetails, most: SubtaskDetails, share: float) -> str:
    fair = 1 / len(running(vertex))
    return (
        f"Its records are skewed: subtask {most.subtask_index} gets {percent(share)} of them; "
        f"a fair share is {percent(fair)}."
    )


def skews(job: JobDetails) -> Iterator[Finding]:
    """Vertices whose records are spread badly."""
    for vertex in job.vertices:
        skew = skewed(vertex)
        if skew is None:
            continue
        most, share = skew
        busy = ratio(most, "busy")
        yield Finding(
            code="skew",
            severity=Severity.WARNING if busy > WORKING else Severity.INFO,
            title=f"{quoted(vertex.name)} is skewed: subtask {most.subtask_index} of {vertex.parallelism} gets "
            f"{percent(share)} of the records.",
            subject=about(vertex, most),
            causes=[
                _skew_text(vertex, most, share),
                f"That subtask is busy {percent(busy)} of the time; the others wait or idle.",
                "Some keys have far more records than others, or there are fewer keys than subtasks.",
            ],
            next_step="Add a salt to the hot keys and combine their parts in a second step, filter them out, or choose "
            "another key.",
            page="vertex",
        )
