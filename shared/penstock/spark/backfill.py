"""Reads a job's history on Spark and makes a checkpoint from it: the batch half of a backfill.

The vertices of the streaming job run as Spark stages, one after the other. Each subtask drives its chain of
operators over its rows (``backfill_task``). Rows go to the next stage by the job's own partitioning
(``backfill_edges``). The snapshots that the subtasks write become one manifest: a checkpoint, as if the
streaming runtime had read the history and stopped at the seam. Before anything is read, and once for all
attempts, the seam fixes which splits are history and where live data begins (``backfill_seam``).
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from penstock.jobgraph.identity import identities
from penstock.jobgraph.specs import CollectionSourceSpec, EnumeratorSpec, SinkSpec, SourceSpec
from penstock.messages.layout import BACKFILL_CHECKPOINT_ID as CHECKPOINT_ID
from penstock.messages.layout import backfill_attempt_key, backfill_manifest_key
from penstock.messages.slot import StateHandle
from penstock.operators.operator import MIN_WATERMARK
from penstock.operators.sources import SplitState
from penstock.runtime.checkpoints import TASK_UID, task_snapshot
from penstock.snapshots.contract import OperatorSnapshot
from penstock.snapshots.manifest import BACKFILL, CheckpointManifest, VertexState, encode_manifest
from penstock.snapshots.writing import write_snapshot
from penstock.spark.backfill_edges import COLUMNS, ORDER, REPORT
from penstock.spark.backfill_seam import Seam, fix_seam
from penstock.spark.backfill_task import Report, Stage, source_stage, vertex_stage
from penstock.spark.partition_program import JobContext
from penstock.store.open import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from penstock.connectors.base import Split
    from penstock.jobgraph import JobGraph, JobVertex
    from penstock.messages.slot import StorageSettings

_TASKS = "subtask int, splits string"


@dataclass(frozen=True)
class BackfillResult:
    """``manifest_key``: the manifest of the checkpoint from which the stream starts; ``rows``: the number of
    rows of the history."""

    manifest_key: str
    manifest: CheckpointManifest
    rows: int


@dataclass
class _Ran:
    """A vertex whose subtasks have finished.

    ``frame``: the segments of their output (None: no vertex reads them). ``edges``: edge number → the
    watermark of the output at the end.
    """

    reports: list[Report]
    frame: DataFrame | None
    source: bool
    edges: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Each split of a source is read with a watermark of its own: the source has come as far as its
        # furthest split. For other vertices the lowest watermark of a subtask counts.
        pick = max if self.source else min
        self.edges = _merged([r.edges for r in self.reports], pick)
        self.watermarks = _merged([r.watermarks for r in self.reports], pick)
        self.reached = _merged([r.reached for r in self.reports], max)


def _merged(parts: list[dict[Any, int]], pick: Callable[[int, int], int]) -> dict[Any, int]:
    out: dict[Any, int] = {}
    for part in parts:
        for key, value in part.items():
            out[key] = pick(out[key], value) if key in out else value
    return out


class Backfill:
    """Runs the backfill of one job. ``graph``: the streaming job as planned for the backfill
    (``plan.backfill``)."""

    def __init__(
        self,
        graph: JobGraph,
        session: SparkSession,
        *,
        job_id: str,
        attempt: int,
        storage: StorageSettings,
        emit: bool = True,
    ) -> None:
        self._graph = graph
        self._session = session
        self._job_id, self._attempt = job_id, attempt
        self._storage = storage
        self._emit = emit
        self._store = open_store(storage.url, storage.options)
        self._context = JobContext(
            graph.name, dict(graph.config), dict(graph.functions), tuple(graph.python_path)
        )
        self._numbers = {edge.id: i for i, edge in enumerate(graph.edges)}
        self._ran: dict[str, _Ran] = {}

    def run(self, tell: Callable[[str], None] = lambda _: None) -> BackfillResult:
        """Reads the history and stores the state. ``tell`` is called with the step that begins."""
        tell("fixing the seam")
        seam = asyncio.run(self._begin())
        try:
            for vertex in self._graph.vertices:
                self._run_vertex(vertex, seam, tell)
        finally:
            for ran in self._ran.values():
                if ran.frame is not None:
                    ran.frame.unpersist()
        tell("storing the state")
        return asyncio.run(self._store_manifest(seam))

    async def _begin(self) -> Seam:
        await self._store.put(backfill_attempt_key(self._job_id), str(self._attempt).encode())
        return await fix_seam(self._graph, self._store, self._job_id, self._context)

    # -- stages ------------------------------------------------------------------------------------

    def _run_vertex(self, vertex: JobVertex, seam: Seam, tell: Callable[[str], None]) -> None:
        specs = [node.spec for node in vertex.operators]
        if any(isinstance(spec, EnumeratorSpec) for spec in specs):
            return
        tell(vertex.name)
        if any(isinstance(spec, SourceSpec | CollectionSourceSpec) for spec in specs):
            self._run_sources(vertex, seam)
        else:
            self._run_behind(vertex)

    def _run_sources(self, vertex: JobVertex, seam: Seam) -> None:
        tasks = _source_tasks(vertex, seam)
        if not tasks:
            return
        encoded = [(i, msgspec.json.encode(splits).decode()) for i, splits in enumerate(tasks)]
        frame = self._session.createDataFrame(encoded, _TASKS)
        stage = self._stage(vertex, subtasks=len(tasks), finals={}, runs=frozenset())
        rows = frame.repartition(len(tasks), F.col("subtask")).mapInArrow(source_stage(stage), COLUMNS)
        self._ran[vertex.id] = self._executed(vertex, rows, source=True)

    def _run_behind(self, vertex: JobVertex) -> None:
        edges = self._graph.inputs_of(vertex.id)
        ran = {edge.source: self._ran[edge.source] for edge in edges if edge.source in self._ran}
        frames = [r.frame for r in ran.values() if r.frame is not None]
        if not frames:
            return
        # A live source without a history has made no watermark yet, so event time does not rise behind it.
        finals = {
            edge.target_gate: self._ran[edge.source].edges.get(self._numbers[edge.id], MIN_WATERMARK)
            if edge.source in self._ran
            else MIN_WATERMARK
            for edge in edges
        }
        runs = frozenset(report.run for r in ran.values() for report in r.reports)
        stage = self._stage(vertex, subtasks=vertex.parallelism, finals=finals, runs=runs)
        numbers = [self._numbers[edge.id] for edge in edges]
        rows = frames[0]
        for other in frames[1:]:
            rows = rows.unionAll(other)
        rows = rows.filter(F.col("edge").isin(numbers))
        rows = rows.repartition(vertex.parallelism, F.col("target")).sortWithinPartitions(*ORDER)
        done = self._executed(vertex, rows.mapInArrow(vertex_stage(stage), COLUMNS), source=False)
        if done.reports:
            self._ran[vertex.id] = done

    def _stage(
        self, vertex: JobVertex, *, subtasks: int, finals: dict[int, int], runs: frozenset[str]
    ) -> Stage:
        outputs = []
        for edge in self._graph.outputs_of(vertex.id):
            target = self._graph.vertex(edge.target)
            outputs.append((edge, self._numbers[edge.id], target.parallelism, target.max_parallelism))
        return Stage(
            job_id=self._job_id,
            attempt=self._attempt,
            job=self._context,
            storage=self._storage,
            vertex=msgspec.structs.replace(vertex, parallelism=subtasks),
            subtasks=subtasks,
            inputs=tuple((edge, self._numbers[edge.id]) for edge in self._graph.inputs_of(vertex.id)),
            outputs=tuple(outputs),
            finals=finals,
            runs=runs,
            emit=self._emit,
        )

    def _executed(self, vertex: JobVertex, rows: DataFrame, *, source: bool) -> _Ran:
        """Runs the stage. Output that other stages read stays on the executors' disks."""
        read = bool(self._graph.outputs_of(vertex.id))
        kept = rows.persist(StorageLevel.DISK_ONLY) if read else None
        found = (rows if kept is None else kept).filter(F.col("edge") == REPORT).select("payload").collect()
        reports = [msgspec.json.decode(bytes(row[0]), type=Report) for row in found]
        return _Ran(reports, kept, source)

    # -- the state ---------------------------------------------------------------------------------

    async def _store_manifest(self, seam: Seam) -> BackfillResult:
        states = []
        for vertex in self._graph.vertices:
            handles = self._handles(vertex, seam)
            if handles:
                states.append(
                    VertexState(
                        vertex_id=vertex.id,
                        name=vertex.name,
                        uids=tuple(node.uid for node in vertex.operators),
                        parallelism=vertex.parallelism,
                        max_parallelism=vertex.max_parallelism,
                        handles=tuple(handles),
                    )
                )
        manifest = CheckpointManifest(
            job_id=self._job_id,
            job_name=self._graph.name,
            checkpoint_id=CHECKPOINT_ID,
            kind=BACKFILL,
            timestamp_ms=time.time_ns() // 1_000_000,
            job_attempt=self._attempt,
            epoch=0,
            vertices=tuple(states),
        )
        key = backfill_manifest_key(self._job_id, self._attempt)
        await self._store.put(key, encode_manifest(manifest))
        return BackfillResult(
            key, manifest, sum(r.rows for ran in self._ran.values() if ran.source for r in ran.reports)
        )

    def _handles(self, vertex: JobVertex, seam: Seam) -> list[StateHandle]:
        ran = self._ran.get(vertex.id)
        handles = [] if ran is None else [report.handle for report in ran.reports]
        own: dict[str, OperatorSnapshot] = {}
        for node in vertex.operators:
            if node.uid in seam.assigned:
                items = [split_id.encode() for split_id in seam.assigned[node.uid]]
                own[node.uid] = OperatorSnapshot(lists={"assigned": items})
            if seam.live.get(node.uid):
                reached = None if ran is None else ran.reached.get(node.uid)
                live = [msgspec.json.encode(SplitState(s, reached)) for s in seam.live[node.uid]]
                own[node.uid] = OperatorSnapshot(unions={"splits": live})
        if ran is not None:
            own[TASK_UID] = task_snapshot(ran.watermarks)
        if own:
            handles.append(_inline(vertex, own, len(handles)))
        return handles


