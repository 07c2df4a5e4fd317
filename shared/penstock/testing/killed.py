"""Runs a whole job that is killed after every checkpoint and restored from it at another parallelism."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.store.memory import MemoryStore
from penstock.testing.harness import JobHarness, ManualClock
from penstock.testing.memory import MemoryTable
from penstock.testing.results import RunResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.jobgraph import JobGraph

#: How far processing time moves before each checkpoint, in ms: longer than the interval of watermarks.
_STEP_MS = 1_000


async def run_killed(
    planned: Callable[[int], JobGraph],
    tables: Sequence[str],
    *,
    step_rows: int,
    parallelisms: Sequence[int] = (1, 2, 3, 1),
) -> RunResult:
    """Run a bounded job to its end in as many attempts as it has steps, and return its result.

    Every attempt reads ``step_rows`` further rows of each split, takes a checkpoint, reads as many again,
    takes a checkpoint that is aborted, and is killed. Everything after its completed checkpoint must be
    without effect. The next attempt has the next of ``parallelisms`` and starts from that checkpoint.

    ``planned``: the job at a parallelism; ``tables``: the names of the ``MemoryTable`` objects it reads,
    which ``planned`` may make anew. PenstockError when an attempt fails."""
    store, clock, checkpoint = MemoryStore(), ManualClock(), None
    attempt = 1
    planned(parallelisms[0])  # makes the tables
    longest = max(_rows(MemoryTable.tables[name]) for name in tables)
    for limit in range(step_rows, longest, step_rows):
        graph = planned(parallelisms[attempt % len(parallelisms)])
        sources = _limited(tables, limit)
        options = {"store": store, "attempt": attempt, "clock": clock}
        async with JobHarness(graph, restore=checkpoint, **options) as job:  # type: ignore[arg-type]
            await _read(job, sources, limit)
            checkpoint = await job.checkpoint()
            await _read(job, sources, limit + step_rows)
            await job.abort_checkpoint()
        attempt += 1
    graph = planned(parallelisms[attempt % len(parallelisms)])
    async with JobHarness(graph, store=store, attempt=attempt, restore=checkpoint, clock=clock) as job:
        return await job.wait()


def _rows(table: MemoryTable) -> int:
    """Rows of the table's longest split."""
    return max((batch.num_rows for batch in table.splits), default=0)


def _limited(tables: Sequence[str], limit: int) -> list[MemoryTable]:
    """The tables that have rows, with readers that stop at row ``limit`` of each split."""
    sources = [table for name in tables if _rows(table := MemoryTable.tables[name])]
    for source in sources:
        source.limit = _held(source, limit)
    return sources


def _held(source: MemoryTable, limit: int) -> int:
    """The row at which readers stop: always before the last row, because a job whose source has ended could
    not be killed."""
    return min(limit, _rows(source) - 1)


async def _read(job: JobHarness, sources: Sequence[MemoryTable], limit: int) -> None:
    """Wait until the readers have reached row ``limit`` of every split, and move processing time."""
    for source in sources:
        source.release(_held(source, limit))
    await job.until(lambda: all(source.read_to_limit() for source in sources))
    job.advance(_STEP_MS)
