"""What operators are said to keep."""

from __future__ import annotations

import pytest

from penstock.errors import UnsupportedError
from penstock.functions.expr import AggregateCall
from penstock.plan.state_size import INDEX_BYTES, aggregates_bytes, join_growth, row_bytes
from penstock.sql.session import SqlSession
from penstock.types import logical as t


@pytest.mark.parametrize(
    ("types", "size"),
    [
        ([t.BooleanType(), t.SmallIntType(), t.IntType(), t.BigIntType()], 15),
        ([t.DecimalType(18, 2), t.DecimalType(38, 2), t.TimestampType(3), t.DateType()], 36),
        ([t.VarCharType(), t.CharType(3), t.VarBinaryType()], 96),
        ([t.RowType((t.Field("a", t.IntType()), t.Field("b", t.VarCharType())))], 36),
        ([], 0),
    ],
)
def test_bytes_of_a_row(types, size):
    assert row_bytes(types) == size


def test_aggregates_that_grow_with_their_values_are_named():
    count = AggregateCall("COUNT", (), t.BigIntType())
    distinct = AggregateCall("COUNT", (0,), t.BigIntType(), distinct=True)
    assert aggregates_bytes([t.IntType()], [count], []) == (INDEX_BYTES + 12, "")
    assert (
        aggregates_bytes([], [count, distinct], [t.IntType()])[1] == ", besides the values of COUNT(DISTINCT)"
    )


def test_a_join_that_never_forgets_is_refused_with_what_it_would_keep():
    left, right = [t.BigIntType(), t.VarCharType()], [t.BigIntType()]
    assert (
        join_growth(left, right) == "about 64 B a left and 32 B a right row: 8 GB a day at 1000 rows/s a side"
    )
    session = SqlSession()
    for name, columns in (("a", "id BIGINT, s STRING"), ("b", "id BIGINT")):
        session.execute(f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'datagen')")
    with pytest.raises(UnsupportedError) as caught:
        session.execute("SELECT a.s, b.id FROM a JOIN b ON a.id = b.id")
    assert "8 GB a day" in caught.value.got
    assert "table.exec.join.unbounded-state" in caught.value.remedy
    assert caught.value.where == "line 1, column 1"
    session.config["table.exec.join.unbounded-state"] = "allow"
    assert session.execute("SELECT a.s, b.id FROM a JOIN b ON a.id = b.id").job is not None
