"""What checkpoints of a large keyed aggregation cost: pauses, bytes, CPU time, restoring.

One subtask (COUNT, SUM and MAX per BIGINT key: 40 bytes a key) is driven as a task drives
it: steps of a batch on the event loop, slices of the copy between them, encoding in the
helper thread, objects on local disk. Steps are told in wall time and in the thread's CPU
time; on a machine that does other work only the second says anything.

    python -m bench.checkpoints [--keys 10000000] [--only pauses|deltas|cost|restore]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.functions.expr import AggregateCall
from penstock.jobgraph import JobVertex, OperatorNode
from penstock.jobgraph.specs import GroupAggregateSpec
from penstock.messages.slot import StateHandle, TaskDescriptor
from penstock.metrics import MetricGroup
from penstock.operators.group_aggregate import KeyedAggregateOperator
from penstock.operators.operator import OperatorContext
from penstock.runtime import checkpoints
from penstock.runtime.checkpoints import SnapshotWriter, restore_vertex
from penstock.runtime.environment import Environment
from penstock.runtime.malloc import keep_freed_memory
from penstock.snapshots.restoring import Source
from penstock.state.epochs import Epochs
from penstock.store.open import open_store
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.snapshots.contract import RestoredState

ROWS = 4_096
BIG = t.BigIntType(False)
INPUT = Schema.of(("key", BIG), ("price", BIG))
OUTPUT = Schema.of(("key", BIG), ("n", BIG), ("sum", BIG), ("max", BIG))
CALLS = (
    AggregateCall("COUNT", (), BIG),
    AggregateCall("SUM", (1,), BIG),
    AggregateCall("MAX", (1,), BIG),
)
PAYLOAD = Schema.of(("key", BIG), ("text", t.VarCharType()))
PAYLOAD_OUT = Schema.of(("key", BIG), ("text", t.VarCharType()))
MAX_TEXT = (AggregateCall("MAX", (1,), t.VarCharType()),)


@dataclass
class Steps:
    """Seconds of each piece of work on the data thread: (wall, CPU)."""

    found: list[tuple[float, float]] = field(default_factory=list)

    def run(self, work: Callable[[], Any]) -> None:
        wall, cpu = time.perf_counter(), time.thread_time()
        work()
        self.found.append((time.perf_counter() - wall, time.thread_time() - cpu))

    def shown(self) -> str:
        wall, cpu = (np.sort([x[i] for x in self.found]) * 1000 for i in (0, 1))
        high = int(len(wall) * 0.99)
        return (
            f"{len(wall):>6} steps, ms: median {np.median(cpu):5.2f}  p99 {cpu[high]:5.2f}  "
            f"longest {cpu[-1]:6.2f} (wall {wall[high]:.2f}, {wall[-1]:.2f})"
        )


class OneTask:
    """A subtask without a job: the operator, and what writes its snapshots."""

    def __init__(
        self, folder: Path, *, calls: Any = CALLS, schema: Schema = INPUT, output: Schema = OUTPUT
    ) -> None:
        self.schema, self.output = schema, output
        self.spec = GroupAggregateSpec(keys=(0,), aggregates=calls, bounded_final=True)
        self.store = open_store(f"file://{folder}/store")
        self.folder = folder
        self.environment = Environment(
            job_id="bench", job_name="bench", job_attempt=1, config={}, local_dir=folder,
            store=self.store, function=lambda name: None,
        )  # fmt: skip
        node = OperatorNode(uid="sums", name="sums", spec=self.spec, inputs=(), output=output)
        self.vertex = JobVertex(id="v0", name="sums", operators=(node,), parallelism=1, max_parallelism=128)
        self.descriptor = TaskDescriptor(
            execution_id="v0:0", vertex_id="v0", subtask_index=0, attempt=1, restore=()
        )
        self.epochs = Epochs()
        self.writer = SnapshotWriter(self.environment, self.vertex, self.descriptor, self.epochs)
        self.checkpoint_id = 0

    def open(self, restored: RestoredState | None = None) -> OneTask:
        self.operator = KeyedAggregateOperator(self.spec)
        self.operator.open(
            OperatorContext(
                job_id="bench", job_name="bench", vertex_id="v0", uid="sums", name="sums", subtask_index=0,
                parallelism=1, max_parallelism=128, attempt=1, input_schemas=[self.schema],
                output_schema=self.output, config={}, metrics=MetricGroup(), key_groups=(0, 127),
                local_dir=self.folder, now_ms=lambda: 0, wake_at=lambda at: None, function=lambda name: None,
                epochs=self.epochs,
            ),
            restored,
        )  # fmt: skip
        return self

    def process(self, batch: Batch) -> None:
        for _ in self.operator.process(0, batch):
            pass

    async def checkpoint(self) -> StateHandle:
        self.checkpoint_id += 1
        self.writer.begin(self.checkpoint_id, "checkpoint")
        handle = await self.writer.write(
            self.checkpoint_id, {"sums": self.operator.snapshot(self.checkpoint_id)}
        )
        assert handle is not None
        self.writer.confirmed(self.checkpoint_id)
        return handle


def batches(keys: np.ndarray, rows: int = ROWS) -> Iterator[Batch]:
    for at in range(0, len(keys), rows):
        part = keys[at : at + rows]
        yield Batch(INPUT, [Column(BIG, part), Column(BIG, part & 1023)], num_rows=len(part))


def spread(numbers: np.ndarray) -> np.ndarray:
    """Keys that need hashing, one a number."""
    return numbers * np.int64(0x5851F42D4C957F2D)


async def filled(folder: Path, keys: int) -> OneTask:
    task = OneTask(folder).open()
    for batch in batches(spread(np.arange(keys)), 16_384):
        task.process(batch)
    return task


async def pauses(keys: int) -> None:
    print(f"\nSteps of {ROWS} rows, {keys:,} keys, uniform")
    with tempfile.TemporaryDirectory() as folder:
        task = await filled(Path(folder), keys)
        random = np.random.default_rng(3)
        load = list(batches(spread(random.integers(0, keys, ROWS * 256))))
        none = Steps()
        for batch in load:
            none.run(lambda batch=batch: task.process(batch))
        print(f"  no checkpoint      {none.shown()}")
        for name in ("whole", "delta"):
            steps, slices = Steps(), Steps()
            undo = _watched(task, slices)
            began = time.perf_counter()
            before = time.thread_time()
            run = asyncio.ensure_future(task.checkpoint())
            i = 0
            await asyncio.sleep(0)
            barrier_ms = (time.thread_time() - before) * 1000
            while not run.done():
                batch = load[i % len(load)]
                steps.run(lambda batch=batch: task.process(batch))
                i += 1
                await asyncio.sleep(0)
            undo()
            print(f"  during a {name:<9} {steps.shown()}")
            print(f"    its slices       {slices.shown()}")
            print(
                f"    barrier {barrier_ms:.2f} ms, complete after {time.perf_counter() - began:.1f} s, "
                f"{run.result().size_bytes / 1e6:.1f} MB"
            )


def _watched(task: OneTask, slices: Steps) -> Callable[[], None]:
    """Time every slice of the copy."""
    old = checkpoints._Slice.begin
    state = {"at": (time.perf_counter(), time.thread_time())}
    sleep = asyncio.sleep

    def begin(self: Any) -> None:
        state["at"] = (time.perf_counter(), time.thread_time())
        old(self)

    async def pause(delay: float) -> None:
        wall, cpu = state["at"]
        slices.found.append((time.perf_counter() - wall, time.thread_time() - cpu))
        await sleep(delay)

    checkpoints._Slice.begin = begin  # type: ignore[method-assign]
    checkpoints.asyncio = _Asyncio(pause)  # type: ignore[attr-defined]

    def undo() -> None:
        checkpoints._Slice.begin = old  # type: ignore[method-assign]
        checkpoints.asyncio = asyncio  # type: ignore[attr-defined]

    return undo


class _Asyncio:
    """asyncio with another ``sleep``."""

    def __init__(self, sleep: Any) -> None:
        self.sleep = sleep

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


async def deltas(keys: int) -> None:
    print(f"\nOne checkpoint by share of keys changed since the last, {keys:,} keys")
    print(f"  {'changed':>8} {'MB':>8} {'seconds':>8} {'CPU s':>7}")
    with tempfile.TemporaryDirectory() as folder:
        task = await filled(Path(folder), keys)
        cpu, began = time.process_time(), time.perf_counter()
        handle = await task.checkpoint()
        _line("whole", handle, began, cpu)
        for share in (0.0, 0.001, 0.01, 0.1, 1.0):
            changed = np.random.default_rng(5).permutation(keys)[: int(keys * share)]
            for batch in batches(spread(np.sort(changed)), 16_384):
                task.process(batch)
            cpu, began = time.process_time(), time.perf_counter()
            handle = await task.checkpoint()
            _line(f"{share:.1%}", handle, began, cpu)


def _line(name: str, handle: StateHandle, began: float, cpu: float) -> None:
    kind = "" if not handle.chain else f"  (on {len(handle.chain)})"
    wall, used = time.perf_counter() - began, time.process_time() - cpu
    print(f"  {name:>8} {handle.size_bytes / 1e6:>8.2f} {wall:>8.2f} {used:>7.2f}{kind}")


async def cost(keys: int, seconds: int) -> None:
    """CPU seconds of the same rows, as fast as they go, on two tasks in turns: one takes a
    checkpoint each time, while the rows go on. What the neighbours do meets both alike."""
    random = np.random.default_rng(9)
    count = ROWS * 2_048
    uniform = random.integers(0, keys, count)
    # Nine rows in ten belong to one key in a hundred, as bids do to auctions.
    skewed = np.where(random.random(count) < 0.9, uniform % (keys // 100), uniform)
    for name, chosen in (("uniform", uniform), ("skewed", skewed)):
        load = list(batches(spread(chosen)))
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            tasks = [await filled(Path(folder), keys) for folder in (first, second)]
            await tasks[1].checkpoint()
            rounds = _rounds_a_second(tasks[0], load)
            print(
                f"\nCPU time of the same rows at full speed, {name} over {keys:,} keys, "
                f"{rounds * ROWS / 1e6:.2f} M rows/s"
            )
            for interval in (1, 10):
                pairs = max(2, seconds // (2 * interval))
                found = [await _pair(tasks, load, rounds * interval, odd=n % 2) for n in range(pairs)]
                plain, taking = (np.array(x) for x in zip(*found, strict=True))
                print(
                    f"  every {interval:>2} s: {np.median(taking / plain) - 1:+.1%} in the median of "
                    f"{pairs} pairs, {taking.sum() / plain.sum() - 1:+.1%} in all; "
                    f"{np.median(taking - plain):.3f} s a checkpoint"
                )


def _rounds_a_second(task: OneTask, load: list[Batch]) -> int:
    began, done = time.process_time(), 0
    while time.process_time() - began < 2:
        task.process(load[done % len(load)])
        done += 1
    return done // 2


async def _pair(tasks: list[OneTask], load: list[Batch], rounds: int, *, odd: int) -> tuple[float, float]:
    """CPU seconds without and with a checkpoint; ``odd``: the latter first."""
    used = [0.0, 0.0]
    for which in (1, 0) if odd else (0, 1):
        began = time.process_time()
        run = asyncio.ensure_future(tasks[1].checkpoint()) if which else None
        for n in range(rounds):
            tasks[which].process(load[n % len(load)])
            await asyncio.sleep(0)
        if run is not None:
            await run
        used[which] = time.process_time() - began
    return used[0], used[1]


async def restore(keys: int) -> None:
    print("\nRestoring, from local disk (CPU seconds of one core in brackets)")
    for name, count, text in (
        (f"{keys * 3:,} × 40 B", keys * 3, 0),
        (f"{keys // 10:,} × 1 KiB", keys // 10, 1024),
    ):
        with tempfile.TemporaryDirectory() as folder:
            task = await (_with_texts(Path(folder), count, text) if text else filled(Path(folder), count))
            began, cpu = time.perf_counter(), time.process_time()
            handle = await task.checkpoint()
            wrote = f"written in {time.perf_counter() - began:.1f} s [{time.process_time() - cpu:.1f}]"
            again = OneTask(Path(folder), calls=task.spec.aggregates, schema=task.schema, output=task.output)
            descriptor = TaskDescriptor(
                execution_id="v0:0", vertex_id="v0", subtask_index=0, attempt=2, restore=(handle,)
            )
            del task
            began, before = time.perf_counter(), os.times()
            source = Source(again.store, run=again.environment.helper.run)
            vertex = await restore_vertex(descriptor, again.vertex, source)
            read_s = time.perf_counter() - began
            assert vertex is not None
            again.open(vertex.operators["sums"])
            took, after = time.perf_counter() - began, os.times()
            user, system = after.user - before.user, after.system - before.system
            print(
                f"  {name:>18}: {handle.size_bytes / 1e6:7.0f} MB {wrote}; restored in {took:.1f} s "
                f"[{user:.1f}, and {system:.1f} in the kernel], of which reading {read_s:.1f} s"
            )


async def _with_texts(folder: Path, keys: int, length: int) -> OneTask:
    import pyarrow as pa

    task = OneTask(folder, calls=MAX_TEXT, schema=PAYLOAD, output=PAYLOAD_OUT).open()
    random = np.random.default_rng(2)
    noise = random.integers(97, 123, 1 << 20, np.uint8).tobytes().decode()
    for at in range(0, keys, 8_192):
        n = min(8_192, keys - at)
        starts = random.integers(0, len(noise) - length, n).tolist()
        texts = pa.array([noise[s : s + length] for s in starts])
        columns = [Column(BIG, spread(np.arange(at, at + n))), Column(t.VarCharType(), texts)]
        task.process(Batch(PAYLOAD, columns, num_rows=n))
    return task


async def run(args: argparse.Namespace) -> None:
    wanted = args.only
    if wanted in (None, "pauses"):
        await pauses(args.keys)
    if wanted in (None, "deltas"):
        await deltas(args.keys)
    if wanted in (None, "cost"):
        await cost(args.keys // 10, args.seconds)
    if wanted in (None, "restore"):
        await restore(args.keys)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=int, default=30, help="CPU seconds of the part 'cost'")
    parser.add_argument("--only", choices=["pauses", "deltas", "cost", "restore"])
    keep_freed_memory()  # as slots do
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
