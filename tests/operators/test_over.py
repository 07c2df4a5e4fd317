"""OVER aggregates against the definition: frames, peers, rescaling."""

from __future__ import annotations

import datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.functions.expr import AggregateCall
from penstock.jobgraph.specs import OverSpec, SortKey
from penstock.operators.over import OverOperator
from penstock.testing.operator_harness import Cluster, Subtask
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.logical import Schema

STR, BIG, TS = t.VarCharType(), t.BigIntType(), t.TimestampType(3)
INPUT = Schema.of(("k", STR), ("ts", TS), ("v", BIG), ("id", BIG))
CALLS = (
    AggregateCall("COUNT", (), BIG.not_null), AggregateCall("SUM", (2,), BIG), AggregateCall("MAX", (2,), BIG),
)  # fmt: skip
DISTINCT = AggregateCall("COUNT", (2,), BIG.not_null, distinct=True)
ROW = st.tuples(
    st.sampled_from(["a", "b", None]), st.integers(0, 30), st.one_of(st.none(), st.integers(-3, 3))
)


def ts(seconds):
    return datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(ROW, min_size=1, max_size=10), min_size=1, max_size=5),
    st.sampled_from(["rows", "range"]), st.sampled_from([None, 0, 2, 5]), st.booleans(), st.sampled_from([1, 3]),
)  # fmt: skip
def test_equals_the_definition(batches, frame, preceding, distinct, parallelism):
    calls = (*CALLS, DISTINCT) if distinct else CALLS
    out = Schema((*INPUT.fields, *(t.Field(f"a{i}", c.type) for i, c in enumerate(calls))))
    scale = 1 if frame == "rows" else 1_000_000
    spec = OverSpec(
        partition=(0,), order=(SortKey(1),), aggregates=calls, frame=frame,
        preceding=None if preceding is None else preceding * scale,
    )  # fmt: skip
    cluster = Cluster(lambda: OverOperator(spec), [(0,)], [INPUT], out, 1)
    watermark, number, accepted = -1, 0, []
    for i, rows in enumerate(batches):
        rows = [(*row, number := number + 1) for row in rows]
        accepted += [r for r in rows if r[1] > watermark]
        cluster.process(Batch.of(INPUT, [(k, ts(x), v, n) for k, x, v, n in rows]))
        if i == 1:
            cluster = cluster.rescale(parallelism)
        watermark = max(watermark, 7 * i)
        cluster.watermark(watermark * 1_000_000)
    cluster.finish()
    want = []
    for k in {r[0] for r in accepted}:
        rows = sorted((r for r in accepted if r[0] == k), key=lambda r: r[1])
        for i, row in enumerate(rows):
            if frame == "rows":
                low = 0 if preceding is None else max(0, i - preceding)
                inside = rows[low : i + 1]
            else:
                inside = [
                    r for r in rows if r[1] <= row[1] and (preceding is None or r[1] >= row[1] - preceding)
                ]
            vs = [r[2] for r in inside if r[2] is not None]
            values = [len(inside), sum(vs) if vs else None, max(vs, default=None), len(set(vs))]
            want.append((row[0], ts(row[1]), row[2], row[3], *values[: len(calls)]))
    got = [r for b in cluster.out() for r in b.to_pylist()]
    assert sorted(got, key=lambda r: r[3]) == sorted(want, key=lambda r: r[3])


def test_without_an_order_rows_come_out_as_they_arrive():
    out = Schema((*INPUT.fields, *(t.Field(f"a{i}", c.type) for i, c in enumerate(CALLS))))
    spec = OverSpec(partition=(0,), order=(), aggregates=CALLS, frame="rows")
    sub = Subtask(OverOperator(spec), [INPUT], out)
    sub.process(Batch.of(INPUT, [("b", ts(1), 1, 1), ("a", ts(1), 2, 2), ("b", ts(0), 3, 3)]))
    sub.process(Batch.of(INPUT, [("b", ts(1), None, 4)]))
    assert [r[3:] for r in sub.rows()] == [(1, 1, 1, 1), (2, 1, 2, 2), (3, 2, 4, 3), (4, 3, 4, 3)]