def _inline(vertex: JobVertex, snapshots: dict[str, OperatorSnapshot], index: int) -> StateHandle:
    """The handle of a snapshot that the driver itself adds. It holds no key group."""
    meta = {
        "operators": {node.uid: node.name for node in vertex.operators},
        "identities": identities(vertex.operators),
    }
    data = write_snapshot(snapshots, checkpoint_id=CHECKPOINT_ID, key_groups=(0, -1), meta=meta)
    return StateHandle(
        vertex_id=vertex.id, subtask_index=index, checkpoint_id=CHECKPOINT_ID, inline=data, size_bytes=len(data),
        key_groups=(0, -1),
    )  # fmt: skip


def _source_tasks(vertex: JobVertex, seam: Seam) -> list[dict[str, list[Split]]]:
    """For each subtask: source uid → its splits.

    Each split is a subtask of its own, with its own event time, unless the vertex may have only one subtask or
    writes a table.
    """
    found = [
        (node.uid, split)
        for node in vertex.operators
        if isinstance(node.spec, SourceSpec)
        for split in seam.history.get(node.uid, [])
    ]
    given = any(isinstance(node.spec, CollectionSourceSpec) for node in vertex.operators)
    together = vertex.parallelism == 1 or any(isinstance(node.spec, SinkSpec) for node in vertex.operators)
    count = vertex.parallelism if together else len(found)
    tasks: list[dict[str, list[Split]]] = [{} for _ in range(max(count, int(given)) if found or given else 0)]
    for i, (uid, split) in enumerate(found):
        tasks[i % len(tasks)].setdefault(uid, []).append(split)
    return tasks
