"""Rows beaten in their window are dropped; whatever could matter passes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.jobgraph.specs import WindowMaximumSpec, WindowSpec
from penstock.operators.window_maximum import WindowMaximumOperator
from penstock.testing.operator_harness import Subtask
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column
from penstock.types.logical import Schema

ROWS = Schema.of(("value", t.BigIntType()), ("at", t.TimestampType(3, False)))
SECOND = 1_000_000


def run(spec, batches, watermarks=()):
    sub = Subtask(WindowMaximumOperator(spec), [ROWS], ROWS)
    out = []
    for number, rows in enumerate(batches):
        for piece in sub.operator.process(0, _batch(rows)):
            out += list(zip(piece.columns[0].storage_list(), piece.columns[1].storage_list(), strict=True))
        if number < len(watermarks):
            list(sub.operator.on_watermark(watermarks[number]))
    return out


def _batch(rows):
    return Batch(
        ROWS,
        [
            Column.of(t.BigIntType(), [v for v, _ in rows]),
            Column(t.TimestampType(3, False), np.array([a for _, a in rows], np.int64)),
        ],
    )


TUMBLE = WindowMaximumSpec(
    value=0, time=1, window=WindowSpec(kind="tumble", time=1, size_us=10 * SECOND, slide_us=10 * SECOND)
)


def test_drops_what_was_beaten_before():
    batches = [[(5, 1), (7, 2), (6, 3)], [(6, 4), (7, 5), (9, 6)], [(8, 11 * SECOND), (1, 7)]]
    assert run(TUMBLE, batches) == [(7, 2), (9, 6), (8, 11 * SECOND)]


def test_drops_beaten_rows_of_one_window_beside_rows_without_a_value():
    batches = [[(7, 1), (None, 2), (6, 3)], [(None, 4), (6, 5), (7, 6)], [(None, 7)]]
    assert run(TUMBLE, batches) == [(7, 1), (None, 2), (None, 4), (7, 6), (None, 7)]


def test_drops_beaten_rows_whose_validity_mask_is_all_true():
    column = Column(t.BigIntType(), np.array([7, 6, 5]), np.ones(3, np.bool_))
    times = Column(t.TimestampType(3, False), np.array([1, 2, 3], np.int64))
    sub = Subtask(WindowMaximumOperator(TUMBLE), [ROWS], ROWS)
    (kept,) = sub.operator.process(0, Batch(ROWS, [column, times]))
    assert kept.columns[0].storage_list() == [7]


def test_windows_starts_nulls_and_late_rows_pass():
    batches = [[(9, 1), (3, 10 * SECOND), (8, 10 * SECOND + 1)], [(None, 2), (1, 10 * SECOND)], [(2, 3)]]
    out = run(TUMBLE, batches, [0, 10 * SECOND - 1])
    assert out == [
        (9, 1), (3, 10 * SECOND), (8, 10 * SECOND + 1), (None, 2), (1, 10 * SECOND), (2, 3),
    ]  # fmt: skip


@pytest.mark.parametrize("spec", [TUMBLE, WindowMaximumSpec(value=0, time=1)])
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(st.one_of(st.none(), st.integers(0, 5)), st.integers(1, 40).map(lambda s: s * SECOND)),
            min_size=1, max_size=30,
        ),
        min_size=1, max_size=5,
    )
)  # fmt: skip
def test_every_window_keeps_its_greatest_rows(spec, batches):
    def window(at):
        return at // (10 * SECOND) if spec.window else at

    rows = [row for batch in batches for row in batch]
    best = {}
    for value, at in rows:
        if value is not None:
            best[window(at)] = max(best.get(window(at), value), value)
    top = [(v, at) for v, at in rows if v is not None and v == best[window(at)]]
    out = run(spec, batches)
    assert [r for r in out if r[0] is not None and r[0] == best[window(r[1])]] == top
