"""Changes as a table written by key gets them."""

from __future__ import annotations

import pytest

from penstock.operators.sinks import by_key
from penstock.types import logical as t
from penstock.types.batch import Batch, RowKind

SCHEMA = t.Schema.of(("k", t.VarCharType()), ("n", t.IntType()))
INSERT, BEFORE, AFTER, DELETE = RowKind


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # an update in place
        ([(BEFORE, "a", 1), (AFTER, "a", 2)], [(AFTER, "a", 2)]),
        ([(BEFORE, None, 1), (AFTER, None, 2)], [(AFTER, None, 2)]),
        # the new row failed a filter
        ([(BEFORE, "a", 1)], [(DELETE, "a", 1)]),
        ([(BEFORE, "a", 1), (BEFORE, "b", 1), (AFTER, "b", 2)], [(DELETE, "a", 1), (AFTER, "b", 2)]),
        # it came back under another key
        ([(BEFORE, "a", 1), (AFTER, "b", 1)], [(DELETE, "a", 1), (AFTER, "b", 1)]),
        ([(BEFORE, None, 1), (AFTER, "b", 1)], [(DELETE, None, 1), (AFTER, "b", 1)]),
        # nothing to change
        ([(INSERT, "a", 1), (AFTER, "a", 2), (DELETE, "a", 2)], [(INSERT, "a", 1), (AFTER, "a", 2), (DELETE, "a", 2)]),
    ],
)  # fmt: skip
def test_by_key(changes: list[tuple], expected: list[tuple]) -> None:
    batch = Batch.of(SCHEMA, [row for _, *row in changes], kinds=[kind for kind, *_ in changes])
    assert [(kind, *row) for kind, row in by_key(batch, (0,)).rows()] == expected


def test_plain_inserts_stay_as_they_are() -> None:
    batch = Batch.of(SCHEMA, [("a", 1), ("b", 2)])
    assert by_key(batch, (0,)) is batch
