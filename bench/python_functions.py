"""Python functions on one core: records per second of map, process functions, windows.

``python bench/python_functions.py [--rows N] [--backend hashmap|leveldb|both]``. Operators are
driven directly with batches of 16k rows, as a slot drives them (cyclic collector off during
steps); times are CPU seconds of this process. "aim" is issue 3's figure, "pyflink" what PyFlink
reached on such a machine per record with a Python function and state (1,000 to 30,000/s).
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.jobgraph.specs import KeyedProcessSpec, KeyedWindowSpec, PythonSpec, WindowSpec
from penstock.metrics import MetricGroup
from penstock.operators.keyed_process import KeyedProcessOperator
from penstock.operators.keyed_window import KeyedWindowOperator
from penstock.operators.operator import Operator, OperatorContext
from penstock.operators.python import PythonOperator
from penstock.operators.window_functions import WindowCall
from penstock.state.descriptors import ValueStateDescriptor
from penstock.types import Batch, Column, Schema
from penstock.types.logical import BigIntType

BATCH_ROWS = 16_384
BIGINT = BigIntType()
PAIR = Schema.of(("f0", BIGINT), ("f1", BIGINT))
ROW = Schema.of(("user", BIGINT), ("amount", BIGINT))
PYFLINK_PER_SECOND = 30_000


class Count:
    """Value state: a running count per key."""

    def open(self, context: Any) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", BIGINT))

    def process_element(self, value: Any, ctx: Any) -> Any:
        n = (self.count.value() or 0) + 1
        self.count.update(n)
        yield value[0], n


class CountWithTimer(Count):
    """The same, and a timer per record, a minute ahead, at most one per key and second."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        n = (self.count.value() or 0) + 1
        self.count.update(n)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() // 1_000 * 1_000 + 60_000)
        yield value[0], n

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        self.count.clear()


class CountPerBatch(Count):
    """Called once per key and batch with that key's rows."""

    def process_element(self, rows: pa.RecordBatch, ctx: Any) -> Any:
        n = (self.count.value() or 0) + rows.num_rows
        self.count.update(n)
        yield ctx.get_current_key(), n


class Sum:
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + value[1]

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, a: int, b: int) -> int:
        return a + b


def uniform(keys: int) -> Callable[[np.random.Generator, int], np.ndarray]:
    return lambda rng, i: rng.integers(0, keys, BATCH_ROWS)


def skewed(rng: np.random.Generator, i: int) -> np.ndarray:
    """Nexmark's: half of the bids on the hundred newest auctions, the rest on the last 10,000."""
    newest = 1_000 * i
    hot = rng.random(BATCH_ROWS) < 0.5
    near = newest - rng.integers(0, 100, BATCH_ROWS)
    return np.where(hot, near, newest - rng.integers(0, 10_000, BATCH_ROWS)) + 20_000


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    make: Callable[[], Operator]
    function: Any
    keys: Callable[[np.random.Generator, int], np.ndarray] = dataclasses.field(default=uniform(10_000))
    schema: Schema = PAIR
    output: Schema = PAIR
    #: million records a second that issue 3 asks for
    aim: float | None = None
    stateful: bool = False


def python(**fields: Any) -> Callable[[], Operator]:
    return lambda: PythonOperator(PythonSpec(function="f", **fields))


def process(**fields: Any) -> Callable[[], Operator]:
    return lambda: KeyedProcessOperator(KeyedProcessSpec(function="f", keys=((0,),), **fields))


def window() -> Operator:
    spec = WindowSpec(kind="tumble", size_us=10_000_000)
    return KeyedWindowOperator(KeyedWindowSpec(window=spec, keys=(0,), function="f", kind="aggregate"))


