"""Interval joins against the definition: all kinds, disorder, NULLs, rescaling."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import UnsupportedError
from penstock.functions.expr import InputRef
from penstock.functions.registry import make_call
from penstock.jobgraph.specs import JoinSpec
from penstock.operators.join import make_join
from penstock.testing.operator_harness import Cluster, Subtask, materialized
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.logical import Schema

STR, BIG, INT = t.VarCharType(), t.BigIntType(), t.IntType()
LEFT = Schema.of(("k", STR), ("lt", BIG), ("a", INT))
RIGHT = Schema.of(("rt", BIG), ("k2", STR), ("b", STR))
BOTH = Schema((*LEFT.fields, *RIGHT.fields))
KINDS = ["inner", "left", "right", "full", "semi", "anti"]


def spec(kind, low, high, **more):
    return JoinSpec(kind=kind, left_keys=(0,), right_keys=(1,), interval=(1, 0, low, high), **more)


def schema_of(kind):
    return LEFT if kind in ("semi", "anti") else BOTH


def reference(kind, low, high, lefts, rights, accept=lambda left, right: True):
    def meets(x, y):
        return (
            None not in (x[0], y[1], x[1], y[0]) and x[0] == y[1] and x[1] + low <= y[0] <= x[1] + high
            and accept(x, y)
        )  # fmt: skip

    pairs = [(x, y) for x in lefts for y in rights if meets(x, y)]
    alone_left = [x for x in lefts if not any(meets(x, y) for y in rights)]
    alone_right = [y for y in rights if not any(meets(x, y) for x in lefts)]
    if kind == "semi":
        return Counter(x for x in lefts if any(meets(x, y) for y in rights))
    if kind == "anti":
        return Counter(alone_left)
    out = Counter(x + y for x, y in pairs)
    if kind in ("left", "full"):
        out.update(x + (None,) * 3 for x in alone_left)
    if kind in ("right", "full"):
        out.update((None,) * 3 + y for y in alone_right)
    return out


KEY = st.sampled_from(["a", "b", None])
TIME = st.one_of(st.integers(-5_000, 20_000), st.none())
LROW = st.tuples(KEY, TIME, st.integers(0, 5))
RROW = st.tuples(TIME, KEY, st.sampled_from(["x", None]))
STEP = st.one_of(
    st.tuples(st.just(0), st.lists(LROW, min_size=1, max_size=8)),
    st.tuples(st.just(1), st.lists(RROW, min_size=1, max_size=8)),
    st.tuples(st.just(2), st.integers(-5_000, 20_000)),
)


@settings(max_examples=120, deadline=None)
@given(
    st.sampled_from(KINDS), st.sampled_from([(0, 0), (-2000, 3000), (1000, 5000), (-9000, -100)]),
    st.lists(STEP, min_size=1, max_size=12), st.sampled_from([1, 2, 3]),
)  # fmt: skip
def test_equals_the_definition(kind, interval, steps, parallelism):
    """Rows at or behind the watermark are left out of the stream (they are late); the rest
    joins as if all were known, whatever the order and wherever it is rescaled."""
    make = lambda: make_join(spec(kind, *interval))  # noqa: E731
    straight = Cluster(make, [(0,), (1,)], [LEFT, RIGHT], schema_of(kind), 1)
    scaled = Cluster(make, [(0,), (1,)], [LEFT, RIGHT], schema_of(kind), 2)
    watermark, seen = -(2**63), ([], [])
    for i, (what, value) in enumerate(steps):
        if i == len(steps) // 2:
            scaled = scaled.rescale(parallelism)
        if what == 2:
            watermark = max(watermark, value)
            straight.watermark(watermark)
            scaled.watermark(watermark)
            continue
        at = 1 - what
        rows = [r for r in value if r[at] is None or r[at] > watermark]
        seen[what].extend(rows)
        batch = Batch.of((LEFT, RIGHT)[what], rows)
        straight.process(batch, what)
        scaled.process(batch, what)
    straight.finish()
    scaled.finish()
    want = reference(kind, *interval, *seen)
    assert materialized(straight.out()) == want
    assert materialized(scaled.out()) == want
    sub = straight.subtasks[0].operator
    assert len(sub._sides[0]) == len(sub._sides[1]) == len(sub._keys) == 0


def test_residual_condition_decides_matches():
    condition = make_call("=", [InputRef(2, INT), InputRef(3, BIG)])
    lefts, rights = [("a", 10, 11), ("a", 10, 5)], [(11, "a", "x"), (12, "a", "y")]
    sub = Subtask(make_join(spec("full", -10, 10, condition=condition)), [LEFT, RIGHT], BOTH)
    sub.process(Batch.of(LEFT, lefts), 0)
    sub.process(Batch.of(RIGHT, rights), 1)
    sub.finish()
    assert materialized(sub.out) == reference("full", -10, 10, lefts, rights, lambda x, y: x[2] == y[0])


def test_state_is_dropped_by_the_watermark_and_outer_rows_padded_then():
    sub = Subtask(make_join(spec("left", 0, 10)), [LEFT, RIGHT], BOTH)
    sub.process(Batch.of(LEFT, [("a", 100, 1), ("b", 105, 2)]), 0)
    sub.watermark(109)
    assert sub.rows() == []
    sub.process(Batch.of(RIGHT, [(115, "b", "x")]), 1)
    sub.watermark(110)
    assert sub.rows() == [("b", 105, 2, 115, "b", "x"), ("a", 100, 1, None, None, None)]
    assert sub.operator.output_watermark(110) == 100
    sub.process(Batch.of(LEFT, [("c", 100, 3)]), 0)  # too late for any partner: padded at once
    assert sub.rows()[2:] == [("c", 100, 3, None, None, None)]
    assert len(sub.operator._sides[0]) == 1


def test_a_retraction_is_refused():
    sub = Subtask(make_join(spec("inner", 0, 10)), [LEFT, RIGHT], BOTH)
    with pytest.raises(UnsupportedError, match="append-only"):
        sub.process(Batch.of(LEFT, [("a", 1, 1)], kinds=[3]), 0)
