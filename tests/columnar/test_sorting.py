"""SQL orderings."""

from __future__ import annotations

import numpy as np

from penstock.columnar.sorting import sort_indices
from penstock.jobgraph.specs import SortKey
from penstock.types import logical as t
from penstock.types.column import Column


def test_nulls_are_equal_whatever_stands_under_them() -> None:
    """What lies in an invalid slot is unspecified, and orders nothing."""
    valid = np.array([False, True, False, False])
    first = Column(t.BigIntType(), np.array([9, 5, 3, 7]), valid)
    second = Column(t.BigIntType(), np.array([2, 0, 3, 1]))
    assert sort_indices([first, second], (SortKey(0), SortKey(1))).tolist() == [3, 0, 2, 1]
    assert sort_indices([first], (SortKey(0, nulls_first=False),)).tolist() == [1, 0, 2, 3]
