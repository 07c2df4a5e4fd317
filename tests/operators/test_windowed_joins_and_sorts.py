"""Window joins, temporal joins, sorts and limits."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.jobgraph.specs import (
    LimitSpec,
    SortKey,
    SortSpec,
    TemporalJoinSpec,
    TemporalSortSpec,
    WindowJoinSpec,
)
from penstock.operators.sort import LimitOperator, SortOperator, TemporalSortOperator
from penstock.operators.temporal_join import TemporalJoinOperator
from penstock.operators.window_join import WindowJoinOperator
from penstock.testing.operator_harness import Cluster, Subtask, materialized
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.logical import Schema

STR, BIG = t.VarCharType(), t.BigIntType()
LEFT = Schema.of(("k", STR), ("ws", BIG), ("we", BIG), ("a", BIG))
RIGHT = Schema.of(("b", BIG), ("ws", BIG), ("we", BIG), ("k", STR))
BOTH = Schema((*LEFT.fields, *RIGHT.fields))
KEY = st.sampled_from(["a", "b", None])


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["inner", "left", "right", "full", "semi", "anti"]),
    st.lists(st.tuples(KEY, st.integers(0, 3)), max_size=12),
    st.lists(st.tuples(KEY, st.integers(0, 3)), max_size=12),
    st.sampled_from([1, 3]),
)
def test_window_join(kind, lefts, rights, parallelism):
    lefts = [(k, 10 * w, 10 * w + 10, i) for i, (k, w) in enumerate(lefts)]
    rights = [(i, 10 * w, 10 * w + 10, k) for i, (k, w) in enumerate(rights)]
    spec = WindowJoinSpec(kind=kind, left_keys=(0,), right_keys=(3,), left_window=(1, 2), right_window=(1, 2))
    out = LEFT if kind in ("semi", "anti") else BOTH
    cluster = Cluster(lambda: WindowJoinOperator(spec), [(0,), (3,)], [LEFT, RIGHT], out, 1)
    cluster.process(Batch.of(LEFT, lefts[:6]), 0)
    cluster.process(Batch.of(RIGHT, rights), 1)
    cluster = cluster.rescale(parallelism)
    cluster.process(Batch.of(LEFT, lefts[6:]), 0)
    cluster.watermark(8)
    assert cluster.out() == []
    cluster.finish()

    def meets(x, y):
        return x[0] is not None and x[0] == y[3] and x[1] == y[1]

    if kind in ("semi", "anti"):
        want = Counter(x for x in lefts if any(meets(x, y) for y in rights) == (kind == "semi"))
    else:
        want = Counter(x + y for x in lefts for y in rights if meets(x, y))
        if kind in ("left", "full"):
            want.update((*x, *[None] * 4) for x in lefts if not any(meets(x, y) for y in rights))
        if kind in ("right", "full"):
            want.update((*[None] * 4, *y) for y in rights if not any(meets(x, y) for x in lefts))
    assert materialized(cluster.out()) == want
    assert all(not s.operator._open for s in cluster.subtasks)


ORDERS = Schema.of(("k", STR), ("lt", BIG), ("id", BIG))
RATES = Schema.of(("k", STR), ("rt", BIG), ("rate", BIG))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["inner", "left"]),
    st.lists(st.tuples(KEY, st.integers(0, 40)), max_size=12),
    st.lists(st.tuples(KEY, st.integers(0, 40), st.booleans()), max_size=12, unique_by=lambda r: r[:2]),
    st.sampled_from([1, 3]),
)
def test_temporal_join(kind, lefts, rights, parallelism):
    """Rows arrive in stretches of ten time units, unordered within each."""
    spec = TemporalJoinSpec(kind=kind, left_keys=(0,), right_keys=(0,), left_time=1, right_time=1)
    out = Schema((*ORDERS.fields, *RATES.fields))
    cluster = Cluster(lambda: TemporalJoinOperator(spec), [(0,), (0,)], [ORDERS, RATES], out, 1)
    lefts = [(k, x, i) for i, (k, x) in enumerate(lefts)]
    rights = [(k, x, i, gone) for i, (k, x, gone) in enumerate(rights)]
    for step in range(5):
        mine = [r for r in lefts if r[1] // 10 == step]
        theirs = [r for r in rights if r[1] // 10 == step]
        cluster.process(Batch.of(ORDERS, mine), 0)
        kinds = [3 if r[3] else 2 for r in theirs]
        cluster.process(Batch.of(RATES, [r[:3] for r in theirs], kinds=kinds), 1)
        if step == 2:
            cluster = cluster.rescale(parallelism)
        cluster.watermark(step * 10 + 9)
    want = Counter()
    for row in lefts:
        versions = [r for r in rights if row[0] is not None and r[0] == row[0] and r[1] <= row[1]]
        version = max(versions, key=lambda r: r[1], default=None)
        if version is not None and not version[3]:
            want[(*row, *version[:3])] += 1
        elif kind == "left":
            want[(*row, None, None, None)] += 1
    assert materialized(cluster.out()) == want
    assert sum(s.metrics.gauges["numVersions"]() for s in cluster.subtasks) <= 3


def test_sort_with_retractions_offset_and_limit():
    spec = SortSpec(order=(SortKey(1, True, False), SortKey(0)), offset=1, limit=2)
    schema = Schema.of(("k", STR), ("v", BIG))
    cluster = Cluster(lambda: SortOperator(spec), [()], [schema], schema, 1)
    cluster.process(Batch.of(schema, [("a", 1), ("b", 5), ("c", None), ("d", 5), ("e", 3)]))
    cluster.process(Batch.of(schema, [("e", 3), ("f", 4)], kinds=[3, 0]))
    cluster = cluster.rescale(1)
    cluster.finish()
    assert [r for b in cluster.out() for r in b.to_pylist()] == [("d", 5), ("f", 4)]


def test_limit_counts_across_batches_and_restores():
    schema = Schema.of(("v", BIG))
    cluster = Cluster(lambda: LimitOperator(LimitSpec(offset=2, limit=3)), [()], [schema], schema, 1)
    cluster.process(Batch.of(schema, [(1,), (2,), (3,)]))
    cluster = cluster.rescale(1)
    cluster.process(Batch.of(schema, [(4,), (5,), (6,)]))
    assert [r for b in cluster.out() for r in b.to_pylist()] == [(3,), (4,), (5,)]


def test_temporal_sort_keeps_kinds_and_times_over_a_restore():
    schema = Schema.of(("k", STR))
    spec = TemporalSortSpec(time=-1, order=(SortKey(0),))
    cluster = Cluster(lambda: TemporalSortOperator(spec), [()], [schema], schema, 1)
    times = np.array([30, 10, 20], np.int64)
    cluster.process(Batch.of(schema, [("a",), ("b",), ("c",)], kinds=[0, 0, 3]).with_times(times))
    cluster.watermark(10)
    cluster.process(Batch.of(schema, [("d",)]).with_times(np.array([25])))
    cluster = cluster.rescale(1)
    cluster.watermark(100)
    (first, rest) = cluster.out()
    assert first.to_pylist() == [("b",)]
    assert [(k.short, row) for k, row in rest.rows()] == [("-D", ("c",)), ("+I", ("d",)), ("+I", ("a",))]
    assert rest.times.tolist() == [20, 25, 30]


def test_temporal_sort_releases_by_watermark():
    schema = Schema.of(("ts", BIG), ("v", BIG))
    sub = Subtask(TemporalSortOperator(TemporalSortSpec(time=0, order=(SortKey(1),))), [schema], schema)
    sub.process(Batch.of(schema, [(5, 1), (3, 9), (3, 2)]))
    sub.watermark(4)
    assert sub.rows() == [(3, 2), (3, 9)]
    sub.process(Batch.of(schema, [(4, 0), (5, 0)]))
    sub.finish()
    assert sub.rows()[2:] == [(5, 0), (5, 1)]
    assert sub.metrics.counters["numLateRecordsDropped"] == 1
