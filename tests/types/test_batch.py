import numpy as np
import pytest

from penstock.types import Batch, RowKind, Schema
from penstock.types import logical as t
from penstock.types.batch import KIND_SIGN

SCHEMA = Schema.of(("k", t.BigIntType()), ("s", t.VarCharType()), rowtime="k")
ROWS = [(1, "a"), (2, None), (None, "c"), (4, "d")]


@pytest.mark.parametrize("kinds", [None, [0, 1, 2, 3]])
@pytest.mark.parametrize("times", [None, [10, 20, 30, 40]])
def test_arrow_round_trip(kinds: list | None, times: list | None) -> None:
    batch = Batch.of(SCHEMA, ROWS, kinds=kinds, times=times)
    back = Batch.from_arrow(SCHEMA, batch.to_arrow())
    assert back.to_pylist() == ROWS
    assert (None if back.kinds is None else back.kinds.tolist()) == kinds
    assert (None if back.times is None else back.times.tolist()) == times


def test_reshaping_keeps_kinds_and_times_with_their_rows() -> None:
    batch = Batch.of(SCHEMA, ROWS, kinds=[0, 1, 2, 3], times=[10, 20, 30, 40])
    for got, order in (
        (batch.take(np.array([3, 0])), [3, 0]),
        (batch.filter(np.array([False, True, False, True])), [1, 3]),
        (batch.slice(1, 2), [1, 2]),
        (Batch.concat([batch.slice(2), batch.slice(0, 1)]), [2, 3, 0]),
    ):
        assert got.to_pylist() == [ROWS[i] for i in order]
        assert got.kinds.tolist() == order
        assert got.times.tolist() == [10 * (i + 1) for i in order]


def test_concat_of_append_only_and_changelog() -> None:
    append = Batch.of(SCHEMA, ROWS[:1])
    changes = Batch.of(SCHEMA, ROWS[1:2], kinds=[RowKind.DELETE])
    assert Batch.concat([append, changes]).kinds.tolist() == [0, 3]


def test_a_batch_without_columns_keeps_its_row_count() -> None:
    empty = Schema.of()
    batch = Batch(empty, [], num_rows=5)
    assert Batch.from_arrow(empty, batch.to_arrow()).num_rows == 5
    assert batch.to_pylist() == [()] * 5


def test_equal_names_are_told_apart_by_position() -> None:
    schema = Schema.of(("x", t.IntType()), ("x", t.VarCharType()))
    batch = Batch.of(schema, [(1, "a")])
    assert Batch.from_arrow(schema, batch.to_arrow()).to_pylist() == [(1, "a")]
    assert batch.to_external_arrow().num_columns == 2


def test_kinds() -> None:
    assert [k.short for k in RowKind] == ["+I", "-U", "+U", "-D"]
    assert KIND_SIGN.tolist() == [1, -1, 1, -1]


def test_select_keeps_rowtime_only_while_its_column_is_there() -> None:
    assert SCHEMA.select([0]).rowtime == "k"
    assert SCHEMA.select([1]).rowtime is None
