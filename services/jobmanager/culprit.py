"""Finds the subtask that delayed a checkpoint, and what it was busy with. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.jobgraph import JobGraph
    from penstock_services.jobmanager.checkpoints import Pending
    from penstock_services.jobmanager.execution_graph import ExecutionGraph

#: Field of a subtask's report → what the subtask was busy with.
PHASES = {
    "start_delay_ms": "waiting for the barrier (back-pressure before it)",
    "alignment_ms": "aligning its inputs",
    "sync_ms": "cutting its state",
    "async_ms": "writing its state",
}
MISSING = "not acknowledged: the barrier has not come through, or its state is not written"
#: A subtask that is busy for more of each second delays others; one that is back-pressured for more is
#: delayed.
MOST_MS_PER_SECOND = 500.0


def slowest(pending: Pending, graph: ExecutionGraph, now_ms: int) -> dict[str, Any] | None:
    """{operator, vertex_id, subtask_index, phase, ms} of the slowest subtask; None if nothing is known.

    If subtasks are missing, it is the one for which the others wait, judged by their last metrics.
    """
    job_graph = graph.job_graph
    missing = {e: place for e, place in pending.expected.items() if e not in pending.handles}
    if missing:
        execution_id, busy = _held_up_by(missing, graph)
        vertex_id, index = missing[execution_id]
        phase = f"{MISSING}; busy {busy:.0%} of the time" if busy else MISSING
        return _of(job_graph, vertex_id, index, phase, now_ms - pending.trigger_ms)
    if not pending.subtasks:
        return None
    last = max(pending.subtasks, key=lambda s: s["ack_ms"])
    phase = max(PHASES, key=lambda name: last[name])
    return _of(job_graph, last["vertex_id"], last["subtask_index"], PHASES[phase], last[phase])


def expired(pending: Pending, graph: ExecutionGraph, timeout_ms: int, now_ms: int) -> str:
    """Why a checkpoint has failed that was not acknowledged within ``timeout_ms``, in words."""
    missing = len(pending.expected) - len(pending.handles)
    held_up = slowest(pending, graph, now_ms)
    culprit = f"{held_up['operator']}: {held_up['phase']}" if held_up is not None else "nobody"
    return (
        f"expired after {timeout_ms} ms; {missing} of {len(pending.expected)} "
        f"subtasks had not acknowledged, held up by {culprit}"
    )


def _held_up_by(missing: dict[str, tuple[str, int]], graph: ExecutionGraph) -> tuple[str, float]:
    """(execution id of the subtask for which the missing ones wait, how busy it is from 0 to 1; 0.0: not the
    reason).

    If one subtask is busy most of the time, it is the busiest: those before it are back-pressured or share
    its thread, and those after it have no barrier yet. Otherwise it is the first one along the stream that
    is not back-pressured, because those after it may only be waiting for it.
    """
    order = {vertex.id: i for i, vertex in enumerate(graph.job_graph.vertices)}
    along = sorted(missing, key=lambda e: (order[missing[e][0]], missing[e][1]))
    known = {e: found.metrics for e in along if (found := graph.get(e)) is not None and found.metrics}
    busiest = max(known, key=lambda e: known[e].busy_ms_per_second, default=None)
    if busiest is not None and known[busiest].busy_ms_per_second >= MOST_MS_PER_SECOND:
        return busiest, min(1.0, known[busiest].busy_ms_per_second / 1000)
    blocked = {e for e, m in known.items() if m.back_pressured_ms_per_second >= MOST_MS_PER_SECOND}
    return next((e for e in along if e not in blocked), along[0]), 0.0


def _of(graph: JobGraph, vertex_id: str, index: int, phase: str, ms: float) -> dict[str, Any]:
    vertex = graph.vertex(vertex_id)
    return {
        "operator": f"{vertex.name} ({index + 1}/{vertex.parallelism})",
        "vertex_id": vertex_id,
        "subtask_index": index,
        "phase": phase,
        "ms": round(ms),
    }
