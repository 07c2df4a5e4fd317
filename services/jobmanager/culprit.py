"""Who held a checkpoint up, and in what. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.jobgraph import JobGraph
    from services.jobmanager.checkpoints import Pending

#: What a subtask reports of its part → what it was busy with.
PHASES = {
    "start_delay_ms": "waiting for the barrier (back-pressure before it)",
    "alignment_ms": "aligning its inputs",
    "sync_ms": "cutting its state",
    "async_ms": "writing its state",
}
MISSING = "not acknowledged: the barrier has not come through, or its state is not written"


def slowest(pending: Pending, graph: JobGraph, now_ms: int) -> dict[str, Any] | None:
    """{operator, vertex_id, subtask_index, phase, ms}; of a checkpoint that misses subtasks the
    first of them along the stream: those behind it may only be waiting for it."""
    missing = [place for e, place in pending.expected.items() if e not in pending.handles]
    if missing:
        order = {vertex.id: i for i, vertex in enumerate(graph.vertices)}
        vertex_id, index = min(missing, key=lambda place: (order[place[0]], place[1]))
        return _of(graph, vertex_id, index, MISSING, now_ms - pending.trigger_ms)
    if not pending.subtasks:
        return None
    last = max(pending.subtasks, key=lambda s: s["ack_ms"])
    phase = max(PHASES, key=lambda name: last[name])
    return _of(graph, last["vertex_id"], last["subtask_index"], PHASES[phase], last[phase])


def _of(graph: JobGraph, vertex_id: str, index: int, phase: str, ms: float) -> dict[str, Any]:
    vertex = graph.vertex(vertex_id)
    return {
        "operator": f"{vertex.name} ({index + 1}/{vertex.parallelism})",
        "vertex_id": vertex_id,
        "subtask_index": index,
        "phase": phase,
        "ms": round(ms),
    }
