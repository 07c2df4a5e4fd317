"""Attempts killed at chosen and at random moments: files show every row once.

In one process, so that the moment is exact; a kill leaves everything as it lies.
"""

from __future__ import annotations

import asyncio
import bz2
import gzip
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.connectors.filesystem.sink import FileSink
from penstock.jobgraph import Hash
from penstock.jobgraph.specs import UnionSpec
from penstock.testing import GraphBuilder, JobHarness, MemoryTable
from penstock.testing.results import Checkpoint
from penstock.types import Batch, Schema
from penstock.types.logical import BigIntType, VarCharType

SCHEMA = Schema.of(("k", BigIntType(nullable=False)), ("n", BigIntType(nullable=False)))
SPLITS, ROWS = 3, 400

# A killed task leaves the second half of a snapshot unawaited, as it should.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine 'FileSink.begin_checkpoint:RuntimeWarning")


@pytest.fixture(autouse=True)
def killed_without_a_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileSink, "_discard", lambda self: None)


@pytest.fixture
def source() -> MemoryTable:
    splits = [[Batch.of(SCHEMA, [(i % 7, split * ROWS + i) for i in range(ROWS)])] for split in range(SPLITS)]
    return MemoryTable("in", SCHEMA, splits, batch_rows=20)


#: Sinks: one folder; a folder for each of seven keys, of which a writer holds five files open at a time.
ONE_FOLDER: dict[str, str] = {}
PARTITIONED = {"partition.keys": '["k"]', "sink.max-open-files": "5"}
#: Compressed files that grow over checkpoints, and success files.
GROWING = {
    **PARTITIONED, "sink.rolling-policy.rollover-interval": "30 ms", "sink.rolling-policy.file-size": "400 b",
    "sink.compression": "gzip", "sink.partition-commit.policy.kind": "success-file",
}  # fmt: skip
SINKS = {0: PARTITIONED, 6: PARTITIONED, 1: GROWING, 2: GROWING, 7: GROWING, 8: GROWING}


def graph_to(folder: Path, sink: dict[str, str]):
    b = GraphBuilder()
    rows = b.source("memory", SCHEMA, {"name": "in"}, parallelism=2)
    keyed = b.vertex(UnionSpec(), SCHEMA, inputs=[(rows, Hash(keys=(0,)))], parallelism=2)
    b.sink("filesystem", keyed, SCHEMA, {"path": str(folder), "format": "json", **sink})
    return b.build()


def lost_and_doubled(folder: Path) -> tuple[list[int], list[int]]:
    got = Counter(
        json.loads(line)["n"]
        for path in folder.rglob("part-*")
        for line in lines_of(path)
        # A row in another partition than its own is lost.
        if path.parent == folder or path.parent.name == f"k={json.loads(line)['n'] % ROWS % 7}"
    )
    want = Counter(range(SPLITS * ROWS))
    return sorted(want - got), sorted(got - want)


def lines_of(path: Path) -> list[str]:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode().splitlines()


def deafen(job: JobHarness) -> None:
    """From now on no task hears that a checkpoint is complete."""
    for task in job.deployment.tasks.values():
        task.checkpoint_complete = lambda checkpoint_id: None


def all_want_final(job: JobHarness) -> bool:
    sinks = [t for t in job.deployment.tasks.values() if t.chain.sinks]
    return all(t.checkpoints.final_wanted for t in sinks)


