"""Top-N against a plain reference after every batch: ranks, ties, retractions, windows."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.jobgraph.specs import SortKey, TopNSpec
from penstock.operators.top_n import make_top_n
from penstock.testing.operator_harness import Cluster, Subtask, materialized
from penstock.types import logical as t
from penstock.types.batch import Batch, RowKind
from penstock.types.logical import Schema

STR, INT, BIG = t.VarCharType(), t.IntType(), t.BigIntType()
INPUT = Schema.of(("k", STR), ("v", INT), ("s", STR), ("id", BIG))
RANKED = Schema((*INPUT.fields, t.Field("rn", BIG.not_null)))


def order_key(order):
    def key(row):
        out = []
        for item in order:
            value = row[item.index]
            null = value is None
            out.append(null != item.nulls_first)
            out.append(_Reversed(value) if item.descending and not null else (0 if null else value))
        return out

    return key


class _Reversed:
    def __init__(self, value):
        self.value = value

    def __lt__(self, other):
        return other.value < self.value

    def __eq__(self, other):
        return other.value == self.value


def reference(rows, spec):
    """rows in order of arrival."""
    out, key = Counter(), order_key(spec.order)
    for k in {r[0] for r in rows}:
        items = sorted((r for r in rows if r[0] == k), key=key)
        rank = dense = 0
        for i, row in enumerate(items, 1):
            new = i == 1 or key(row) != key(items[i - 2])
            rank, dense = (i if new else rank), dense + new
            number = {"row_number": i, "rank": rank, "dense_rank": dense}[spec.rank]
            if spec.first <= number <= spec.last:
                out[(*row, number) if spec.rank_column else row] += 1
    return out


ORDERS = st.sampled_from([
    (SortKey(1, True, False),), (SortKey(1, False, True),), (SortKey(1, True, True),),
    (SortKey(2, False, False), SortKey(1, True, False)), (SortKey(2, True, True),),
])  # fmt: skip
ROW = st.tuples(
    st.sampled_from(["a", "b", None]), st.one_of(st.none(), st.integers(-3, 3)),
    st.one_of(st.none(), st.sampled_from(["x", "y", ""])),
)  # fmt: skip


@pytest.mark.parametrize("retracts", [False, True])
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_equals_the_definition_after_every_batch(retracts, data):
    first, order = data.draw(st.sampled_from([1, 1, 2])), data.draw(ORDERS)
    fixed = len(order) == 1 and order[0].index == 1
    spec = TopNSpec(
        partition=(0,), order=order, fixed_order=fixed and data.draw(st.booleans()), first=first, last=first + data.draw(st.integers(0, 2)),
        rank=data.draw(st.sampled_from(["row_number", "row_number", "rank", "dense_rank"])),
        rank_column=data.draw(st.booleans()), retracts=retracts,
    )  # fmt: skip
    out = RANKED if spec.rank_column else INPUT
    cluster = Cluster(lambda: make_top_n(spec), [(0,)], [INPUT], out, 1)
    standing, number = [], 0
    for i in range(data.draw(st.integers(1, 6))):
        rows, kinds = [], []
        for item in data.draw(st.lists(st.one_of(ROW, st.integers(0, 50)), min_size=1, max_size=8)):
            if isinstance(item, tuple):
                number += 1
                rows.append((*item, number))
                standing.append((*item, number))
                kinds.append(RowKind.INSERT)
            elif retracts and standing:
                rows.append(standing.pop(item % len(standing)))
                kinds.append(RowKind.DELETE)
        if rows:
            cluster.process(Batch.of(INPUT, rows, kinds=kinds if retracts else None))
        if i == 1:
            cluster = cluster.rescale(data.draw(st.sampled_from([1, 3])))
        assert materialized(cluster.out()) == reference(standing, spec)


@pytest.mark.parametrize("fixed", [False, True])
def test_one_row_is_updated_in_a_pair(fixed):
    spec = TopNSpec(partition=(0,), order=(SortKey(1, True, False),), last=1, fixed_order=fixed)
    sub = Subtask(make_top_n(spec), [INPUT], INPUT)
    sub.process(Batch.of(INPUT, [("a", 1, "x", 1), ("a", 3, "x", 2)]))
    sub.process(Batch.of(INPUT, [("a", 2, "x", 3), ("a", 3, "x", 4)]))  # a tie: the first stays
    sub.process(Batch.of(INPUT, [("a", 5, "x", 5)]))
    assert sub.changes() == [
        ("+I", ("a", 3, "x", 2)), ("-U", ("a", 3, "x", 2)), ("+U", ("a", 5, "x", 5)),
    ]  # fmt: skip
    assert len(sub.operator._rows) == 1


def test_window_top_n_comes_out_when_the_window_closes():
    schema = Schema.of(("ws", BIG), ("we", BIG), ("v", INT))
    out = Schema((*schema.fields, t.Field("rn", BIG.not_null)))
    spec = TopNSpec(
        partition=(0, 1), order=(SortKey(2, True, False),), last=2, rank_column=True, window=(0, 1)
    )
    cluster = Cluster(lambda: make_top_n(spec), [(0, 1)], [schema], out, 1)
    cluster.process(Batch.of(schema, [(0, 10, 1), (0, 10, 5), (5, 15, 7), (0, 10, 3)]))
    cluster = cluster.rescale(2)
    assert cluster.out() == []
    cluster.watermark(9)
    assert [r for b in cluster.out() for r in b.to_pylist()] == [(0, 10, 5, 1), (0, 10, 3, 2)]
    cluster.process(Batch.of(schema, [(0, 10, 9)]))
    cluster.finish()
    rows = [r for b in cluster.out() for r in b.to_pylist()]
    assert sorted(rows) == [(0, 10, 3, 2), (0, 10, 5, 1), (5, 15, 7, 1)]
    assert sum(s.metrics.counters.get("numLateRecordsDropped", 0) for s in cluster.subtasks) == 1
    assert sum(len(s.operator._rows) + len(s.operator._keys) for s in cluster.subtasks) == 0
