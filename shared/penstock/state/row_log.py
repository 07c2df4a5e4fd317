"""The batches of a log (see ``waiting_rows.py``), and the form of its rows in a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.snapshots.keyed_blocks import keyed_block, restored_columns
from penstock.state.keyed_state import StateRows
from penstock.types import logical as t
from penstock.types.batch import NO_TIME, Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from penstock.snapshots.contract import KeyedBlock

_KIND, _TIME = t.TinyIntType(), t.BigIntType()
_NO_IDS, _NO_EPOCHS = np.empty(0, np.int64), np.empty(0, np.int32)


class Part:
    """A batch of a log. ``ids``: int64, the number of each row; ``epochs``: int32, the epoch in which each
    row came."""

    __slots__ = ("_nbytes", "batch", "epochs", "ids")

    def __init__(self, batch: Batch, ids: np.ndarray, epochs: np.ndarray) -> None:
        self.batch, self.ids, self.epochs = batch, ids, epochs
        self._nbytes = -1

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        if self._nbytes < 0:
            self._nbytes = self.batch.nbytes + self.ids.nbytes + self.epochs.nbytes
        return self._nbytes

    def take(self, rows: np.ndarray) -> Part:
        """The rows with these indices."""
        return Part(self.batch.take(rows), self.ids[rows], self.epochs[rows])

    def slice(self, start: int, stop: int) -> Part:
        """The rows from ``start`` to below ``stop``, which share the arrays of this part."""
        return Part(self.batch.slice(start, stop - start), self.ids[start:stop], self.epochs[start:stop])

    @staticmethod
    def concat(parts: Sequence[Part]) -> Part:
        """All rows of at least one part."""
        if len(parts) == 1:
            return parts[0]
        return Part(
            Batch.concat([p.batch for p in parts]),
            np.concatenate([p.ids for p in parts]),
            np.concatenate([p.epochs for p in parts]),
        )


class RowForm:
    """The form of the rows of a log in a snapshot. ``keys``: the columns by which they are partitioned (none:
    one key)."""

    def __init__(self, schema: t.Schema, keys: Sequence[int], kind: str, max_parallelism: int) -> None:
        self.schema, self._keys = schema, list(keys)
        self._kind, self._max_parallelism = kind, max_parallelism

    @property
    def key_types(self) -> list[t.LogicalType]:
        """The types of the columns by which the rows are partitioned."""
        return [self.schema.types[i] for i in self._keys]

    def keys(self, rows: Batch) -> list[Column]:
        """The columns by which the rows are partitioned."""
        return [rows.columns[i] for i in self._keys]

    def block(self, parts: Sequence[Part], *, sort: bool) -> KeyedBlock:
        """A snapshot block of the rows. ``sort``: by key group."""
        whole = Part.concat(parts) if parts else Part(Batch.empty(self.schema), _NO_IDS, _NO_EPOCHS)
        return self._block(whole.batch, whole.ids, sort=sort)

    def exported(self, name: str, rows: Batch) -> StateRows:
        """The rows in the form of ``KeyedState.export``."""
        block = self._block(rows, None, sort=False)
        return StateRows(name, block.batch, block.schema, len(self._keys))

    def _block(self, rows: Batch, ids: np.ndarray | None, *, sort: bool) -> KeyedBlock:
        n = rows.num_rows
        kinds = np.zeros(n, np.int8) if rows.kinds is None else rows.kinds.view(np.int8)
        times = Column.nulls(_TIME, n) if rows.times is None else Column(_TIME, rows.times)
        names = [*(f"key{i}" for i in range(len(self._keys)))]
        names += [f"{i}.{name}" for i, name in enumerate(self.schema.names)]
        return keyed_block(
            self.keys(rows), [*rows.columns, Column(_KIND, kinds), times],
            [*names, "kind", "time"], n=n, max_parallelism=self._max_parallelism, kind=self._kind,
            slots=ids, sort=sort,
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
    """The event times. Of rows from several snapshots, some may have been written without event times."""
    if times.valid is None:
        return times.values
    return np.where(times.valid, times.values, NO_TIME) if times.valid.any() else None
