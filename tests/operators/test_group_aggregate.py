"""Group aggregation after every batch against a plain reference: every aggregate, NULLs,
FILTER, DISTINCT, retractions, upserts, two phases, rescaling."""

from __future__ import annotations

import decimal
import math
from collections import Counter
from decimal import ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InternalError, SnapshotError
from penstock.functions.accumulators import accumulator_types
from penstock.functions.expr import AggregateCall
from penstock.jobgraph.specs import GroupAggregateSpec
from penstock.operators.group_aggregate import make_group_aggregate
from penstock.testing.operator_harness import Cluster, Subtask, materialized
from penstock.types import logical as t
from penstock.types.batch import Batch, RowKind
from penstock.types.logical import Schema

BIG, INT, DBL, STR, BOOL = t.BigIntType(), t.IntType(), t.DoubleType(), t.VarCharType(), t.BooleanType()
DEC, WIDE = t.DecimalType(10, 2), t.DecimalType(38, 2)
N = BIG.not_null
INPUT = Schema.of(("k", STR), ("v", INT), ("d", DEC), ("s", STR), ("f", BOOL), ("x", DBL), ("w", WIDE))


def nn(values):
    return [v for v in values if v is not None]


def half_up(x, places="0.000001"):
    return x.quantize(Decimal(places), ROUND_HALF_UP)


def total(values):
    return sum(values) if values else None


def trunc_avg(values):
    return math.trunc(Decimal(sum(values)) / len(values)) if values else None


# (call, reference over the rows of a group)
AGGREGATES = {
    "count_star": (AggregateCall("COUNT", (), N), len),
    "count": (AggregateCall("COUNT", (1,), N), lambda r: len(nn([x[1] for x in r]))),
    "sum_int": (AggregateCall("SUM", (1,), INT), lambda r: total(nn([x[1] for x in r]))),
    "avg_int": (AggregateCall("AVG", (1,), INT), lambda r: trunc_avg(nn([x[1] for x in r]))),
    "sum_dec": (AggregateCall("SUM", (2,), t.DecimalType(38, 2)), lambda r: total(nn([x[2] for x in r]))),
    "avg_dec": (
        AggregateCall("AVG", (2,), t.DecimalType(38, 6)),
        lambda r: half_up(sum(nn([x[2] for x in r])) / len(nn([x[2] for x in r]))) if nn([x[2] for x in r]) else None,
    ),
    "sum_wide": (AggregateCall("SUM", (6,), t.DecimalType(38, 2)), lambda r: total(nn([x[6] for x in r]))),
    "min_int": (AggregateCall("MIN", (1,), INT), lambda r: min(nn([x[1] for x in r]), default=None)),
    "max_dec": (AggregateCall("MAX", (2,), DEC), lambda r: max(nn([x[2] for x in r]), default=None)),
    "max_str": (AggregateCall("MAX", (3,), STR), lambda r: max(nn([x[3] for x in r]), default=None)),
    "min_str": (AggregateCall("MIN", (3,), STR), lambda r: min(nn([x[3] for x in r]), default=None)),
    "min_double": (AggregateCall("MIN", (5,), DBL), lambda r: min(nn([x[5] for x in r]), default=None)),
    "max_wide": (AggregateCall("MAX", (6,), WIDE), lambda r: max(nn([x[6] for x in r]), default=None)),
    "sum_double": (AggregateCall("SUM", (5,), DBL), lambda r: total(nn([x[5] for x in r]))),
    "distinct": (AggregateCall("COUNT", (3,), N, distinct=True), lambda r: len(set(nn([x[3] for x in r])))),
    "sum_distinct": (
        AggregateCall("SUM", (1,), INT, distinct=True), lambda r: total(set(nn([x[1] for x in r]))),
    ),
    "filter": (AggregateCall("COUNT", (), N, filter=4), lambda r: len([x for x in r if x[4]])),
    "filter_distinct": (
        AggregateCall("COUNT", (1,), N, filter=4, distinct=True),
        lambda r: len({x[1] for x in r if x[4] and x[1] is not None}),
    ),
    "approx": (AggregateCall("APPROX_COUNT_DISTINCT", (3,), N), lambda r: len(set(nn([x[3] for x in r])))),
    "collect": (
        AggregateCall("COLLECT", (1,), t.MultisetType(INT)),
        lambda r: sorted(Counter(nn([x[1] for x in r])).items()),  # of nothing: nothing
    ),
}  # fmt: skip
# These depend on the order of rows: compared on append-only input.
ORDERED = {
    "first": (AggregateCall("FIRST_VALUE", (3,), STR), lambda r: next(iter(nn([x[3] for x in r])), None)),
    "last": (AggregateCall("LAST_VALUE", (1,), INT), lambda r: next(iter(nn([x[1] for x in r])[::-1]), None)),
    "listagg": (
        AggregateCall("LISTAGG", (3,), STR, constants=("|",)),
        lambda r: "|".join(nn([x[3] for x in r])) if nn([x[3] for x in r]) else None,
    ),
    "array_agg": (AggregateCall("ARRAY_AGG", (1,), t.ArrayType(INT)), lambda r: [x[1] for x in r]),
    "percentile": (
        AggregateCall("PERCENTILE", (1,), DBL, constants=(0.0,)),
        lambda r: float(min(nn([x[1] for x in r]))) if nn([x[1] for x in r]) else None,
    ),
}


