"""What the rows that are written into a table must be: NOT NULL, and of the declared lengths."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import RecordError
from penstock.jobgraph.specs import SinkSpec
from penstock.operators.constraints import Constraints
from penstock.types import logical as t
from penstock.types.batch import Batch, RowKind

SCHEMA = t.Schema.of(
    ("k", t.VarCharType(nullable=False)),
    ("n", t.IntType(nullable=False)),
    ("v", t.VarCharType(3)),
    ("c", t.CharType(3)),
    ("vb", t.VarBinaryType(2)),
    ("b", t.BinaryType(2)),
)
FITS = ("a", 1, "é€", "abc", b"x", b"xy")
INSERT, BEFORE, AFTER, DELETE = RowKind


def enforced(rows: list[tuple[Any, ...]], kinds: list[RowKind] | None = None, **spec: Any) -> list[Any]:
    constraints = Constraints(SinkSpec(connector="memory", options={}, schema=SCHEMA, **spec))
    return list(constraints.enforce(Batch.of(SCHEMA, rows, kinds=kinds)).rows())


def plain(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [row for _, row in rows]


def with_value(i: int, value: Any) -> tuple[Any, ...]:
    return (*FITS[:i], value, *FITS[i + 1 :])


@pytest.mark.parametrize("column", [0, 1])
def test_a_null_in_a_not_null_column(column: int) -> None:
    bad = with_value(column, None)
    with pytest.raises(RecordError) as raised:
        enforced([FITS, bad], not_null="ERROR")
    assert raised.value.message == (
        f"Column '{SCHEMA.names[column]}' is NOT NULL, however, a null value is being written into it. You can set "
        "job configuration 'table.exec.sink.not-null-enforcer'='DROP' to suppress this exception and drop such "
        "records silently."
    )
    assert plain(enforced([bad, FITS, bad], not_null="DROP")) == [FITS]
    assert plain(enforced([bad])) == [bad]


def test_nulls_elsewhere_pass_and_have_no_length() -> None:
    row = ("a", 1, None, None, None, None)
    assert plain(enforced([row], not_null="ERROR", type_length="ERROR")) == [row]
    assert plain(enforced([row], not_null="ERROR", type_length="TRIM_PAD")) == [row]


def test_a_row_deleted_by_key_needs_no_more_than_the_key() -> None:
    gone, unknown = ("a", None, *FITS[2:]), (None, None, *FITS[2:])
    by_key = {"mode": "upsert", "keys": (0,), "not_null": "DROP"}
    assert enforced([gone, unknown, gone], [DELETE, DELETE, AFTER], **by_key) == [(DELETE, gone)]
    assert enforced([gone], [DELETE], mode="retract", not_null="DROP") == []
    assert enforced([gone], [BEFORE], mode="retract", not_null="DROP") == []


@pytest.mark.parametrize(
    ("column", "value", "fitted", "said"),
    [
        (2, "é€ab", "é€a", "Column 'v' is VARCHAR(3), however, a string of length 4 is being written"),
        (3, "ab", "ab ", "Column 'c' is CHAR(3), however, a string of length 2 is being written"),
        (3, "abcd", "abc", "Column 'c' is CHAR(3), however, a string of length 4 is being written"),
        (4, b"xyz", b"xy", "Column 'vb' is VARBINARY(2), however, a byte array of length 3 is being written"),
        (5, b"x", b"x\0", "Column 'b' is BINARY(2), however, a byte array of length 1 is being written"),
        (5, b"xyz", b"xy", "Column 'b' is BINARY(2), however, a byte array of length 3 is being written"),
    ],
)
def test_a_value_of_another_length(column: int, value: Any, fitted: Any, said: str) -> None:
    bad = with_value(column, value)
    assert plain(enforced([bad, FITS])) == [bad, FITS]
    assert plain(enforced([bad, FITS], type_length="TRIM_PAD")) == [with_value(column, fitted), FITS]
    assert plain(enforced([FITS], type_length="ERROR")) == [FITS]
    with pytest.raises(RecordError) as raised:
        enforced([FITS, bad], type_length="ERROR")
    assert raised.value.message.startswith(said)
