"""The order in which the rows of a log come out, and the time when each is due."""

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
    """The order of a log. ``columns(rows)``: the columns by which rows are sorted; the indices of ``order``
    refer to these.

    ``times(rows)``: when each row is due (int64), which is the first of these columns, ascending. None:
    all are due at the end.
    """

    columns: Callable[[Batch], Sequence[Column]]
    order: Sequence[SortKey]
    times: Callable[[Batch], np.ndarray] | None = None


def by_hash(keys: Sequence[int]) -> WaitingOrder:
    """All rows are due at the end, and rows of one key are together."""
    return WaitingOrder(lambda rows: [hashed(rows, keys)], (SortKey(0),))


def hashed(rows: Batch, keys: Sequence[int]) -> Column:
    """The hash of each row's key."""
    return Column(_LONG, hash_columns([rows.columns[i] for i in keys]).view(np.int64))
