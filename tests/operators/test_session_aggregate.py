"""Session windows against a plain reference, with disorder, lateness and rescaling."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.functions.expr import AggregateCall
from penstock.jobgraph.specs import WindowAggregateSpec, WindowSpec
from penstock.operators.window_aggregate import make_window_aggregate
from penstock.testing.operator_harness import Cluster, Subtask
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.logical import Schema

STR, BIG = t.VarCharType(), t.BigIntType()
INPUT = Schema.of(("k", STR), ("ts", BIG.not_null), ("v", BIG))
OUT = Schema.of(
    ("k", STR),
    ("c", BIG.not_null),
    ("s", BIG),
    ("d", BIG.not_null),
    ("ws", BIG.not_null),
    ("we", BIG.not_null),
)
GAP = 10
SPEC = WindowAggregateSpec(
    window=WindowSpec(kind="session", time=1, gap_us=GAP), keys=(0,), late_tag="late",
    window_columns=("start", "end"),
    aggregates=(
        AggregateCall("COUNT", (), BIG.not_null), AggregateCall("SUM", (2,), BIG),
        AggregateCall("COUNT", (2,), BIG.not_null, distinct=True),
    ),
)  # fmt: skip


class Reference:
    """Sessions one row at a time."""

    def __init__(self):
        self.sessions, self.watermark, self.fired, self.late = [], -(2**63), [], []

    def row(self, row):
        key, time, value = row
        start, end, values = time, time + GAP, [value]
        touching = [s for s in self.sessions if s[0] == key and s[1] <= end and s[2] >= start]
        for s in touching:
            start, end, values = min(start, s[1]), max(end, s[2]), s[3] + values
        if end - 1 <= self.watermark:
            self.late.append(row)
            return
        self.sessions = [s for s in self.sessions if s not in touching] + [(key, start, end, values)]

    def advance(self, watermark):
        self.watermark = max(self.watermark, watermark)
        self.fired += [s for s in self.sessions if s[2] - 1 <= self.watermark]
        self.sessions = [s for s in self.sessions if s[2] - 1 > self.watermark]

    def rows(self):
        for key, start, end, values in self.fired:
            known = [v for v in values if v is not None]
            yield key, len(values), sum(known) if known else None, len(set(known)), start, end


ROW = st.tuples(
    st.sampled_from(["a", "b", None]), st.integers(0, 100), st.one_of(st.none(), st.integers(0, 3))
)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(ROW, min_size=1, max_size=10), st.integers(-10, 120)), min_size=1, max_size=6
    ),
    st.sampled_from([1, 3]),
)
def test_equals_sessions_row_by_row(steps, parallelism):
    make = lambda: make_window_aggregate(SPEC)  # noqa: E731
    cluster = Cluster(make, [(0,)], [INPUT], OUT, 1)
    # Within a batch rows merge together first: a row is late only if its session is.
    reference = Reference()
    for i, (rows, watermark) in enumerate(steps):
        cluster.process(Batch.of(INPUT, rows))
        before = reference.watermark
        reference.watermark = -(2**63)
        for row in rows:
            reference.row(row)
        reference.watermark = before
        for session in [s for s in reference.sessions if s[2] - 1 <= before]:
            reference.sessions.remove(session)
            reference.late += [(session[0],)] * len(session[3])
        if i == len(steps) // 2:
            cluster = cluster.rescale(parallelism)
        cluster.watermark(watermark)
        reference.advance(watermark)
    cluster.finish()
    reference.advance(2**63 - 1)
    got = [r for b in cluster.out() for r in b.to_pylist()]
    assert sorted(got, key=repr) == sorted(reference.rows(), key=repr)
    late = [r for s in cluster.subtasks for r in s.side_rows("late")]
    assert sorted(r[0] or "" for r in late) == sorted(r[0] or "" for r in reference.late)
    for sub in cluster.subtasks:
        assert len(sub.operator._keys) == len(sub.operator._sessions) == 0


def test_a_bridging_row_merges_two_sessions():
    sub = Subtask(make_window_aggregate(SPEC), [INPUT], OUT)
    sub.process(Batch.of(INPUT, [("a", 0, 1), ("a", 15, 1)]))
    sub.process(Batch.of(INPUT, [("a", 8, 2)]))
    sub.watermark(23)
    assert sub.rows() == []
    sub.watermark(24)
    assert sub.rows() == [("a", 3, 4, 2, 0, 25)]
