"""Starting a job from a savepoint as the dispatcher does, within a test's process."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec

from penstock.config import MAX_PARALLELISM
from penstock.jobgraph import JobGraph
from penstock.snapshots.compatibility import Difference, adopted, check, compare, fitted, operators_of
from penstock.snapshots.footers import OperatorSummary, summarise
from penstock.snapshots.manifest import CheckpointManifest, VertexState, decode_manifest
from penstock.store.memory import MemoryStore
from penstock.testing.harness import JobHarness
from penstock.testing.memory import MemoryTable, MemoryWriter
from penstock.testing.results import Checkpoint
from tests.plan.identity.earlier_jobs import HALF, readers_of, tables

SAVEPOINTS = Path(__file__).parent / "savepoints"


def earlier(job: str) -> CheckpointManifest:
    """The savepoint that the version before made of a job."""
    return decode_manifest((SAVEPOINTS / job / "manifest").read_bytes(), job)


def summaries_of(manifest: CheckpointManifest) -> list[OperatorSummary]:
    return asyncio.run(summarise(MemoryStore(), manifest))


def difference_of(graph: JobGraph, manifest: CheckpointManifest, **options: Any) -> Difference:
    return compare(operators_of(graph), summaries_of(manifest), **options)


def fit(graph: JobGraph, manifest: CheckpointManifest, *, lenient: bool = False, **options: Any) -> JobGraph:
    """The graph as it is submitted; SpecError as at submission."""
    summaries = summaries_of(manifest)
    own = MAX_PARALLELISM.read(graph.config) > 0
    difference = compare(operators_of(graph), summaries, own_max_parallelism=own, **options)
    check(difference, "the savepoint", lenient=lenient)
    return fitted(adopted(graph, difference, summaries), manifest)


def manifest_of(checkpoint: Checkpoint) -> CheckpointManifest:
    return CheckpointManifest(
        job_id="before", job_name=checkpoint.graph.name, checkpoint_id=checkpoint.checkpoint_id,
        kind="savepoint", timestamp_ms=0, job_attempt=1, epoch=1,
        vertices=tuple(
            VertexState(
                vertex_id=v.id, name=v.name, uids=tuple(n.uid for n in v.operators), parallelism=v.parallelism,
                max_parallelism=v.max_parallelism, handles=checkpoint.handles[v.id],
            )
            for v in checkpoint.graph.vertices
        ),
    )  # fmt: skip


def savepoint(graph: JobGraph) -> tuple[CheckpointManifest, dict[str, MemoryTable]]:
    """The job ran until it had read the first half of its tables; what it committed."""

    async def run() -> tuple[CheckpointManifest, dict[str, MemoryTable]]:
        made = tables()
        readers = readers_of(graph)
        for name in readers:
            made[name].release(HALF)
        async with JobHarness(graph) as job:
            await job.until(lambda: all(made[name].rows_read == HALF * n for name, n in readers.items()))
            return manifest_of(await job.checkpoint("savepoint")), made

    return asyncio.run(run())


class _AsCheckpoint(Checkpoint):
    """A savepoint's manifest in place of a checkpoint of this process."""

    def __init__(self, manifest: CheckpointManifest) -> None:
        object.__setattr__(self, "manifest", manifest)
        object.__setattr__(self, "checkpoint_id", manifest.checkpoint_id)

    def handles_of(self, graph: JobGraph) -> Any:
        from penstock.snapshots.manifest import handles_by_vertex

        wanted = [(v.id, tuple(n.uid for n in v.operators)) for v in graph.vertices]
        return handles_by_vertex(self.manifest, wanted)[0]  # type: ignore[attr-defined]


def finished(graph: JobGraph, manifest: CheckpointManifest | None) -> dict[str, list[Any]]:
    """Run to the end (from a savepoint: ``graph`` as ``fit`` gives it); sink → (kind, row) committed."""
    made = tables()

    async def run() -> None:
        restore = None if manifest is None else _AsCheckpoint(manifest)
        async with JobHarness(graph, restore=restore) as job:
            await job.wait()

    staged = MemoryWriter._staged
    # What the savepoint's own job staged was committed there.
    MemoryWriter._staged = defaultdict(list)
    try:
        asyncio.run(run())
    finally:
        MemoryWriter._staged = staged
    return {name: [(k.name, r) for k, r in made[name].committed] for name in ("one", "two", "log")}


def replaced(graph: JobGraph, **changes: Any) -> JobGraph:
    return msgspec.structs.replace(graph, **changes)
