"""Row-by-row equality of two columns."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from penstock.types import logical as t
from penstock.types.canonical import equal_keys
from penstock.types.column import Column

#: Arrow-backed types that ``pc.equal`` compares.
_SCALAR_ARROW = (*t.STRINGS, *t.BINARIES, t.DecimalType)


def equal_or_both_null(a: Column, b: Column) -> np.ndarray:
    """A boolean per row: SQL's IS NOT DISTINCT FROM; −0.0 equals 0.0 and NaN equals NaN."""
    va, vb = a.valid, b.valid
    if isinstance(a.values, np.ndarray) and isinstance(b.values, np.ndarray):
        if a.values.dtype.hasobject:
            pairs = zip(a.values.tolist(), b.values.tolist(), strict=True)
            same = np.array([equal_keys(x, y) for x, y in pairs], np.bool_)
        else:
            same = np.asarray(a.values == b.values, np.bool_)
        if a.values.dtype.kind == "f":
            same |= np.isnan(a.values) & np.isnan(b.values)
    elif isinstance(a.type, _SCALAR_ARROW):
        same = _arrow_equal(a, b)
    else:
        same = np.array(
            [x == y for x, y in zip(a.values.to_pylist(), b.values.to_pylist(), strict=True)], np.bool_
        )
    if va is None and vb is None:
        return same
    va = np.ones(len(same), np.bool_) if va is None else va
    vb = np.ones(len(same), np.bool_) if vb is None else vb
    return np.where(va & vb, same, va == vb)


def _arrow_equal(a: Column, b: Column) -> np.ndarray:
    same = pc.equal(a.values, b.values)
    if same.null_count:
        same = pc.fill_null(same, False)
    return same.to_numpy(zero_copy_only=False).astype(np.bool_, copy=False)