@pytest.mark.parametrize(
    "sink", [ONE_FOLDER, PARTITIONED, GROWING], ids=["one folder", "partitioned", "growing"]
)
@pytest.mark.parametrize("complete", [True, False])
async def test_killed_while_the_final_checkpoint_is_in_flight(source, tmp_path, complete, sink) -> None:
    """Complete in the log and nobody told; or acknowledged by all and not complete."""
    graph = graph_to(tmp_path, sink)
    source.release(ROWS // 2)
    async with JobHarness(graph, attempt=1) as job:
        await job.until(lambda: sum(t.records_in for t in job.deployment.tasks.values()) >= 1)
        restore = await job.checkpoint()
        deafen(job)
        acks = []
        if not complete:
            job.acknowledged = lambda *ack: acks.append(ack)
        source.release()
        if complete:
            await job.until(lambda: all_want_final(job) and len(job.checkpoints) > 1)
            restore = job.checkpoints[-1]
        else:
            await job.until(lambda: all_want_final(job) and len(acks) >= 2)
    async with JobHarness(graph, attempt=2, restore=restore, store=job.store) as job:
        await job.wait()
    assert lost_and_doubled(tmp_path) == ([], [])


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(i, marks=pytest.mark.soak) for i in range(6, 12))]
)
async def test_killed_again_and_again(source, tmp_path, seed) -> None:
    random_ = random.Random(seed)
    sink = SINKS.get(seed, ONE_FOLDER)
    graph = graph_to(tmp_path, sink)
    restore: Checkpoint | None = None
    store, ended, attempt = None, False, 0
    while not ended:
        attempt += 1
        async with JobHarness(
            graph,
            parallelism=random_.choice([1, 2, 3]),
            attempt=attempt,
            restore=restore,
            store=store,
            checkpoint_interval_s=random_.choice([0.001, 0.005]),
        ) as job:
            store = job.store
            job.coordinator.next_id += random_.choice([0, 3])
            # The last attempts are left alone.
            turns = random_.randint(20, 1_500) if attempt < 8 else None
            deaf_at = random_.randint(0, turns) if turns and random_.random() < 0.5 else None
            turn = 0
            while not job._ended.done() and turn != turns:
                if turn == deaf_at:
                    deafen(job)
                turn += 1
                await asyncio.sleep(0)
            ended = job._ended.done()
            if ended:
                job._ended.result()
            restore = job.checkpoints[-1] if job.checkpoints else restore
    assert lost_and_doubled(tmp_path) == ([], [])
    if sink is GROWING:
        assert {path.parent.name for path in tmp_path.rglob("_SUCCESS")} == {f"k={k}" for k in range(7)}
        assert [*(tmp_path / "_growing").glob("*")] == []


async def test_a_monitored_folder_of_compressed_files_over_kills(tmp_path) -> None:
    """Files come while the job runs, between kills, and while none runs: each row once, with its file's name."""
    random_ = random.Random(7)
    inside, out = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    total = 0

    def another() -> None:
        nonlocal total
        lines = "".join(f'{{"k": {n % 7}, "n": {n}}}\n' for n in range(total, total + 300)).encode()
        total += 300
        written = tmp_path / "written"  # it appears whole, as the page on files asks for
        written.write_bytes(gzip.compress(lines) if total % 200 else bz2.compress(lines))
        written.rename(inside / f"{total:05d}.json.{'gz' if total % 200 else 'bz2'}")

    b = GraphBuilder()
    options = {"path": str(inside), "format": "json", "source.monitor-interval": "5 ms",
               "source.path.regex-pattern": r".*\.json\..*"}  # fmt: skip
    rows = b.source("filesystem", SCHEMA, options, parallelism=2, metadata=("file.name",))
    named = Schema((*SCHEMA.fields, *Schema.of(("name", VarCharType(nullable=False))).fields))
    b.sink("filesystem", rows, named, {"path": str(out), "format": "json"})
    graph = b.build()
    restore, store = None, None
    for attempt in range(1, 7):
        another()
        async with JobHarness(
            graph, attempt=attempt, restore=restore, store=store, checkpoint_interval_s=0.005
        ) as job:
            store = job.store
            for _ in range(random_.randint(20, 400)):
                await asyncio.sleep(0)
            another()
            for _ in range(random_.randint(20, 1_500)):
                await asyncio.sleep(0)
            if attempt == 6:
                await job.until(lambda: sum(1 for _ in written_rows(out)) >= total)
                await job.checkpoint()
            restore = job.checkpoints[-1] if job.checkpoints else restore
    got = sorted((row["n"], row["name"]) for row in written_rows(out))
    assert [n for n, _ in got] == list(range(total))
    assert {name for n, name in got if n < 300} == {"00300.json.gz"}


def written_rows(folder: Path) -> Iterator[dict[str, Any]]:
    for path in folder.glob("part-*"):
        yield from map(json.loads, path.read_text().splitlines())
