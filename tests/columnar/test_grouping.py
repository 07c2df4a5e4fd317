"""Groups of equal keys in a batch, against a dict of rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.columnar.grouping import distinct_slots, group_rows
from penstock.types import logical as t
from penstock.types.column import Column

_KEYS = {
    "near": (t.BigIntType(), st.integers(-5, 5)),
    "far": (t.BigIntType(), st.integers(-(2**63), 2**63 - 1)),
    "small": (t.TinyIntType(), st.integers(-128, 127)),
    "double": (t.DoubleType(), st.sampled_from([0.5, -1e300, 1e300, float("inf")])),
    "text": (t.VarCharType(), st.sampled_from(["", "a", "ab", "é", "2023-11-14"])),
    "constant": (t.VarCharType(), st.just("2023-11-14")),
    "flag": (t.BooleanType(), st.booleans()),
    "wide": (t.DecimalType(30, 0), st.integers(0, 3).map(lambda x: x * 10**20)),
}


@pytest.mark.parametrize("names", [[], *([n] for n in _KEYS), ["text", "near"], ["far", "far", "near"],
                                   ["constant", "flag", "double"], ["near", "wide"]])  # fmt: skip
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_groups_are_the_distinct_keys(names, data):
    n = data.draw(st.integers(1, 60))
    columns = []
    for name in names:
        type_, values = _KEYS[name]
        values = st.one_of(values, st.none()) if data.draw(st.booleans()) else values
        columns.append(Column.of(type_, data.draw(st.lists(values, min_size=n, max_size=n))))
    groups, rows = group_rows(columns, n)
    keys = list(zip(*(c.to_pylist() for c in columns), strict=True)) if columns else [()] * n
    assert len(rows) == len(set(keys)) == int(groups.max()) + 1
    for key, group in zip(keys, groups.tolist(), strict=True):
        assert keys[rows[group]] == key


@pytest.mark.parametrize("high", [40, 10**6])
def test_distinct_slots(high):
    slots = np.array([7, 3, 3, 39, 0, 7])
    assert distinct_slots(slots, high).tolist() == [0, 3, 7, 39]
