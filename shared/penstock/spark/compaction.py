"""Compacts changelogs to the rows that remain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import InternalError
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator


def compacted(batches: list[Batch], keys: tuple[int, ...]) -> Iterator[Batch]:
    """The rows that remain of a changelog, in the order in which they came."""
    if not batches:
        return
    if all(b.kinds is None for b in batches) and not keys:
        yield from batches
        return
    rows = Batch.concat(batches)
    signs = rows.signs()
    if signs is None:
        signs = np.ones(rows.num_rows, np.int8)
    chosen = [rows.columns[k] for k in keys] if keys else list(rows.columns)
    identities = list(zip(*(c.storage_list() for c in chosen), strict=True))
    alive: dict[str, list[int]] = {}
    for i, (identity, sign) in enumerate(zip(identities, signs.tolist(), strict=True)):
        places = alive.setdefault(repr(identity), [])
        if sign < 0:
            if places:
                places.pop()
            elif not keys:
                raise InternalError("a row is retracted that was never added", got=repr(identity)[:200])
        elif keys:
            places[:] = [i]
        else:
            places.append(i)
    kept = np.array(sorted(i for places in alive.values() for i in places), np.int64)
    if len(kept):
        yield rows.take(kept).with_kinds(None)
