"""Whatever lies on disk and whatever comes back: an operator that may hold nearly nothing in
memory gives what one gives that holds everything, after every batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.functions.expr import AggregateCall, InputRef
from penstock.functions.registry import make_call
from penstock.jobgraph.specs import (
    DeduplicateSpec,
    GroupAggregateSpec,
    JoinSpec,
    MaterializeSpec,
    NormalizeSpec,
    OverSpec,
    SetOperationSpec,
    SortKey,
    TopNSpec,
)
from penstock.operators.changelog import MaterializeOperator, NormalizeOperator
from penstock.operators.deduplicate import DeduplicateOperator
from penstock.operators.group_aggregate import make_group_aggregate
from penstock.operators.join import make_join
from penstock.operators.over import OverOperator
from penstock.operators.set_operation import SetOperationOperator
from penstock.operators.top_n import make_top_n
from penstock.state import cold_tier
from penstock.testing.operator_harness import Cluster
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.logical import Schema
from tests.state.both_ways import BothWays, tier

BIG, STR, TIME = t.BigIntType(), t.VarCharType(), t.TimestampType(6)
N = BIG.not_null
ROWS = Schema.of(("k", BIG), ("s", STR), ("v", BIG), ("t", t.BigIntType()))
TIMED = Schema.of(("k", BIG), ("s", STR), ("v", BIG), ("t", TIME.not_null))
TWICE = Schema((*ROWS.fields, *(t.Field(f"{f.name}2", f.type) for f in ROWS.fields)))
TTL_MS = 1_000


def call(name: str, *args: int, type_: t.LogicalType = BIG, distinct: bool = False) -> AggregateCall:
    return AggregateCall(name, args, type_, distinct=distinct)


def aggregate(*calls: AggregateCall, retracts: bool = False, ttl_ms: int = 0) -> Any:
    spec = GroupAggregateSpec(keys=(0,), aggregates=calls, retracts=retracts, ttl_ms=ttl_ms)
    out = Schema.of(("k", BIG), *((f"a{i}", c.type) for i, c in enumerate(calls)))
    return lambda: make_group_aggregate(spec), [ROWS], out, retracts


def deduplicate(schema: Schema = ROWS, **more: Any) -> Any:
    return lambda: DeduplicateOperator(DeduplicateSpec(keys=(0,), **more)), [schema], schema, False


def top(*, retracts: bool = False, rank_column: bool = True, **more: Any) -> Any:
    spec = TopNSpec(partition=(0,), rank_column=rank_column, retracts=retracts, **more)
    out = Schema((*ROWS.fields, t.Field("rank", N))) if rank_column else ROWS
    return lambda: make_top_n(spec), [ROWS], out, retracts


def join(kind: str, *, retracts: bool = False, conditional: bool = False, ttl_ms: int = 0) -> Any:
    condition = make_call("<=", [InputRef(2, BIG), InputRef(6, BIG)]) if conditional else None
    spec = JoinSpec(kind=kind, left_keys=(0,), right_keys=(0,), condition=condition, ttl_ms=ttl_ms)
    out = ROWS if kind in ("semi", "anti") else TWICE
    return lambda: make_join(spec), [ROWS, ROWS], out, retracts


def over(*calls: AggregateCall, ttl_ms: int = 0) -> Any:
    spec = OverSpec(partition=(0,), order=(), aggregates=calls, frame="rows", preceding=None, ttl_ms=ttl_ms)
    out = Schema((*ROWS.fields, *(t.Field(f"a{i}", c.type) for i, c in enumerate(calls))))
    return lambda: OverOperator(spec), [ROWS], out, False


BY_V, BY_S = SortKey(2), SortKey(1, descending=True)
CASES: dict[str, Any] = {
    "sums": aggregate(call("COUNT", type_=N), call("SUM", 2), call("MAX", 1, type_=STR)),
    "sums that expire": aggregate(call("COUNT", type_=N), call("SUM", 2), ttl_ms=TTL_MS),
    "remembered values": aggregate(
        call("COUNT", 1, type_=N, distinct=True), call("LISTAGG", 1, type_=STR), call("FIRST_VALUE", 2)
    ),
    "remembered values that expire": aggregate(call("COUNT", 1, type_=N, distinct=True), ttl_ms=TTL_MS),
    "retracted values": aggregate(
        call("COUNT", type_=N), call("MIN", 2), call("MAX", 1, type_=STR),
        call("COUNT", 1, type_=N, distinct=True), call("LISTAGG", 1, type_=STR), retracts=True,
    ),
    "first row": deduplicate(keep="first"),
    "first row that expires": deduplicate(keep="first", ttl_ms=TTL_MS),
    "last row": deduplicate(keep="last", emit_before=True),
    "last row by time": deduplicate(TIMED, keep="last", time=3, emit_before=True),
    "first row by time": deduplicate(TIMED, keep="first", time=3, emit_before=False),
    "last row that expires": deduplicate(keep="last", emit_before=True, ttl_ms=TTL_MS),
    "top 3": top(rank="row_number", first=1, last=3, order=(BY_V,), fixed_order=True),
    "top 3 that expire": top(
        rank="row_number", first=1, last=3, order=(BY_V,), fixed_order=True, ttl_ms=TTL_MS
    ),
    "top 2 of two columns": top(rank="row_number", first=1, last=2, order=(BY_V, BY_S)),
    "rank with retractions": top(rank="rank", first=1, last=3, order=(BY_V, BY_S), retracts=True),
    "rank that expires": top(rank="rank", first=1, last=3, order=(BY_V,), ttl_ms=TTL_MS),
    "running sums": over(call("COUNT", type_=N), call("SUM", 2)),
    "running values that expire": over(
        call("COUNT", 1, type_=N, distinct=True), call("LISTAGG", 1, type_=STR), ttl_ms=TTL_MS
    ),
    "intersect": (
        lambda: SetOperationOperator(SetOperationSpec(kind="intersect", all=True)), [ROWS, ROWS], ROWS, True
    ),
    "normalize": (lambda: NormalizeOperator(NormalizeSpec(keys=(0,))), [ROWS], ROWS, True),
    "materialize": (lambda: MaterializeOperator(MaterializeSpec(keys=(0,))), [ROWS], ROWS, True),
    **{f"{kind} join": join(kind, conditional=True) for kind in ("inner", "full", "semi", "anti")},
    **{
        f"{kind} join with retractions": join(kind, retracts=True)
        for kind in ("inner", "left", "full", "semi", "anti")
    },
    "left join that expires": join("left", ttl_ms=TTL_MS),
}  # fmt: skip
EXPIRING = [name for name in CASES if "expire" in name]


class Rows:
    """Random changes of few keys; of each input, the rows that stand."""

    def __init__(self, schema: Schema, random: np.random.Generator, retracts: bool) -> None:
        self.schema, self.random, self.retracts = schema, random, retracts
        self.standing: list[list[tuple]] = [[], []]
        self.clock = 0

    def batch(self, side: int) -> Batch:
        rows, kinds = [], []
        for _ in range(int(self.random.integers(1, 16))):
            self.clock += 1
            if self.retracts and self.standing[side] and self.random.random() < 0.4:
                rows.append(self.standing[side].pop(int(self.random.integers(len(self.standing[side])))))
                kinds.append(3)
                continue
            key, value = int(self.random.integers(0, 40)), int(self.random.integers(0, 5))
            time = self.clock if self.schema is ROWS else int(self.random.integers(0, 50))
            row = (key, None if value == 4 else f"text-{value}", value, time)
            if self.schema is TIMED:
                row = Batch.of(ROWS, [row]).to_pylist()[0]
            rows.append(row)
            kinds.append(0)
            self.standing[side].append(row)
        return self.made(rows, kinds if self.retracts else None)

    def made(self, rows: list[tuple], kinds: list[int] | None) -> Batch:
        plain = Batch.of(ROWS, rows, kinds=kinds)
        columns = [c.cast_type(x) for c, x in zip(plain.columns, self.schema.types, strict=True)]
        return plain.with_columns(self.schema, columns)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_equals_what_stays_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, seed: int
) -> None:
    monkeypatch.setattr(cold_tier, "_EVICT_KEYS", 4)
    monkeypatch.setattr("penstock.state.memory.HARD", 1e9)
    make, inputs, output, retracts = CASES[name]
    random = np.random.default_rng(seed)
    source = Rows(inputs[0], random, retracts)
    keys: list[tuple[int, ...]] = [(0, 1, 2, 3) if name == "intersect" else (0,)] * len(inputs)
    both = BothWays(make, keys, inputs, output, folder=tmp_path, limit_bytes=10_000, random=random)
    now = on_disk = 0
    for _ in range(25):
        side = int(random.integers(len(inputs)))
        both.process(source.batch(side), side)
        on_disk = max(on_disk, *(tier(operator).count for operator in both.operators))
        act = int(random.integers(8))
        both.checkpoints(act, rescales=name not in EXPIRING)
        if act == 5 and name in EXPIRING:
            now += int(random.integers(100, 700))
            both.processing_time(now)
        both.same()
    assert on_disk > 3


def test_what_expired_leaves_the_snapshots_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_tier, "_EVICT_KEYS", 1_000)
    monkeypatch.setattr(cold_tier, "_EXPIRE_KEYS", 50)
    monkeypatch.setattr("penstock.state.memory.HARD", 1e9)
    make, inputs, output, _ = CASES["remembered values that expire"]
    cluster = Cluster(make, [(0,)], inputs, output, 1, limit_bytes=9_000, folder=tmp_path)
    cluster.process(Batch.of(ROWS, [(k, f"text-{k}", 0, 0) for k in range(300)]))
    task = cluster.subtasks[0]
    held = tier(task.operator)
    assert held.count > 200
    task.checkpoint()
    task.processing_time(TTL_MS)
    assert held.count > 100  # the sweep goes on at the next times
    cluster.process(Batch.of(ROWS, [(k, "text-0", 0, 0) for k in range(300)]))
    inserted = [row for kind, row in task.changes()[300:] if kind == "+I"]
    assert sorted(inserted) == [(k, 1) for k in range(300)]  # whatever was not swept yet is over
    while held.expire(0) is False:
        pass
    restored = cluster.rescale(1).subtasks[0]
    assert tier(restored.operator).count + len(restored.operator._keys) == 300
