"""Rows in memory, in batches as they came. Those that wait for a time, or for the end, are better
off in ``waiting_rows``, for they may lie on disk there.

Batches never change, so a cut holds on to them and copies nothing. Each row has a number
of its own, by which a later delta knows it, and the epoch in which it came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.grouping import distinct
from penstock.snapshots.contract import KeyedBlock, PendingBlock
from penstock.snapshots.keyed_blocks import keyed_block, restored_columns
from penstock.state.cold_tier import Resident
from penstock.types import logical as t
from penstock.types.batch import NO_TIME, Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from penstock.snapshots.contract import RestoredState
    from penstock.state.context import StateContext

_KIND, _TIME = t.TinyIntType(), t.BigIntType()
_NO_IDS, _NO_EPOCHS = np.empty(0, np.int64), np.empty(0, np.int32)


class Part:
    """A batch in the log. ``ids``: int64 a row; ``epochs``: int32 a row, when it came."""

    __slots__ = ("_nbytes", "batch", "epochs", "ids")

    def __init__(self, batch: Batch, ids: np.ndarray, epochs: np.ndarray) -> None:
        self.batch, self.ids, self.epochs = batch, ids, epochs
        self._nbytes = -1

    @property
    def nbytes(self) -> int:
        if self._nbytes < 0:
            self._nbytes = self.batch.nbytes + self.ids.nbytes + self.epochs.nbytes
        return self._nbytes

    def take(self, rows: np.ndarray) -> Part:
        return Part(self.batch.take(rows), self.ids[rows], self.epochs[rows])

    def slice(self, start: int, stop: int) -> Part:
        """It shares the arrays of this one."""
        return Part(self.batch.slice(start, stop - start), self.ids[start:stop], self.epochs[start:stop])

    @staticmethod
    def concat(parts: Sequence[Part]) -> Part:
        """``parts``: one at least."""
        if len(parts) == 1:
            return parts[0]
        return Part(
            Batch.concat([p.batch for p in parts]),
            np.concatenate([p.ids for p in parts]),
            np.concatenate([p.epochs for p in parts]),
        )


class RowForm:
    """How the rows of a log stand in a snapshot. ``keys``: columns by which they are
    partitioned (none: all under one key)."""

    def __init__(self, schema: t.Schema, keys: Sequence[int], kind: str, max_parallelism: int) -> None:
        self.schema, self._keys = schema, list(keys)
        self._kind, self._max_parallelism = kind, max_parallelism

    def block(self, parts: Sequence[Part], *, sort: bool) -> KeyedBlock:
        """``sort``: by key group."""
        whole = Part.concat(parts) if parts else Part(Batch.empty(self.schema), _NO_IDS, _NO_EPOCHS)
        rows, n = whole.batch, whole.batch.num_rows
        kinds = np.zeros(n, np.int8) if rows.kinds is None else rows.kinds.view(np.int8)
        times = Column.nulls(_TIME, n) if rows.times is None else Column(_TIME, rows.times)
        names = [*(f"key{i}" for i in range(len(self._keys)))]
        names += [f"{i}.{name}" for i, name in enumerate(self.schema.names)]
        return keyed_block(
            [rows.columns[i] for i in self._keys], [*rows.columns, Column(_KIND, kinds), times],
            [*names, "kind", "time"], n=n, max_parallelism=self._max_parallelism, kind=self._kind,
            slots=whole.ids, sort=sort,
        )  # fmt: skip

    def read(self, batches: Sequence[pa.RecordBatch]) -> Batch:
        """The rows of such blocks."""
        schema, k = self.schema, len(self._keys)
        types = [*(schema.types[i] for i in self._keys), *schema.types, _KIND, _TIME]
        columns, n = restored_columns(batches, types)
        kinds, times = columns[-2], columns[-1]
        return Batch(
            schema,
            columns[k:-2],
            kinds=kinds.values.view(np.uint8) if kinds.valid is None and kinds.values.any() else None,
            times=_known_times(times),
            num_rows=n,
        )


def _known_times(times: Column) -> np.ndarray | None:
    """Of rows of several snapshots some may have been written without any."""
    if times.valid is None:
        return times.values
    return np.where(times.valid, times.values, NO_TIME) if times.valid.any() else None


class RowLog:
    """Rows of ``schema`` in order of arrival. ``keys``: columns by which they are
    partitioned (none: all under one key). Row kinds and times are kept too."""

    def __init__(
        self, ctx: StateContext, name: str, schema: t.Schema, keys: Sequence[int], *, kind: str
    ) -> None:
        self.name = name
        self.schema = schema
        self._form = RowForm(schema, keys, kind, ctx.max_parallelism)
        self._epochs = ctx.epochs
        self._parts: dict[Part, None] = {}
        self._next_id = 0
        self._counted = Resident(ctx, lambda: self.nbytes)
        #: (ids, epoch) of rows that are gone, since the last confirmed snapshot.
        self._gone: list[tuple[np.ndarray, int]] = []
        self._confirmed = 0

    def __len__(self) -> int:
        return sum(part.batch.num_rows for part in self._parts)

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self._parts)

    def add(self, batch: Batch) -> None:
        """Append rows."""
        self._parts[self._made(batch)] = None
        self._counted.make_room()

    def rows(self) -> Batch:
        """All rows; the log holds them as one part afterwards."""
        return self._whole().batch

    def take_out(self, mask: np.ndarray) -> Batch:
        """Remove the rows of ``rows()`` under the mask, and return them."""
        whole = self._whole()
        out, rest = np.flatnonzero(mask), np.flatnonzero(~mask)
        if len(out):
            self._forget(whole.ids[out])
            self._parts = {whole.take(rest): None} if len(rest) else {}
        return whole.batch.take(out)

    def replace(self, batch: Batch, origins: np.ndarray) -> None:
        """Put other rows in the place of all. ``origins``: which row of ``rows()`` each of
        them is, -1 for a new one."""
        whole = self._whole()
        stays = np.zeros(whole.batch.num_rows, np.bool_)
        old = origins >= 0
        stays[origins[old]] = True
        self._forget(whole.ids[~stays])
        part = self._made(batch)
        part.ids[old], part.epochs[old] = whole.ids[origins[old]], whole.epochs[origins[old]]
        self._parts = {part: None} if batch.num_rows else {}

    def close(self) -> None:
        self._counted.close()

    # -- snapshots -----------------------------------------------------------------------

    def cut(self) -> PendingBlock:
        """The log at this moment."""
        since, upto = self._epochs.since, self._epochs.end()
        self._confirmed = max(self._confirmed, since)
        self._gone = [(ids, epoch) for ids, epoch in self._gone if epoch > self._confirmed]
        gone = [ids for ids, epoch in self._gone if epoch <= upto]
        return _LogCut(list(self._parts), gone, since, self._block)

    def restore(self, restored: RestoredState) -> None:
        """Rows in the order they came."""
        rows = self._form.read(restored.keyed.get(self.name, []))
        if rows.num_rows:
            self.add(rows)

    def _block(self, parts: list[Part], touched: np.ndarray | None) -> KeyedBlock:
        block = self._form.block(parts, sort=touched is None)
        if touched is not None:
            block.delta, block.touched = True, touched
        return block

    # -- parts ---------------------------------------------------------------------------

    def _made(self, batch: Batch) -> Part:
        n = batch.num_rows
        ids = np.arange(self._next_id, self._next_id + n)
        self._next_id += n
        return Part(batch, ids, np.full(n, self._epochs.now, np.int32))

    def _whole(self) -> Part:
        parts = list(self._parts)
        if not parts:
            return self._made(Batch.empty(self.schema))
        if len(parts) == 1:
            return parts[0]
        whole = Part.concat(parts)
        self._parts = {whole: None}
        return whole

    def _forget(self, ids: np.ndarray) -> None:
        if len(ids):
            self._gone.append((ids, self._epochs.now))


class _LogCut(PendingBlock):
    def __init__(
        self,
        parts: list[Part],
        gone: list[np.ndarray],
        since: int,
        make: Callable[[list[Part], np.ndarray | None], KeyedBlock],
    ) -> None:
        self._parts, self._gone, self._since, self._make = parts, gone, since, make

    def copy(self, more: Callable[[], bool]) -> bool:
        return True

    def discard(self) -> None:
        self._parts, self._gone = [], []

    def block(self) -> KeyedBlock:
        if not self._since:
            return self._make(self._parts, None)
        fresh = []
        for part in self._parts:
            newer = part.epochs > self._since
            if newer.all():
                fresh.append(part)
            elif newer.any():
                fresh.append(part.take(np.flatnonzero(newer)))
        ids = [*(p.ids for p in fresh), *self._gone]
        touched = distinct(np.concatenate(ids)) if ids else np.empty(0, np.int64)
        return self._make(fresh, touched)