ONE = Schema.of(("value", BIGINT))
CASES = [
    Case("map, tuple of two ints", python(kind="map"), lambda x: (x[0] + x[1], x[0]), aim=1.0),
    Case("map, row of two ints", python(kind="map"), lambda x: (x.user + x.amount, x.user), schema=ROW),
    Case("map, per Arrow batch", python(kind="map", per="batch"), lambda b: [pc.add(b[0], b[1]), b[0]]),
    Case("filter", python(kind="filter"), lambda x: x[1] > 500),
    Case("flat_map, generator", python(kind="flat_map"), lambda x: (y for y in (x, x))),
    Case("map, errors skipped", python(kind="map", on_error="skip"), lambda x: (x[0] + x[1], x[0])),
    Case("process + value state, Nexmark's skew", process(), Count(), skewed, aim=0.7, stateful=True),
    Case("process + value state, 1 M uniform keys", process(), Count(), uniform(1_000_000), aim=0.35, stateful=True),
    Case("  … with undo (on_error = skip)", process(on_error="skip"), Count(), skewed, stateful=True),
    Case("  … with a timer a record", process(), CountWithTimer(), skewed, stateful=True),
    Case("  … per key and batch", process(per="batch"), CountPerBatch(), uniform(100), stateful=True),
    Case("window aggregate, Python", window, WindowCall(Sum(), None, BIGINT), skewed, output=ONE, stateful=True),
]  # fmt: skip


def batches(case: Case, rows: int) -> list[Batch]:
    rng = np.random.default_rng(1)
    out = []
    for i in range(max(2, rows // BATCH_ROWS)):
        columns = [
            Column(BIGINT, case.keys(rng, i).astype(np.int64)),
            Column(BIGINT, rng.integers(0, 1_000, BATCH_ROWS)),
        ]
        # 16k records a second of event time
        times = (np.arange(BATCH_ROWS) * 1_000_000 // BATCH_ROWS) + i * 1_000_000
        out.append(Batch(case.schema, columns, times=times))
    return out


def context(case: Case, folder: Path, backend: str) -> OperatorContext:
    return OperatorContext(
        job_id="bench", job_name="bench", vertex_id="v", uid="u", name=case.name, subtask_index=0,
        parallelism=1, max_parallelism=128, attempt=1, input_schemas=[case.schema],
        output_schema=case.output, config={"state.backend.type": backend}, metrics=MetricGroup(),
        key_groups=(0, 127), local_dir=folder, now_ms=lambda: 0, wake_at=lambda at: None,
        function=lambda name: case.function,
    )  # fmt: skip


def measure(case: Case, rows: int, backend: str) -> float:
    """Records per CPU second over the second half of the input."""
    data = batches(case, rows)
    half = len(data) // 2
    with tempfile.TemporaryDirectory() as folder:
        operator = case.make()
        operator.open(context(case, Path(folder), backend), None)
        seconds = 0.0
        for i, batch in enumerate(data):
            started = time.process_time()
            for _ in operator.process(0, batch):
                pass
            for _ in operator.on_watermark(int(batch.times[-1]) - 5_000_000):
                pass
            if i >= half:
                seconds += time.process_time() - started
        operator.close()
    return (len(data) - half) * BATCH_ROWS / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--backend", choices=("hashmap", "leveldb", "both"), default="hashmap")
    options = parser.parse_args()
    gc.collect()
    gc.freeze()
    gc.disable()
    print(f"{'case':<46}{'backend':<9}{'M records/s':>12}{'× aim':>8}{'× PyFlink':>11}")
    for case in CASES:
        wanted = ("hashmap", "leveldb") if options.backend == "both" else (options.backend,)
        for backend in wanted if case.stateful else ("-",):
            rate = measure(case, options.rows, "hashmap" if backend == "-" else backend)
            ratio = "" if case.aim is None or backend == "leveldb" else f"{rate / 1e6 / case.aim:.2f}"
            pyflink = rate / PYFLINK_PER_SECOND
            print(f"{case.name:<46}{backend:<9}{rate / 1e6:>12.2f}{ratio:>8}{pyflink:>11.0f}", flush=True)
            gc.collect()


if __name__ == "__main__":
    main()
