"""OVER at the end of an input whose rows were updated on the way."""

from __future__ import annotations

from penstock.functions.expr import AggregateCall
from penstock.jobgraph.specs import OverFinalSpec, SortKey
from penstock.operators.over_final import OverFinalOperator
from penstock.testing.operator_harness import Cluster
from penstock.types import logical as t
from penstock.types.batch import Batch, RowKind
from penstock.types.logical import Schema

ROW = Schema.of(("seller", t.VarCharType()), ("price", t.BigIntType()))
OUT = Schema.of(*((f.name, f.type) for f in ROW.fields), ("n", t.BigIntType(False)))
INSERT, BEFORE, AFTER, DELETE = RowKind


def test_rows_that_were_taken_back_do_not_count():
    spec = OverFinalSpec(
        partition=(0,), order=(SortKey(index=1),),
        aggregates=(AggregateCall("ROW_NUMBER", (), t.BigIntType(False)),),
        frame="rows", preceding=None, following=0,
    )  # fmt: skip
    cluster = Cluster(lambda: OverFinalOperator(spec), [(0,)], [ROW], OUT, 1)
    cluster.process(Batch.of(ROW, [("a", 5), ("a", 7), ("b", 1), ("a", 5)]))
    cluster.process(Batch.of(ROW, [("a", 5), ("a", 9), ("b", 1)], kinds=[BEFORE, AFTER, DELETE]))
    cluster = cluster.rescale(2)
    cluster.process(Batch.of(ROW, [("c", 2), ("a", 9)], kinds=[INSERT, BEFORE]))
    cluster.finish()
    rows = sorted(row for batch in cluster.out() for row in batch.to_pylist())
    assert rows == [("a", 5, 1), ("a", 7, 2), ("c", 2, 1)]
    assert all(batch.kinds is None for batch in cluster.out())