def output(names):
    table = AGGREGATES | ORDERED
    return Schema.of(("k", STR), *((n, table[n][0].type) for n in names))


def spec(names, **more):
    table = AGGREGATES | ORDERED
    return GroupAggregateSpec(keys=(0,), aggregates=tuple(table[n][0] for n in names), **more)


def reference(rows, names):
    decimal.getcontext().prec = 76
    table = AGGREGATES | ORDERED
    groups = {}
    for row in rows:
        groups.setdefault(row[0], []).append(row)
    out = Counter()
    for key, items in groups.items():
        values = [table[n][1](items) for n in names]
        out[(key, *(repr(v) if isinstance(v, (list, dict)) else v for v in values))] += 1
    return out


def comparable(state):
    """COLLECT's pairs in any order."""
    out = Counter()
    for row, n in state.items():
        row = tuple(repr(sorted(eval(v))) if isinstance(v, str) and v.startswith("[(") else v for v in row)
        out[row] += n
    return out


CENTS = st.integers(-10_000, 10_000).map(lambda c: Decimal(c) / 100)
HUGE = st.integers(-(10**30), 10**30).map(lambda c: Decimal(c).scaleb(-2))
ROW = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.one_of(st.none(), st.integers(-5, 5)),
    st.one_of(st.none(), CENTS),
    st.one_of(st.none(), st.sampled_from(["x", "yy", "é", ""])),
    st.one_of(st.none(), st.booleans()),
    st.one_of(st.none(), st.integers(-8, 8).map(lambda i: i / 4)),
    st.one_of(st.none(), HUGE),
)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(ROW, min_size=1, max_size=10), min_size=1, max_size=5), st.booleans(), st.data())
def test_append_only_after_every_batch(batches, emit_before, data):
    names = list(AGGREGATES | ORDERED)
    make = lambda: make_group_aggregate(spec(names, emit_before=emit_before))  # noqa: E731
    cluster = Cluster(make, [(0,)], [INPUT], output(names), 1)
    rows = []
    for i, items in enumerate(batches):
        rows += items
        cluster.process(Batch.of(INPUT, items))
        if i == 1:
            cluster = cluster.rescale(data.draw(st.sampled_from([1, 2])))
        if emit_before:
            assert comparable(materialized(cluster.out())) == comparable(reference(rows, names))
        else:
            last = {}
            for batch in cluster.out():
                for _, row in batch.rows():
                    last[row[0]] = tuple(repr(v) if isinstance(v, (list, dict)) else v for v in row)
            assert comparable(Counter(last.values())) == comparable(reference(rows, names))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.one_of(ROW, st.integers(0, 99)), min_size=1, max_size=12), min_size=1, max_size=6),
    st.data(),
)
def test_retractions_after_every_batch(batches, data):
    """An integer retracts one of the rows that stand."""
    names = list(AGGREGATES)
    make = lambda: make_group_aggregate(spec(names, retracts=True))  # noqa: E731
    cluster = Cluster(make, [(0,)], [INPUT], output(names), 1)
    standing = []
    for i, items in enumerate(batches):
        rows, kinds = [], []
        for item in items:
            if isinstance(item, tuple):
                standing.append(item)
                rows.append(item)
                kinds.append(RowKind.INSERT)
            elif standing:
                rows.append(standing.pop(item % len(standing)))
                kinds.append(RowKind.DELETE)
        if rows:
            cluster.process(Batch.of(INPUT, rows, kinds=kinds))
        if i == 1:
            cluster = cluster.rescale(data.draw(st.sampled_from([1, 3])))
        got, want = materialized(cluster.out()), reference(standing, names)
        assert comparable(got) == comparable(want)
    assert sum(len(s.operator._keys) for s in cluster.subtasks) == len({r[0] for r in standing})


def test_each_key_changes_once_a_batch_in_adjacent_pairs():
    sub = Subtask(make_group_aggregate(spec(["count_star", "sum_int"], retracts=True)), [INPUT],
                  output(["count_star", "sum_int"]))  # fmt: skip
    row = lambda k, v: (k, v, None, None, None, None, None)  # noqa: E731
    sub.process(Batch.of(INPUT, [row("a", 1), row("b", 2), row("a", 3)]))
    sub.process(Batch.of(INPUT, [row("a", 5), row("b", 2), row("c", 0)], kinds=[0, 3, 0]))
    sub.process(Batch.of(INPUT, [row("a", 5), row("a", 5)], kinds=[3, 0]))  # nothing changes
    assert sub.changes() == [
        ("+I", ("a", 2, 4)), ("+I", ("b", 1, 2)),
        ("-U", ("a", 2, 4)), ("+U", ("a", 3, 9)), ("-D", ("b", 1, 2)), ("+I", ("c", 1, 0)),
    ]  # fmt: skip
    sub.process(Batch.of(INPUT, [row("z", 1)], kinds=[3]))
    assert sub.metrics.counters["numUnmatchedRetractions"] == 1
    assert len(sub.changes()) == 6


