"""In which order the rows of a log come out, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.hashing import hash_columns
from penstock.jobgraph.specs import SortKey
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.types.batch import Batch

_LONG = t.BigIntType(False)


@dataclass(frozen=True, slots=True)
class WaitingOrder:
    """``columns(rows)``: what they are sorted by, in the ``order`` whose indices count these.
    ``times(rows)``: int64, when each is due: the first column, ascending; None: all are due at
    the end."""

    columns: Callable[[Batch], Sequence[Column]]
    order: Sequence[SortKey]
    times: Callable[[Batch], np.ndarray] | None = None


def by_hash(keys: Sequence[int]) -> WaitingOrder:
    """All are due at the end, those of one key together."""
    return WaitingOrder(lambda rows: [hashed(rows, keys)], (SortKey(0),))


def hashed(rows: Batch, keys: Sequence[int]) -> Column:
    """The hash of each row's key."""
    return Column(_LONG, hash_columns([rows.columns[i] for i in keys]).view(np.int64))
