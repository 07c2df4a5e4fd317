"""Snapshots of earlier format versions, kept as they were written, are still read.

``samples/version-1.snapshot``: one subtask with operators ``agg`` (COUNT, COUNT DISTINCT,
LISTAGG per key of a:1, b:2, a:1, a:3), ``over`` (a bounded frame with history and rows
that wait), ``join`` (temporal: versions and rows that wait) and ``keyed`` (value, list and
map state, timers).

``samples/version-{2,3}-*.snapshot``: a chain of a whole object and a delta of a retracting COUNT,
SUM, MAX, COUNT DISTINCT: "key 0" … "key 499" once each, a:3, b:2, c:NULL; then a:5, b taken
back, d:-9.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.columnar.hashing import hash_columns, key_group_range, key_groups
from penstock.functions.expr import AggregateCall
from penstock.jobgraph.specs import GroupAggregateSpec, OverSpec, SortKey, TemporalJoinSpec
from penstock.messages.slot import StateHandle, StateLink
from penstock.operators.group_aggregate import make_group_aggregate
from penstock.operators.over import OverOperator
from penstock.operators.temporal_join import TemporalJoinOperator
from penstock.snapshots import restoring
from penstock.snapshots.contract import RestoredState
from penstock.state.backends import make_backend
from penstock.state.blocks import KeyLayout
from penstock.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from penstock.testing.operator_harness import Subtask
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column
from penstock.types.logical import Schema

SAMPLES = Path(__file__).parent / "samples"
SAMPLE = SAMPLES / "version-1.snapshot"
BIG, STR, TS = t.BigIntType(), t.VarCharType(), t.TimestampType(3, False)
N = BIG.not_null
ROWS = Schema.of(("k", STR), ("v", BIG), ("ts", TS))
RATES = Schema.of(("k", STR), ("ts", TS), ("rate", BIG))


async def stored(uid: str) -> RestoredState:
    data = SAMPLE.read_bytes()
    handle = StateHandle(
        vertex_id="v",
        subtask_index=0,
        checkpoint_id=1,
        inline=data,
        size_bytes=len(data),
        key_groups=(0, 127),
    )
    state = await restoring.restore([handle], uid, (0, 127), 0, 1)
    assert state is not None
    return state


async def test_version_1_of_a_group_aggregate() -> None:
    calls = (
        AggregateCall("COUNT", (), N),
        AggregateCall("COUNT", (1,), N, distinct=True),
        AggregateCall("LISTAGG", (0,), STR, constants=("|",)),
    )
    output = Schema.of(("k", STR), ("n", N), ("d", N), ("l", STR))
    operator = make_group_aggregate(GroupAggregateSpec(keys=(0,), aggregates=calls, emit_before=False))
    task = Subtask(operator, [ROWS], output, restored=await stored("agg"))
    task.process(Batch.of(ROWS, [("a", 3, 0), ("b", 7, 0)]))
    assert sorted(task.rows()) == [("a", 4, 2, "a|a|a|a"), ("b", 2, 2, "b|b")]


async def test_version_1_of_over_rows() -> None:
    spec = OverSpec(
        partition=(0,), order=(SortKey(2),), aggregates=(AggregateCall("SUM", (1,), BIG),), frame="rows",
        preceding=1,
    )  # fmt: skip
    output = Schema.of(("k", STR), ("v", BIG), ("ts", TS), ("s", BIG))
    task = Subtask(OverOperator(spec), [ROWS], output, restored=await stored("over"))
    task.finish()
    assert [(row[0], row[1], row[3]) for row in task.rows()] == [("a", 4, 6)]


async def test_version_1_of_a_temporal_join() -> None:
    spec = TemporalJoinSpec(kind="left", left_keys=(0,), right_keys=(0,), left_time=2, right_time=1)
    output = Schema((*ROWS.fields, *RATES.fields))
    task = Subtask(TemporalJoinOperator(spec), [ROWS, RATES], output, restored=await stored("join"))
    task.finish()
    assert sorted((row[0], row[1], row[5]) for row in task.rows()) == [("a", 1, 7), ("b", 2, None)]


async def test_version_1_of_keyed_state_and_timers() -> None:
    backend = make_backend("hashmap", KeyLayout((STR,), 128), now_ms=lambda: 0, uid="keyed")
    backend.restore(await stored("keyed"))
    value = backend.state(ValueStateDescriptor("v", BIG))
    entries = backend.state(MapStateDescriptor("m", STR, BIG))
    items = backend.state(ListStateDescriptor("l", BIG))
    for key in "xyz":
        backend.scope.key = key
        assert (value.value(), dict(entries.items()), items.get()) == (ord(key), {"one": 1, "two": 2}, [5, 6])
    assert list(backend.event_timers.due(10**6)) == [(ord(key) * 10, key) for key in "xyz"]


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("version", [2, 3])
async def test_a_chain_of_an_earlier_version(version: int, parallelism: int) -> None:
    whole, delta = (
        (SAMPLES / f"version-{version}-{name}.snapshot").read_bytes() for name in ("whole", "delta")
    )
    handle = StateHandle(
        vertex_id="v", subtask_index=0, checkpoint_id=2, inline=delta, size_bytes=len(delta),
        key_groups=(0, 127), chain=(StateLink(checkpoint_id=1, inline=whole, size_bytes=len(whole)),),
    )  # fmt: skip
    calls = (
        AggregateCall("COUNT", (), N),
        AggregateCall("SUM", (1,), BIG),
        AggregateCall("MAX", (1,), BIG),
        AggregateCall("COUNT", (1,), N, distinct=True),
    )
    spec = GroupAggregateSpec(keys=(0,), aggregates=calls, retracts=True, emit_before=False)
    rows = Schema.of(("k", STR), ("v", BIG))
    output = Schema.of(("k", STR), ("n", N), ("s", BIG), ("m", BIG), ("d", N))
    keys = ["a", "b", "c", "d", *(f"key {i}" for i in range(500))]
    groups = key_groups(hash_columns([Column.of(STR, keys)]), 128)
    found = []
    for index in range(parallelism):
        first, last = key_group_range(index, parallelism, 128)
        restored = await restoring.restore([handle], "u", (first, last), index, parallelism)
        task = Subtask(
            make_group_aggregate(spec),
            [rows],
            output,
            restored=restored,
            index=index,
            parallelism=parallelism,
        )
        mine = [key for key, group in zip(keys, groups, strict=True) if first <= group <= last]
        task.process(Batch.of(rows, [(key, 3) for key in mine]))
        found += task.rows()
    assert sorted(found) == sorted(
        [("a", 3, 11, 5, 2), ("b", 1, 3, 3, 1), ("c", 2, 3, 3, 1), ("d", 2, -6, 3, 2)]
        + [(f"key {i}", 2, i + 3, max(i, 3), 1 + (i != 3)) for i in range(500)]
    )
