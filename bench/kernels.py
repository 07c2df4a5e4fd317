"""M rows of each CPU second that the main kernels and operators take on this machine, one line each.

``python -m bench.kernels``. Batches of 16k rows of Nexmark-like columns; figures are the
best of several rounds, of one core. CPU time counts, so that other processes change little.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.columnar.hashing import hash_column
from penstock.columnar.key_index import KeyIndex
from penstock.columnar.multimap import MultiMap
from penstock.columnar.sorting import stable_argsort
from penstock.functions.expr import AggregateCall, InputRef
from penstock.jobgraph.specs import (
    CalcSpec,
    DeduplicateSpec,
    GroupAggregateSpec,
    JoinSpec,
    SortKey,
    TopNSpec,
    WindowAggregateSpec,
    WindowSpec,
)
from penstock.operators.calc import CalcOperator
from penstock.operators.deduplicate import DeduplicateOperator
from penstock.operators.group_aggregate import make_group_aggregate
from penstock.operators.join import make_join
from penstock.operators.top_n import make_top_n
from penstock.operators.window_aggregate import make_window_aggregate
from penstock.testing.operator_harness import Subtask
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, BATCHES = 16_384, 40
BIG, STR, TS = t.BigIntType(False), t.VarCharType(), t.TimestampType(3, False)
BID = Schema.of(("auction", BIG), ("bidder", BIG), ("price", BIG), ("channel", STR), ("ts", TS))
COUNT = AggregateCall("COUNT", (), BIG)
SUM_MAX = (COUNT, AggregateCall("SUM", (2,), BIG), AggregateCall("MAX", (2,), BIG))


def bids(keys: int, *, sequence: bool = False) -> list[Batch]:
    """Batches in event-time order, 100 µs apart; ``sequence``: keys once each."""
    rng = np.random.default_rng(7)
    channels = pa.array([f"channel-{i}" for i in range(1000)])
    out = []
    for i in range(BATCHES):
        at = np.arange(i * ROWS, (i + 1) * ROWS)
        key = at if sequence else rng.integers(0, keys, ROWS)
        columns = [
            Column(BIG, key),
            Column(BIG, rng.integers(0, keys, ROWS)),
            Column(BIG, rng.integers(0, 10_000, ROWS)),
            Column(STR, channels.take(pa.array(rng.integers(0, 1000, ROWS)))),
            Column(TS, at * 100),
        ]
        out.append(Batch(BID, columns))
    return out


def line(name: str, rows: int, run: Callable[[], object], rounds: int = 3) -> None:
    best = min(_timed(run) for _ in range(rounds))
    print(f"{name:<52}{rows / best / 1e6:>9.1f} M rows/CPU s")


def _timed(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def drive(
    make: Callable[[], object], batches: list[Batch], output: Schema, *, watermarks: bool = False
) -> None:
    sub = Subtask(make(), [BID], output)  # type: ignore[arg-type]
    for batch in batches:
        for _ in sub.operator.process(0, batch):
            pass
        if watermarks:
            for _ in sub.operator.on_watermark(int(batch.columns[4].values[-1]) - 1):
                pass


def kernels() -> None:
    for keys in (1_000, 100_000, 1_000_000):
        batches = bids(keys)
        total = ROWS * BATCHES
        line(f"hash int64, {keys} keys", total, lambda b=batches: [hash_column(x.columns[0]) for x in b])
        for name, columns in (("int", (0,)), ("string", (3,)), ("string, int", (3, 0))):
            if name == "string" and keys > 1000:
                continue

            def upsert(b: list[Batch] = batches, c: tuple[int, ...] = columns) -> None:
                index = KeyIndex([BID.types[i] for i in c])
                for x in b:
                    index.upsert([x.columns[i] for i in c], ROWS)

            line(f"key index, {name}, {keys} keys", total, upsert)
        line(
            f"stable argsort, {keys} keys",
            total,
            lambda b=batches: [stable_argsort(x.columns[0].values) for x in b],
        )
    pairs()
    table = MultiMap()
    table.add(np.arange(1_000_000), np.arange(1_000_000))
    probes = [b.columns[0].values for b in bids(1_000_000)]
    line("multimap probe against 1M", ROWS * BATCHES, lambda: [table.probe(p) for p in probes])


def pairs() -> None:
    """Keys of two whole numbers: packed into one, packed where some are NULL, and too large to be packed."""
    rng = np.random.default_rng(7)
    left = [rng.integers(0, 100_000, ROWS) for _ in range(BATCHES)]
    right = [rng.integers(0, 10, ROWS) for _ in range(BATCHES)]
    null = np.ones(ROWS, np.bool_)
    null[::1000] = False
    for name, add, valid in (("", 0, None), (", some NULL", 0, null), (", above 2^31", 1 << 40, None)):
        columns = [
            [Column(BIG, a), Column(t.BigIntType(), b + add, valid)] for a, b in zip(left, right, strict=True)
        ]

        def upsert(c: list[list[Column]] = columns) -> None:
            index = KeyIndex([BIG, t.BigIntType()])
            for x in c:
                index.upsert(x, ROWS)

        line(f"key index, two ints{name}, 1000000 keys", ROWS * BATCHES, upsert)


def operators() -> None:
    total = ROWS * BATCHES
    project = CalcSpec(projections=(InputRef(0, BIG), InputRef(2, BIG)))
    pair = Schema.of(("a", BIG), ("p", BIG))
    line("calc, project two columns", total, lambda: drive(lambda: CalcOperator(project), bids_10k, pair))
    for keys, batches in ((10_000, bids_10k), (1_000_000, bids_1m)):
        for name, calls in (("count", (COUNT,)), ("count, sum, max", SUM_MAX)):
            out = Schema.of(("a", BIG), *((f"x{i}", BIG) for i in range(len(calls))))
            windowed = Schema((*out.fields, t.Field("ws", TS), t.Field("we", TS), t.Field("wt", TS)))
            hop = WindowAggregateSpec(
                window=WindowSpec(kind="hop", time=4, size_us=10_000_000, slide_us=2_000_000),
                keys=(0,),
                aggregates=calls,
            )
            line(
                f"hop 10 s / 2 s {name}, {keys} keys",
                total,
                lambda b=batches, s=hop, o=windowed: drive(
                    lambda: make_window_aggregate(s), b, o, watermarks=True
                ),
            )
            group = GroupAggregateSpec(keys=(0,), aggregates=calls)
            line(
                f"group aggregate {name}, {keys} keys",
                total,
                lambda b=batches, s=group, o=out: drive(lambda: make_group_aggregate(s), b, o),
            )
        top = TopNSpec(partition=(0,), order=(SortKey(2, True, False),), last=10, rank_column=True)
        ranked = Schema((*BID.fields, t.Field("rn", BIG)))
        line(
            f"top 10, {keys} keys",
            total,
            lambda b=batches, o=ranked, s=top: drive(lambda: make_top_n(s), b, o),
            1,
        )
        keep = DeduplicateSpec(keys=(0,), keep="last", time=4, emit_before=False)
        line(
            f"keep last row, {keys} keys",
            total,
            lambda b=batches, s=keep: drive(lambda: DeduplicateOperator(s), b, BID),
            1,
        )


def joins() -> None:
    left = bids(100_000, sequence=True)
    both = Schema((*BID.fields, *BID.fields))

    def join(interval: tuple[int, int, int, int] | None) -> None:
        spec = JoinSpec(kind="inner", left_keys=(0,), right_keys=(0,), interval=interval)
        sub = Subtask(make_join(spec), [BID, BID], both)
        for batch in left:
            for side in (0, 1):
                for _ in sub.operator.process(side, batch):
                    pass
            for _ in sub.operator.on_watermark(int(batch.columns[4].values[-1])):
                pass

    line("regular join 1:1", 2 * ROWS * BATCHES, lambda: join(None), 1)
    line("interval join 1:1, 10 s", 2 * ROWS * BATCHES, lambda: join((4, 4, -5_000_000, 5_000_000)), 1)


if __name__ == "__main__":
    bids_10k, bids_1m = bids(10_000), bids(1_000_000)
    kernels()
    operators()
    joins()
