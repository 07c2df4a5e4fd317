"""What a job of a test has given: its rows, and the checkpoints that it can be restored from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.errors import InternalError
from penstock.snapshots.manifest import CheckpointManifest, VertexState, handles_by_vertex

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.jobgraph import JobGraph
    from penstock.messages.slot import CheckpointMetrics, StateHandle, TaskMetrics
    from penstock.ports import Store
    from penstock.types import RowKind


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A completed checkpoint.

    Args:
        checkpoint_id: Its id, from 1.
        graph: The job.
        handles: Vertex id → state handles of its subtasks.
        metrics: Execution id → how long the task's part took.
    """

    checkpoint_id: int
    graph: JobGraph
    handles: Mapping[str, tuple[StateHandle, ...]]
    metrics: Mapping[str, CheckpointMetrics] = field(default_factory=dict)

    def handles_of(self, graph: JobGraph) -> Mapping[str, tuple[StateHandle, ...]]:
        """The state handles by the vertices of ``graph``, which may be chained differently: assigned by
        operator uid, as the job master does. InternalError when the state of an operator has no place in
        ``graph``."""
        manifest = CheckpointManifest(
            job_id="",
            job_name=self.graph.name,
            checkpoint_id=self.checkpoint_id,
            kind="checkpoint",
            timestamp_ms=0,
            job_attempt=1,
            epoch=1,
            vertices=tuple(
                VertexState(
                    vertex_id=v.id,
                    name=v.name,
                    uids=tuple(n.uid for n in v.operators),
                    parallelism=v.parallelism,
                    max_parallelism=v.max_parallelism,
                    handles=self.handles[v.id],
                )
                for v in self.graph.vertices
            ),
        )
        wanted = [(v.id, tuple(n.uid for n in v.operators)) for v in graph.vertices]
        handles, left = handles_by_vertex(manifest, wanted)
        if left:
            raise InternalError("the checkpoint holds state of operators that the graph lacks", got=str(left))
        return handles


@dataclass(slots=True)
class RunResult:
    """The output of a job.

    Args:
        rows: The collect sink's final rows: its changelog, materialised (of an upsert sink by the sink's keys).
        changelog: (kind, row) in the order of arrival.
        metrics: "vertex:subtask" → the task's metrics.
        checkpoints: All completed checkpoints, oldest first.
        store: The object store.
    """

    rows: list[tuple[Any, ...]]
    changelog: list[tuple[RowKind, tuple[Any, ...]]]
    metrics: dict[str, TaskMetrics]
    checkpoints: list[Checkpoint]
    store: Store

    @property
    def counters(self) -> dict[str, int]:
        """Each counter, summed over all operators."""
        out: dict[str, int] = {}
        for task in self.metrics.values():
            for operator in task.operators:
                for name, value in operator.counters.items():
                    out[name] = out.get(name, 0) + value
        return out

    def gauge(self, name: str) -> list[float]:
        """Values of a gauge over all operators that have it."""
        found = [o.gauges.get(name) for t in self.metrics.values() for o in t.operators]
        return [v for v in found if v is not None]
