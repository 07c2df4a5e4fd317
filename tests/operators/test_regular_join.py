"""Regular joins: after every batch the materialised changelog equals the batch join."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.functions.expr import InputRef
from penstock.functions.registry import make_call
from penstock.jobgraph.specs import JoinSpec
from penstock.operators.join import make_join
from penstock.testing.operator_harness import Cluster, Subtask, materialized
from penstock.types import logical as t
from penstock.types.batch import Batch, RowKind
from penstock.types.logical import Schema

STR, INT = t.VarCharType(), t.IntType()
LEFT = Schema.of(("k", STR), ("a", INT))
RIGHT = Schema.of(("b", INT), ("k2", STR))
BOTH = Schema((*LEFT.fields, *RIGHT.fields))
KINDS = ["inner", "left", "right", "full", "semi", "anti"]


def reference(kind, lefts, rights, null_safe, accept):
    def meets(x, y):
        return x[0] == y[1] and (null_safe or x[0] is not None) and accept(x, y)

    if kind in ("semi", "anti"):
        return Counter(x for x in lefts if any(meets(x, y) for y in rights) == (kind == "semi"))
    out = Counter(x + y for x in lefts for y in rights if meets(x, y))
    if kind in ("left", "full"):
        out.update((*x, None, None) for x in lefts if not any(meets(x, y) for y in rights))
    if kind in ("right", "full"):
        out.update((None, None, *y) for y in rights if not any(meets(x, y) for x in lefts))
    return out


KEY, VALUE = st.sampled_from(["a", "b", None]), st.one_of(st.none(), st.integers(0, 2))
CHANGE = st.one_of(st.tuples(KEY, VALUE), st.integers(0, 50))
STEP = st.tuples(st.integers(0, 1), st.lists(CHANGE, min_size=1, max_size=8))


@pytest.mark.parametrize("retracts", [False, True])
@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(KINDS), st.booleans(), st.booleans(), st.lists(STEP, min_size=1, max_size=8),
    st.sampled_from([1, 3]),
)  # fmt: skip
def test_equals_the_batch_join_after_every_batch(retracts, kind, null_safe, conditional, steps, parallelism):
    def accept(x, y):
        return not conditional or (x[1] is not None and y[0] is not None and x[1] <= y[0])

    spec = JoinSpec(
        kind=kind, left_keys=(0,), right_keys=(1,), null_safe=(null_safe,),
        condition=make_call("<=", [InputRef(1, INT), InputRef(2, INT)]) if conditional else None,
    )  # fmt: skip
    out = LEFT if kind in ("semi", "anti") else BOTH
    cluster = Cluster(lambda: make_join(spec), [(0,), (1,)], [LEFT, RIGHT], out, 1)
    standing: tuple[list, list] = ([], [])
    for i, (side, items) in enumerate(steps):
        rows, kinds = [], []
        for item in items:
            if isinstance(item, tuple):
                row = item if side == 0 else item[::-1]
                standing[side].append(row)
                rows.append(row)
                kinds.append(RowKind.INSERT)
            elif retracts and standing[side]:
                rows.append(standing[side].pop(item % len(standing[side])))
                kinds.append(RowKind.DELETE)
        if rows:
            cluster.process(Batch.of((LEFT, RIGHT)[side], rows, kinds=kinds if retracts else None), side)
        if i == len(steps) // 2:
            cluster = cluster.rescale(parallelism)
        assert materialized(cluster.out()) == reference(kind, *standing, null_safe, accept)
    for sub in cluster.subtasks:
        for side in (0, 1):
            assert len(sub.operator._sides[side]) <= len(standing[side])
        assert len(sub.operator._keys) <= len({r[0] for r in standing[0]} | {r[1] for r in standing[1]})


FLIP = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2))


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["inner", "left", "right"]), st.booleans(),
    st.lists(st.tuples(st.integers(0, 1), st.lists(FLIP, min_size=1, max_size=6)), min_size=1, max_size=8),
)  # fmt: skip
def test_of_rows_with_a_key_the_last_change_of_each_key_counts(kind, conditional, steps):
    """Both sides have one row a key at most. A table that is written by key holds the join after every batch, though
    a partner comes and goes within one."""

    def accept(x, y):
        return not conditional or x[1] <= y[0]

    condition = make_call("<=", [InputRef(1, INT), InputRef(2, INT)]) if conditional else None
    sub = Subtask(
        make_join(JoinSpec(kind=kind, left_keys=(0,), right_keys=(1,), condition=condition)),
        [LEFT, RIGHT],
        BOTH,
    )
    standing: tuple[dict, dict] = ({}, {})
    table: dict = {}
    for side, flips in steps:
        rows, kinds = [], []
        for key, value in flips:  # a row comes if there is none of the key, else it goes
            row = standing[side].pop(key, None)
            kinds.append(RowKind.INSERT if row is None else RowKind.DELETE)
            if row is None:
                row = standing[side][key] = (key, value) if side == 0 else (value, key)
            rows.append(row)
        sub.process(Batch.of((LEFT, RIGHT)[side], rows, kinds=kinds), side)
        for change, row in sub.changes():
            key = row[3] if kind == "right" else row[0]
            if change == "-D":
                table.pop(key, None)
            else:
                table[key] = row
        sub.out = []
        expected = reference(kind, list(standing[0].values()), list(standing[1].values()), False, accept)
        assert Counter(table.values()) == expected


def test_a_hot_key_comes_out_in_bounded_pieces():
    spec = JoinSpec(kind="inner", left_keys=(0,), right_keys=(1,))
    sub = Subtask(make_join(spec), [LEFT, RIGHT], BOTH)
    sub.process(Batch.of(LEFT, [("a", i) for i in range(500)]), 0)
    sub.process(Batch.of(RIGHT, [(i, "a") for i in range(500)]), 1)
    assert sum(b.num_rows for b in sub.out) == 250_000
    assert max(b.num_rows for b in sub.out) <= 16_384


def test_outer_row_is_retracted_when_its_first_partner_comes():
    spec = JoinSpec(kind="left", left_keys=(0,), right_keys=(1,))
    sub = Subtask(make_join(spec), [LEFT, RIGHT], BOTH)
    sub.process(Batch.of(LEFT, [("a", 1)]), 0)
    sub.process(Batch.of(RIGHT, [(7, "a"), (8, "a")]), 1)
    sub.process(Batch.of(RIGHT, [(7, "a"), (8, "a")], kinds=[3, 3]), 1)
    assert sub.changes() == [
        ("+I", ("a", 1, None, None)),
        ("-D", ("a", 1, None, None)), ("+I", ("a", 1, 7, "a")), ("+I", ("a", 1, 8, "a")),
        ("-D", ("a", 1, 7, "a")), ("-D", ("a", 1, 8, "a")), ("+I", ("a", 1, None, None)),
    ]  # fmt: skip


def test_rows_expire_after_the_ttl():
    spec = JoinSpec(kind="inner", left_keys=(0,), right_keys=(1,), ttl_ms=1000)
    sub = Subtask(make_join(spec), [LEFT, RIGHT], BOTH)
    sub.process(Batch.of(LEFT, [("a", 1)]), 0)
    sub.processing_time(1000)
    sub.process(Batch.of(RIGHT, [(7, "a")]), 1)
    assert sub.rows() == []
    assert len(sub.operator._sides[0]) == 0


def test_each_side_has_its_own_time_to_live():
    spec = JoinSpec(kind="inner", left_keys=(0,), right_keys=(1,), ttl_ms=1000, right_ttl_ms=0)
    sub = Subtask(make_join(spec), [LEFT, RIGHT], BOTH)
    sub.process(Batch.of(LEFT, [("a", 1)]), 0)
    sub.process(Batch.of(RIGHT, [(7, "b")]), 1)
    sub.processing_time(1000)
    sub.process(Batch.of(RIGHT, [(8, "a")]), 1)
    sub.process(Batch.of(LEFT, [("b", 2)]), 0)
    assert sub.rows() == [("b", 2, 7, "b")]