def test_two_phases_equal_one():
    names = ["count_star", "avg_dec", "sum_wide", "min_int", "max_str", "sum_double"]
    calls = [AGGREGATES[n][0] for n in names]
    partial = [x for c in calls for x in accumulator_types(c, [INPUT.types[i] for i in c.args])]
    middle = Schema.of(("k", STR), *((f"p{i}", x) for i, x in enumerate(partial)))
    local = Subtask(make_group_aggregate(spec(names, phase="local")), [INPUT], middle)
    both = Subtask(
        make_group_aggregate(spec(names, phase="global", local_types=tuple(INPUT.types))),
        [middle],
        output(names),
    )
    rows = [
        ("abc"[i % 3], i - 9 if i % 4 else None, Decimal(i) / 7 // Decimal("0.01") / 100, f"s{i % 5}", None,
         i / 8, Decimal(10) ** 20 + i)
        for i in range(40)
    ]  # fmt: skip
    for at in range(0, 40, 8):
        local.process(Batch.of(INPUT, rows[at : at + 8]))
    for batch in local.out:
        both.process(batch)
    assert materialized(both.out) == reference(
        [tuple(r) for b in [Batch.of(INPUT, rows)] for r in b.to_pylist()], names
    )


def test_a_bounded_aggregation_emits_once_and_one_row_for_nothing():
    names = ["count_star", "sum_int"]
    out = Schema(output(names).fields[1:])
    final = GroupAggregateSpec(keys=(), aggregates=tuple(AGGREGATES[n][0] for n in names), bounded_final=True)
    empty = Subtask(make_group_aggregate(final), [INPUT], out)
    empty.finish()
    assert empty.changes() == [("+I", (0, None))]
    some = Subtask(make_group_aggregate(final), [INPUT], out)
    some.process(Batch.of(INPUT, [("a", 1, None, None, None, None, None)] * 3))
    assert some.changes() == []
    some.finish()
    assert some.changes() == [("+I", (3, 3))]


def test_state_lives_no_longer_than_its_ttl():
    sub = Subtask(make_group_aggregate(spec(["count_star"], ttl_ms=1000)), [INPUT], output(["count_star"]))
    row = ("a", 1, None, None, None, None, None)
    sub.process(Batch.of(INPUT, [row]))
    assert sub.wakes == [1000]
    sub.processing_time(900)
    sub.process(Batch.of(INPUT, [row]))
    sub.processing_time(1000)
    assert len(sub.operator._keys) == 1
    sub.processing_time(2000)
    assert len(sub.operator._keys) == 0
    sub.process(Batch.of(INPUT, [row]))
    assert sub.changes()[-1] == ("+I", ("a", 1))


def test_a_retraction_into_an_append_only_plan_is_an_error():
    sub = Subtask(make_group_aggregate(spec(["count_star"])), [INPUT], output(["count_star"]))
    with pytest.raises(InternalError, match="append-only"):
        sub.process(Batch.of(INPUT, [("a", 1, None, None, None, None, None)], kinds=[3]))


class Total:
    """A Python aggregate function: the sum."""

    def create_accumulator(self):
        return 0

    def accumulate(self, acc, value):
        return acc + value

    def get_value(self, acc):
        return acc


def test_state_of_a_python_function_from_before_it_had_distinct_is_refused():
    """An older Penstock kept the accumulator alone for f(DISTINCT a), and counted each row."""
    out = Schema.of(("k", STR), ("total", BIG))

    def cluster(distinct, states=None):
        call = AggregateCall("total", (1,), BIG, distinct=distinct, python="total")
        spec = GroupAggregateSpec(keys=(0,), aggregates=(call,))
        return Cluster(
            lambda: make_group_aggregate(spec), [(0,)], [INPUT], out, 1, states, function=lambda _: Total()
        )

    def of(*values):
        return Batch.of(INPUT, [("a", v, None, None, None, None, None) for v in values])

    for distinct, expected in ((False, 17), (True, 12)):
        task = cluster(distinct)
        task.process(of(5, 5))
        restored = cluster(distinct, task._states(1))
        restored.process(of(7))
        assert restored.out()[-1].to_pylist()[-1] == ("a", expected)
    old = cluster(False)
    old.process(of(5, 5))
    with pytest.raises(SnapshotError, match="keeps its state in another form"):
        cluster(True, old._states(1))
