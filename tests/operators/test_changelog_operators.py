"""Deduplicate, normalise, materialise, set operations, window tables: against definitions."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import SpecError
from penstock.jobgraph.specs import (
    DeduplicateSpec,
    MaterializeSpec,
    NormalizeSpec,
    SetOperationSpec,
    WindowSpec,
    WindowTableSpec,
)
from penstock.operators.changelog import MaterializeOperator, NormalizeOperator
from penstock.operators.deduplicate import DeduplicateOperator
from penstock.operators.set_operation import SetOperationOperator
from penstock.operators.window_table import WindowTableOperator
from penstock.snapshots.contract import RestoredState
from penstock.testing.operator_harness import Cluster, Subtask, materialized
from penstock.types import logical as t
from penstock.types.batch import Batch, RowKind
from penstock.types.logical import Schema

STR, BIG = t.VarCharType(), t.BigIntType()
INPUT = Schema.of(("k", STR), ("ts", BIG), ("id", BIG))
KEY = st.sampled_from(["a", "b", None])


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["first", "last"]), st.booleans(), st.booleans(), st.sampled_from([1, 3]),
    st.lists(st.lists(st.tuples(KEY, st.integers(0, 5)), min_size=1, max_size=8), min_size=1, max_size=5),
)  # fmt: skip
def test_deduplication(keep, by_time, before, parallelism, batches):
    spec = DeduplicateSpec(keys=(0,), keep=keep, time=1 if by_time else None, emit_before=before)
    cluster = Cluster(lambda: DeduplicateOperator(spec), [(0,)], [INPUT], INPUT, 1)
    number, best = 0, {}
    for i, rows in enumerate(batches):
        rows = [(*row, number := number + 1) for row in rows]
        for row in rows:
            have = best.get(row[0])
            if keep == "first":
                wins = have is None or (by_time and row[1] < have[1])
            else:
                wins = have is None or not by_time or row[1] >= have[1]
            if wins:
                best[row[0]] = row
        cluster.process(Batch.of(INPUT, rows))
        if i == 1:
            cluster = cluster.rescale(parallelism)
        changes = [change for b in cluster.out() for change in b.rows()]
        if before:
            assert materialized(cluster.out()) == Counter(best.values())
        else:
            assert {row[0]: row for _, row in changes} == best
            assert not {RowKind.UPDATE_BEFORE, RowKind.DELETE} & {kind for kind, _ in changes}
        if keep == "first" and not by_time:
            assert all(b.kinds is None for b in cluster.out())


def test_a_snapshot_without_rows_cannot_give_them_back():
    given = {before: DeduplicateSpec(keys=(0,), keep="last", emit_before=before) for before in (True, False)}
    sub = Subtask(DeduplicateOperator(given[False]), [INPUT], INPUT)
    sub.process(Batch.of(INPUT, [("a", 1, 1), ("b", 1, 2)]))
    block = sub.operator.snapshot(1).block("rows")
    restored = RestoredState(1, keyed={"rows": [block.batch]})
    with pytest.raises(SpecError, match="no rows to retract"):
        Subtask(DeduplicateOperator(given[True]), [INPUT], INPUT, restored=restored)


def test_window_deduplication_waits_for_the_window():
    schema = Schema.of(("ws", BIG), ("we", BIG), ("k", STR), ("ts", BIG))
    spec = DeduplicateSpec(keys=(2,), keep="last", time=3, window=(0, 1))
    sub = Subtask(DeduplicateOperator(spec), [schema], schema)
    sub.process(Batch.of(schema, [(0, 10, "a", 3), (0, 10, "a", 7), (0, 10, "a", 5), (10, 20, "a", 11)]))
    assert sub.rows() == []
    sub.watermark(9)
    assert sub.rows() == [(0, 10, "a", 7)]
    sub.finish()
    assert sub.rows() == [(0, 10, "a", 7), (10, 20, "a", 11)]


def test_normalize_gives_full_changes():
    sub = Subtask(NormalizeOperator(NormalizeSpec(keys=(0,))), [INPUT], INPUT)
    sub.process(Batch.of(INPUT, [("a", 1, 1), ("b", 1, 1), ("a", 2, 2)]))
    sub.process(Batch.of(INPUT, [("a", 3, 3), ("b", None, None), ("z", None, None)], kinds=[2, 3, 3]))
    sub.process(Batch.of(INPUT, [("a", 3, 3)], kinds=[2]))
    assert Counter(sub.changes()[:2]) == Counter([("+I", ("b", 1, 1)), ("+I", ("a", 2, 2))])
    assert sub.changes()[2:] == [("-U", ("a", 2, 2)), ("+U", ("a", 3, 3)), ("-D", ("b", 1, 1))]
    assert len(sub.operator._keys) == 1


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.lists(st.one_of(st.tuples(KEY, st.integers(0, 2)), st.integers(0, 50)), min_size=1, max_size=8),
        min_size=1, max_size=6,
    ),
    st.sampled_from([1, 3]),
)  # fmt: skip
def test_materialize_keeps_the_last_standing_row(batches, parallelism):
    cluster = Cluster(lambda: MaterializeOperator(MaterializeSpec(keys=(0,))), [(0,)], [INPUT], INPUT, 1)
    standing: list = []
    for i, items in enumerate(batches):
        rows, kinds = [], []
        for item in items:
            if isinstance(item, tuple):
                row = (*item, 0)
                standing.append(row)
                rows.append(row)
                kinds.append(RowKind.UPDATE_AFTER)
            elif standing:
                # The newest of equal rows goes.
                row = standing[item % len(standing)]
                at = len(standing) - 1 - standing[::-1].index(row)
                rows.append(standing.pop(at))
                kinds.append(RowKind.UPDATE_BEFORE)
        if rows:
            cluster.process(Batch.of(INPUT, rows, kinds=kinds))
        if i == 1:
            cluster = cluster.rescale(parallelism)
        sink: dict = {}
        for batch in cluster.out():
            for kind, row in batch.rows():
                assert kind != RowKind.UPDATE_BEFORE
                if kind == RowKind.DELETE:
                    del sink[row[0]]
                else:
                    sink[row[0]] = row
        assert set(sink) == {r[0] for r in standing}
        assert all(row in standing for row in sink.values())


@pytest.mark.parametrize("kind", ["intersect", "except"])
@pytest.mark.parametrize("every", [False, True])
@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 1),
            st.lists(st.one_of(st.tuples(KEY, st.integers(0, 1)), st.integers(0, 9)), min_size=1, max_size=6),
        ),
        min_size=1, max_size=6,
    )
)  # fmt: skip
def test_set_operations_after_every_batch(kind, every, steps):
    schema = Schema.of(("k", STR), ("v", BIG))
    spec = SetOperationSpec(kind=kind, all=every)
    cluster = Cluster(lambda: SetOperationOperator(spec), [(0, 1), (0, 1)], [schema, schema], schema, 1)
    standing: tuple[list, list] = ([], [])
    for i, (side, items) in enumerate(steps):
        rows, kinds = [], []
        for item in items:
            if isinstance(item, tuple):
                standing[side].append(item)
                rows.append(item)
                kinds.append(RowKind.INSERT)
            elif standing[side]:
                rows.append(standing[side].pop(item % len(standing[side])))
                kinds.append(RowKind.DELETE)
        if rows:
            cluster.process(Batch.of(schema, rows, kinds=kinds), side)
        if i == 2:
            cluster = cluster.rescale(3)
        left, right = Counter(standing[0]), Counter(standing[1])
        want = (left & right if kind == "intersect" else left - right) if every else None
        if want is None:
            both = set(left) & set(right) if kind == "intersect" else set(left) - set(right)
            want = Counter(both)
        assert materialized(cluster.out()) == want


def test_window_table_repeats_rows():
    out = Schema((*INPUT.fields, *(t.Field(n, BIG.not_null) for n in ("ws", "we", "wt"))))
    window = WindowSpec(kind="hop", time=1, size_us=10_000, slide_us=5_000)
    sub = Subtask(WindowTableOperator(WindowTableSpec(window=window)), [INPUT], out)
    sub.process(Batch.of(INPUT, [("a", 7_000, 1), ("b", -1, 2)]))
    assert sub.rows() == [
        ("a", 7_000, 1, 0, 10_000, 9_000), ("a", 7_000, 1, 5_000, 15_000, 14_000),
        ("b", -1, 2, -10_000, 0, -1_000), ("b", -1, 2, -5_000, 5_000, 4_000),
    ]  # fmt: skip
