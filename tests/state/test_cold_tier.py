"""State larger than its memory: evicted rows come back, snapshots hold them wherever they
lie, memory stays bounded, and what cannot be held fails by name."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import ExternalError
from penstock.functions.expr import AggregateCall
from penstock.jobgraph.specs import GroupAggregateSpec
from penstock.operators.group_aggregate import make_group_aggregate
from penstock.snapshots.restoring import restore
from penstock.state import cold_tier
from penstock.state.bloom import Bloom
from penstock.state.cold_rows import ColdRows, Moved
from penstock.state.memory import StateMemory
from penstock.state.row_bytes import RowBytes
from penstock.testing.operator_harness import Subtask, materialized
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column
from penstock.types.logical import Schema
from tests.state.both_ways import tier

BIG, STR = t.BigIntType(), t.VarCharType()
N = BIG.not_null
ROWS = Schema.of(("k", BIG), ("s", STR), ("v", BIG))
OUT = Schema.of(("k", BIG), ("n", N), ("sum", BIG), ("last", STR))
CALLS = (
    AggregateCall("COUNT", (), N),
    AggregateCall("SUM", (2,), BIG),
    AggregateCall("MAX", (1,), STR),
)


def subtask(folder: Path, limit: int, restored: Any = None, *, retracts: bool = False) -> Subtask:
    calls = CALLS[:2] if retracts else CALLS
    output = Schema(OUT.fields[: 1 + len(calls)])
    spec = GroupAggregateSpec(keys=(0,), aggregates=calls, retracts=retracts)
    return Subtask(
        make_group_aggregate(spec), [ROWS], output, restored=restored, memory=StateMemory(limit),
        local_dir=folder,
    )  # fmt: skip


def rows(keys: np.ndarray, kinds: Any = None) -> Batch:
    return Batch.of(ROWS, [(int(k), f"text-{k}", int(k) % 7) for k in keys], kinds=kinds)


def many(keys: np.ndarray) -> Batch:
    texts = pc.binary_join_element_wise("text-", pa.array(keys).cast(pa.string()), "")
    columns = [Column(BIG, keys), Column(STR, texts), Column(BIG, keys % 7)]
    return Batch(ROWS, columns, num_rows=len(keys))


def totals(out: list[Batch]) -> list[Any]:
    """Of all rows, in whatever order: kinds, and sums of key × value, column by column."""
    found: list[Any] = []
    for batch in out:
        key = batch.columns[0].values
        texts = pc.sum(pc.utf8_length(batch.columns[3].values)).as_py()
        found.append(
            [batch.num_rows, [] if batch.kinds is None else np.bincount(batch.kinds).tolist(), texts]
        )
        found[-1] += [int((key * batch.columns[i].values).sum()) for i in (1, 2)]
    return found


def test_ten_times_the_budget_gives_the_same_rows(tmp_path: Path) -> None:
    limit, random = 900_000, np.random.default_rng(3)
    small, large = subtask(tmp_path, limit), subtask(tmp_path, 0)
    operator = small.operator
    most = 0
    keys = random.integers(0, 170_000, 200_000) * 1_000_003
    for at in range(0, len(keys), 2_000):
        batch = many(keys[at : at + 2_000])
        small.process(batch)
        large.process(batch)
        assert totals(small.out) == totals(large.out)
        small.out, large.out = [], []
        most = max(most, tier(operator).nbytes())
    full = large.operator._keys.live_bytes()
    assert full > 10 * limit
    assert most < 1.5 * limit
    assert tier(operator).count > 80_000
    assert operator._keys.high < 30_000  # slots of evicted rows are used again


STEP = st.one_of(
    st.tuples(st.just("rows"), st.lists(st.integers(0, 60), min_size=1, max_size=20)),
    st.tuples(st.just("rows"), st.lists(st.integers(0, 60), min_size=1, max_size=20)),
    st.tuples(st.just("back"), st.integers(1, 10)),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("restore")),
)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEP, max_size=25))
def test_chains_hold_what_is_in_memory_and_on_disk(
    tmp_path_factory: Any, monkeypatch: pytest.MonkeyPatch, steps: list[Any]
) -> None:
    """Retractions and all; evictions at every batch, deltas between them."""
    monkeypatch.setattr(cold_tier, "_EVICT_KEYS", 5)
    monkeypatch.setattr("penstock.state.memory.HARD", 1e9)
    memory_limit = 700
    task = subtask(tmp_path_factory.mktemp("a"), memory_limit, retracts=True)
    plain = subtask(tmp_path_factory.mktemp("b"), 0, retracts=True)
    standing: list[int] = []
    for step in [*steps, ("checkpoint",), ("rows", [1, 70]), ("restore",)]:
        match step:
            case ("rows", keys):
                standing += keys
                batch = rows(np.array(keys))
            case ("back", n):
                gone, standing = standing[:n], standing[n:]
                if not gone:
                    continue
                batch = rows(np.array(gone), kinds=[3] * len(gone))
            case ("checkpoint",):
                task.checkpoint()
                continue
            case _:
                handle = task.checkpoint()
                state = asyncio.run(restore([handle], "u", (0, 127), 0, 1))
                out = task.out
                task.operator.close()
                task = subtask(tmp_path_factory.mktemp("c"), memory_limit, state, retracts=True)
                task.out = out
                continue
        task.process(batch)
        plain.process(batch)
    assert materialized(task.out) == materialized(plain.out)
    assert len(task.operator._keys) + tier(task.operator).count == len(plain.operator._keys)


def test_what_cannot_be_evicted_fails_with_the_largest_holders(tmp_path: Path) -> None:
    spec = GroupAggregateSpec(keys=(0,), aggregates=CALLS, bounded_final=True)
    task = Subtask(make_group_aggregate(spec), [ROWS], OUT, memory=StateMemory(600_000), local_dir=tmp_path)

    def fill() -> None:
        for at in range(0, 40_000, 500):
            task.process(rows(np.arange(at, at + 500) * 1_000_003))

    with pytest.raises(ExternalError, match=r"KeyedAggregateOperator: 1\.\d MB"):
        fill()


def test_bloom_filters_forget_nothing_and_seldom_invent() -> None:
    bloom, random = Bloom(), np.random.default_rng(1)
    hashes = random.integers(0, 2**63, 250_000).astype(np.uint64)
    for at in range(0, len(hashes), 10_000):
        bloom.add(hashes[at : at + 10_000])
    assert bloom.may_hold(hashes).all()
    others = random.integers(0, 2**63, 50_000).astype(np.uint64)
    assert bloom.may_hold(others).mean() < 0.05


def test_cold_rows_by_any_key(tmp_path: Path) -> None:
    types = [t.DoubleType(), STR]
    cold = ColdRows(tmp_path, types, [([BIG, STR], False)])
    keys = [Column.of(types[0], [0.0, float("nan"), None]), Column.of(STR, ["a", None, "é"])]
    names = cold.names(keys)
    payload = [Column.of(BIG, [1, None, 3]), Column.of(STR, ["x", "y", None])]
    ids, stamps = np.array([7, 8, 9]), np.ones(3, np.int32)
    order = names.order
    moved = Moved(np.ones(3, np.int64), ids[order], stamps, None, [c.take(order) for c in payload])
    cold.put(0, names, moved, confirmed=1)
    cut = cold.cut(0, 0, 1)
    found = cut.read(10)
    assert found is not None
    assert sorted(found[0].tolist()) == [7, 8, 9]
    assert cut.read(10) is None
    asked = [Column.of(types[0], [-0.0, float("nan"), 5.0]), Column.of(STR, ["a", None, "é"])]
    positions, known = cold.known(asked)
    [back] = cold.take(0, known)
    assert positions[known.order][back.counts > 0].tolist() in ([0, 1], [1, 0])
    rows = zip(back.ids.tolist(), *(c.to_pylist() for c in back.columns), strict=True)
    assert sorted(rows) == [(7, 1, "x"), (8, None, "y")]
    assert not list(cold.take(0, cold.known(asked)[1]))
    cold.close()


def test_row_bytes_of_every_kind() -> None:
    types = [
        BIG,
        t.BooleanType(),
        t.DecimalType(10, 2),
        t.DecimalType(30, 2),
        STR,
        t.ArrayType(BIG),
        t.RawType(),
    ]
    from decimal import Decimal

    values: list[list[Any]] = [
        [1, None], [True, False], [Decimal("1.50"), None], [None, Decimal("7.25")], ["a", None],
        [[1, 2], None], [{"x": 1}, None],
    ]  # fmt: skip
    columns = [Column.of(type_, column) for type_, column in zip(types, values, strict=True)]
    form = RowBytes(types)
    back = form.decode(form.encode(columns, 2))
    assert [c.to_pylist() for c in back] == [c.to_pylist() for c in columns]
